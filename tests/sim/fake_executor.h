// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "model/executor.h"

namespace reprise {

// A model without weights whose logits are a hash of the state it was given: every K/V row of the
// sequence and the recurrent state. One wrong byte, one token off, one stale block, and every logit
// after it differs. The namespace of the sequence (SequenceSlice::space) is part of the state, so a
// request that starts from another tenant's state gives wrong logits. Thousands of steps a second.
//
//  recurrent   r_t = mix(r_{t-1}, token_t, namespace)
//  K/V         k_t = mix(token_t, namespace, t, r_t)
//  logits_t    hash(r_t, all k_j for j <= t); the row behind the final norm is the same
//  weights     of key j with row t: a hash of k_j and k_t
class FakeExecutor : public Executor {
 public:
  enum class Kind { kAttention, kRecurrent, kHybrid };
  static constexpr int64_t kVocab = 16;

  // State is large enough that it, not bookkeeping, fills the budget.
  explicit FakeExecutor(Kind kind, int64_t context_length = 4096, int64_t state_words = 4096);

  const ModelCard& card() const override { return card_; }
  DeviceMemory& memory() override { return *memory_; }
  void set_memory(DeviceMemory* memory) { memory_ = memory; }
  ThreadPool* pool() override { return pool_; }
  void set_pool(ThreadPool* pool) { pool_ = pool; }
  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override;

  // From now on it has a block that predicts further tokens, which is right: it says what the model
  // would say, if it is given the state, the place and the tokens that it would be given.
  void PredictFurther() { card_.mtp_state = recurrent_state_; }
  Status Predict(const BatchView& batch, const StateMemory& memory, bool first,
                 std::span<float> hidden, std::span<float> logits) override;

  bool keeps() const override { return has_kv_; }
  Status Keep(const KeptKv& kept, const StateMemory& memory) override;

  // The logits of a cold run, straight from the tokens.
  void ColdLogits(uint32_t space, std::span<const TokenId> tokens, float* logits) const;

  // Makes the next forward pass report a state that is not finite for sequences holding this token.
  void PoisonToken(TokenId token) { poison_ = token; }

  // Steps of more rows than this are refused: there is no memory to compute them in.
  void set_rows_max(size_t rows) { rows_max_ = rows; }

  // The n-th step from now on fails like this. One that fails with kResourceExhausted has touched
  // nothing; any other has spoilt the state of its sequences.
  void FailStep(int n, Status failure) {
    until_failure_ = n;
    failure_ = std::move(failure);
  }
  int steps() const { return steps_; }  // asked for so far

  // A broken model: snapshots taken inside a step miss the last token.
  void MakeTapsOneTokenLate() { taps_late_ = true; }

  uint64_t rows() const { return rows_; }  // run so far

 private:
  uint64_t RecurrentOf(const StateMemory& memory, StateId id) const;
  std::byte* KeyAt(const StateMemory& memory, std::span<const BlockId> blocks, int32_t row) const;
  void Spoil(const BatchView& batch, const StateMemory& memory) const;
  void Weigh(const WatchedRows& watched, const SequenceSlice& slice,
             const StateMemory& memory) const;
  void Row(uint32_t space, TokenId token, int32_t position, uint64_t* recurrent,
           uint64_t* key) const;
  void WriteLogits(uint64_t recurrent, uint64_t keys, float* logits) const;

  const size_t state_end_;  // where the last word of a state begins
  ModelCard card_;
  DeviceMemory* memory_ = &HostMemory();
  ThreadPool* pool_ = nullptr;
  bool has_kv_ = false;
  bool has_recurrent_ = false;
  size_t kv_state_ = 0;
  size_t recurrent_state_ = 0;
  bool taps_late_ = false;
  TokenId poison_ = -1;
  uint64_t rows_ = 0;
  size_t rows_max_ = SIZE_MAX;
  int steps_ = 0;
  int until_failure_ = 0;
  Status failure_;
};

}  // namespace reprise
