// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/service.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "http/server.h"
#include "model/executor.h"
#include "model/model_text.h"

namespace reprise {

// A model that says words at a given pace, whatever it is asked, with state of the usual shape. It
// makes the engine's part known, so that what is left is the server's.
class PacedExecutor : public Executor {
 public:
  // `words`: ids to say in turn. A step takes `step`, or as long as it takes if that is zero.
  PacedExecutor(std::vector<TokenId> words, int64_t vocab_size, std::chrono::microseconds step);

  const ModelCard& card() const override { return card_; }
  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override;

  // Milliseconds between the ends of successive steps; what a client would see at best.
  std::vector<double> TakeGaps();

 private:
  const std::vector<TokenId> words_;
  const std::chrono::microseconds step_;
  ModelCard card_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point last_;
  std::vector<double> gaps_;
};

// The server as `reprise serve` has it, over a paced model with the bundled model's tokenizer.
class SoakServer {
 public:
  struct Options {
    std::chrono::microseconds step{0};
    int sequences = 1024;
    int queue = 2048;
    size_t connections = 4000;
  };
  static std::unique_ptr<SoakServer> Start(const Options& options);
  ~SoakServer();

  uint16_t port() const { return server_->port(); }
  Engine& engine() { return *engine_; }
  http::Server& server() { return *server_; }
  PacedExecutor& executor() { return *executor_; }
  const std::string& prompt() const { return prompt_; }  // JSON array of token ids

  // Nothing runs, waits or is held. Waits up to `timeout` for it; returns how long that took (ms),
  // NaN if it did not come.
  double WaitUntilEmpty(std::chrono::milliseconds timeout);

 private:
  SteadyClock clock_;
  ModelText text_;
  std::string prompt_;
  api::ServedModel served_;
  std::unique_ptr<PacedExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<api::Service> service_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace reprise
