// SPDX-License-Identifier: Apache-2.0
#include "soak_server.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "base/check.h"
#include "weights/checkpoint.h"

namespace reprise {
namespace {

using Steady = std::chrono::steady_clock;

double Ms(Steady::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

PacedExecutor::PacedExecutor(std::vector<TokenId> words, int64_t vocab_size,
                             std::chrono::microseconds step)
    : words_(std::move(words)), step_(step) {
  card_.family = "paced";
  card_.vocab_size = vocab_size;
  card_.context_length = 4096;
  card_.digest = "paced";
  card_.state.token_cost = 1000;
  card_.state.layers.push_back({0, StateKind::kRecurrent, 0, {{"r", {64}, DType::kI32}}});
  card_.state.layers.push_back({1, StateKind::kFullKv, 0, {{"k", {1, 4}, DType::kI32}}});
}

Status PacedExecutor::Forward(const BatchView& batch, const StateMemory&, float* logits) {
  const auto begin = Steady::now();
  std::fill(batch.finite.begin(), batch.finite.end(), uint8_t{1});
  const size_t vocab = static_cast<size_t>(card_.vocab_size);
  std::fill(logits, logits + batch.logit_rows.size() * vocab, 0.0f);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const TokenId after = batch.tokens[batch.logit_rows[i]];
    const size_t word = static_cast<size_t>(after) % words_.size();
    logits[i * vocab + static_cast<size_t>(words_[word])] = 10.0f;
  }
  if (step_.count() > 0) std::this_thread::sleep_until(begin + step_);
  const auto now = Steady::now();
  std::lock_guard lock(mutex_);
  if (last_ != Steady::time_point()) gaps_.push_back(Ms(now - last_));
  last_ = now;
  return OkStatus();
}

std::vector<double> PacedExecutor::TakeGaps() {
  std::lock_guard lock(mutex_);
  last_ = {};
  return std::move(gaps_);
}

std::unique_ptr<SoakServer> SoakServer::Start(const Options& options) {
  auto soak = std::make_unique<SoakServer>();
  auto checkpoint = OpenCheckpoint("models/reprise-tiny-q8_0.gguf");
  CHECK(checkpoint.ok());
  auto text = ReadModelText(*checkpoint);
  CHECK(text.ok());
  soak->text_ = std::move(*text);
  // Single letters are the first ids of a byte-level vocabulary: a small one will do.
  std::vector<TokenId> letters;
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz")) {
    CHECK(soak->text_.tokenizer->Encode(std::string_view(&c, 1), {false, false}, &letters).ok());
  }
  const TokenId largest = *std::max_element(letters.begin(), letters.end());
  soak->prompt_ = "[";
  for (int i = 0; i < 40; ++i) {
    soak->prompt_ += (i > 0 ? "," : "") + std::to_string(letters[static_cast<size_t>(i) % 26]);
  }
  soak->prompt_ += "]";
  soak->executor_ = std::make_unique<PacedExecutor>(letters, largest + 1, options.step);

  CacheOptions cache;
  cache.sequence_count = options.sequences;
  cache.context_tokens = 4096;
  cache.budget_bytes = size_t{256} << 20;
  auto state = StateCache::Create(soak->executor_->card().state, cache);
  CHECK(state.ok());
  EngineOptions engine;
  engine.running_max = options.sequences;
  engine.waiting_max = options.queue;
  engine.scheduler.rows_max = options.sequences + 512;
  soak->engine_ =
      std::make_unique<Engine>(*soak->executor_, std::move(*state), engine, soak->clock_);
  soak->served_.id = "paced";
  soak->served_.tokenizer = soak->text_.tokenizer.get();
  soak->served_.vocab_size = largest + 1;
  soak->served_.context_tokens = 4096;
  soak->served_.digest = "paced";
  soak->service_ = std::make_unique<api::Service>(&soak->served_, soak->engine_.get(),
                                                  &soak->clock_, api::ServiceOptions());
  http::ServerOptions server;
  server.port = 0;
  server.connection_count_max = options.connections;
  server.refuse = [](int status, const std::string& message, const http::Request* request) {
    return api::ErrorResponse({status, message}, request);
  };
  http::Router router;
  soak->service_->AddRoutes(&router);
  soak->server_ = std::make_unique<http::Server>(std::move(server), std::move(router));
  soak->engine_->Start();
  CHECK(soak->server_->Start().ok());
  return soak;
}

SoakServer::~SoakServer() {
  engine_->Stop();
  server_->Stop();
}

double SoakServer::WaitUntilEmpty(std::chrono::milliseconds timeout) {
  const auto begin = Steady::now();
  while (Steady::now() - begin < timeout) {
    const EngineStats stats = engine_->stats();
    const bool empty = stats.running == 0 && stats.waiting == 0 && stats.cache.leases == 0 &&
                       stats.cache.blocks_leased == 0 && stats.cache.bytes_leased == 0;
    const http::ServerStats http = server_->stats();
    if (empty && http.requests_active == 0 && http.bodies_bytes == 0)
      return Ms(Steady::now() - begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace reprise
