// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "engine_fixture.h"
#include "model/executor.h"

namespace reprise {

// A model that computes nothing and takes time: each step moves the clock by a fixed amount and by
// so much for each row. Its states are small, its replies a hash of the position. For questions of
// who runs when; FakeExecutor asks whether the answers are right.
class PacedExecutor : public Executor {
 public:
  enum class Kind { kAttention, kWindow, kRecurrent, kHybrid };
  static constexpr int64_t kVocab = 16;
  static constexpr int kWindow = 256;

  struct Pace {
    double step_ms = 0;
    double row_ms = 0;
  };

  PacedExecutor(Kind kind, Pace pace) : pace_(pace) {
    card_.family = "paced";
    card_.vocab_size = kVocab;
    card_.context_length = 1 << 20;
    card_.digest = "paced";
    StateSpec& spec = card_.state;
    spec.token_cost = 1000;
    if (kind == Kind::kRecurrent || kind == Kind::kHybrid) {
      spec.layers.push_back({0, StateKind::kRecurrent, 0, {{"r", {2048}, DType::kI32}}});
    }
    if (kind == Kind::kWindow) {
      spec.layers.push_back({1, StateKind::kWindowKv, kWindow, {{"k", {1, 32}, DType::kI32}}});
    } else if (kind != Kind::kRecurrent) {
      spec.layers.push_back({1, StateKind::kFullKv, 0, {{"k", {1, 32}, DType::kI32}}});
    }
  }

  // Called in the middle of every step, when all who run in it have what they need.
  void SetWatch(ManualClock* clock, std::function<void(const BatchView&)> watch) {
    clock_ = clock;
    watch_ = std::move(watch);
  }

  double StepMs(size_t rows) const {
    return pace_.step_ms + static_cast<double>(rows) * pace_.row_ms;
  }

  // From now on the device chooses tokens, and while it does, `during` happens in the world.
  void ChooseOnDevice(Work during) { during_ = std::move(during); }

  bool chooses() const override { return during_ != nullptr; }
  Status Begin(const BatchView& batch, const StateMemory& memory) override {
    logits_.resize(batch.logit_rows.size() * static_cast<size_t>(kVocab));
    return Forward(batch, memory, logits_.data());
  }
  Status Choose(const ChoiceBatch&, const ChoiceResults& results, const Work& meanwhile) override {
    during_();
    meanwhile();
    for (size_t row = 0; row < results.chosen.size(); ++row) {
      const auto begin = logits_.begin() + static_cast<int64_t>(row) * kVocab;
      results.chosen[row].token =
          static_cast<int32_t>(std::max_element(begin, begin + kVocab) - begin);
    }
    return OkStatus();
  }

  const ModelCard& card() const override { return card_; }
  Status Forward(const BatchView& batch, const StateMemory&, float* logits) override {
    if (watch_) watch_(batch);
    if (clock_ != nullptr)
      clock_->AdvanceNs(static_cast<int64_t>(1e6 * StepMs(batch.tokens.size())));
    for (uint8_t& finite : batch.finite) finite = 1;
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      float* row = logits + i * static_cast<size_t>(kVocab);
      std::fill_n(row, kVocab, 0.0f);
      row[Mix64(batch.logit_rows[i] + batch.tokens.size()) % static_cast<uint64_t>(kVocab)] = 1;
    }
    return OkStatus();
  }

 private:
  const Pace pace_;
  ModelCard card_;
  ManualClock* clock_ = nullptr;
  Work during_;
  std::vector<float> logits_;
  std::function<void(const BatchView&)> watch_;
};

}  // namespace reprise
