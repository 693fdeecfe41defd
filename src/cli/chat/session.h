// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/draft/draft_model.h"
#include "cli/loaded_model.h"
#include "engine/adapters/adapter_shelf.h"
#include "engine/engine.h"
#include "model/executor.h"
#include "model/model_text.h"
#include "text/output/output_format.h"

namespace reprise::cli {

// How often Ctrl-C came since this was last set to 0. Set by the handler of the signal.
extern volatile sig_atomic_t interrupts;

// Receives a reply as it comes: as the model writes it, and what that means.
class ReplyReader {
 public:
  virtual ~ReplyReader() = default;
  virtual void Raw(std::string_view) {}
  virtual void Think(std::string_view) {}
  virtual void Say(std::string_view) {}
};

// The engine with one user.
class Session {
 public:
  struct Options {
    std::string tokenizer;  // empty: the model's own
    SamplingParams sampling;
    int max_tokens = 0;  // of a reply; 0: what the context leaves
    SpeculateOptions speculate;
    ModelOptions model;  // how the model runs, for one that drafts
    bool plain = false;  // no chat: nothing is taken for reasoning
    std::string lora;    // PATH[:SCALE] of an adapter; empty: none
  };
  static Result<std::unique_ptr<Session>> Create(LoadedModel* loaded, const Options& options);

  // The reply, whole; `reader` gets it on its way. Stops early on Ctrl-C.
  // `prompt_text` decides whether the reply begins with reasoning.
  Result<std::string> Answer(GenerateRequest request, ReplyReader* reader);

  // The next prompt will begin with that of `known`: computes it while the user thinks, or, with
  // `wait`, now.
  void Prepare(GenerateRequest known, bool wait);

  // What was reused, and what is stored.
  std::string DescribeCache();
  // The last reply: tokens, reuse, speed. Empty before the first.
  const std::string& statistics() const { return statistics_; }

  Options& options() { return options_; }
  const ModelText& text() const { return text_; }
  int64_t vocab_size() const { return executor_.card().vocab_size; }
  int32_t context_tokens() const { return engine_->context_tokens(); }

 private:
  Session(LoadedModel* loaded, Options options, ModelText text)
      : options_(std::move(options)),
        text_(std::move(text)),
        executor_(loaded->model(), loaded->context()) {}
  void Note(const Completion& completion, int64_t new_tokens);

  // Prompts and what became of them: of the last turn, or of all.
  struct Reuse {
    int64_t turns = 0;
    int64_t prompt_tokens = 0;
    int64_t used_tokens = 0;
    int64_t new_tokens = 0;  // that no earlier turn had
    std::string Describe() const;
  };

  Options options_;
  ModelText text_;
  OutputFormat format_;  // how the model writes its reasoning
  ModelExecutor executor_;
  AdapterPtr adapter_;                 // null: none
  std::unique_ptr<DraftModel> draft_;  // null: none
  SteadyClock clock_;
  std::vector<TokenId> history_;  // what the next prompt begins with
  Reuse last_, all_;
  std::string statistics_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace reprise::cli
