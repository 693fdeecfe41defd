// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "fake_executor.h"
#include "kernels/reference/choice.h"

namespace reprise {

// A fake model on a device that chooses tokens itself, as kernels/reference/choice.h says it:
// everything sorted, filters one after another. Where the step was told of the choices it makes
// those, whatever is asked for then.
class ChoosingExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  bool chooses() const override { return true; }
  Status Begin(const BatchView& batch, const StateMemory& memory) override {
    logits_.resize(batch.logit_rows.size() * size_t{kVocab});
    ++begun_;
    told_.reset();
    if (batch.choices != nullptr) told_.emplace(*batch.choices);
    if (told_ && !batch.logit_rows.empty()) ++told_begun_;
    return Forward(batch, memory, logits_.data());
  }
  Status Choose(const ChoiceBatch& asked, const ChoiceResults& results,
                const Work& meanwhile) override {
    if (refused_ > 0) return --refused_, ResourceExhausted("no memory to choose in");
    if (during_) during_();
    if (meanwhile) meanwhile();
    const ChoiceBatch batch = told_ ? told_->batch() : asked;
    said_most_ = std::max(said_most_, batch.said.size());
    if (told_) told_most_ = std::max(told_most_, batch.said.size());
    for (size_t row = 0; row < batch.rows.size(); ++row) {
      const std::span<const float> given(logits_.data() + row * size_t{kVocab}, size_t{kVocab});
      const Order order(Adjusted(batch, batch.rows[row], given), batch.rows[row].temperature);
      ChosenToken& chosen = results.chosen[row];
      chosen.token = order.Choose(batch.rows[row]);
      chosen.logit = given[size_t(chosen.token)];
      const Order likely({given.begin(), given.end()}, 1);
      chosen.largest = given[size_t(likely.tokens[0])];
      chosen.mass = likely.MassOf(likely.tokens.size());
      chosen.listed = uint32_t(std::max(batch.rows[row].logprobs, 0));
      for (size_t i = 0; i < chosen.listed; ++i) {
        const int32_t token = likely.tokens[i];
        results.listed[row * size_t(batch.logprobs_max) + i] = {token, given[size_t(token)]};
      }
    }
    return OkStatus();
  }

  int begun() const { return begun_; }
  int told_begun() const { return told_begun_; }  // of them, with choices that it was told of
  // The longest list of what was said, of all steps and of those that were told of it.
  size_t said_most() const { return said_most_; }
  size_t told_most() const { return told_most_; }
  void RefuseChoices(int count) { refused_ = count; }
  // What happens in the world while the device is at a step.
  void During(Work during) { during_ = std::move(during); }

 private:
  // A batch as it was when the step began.
  class Told {
   public:
    explicit Told(const ChoiceBatch& batch)
        : rows_(batch.rows.begin(), batch.rows.end()),
          biases_(batch.biases.begin(), batch.biases.end()),
          said_(batch.said.begin(), batch.said.end()),
          masks_(batch.masks.begin(), batch.masks.end()),
          logprobs_max_(batch.logprobs_max) {}
    ChoiceBatch batch() const { return {rows_, biases_, said_, masks_, logprobs_max_}; }

   private:
    std::vector<ChoiceRow> rows_;
    std::vector<TokenBias> biases_;
    std::vector<TokenSaid> said_;
    std::vector<uint64_t> masks_;
    int32_t logprobs_max_;
  };

  // The tokens in order.
  struct Order {
    Order(std::vector<float> values, float heat) : logits(std::move(values)), temperature(heat) {
      tokens.resize(logits.size());
      std::iota(tokens.begin(), tokens.end(), 0);
      std::stable_sort(tokens.begin(), tokens.end(),
                       [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
    }
    float DistanceOf(size_t place) const {
      return reference::ChoiceDistance(logits[size_t(tokens[0])], logits[size_t(tokens[place])],
                                       temperature);
    }
    uint64_t WeightOf(size_t place) const {
      const float distance = DistanceOf(place);
      const bool far = reference::ChoiceBucket(distance) == reference::kChoiceBuckets - 1;
      return far ? 0 : reference::ChoiceWeight(reference::Exp(-distance));
    }
    uint64_t MassOf(size_t count) const {
      uint64_t mass = 0;
      for (size_t i = 0; i < count; ++i) mass += WeightOf(i);
      return mass;
    }
    size_t CountAt(uint64_t mass) const {
      size_t count = 1;
      while (MassOf(count) < mass) ++count;
      return count;
    }
    int32_t Choose(const ChoiceRow& row) const {
      if (temperature == 0) return tokens[0];
      size_t count = 0;
      while (count < tokens.size() && WeightOf(count) > 0) ++count;
      if (row.top_k > 0) count = std::min(count, size_t(row.top_k));
      if (row.top_p < 1) count = CountAt(reference::ChoiceShare(row.top_p, MassOf(count)));
      while (count > 1 && DistanceOf(count - 1) > row.nearness) --count;
      return tokens[CountAt(reference::ChoiceDraw(row.draw, MassOf(count))) - 1];
    }

    std::vector<float> logits;
    float temperature;
    std::vector<int32_t> tokens;
  };

  static std::vector<float> Adjusted(const ChoiceBatch& batch, const ChoiceRow& row,
                                     std::span<const float> given) {
    std::vector<float> logits(given.begin(), given.end());
    for (const auto& [token, bias] :
         batch.biases.subspan(size_t(row.bias_begin), size_t(row.bias_count))) {
      logits[size_t(token)] += bias;
    }
    for (const auto& [token, generated] :
         batch.said.subspan(size_t(row.said_begin), size_t(row.said_count))) {
      float& logit = logits[size_t(token)];
      logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
      if (generated > 0) {
        logit -= row.presence_penalty + row.frequency_penalty * float(generated);
      }
    }
    const size_t words = (given.size() + 63) / 64;
    for (size_t token = 0; row.mask >= 0 && token < given.size(); ++token) {
      const uint64_t word = batch.masks[size_t(row.mask) * words + token / 64];
      if ((word >> token % 64 & 1) == 0) logits[token] = -INFINITY;
    }
    return logits;
  }

  std::vector<float> logits_;
  int begun_ = 0;
  int told_begun_ = 0;
  std::optional<Told> told_;
  size_t said_most_ = 0, told_most_ = 0;
  int refused_ = 0;
  Work during_;
};

}  // namespace reprise
