// SPDX-License-Identifier: Apache-2.0
#include "fake_executor.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "device/raw.h"

namespace reprise {
namespace {

// Large enough that state, not bookkeeping, fills the budget.
constexpr size_t kKeyWords = 256;

uint64_t Load(const std::byte* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void Store(uint64_t value, std::byte* to) { std::memcpy(to, &value, sizeof value); }

// Folds the key at a position into the hash of those before it; the order matters.
uint64_t Fold(uint64_t hash, uint64_t key) { return Mix64(hash * 3 + key); }

}  // namespace

FakeExecutor::FakeExecutor(Kind kind, int64_t context_length, int64_t state_words)
    : state_end_(static_cast<size_t>(state_words) * 4 - 8) {
  has_kv_ = kind != Kind::kRecurrent;
  has_recurrent_ = kind != Kind::kAttention;
  card_.family = "fake";
  card_.vocab_size = kVocab;
  card_.dim = kVocab;
  card_.context_length = context_length;
  card_.digest = "fake";
  StateSpec& spec = card_.state;
  spec.token_cost = 1000;
  spec.token_cost_per_position = 1;
  if (has_recurrent_) {
    recurrent_state_ = spec.layers.size();
    spec.layers.push_back({0, StateKind::kRecurrent, 0, {{"r", {state_words}, DType::kI32}}});
  }
  if (has_kv_) {
    kv_state_ = spec.layers.size();
    spec.layers.push_back({1, StateKind::kFullKv, 0, {{"k", {1, kKeyWords}, DType::kI32}}});
  }
}

void FakeExecutor::Row(uint32_t space, TokenId token, int32_t position, uint64_t* recurrent,
                       uint64_t* key) const {
  const uint64_t t = (static_cast<uint64_t>(token) + 1) ^ uint64_t { space } << 8;
  if (has_recurrent_) *recurrent = Mix64(*recurrent * 5 + t);
  *key = Mix64(t << 32 ^ static_cast<uint64_t>(position)) ^ *recurrent;
}

void FakeExecutor::WriteLogits(uint64_t recurrent, uint64_t keys, float* logits) const {
  for (uint64_t v = 0; v < static_cast<uint64_t>(kVocab); ++v) {
    logits[v] = static_cast<float>(Mix64(recurrent ^ Mix64(keys + v)) >> 40) * 0x1p-22f;
  }
}

// The state is read from both ends of its tensor, so that half a copy is noticed.
uint64_t FakeExecutor::RecurrentOf(const StateMemory& memory, StateId id) const {
  const std::byte* state = Raw(memory.state(id)) + memory.layout->offset(recurrent_state_, 0);
  return Load(state) ^ Mix64(Load(state + state_end_) - Load(state));  // Mix64(0) is 0
}

std::byte* FakeExecutor::KeyAt(const StateMemory& memory, std::span<const BlockId> blocks,
                               int32_t row) const {
  const BlockId block = blocks[static_cast<size_t>(row / kBlockTokens)];
  return Raw(memory.block(block)) + memory.layout->offset(kv_state_, 0) +
         static_cast<size_t>(row % kBlockTokens) * kKeyWords * 4;
}

void FakeExecutor::Weigh(const WatchedRows& watched, const SequenceSlice& slice,
                         const StateMemory& memory) const {
  for (uint32_t i = 0; i < watched.row_count; ++i) {
    const int32_t row = slice.past.physical + static_cast<int32_t>(watched.row_begin + i);
    const uint64_t query = Load(KeyAt(memory, slice.blocks, row));
    for (int32_t j = 0; j <= row; ++j) {
      const uint64_t weight = Mix64(query ^ Load(KeyAt(memory, slice.blocks, j))) >> 40;
      Raw(watched.weights)[j] += static_cast<float>(weight) * 0x1p-24f;
    }
  }
}

Status FakeExecutor::Keep(const KeptKv& kept, const StateMemory& memory) {
  for (int32_t i = 0; i < kept.kept; ++i) {
    const uint64_t key = Load(KeyAt(memory, kept.from, kept.lists[static_cast<size_t>(i)]));
    Store(key, KeyAt(memory, kept.to, i));
  }
  return OkStatus();
}

// As a step does that ended half-way: rows that are not theirs, a state of no token.
void FakeExecutor::Spoil(const BatchView& batch, const StateMemory& memory) const {
  for (const SequenceSlice& slice : batch.sequences) {
    for (uint32_t i = 0; has_kv_ && i < slice.row_count; ++i) {
      Store(0xBAD, KeyAt(memory, slice.blocks, slice.past.physical + static_cast<int32_t>(i)));
    }
    const auto spoil = [&](StateId id) {
      std::byte* state = Raw(memory.state(id)) + memory.layout->offset(recurrent_state_, 0);
      Store(0xBAD, state);
      Store(0xBAD, state + state_end_);
    };
    if (!has_recurrent_) continue;
    spoil(slice.state);
    for (const StateTap& tap : slice.taps) spoil(tap.state);
  }
}

Status FakeExecutor::Forward(const BatchView& batch, const StateMemory& memory, float* logits) {
  ++steps_;
  if (until_failure_ > 0 && --until_failure_ == 0) {
    if (failure_.code() != StatusCode::kResourceExhausted) Spoil(batch, memory);
    return failure_;
  }
  if (batch.tokens.size() > rows_max_) return ResourceExhausted("no memory to compute in");
  rows_ += batch.tokens.size();
  size_t next_logit = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceSlice& slice = batch.sequences[s];
    const auto key_at = [&](int32_t at) { return KeyAt(memory, slice.blocks, at); };
    uint64_t recurrent = has_recurrent_ ? RecurrentOf(memory, slice.state) : 0;
    uint64_t keys = 0;
    for (int32_t j = 0; has_kv_ && j < slice.past.physical; ++j) keys = Fold(keys, Load(key_at(j)));
    batch.finite[s] = 1;
    for (uint32_t i = 0; i < slice.row_count; ++i) {
      const uint32_t row = slice.row_begin + i;
      const int32_t position = slice.past.logical + static_cast<int32_t>(i);
      uint64_t key = 0;
      const uint64_t before = recurrent;
      Row(slice.space, batch.tokens[row], position, &recurrent, &key);
      if (has_kv_) {
        Store(key, key_at(slice.past.physical + static_cast<int32_t>(i)));
        keys = Fold(keys, key);
      }
      for (const StateTap& tap : slice.taps) {
        if (has_recurrent_ && tap.row_count == i + 1) {
          std::byte* kept =
              Raw(memory.state(tap.state)) + memory.layout->offset(recurrent_state_, 0);
          Store(taps_late_ ? before : recurrent, kept);
          Store(taps_late_ ? before : recurrent, kept + state_end_);
        }
      }
      if (batch.tokens[row] == poison_) batch.finite[s] = 0;
      if (!batch.hidden.empty()) {
        WriteLogits(recurrent, keys, batch.hidden.data() + int64_t{row} * kVocab);
      }
      if (next_logit < batch.logit_rows.size() && batch.logit_rows[next_logit] == row) {
        WriteLogits(recurrent, keys, logits + static_cast<int64_t>(next_logit++) * kVocab);
      }
    }
    if (has_recurrent_) {
      std::byte* state =
          Raw(memory.state(slice.state)) + memory.layout->offset(recurrent_state_, 0);
      Store(recurrent, state);
      Store(recurrent, state + state_end_);
    }
  }
  for (const WatchedRows& watched : batch.watched) {
    Weigh(watched, batch.sequences[watched.sequence], memory);
  }
  return OkStatus();
}

Status FakeExecutor::Predict(const BatchView& batch, const StateMemory& memory, bool first,
                             std::span<float> hidden, std::span<float> logits) {
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceSlice& slice = batch.sequences[s];
    CHECK(slice.row_count == 1 && slice.row_begin == s && batch.logit_rows[s] == s);
    float* const between = hidden.data() + s * static_cast<size_t>(card_.dim);
    uint64_t recurrent = 0, keys = 0, key = 0;
    if (!first) {
      std::memcpy(&recurrent, between, sizeof recurrent);
    } else if (has_recurrent_) {
      recurrent = RecurrentOf(memory, slice.state);
    }
    for (int32_t j = 0; has_kv_ && j < slice.past.physical; ++j) {
      keys = Fold(keys, Load(KeyAt(memory, slice.blocks, j)));
    }
    Row(slice.space, batch.tokens[s], slice.past.logical, &recurrent, &key);
    if (has_kv_) {
      Store(key, KeyAt(memory, slice.blocks, slice.past.physical));
      keys = Fold(keys, key);
    }
    WriteLogits(recurrent, keys, logits.data() + s * static_cast<size_t>(kVocab));
    std::memcpy(between, &recurrent, sizeof recurrent);
    batch.finite[s] = 1;
  }
  return OkStatus();
}

void FakeExecutor::ColdLogits(uint32_t space, std::span<const TokenId> tokens,
                              float* logits) const {
  uint64_t recurrent = 0;
  uint64_t keys = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    uint64_t key = 0;
    Row(space, tokens[t], static_cast<int32_t>(t), &recurrent, &key);
    if (has_kv_) keys = Fold(keys, key);
    WriteLogits(recurrent, keys, logits + static_cast<int64_t>(t) * kVocab);
  }
}

}  // namespace reprise
