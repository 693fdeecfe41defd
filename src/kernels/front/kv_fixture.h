// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/reference/attention.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"

// What tests of ops with K/V share: blocks in the memory of the host, and inputs of attention.
namespace reprise {

inline constexpr int kKeys = 64;

inline int BlocksOf(int tokens) { return (tokens + kKeys - 1) / kKeys; }

// K/V blocks of some sequences, filled with poison.
class KvMemory {
 public:
  KvMemory(const KvShape& shape, int blocks) : shape_(shape) {
    const size_t keys = size_t(shape.kv_heads * kKeys) * KvRowBytes(shape.dtype, shape.head_dim);
    const size_t values = size_t(shape.kv_heads * kKeys) * KvRowBytes(shape.dtype, shape.value_dim);
    place_ = {0, keys};
    block_bytes_ = keys + values;
    memory_.assign(block_bytes_ * size_t(blocks), std::byte{0xFF});
  }

  const KvPlace& place() const { return place_; }
  std::vector<uint32_t> Take(int blocks) {
    std::vector<uint32_t> ids;
    for (int b = 0; b < blocks; ++b) ids.push_back(used_++);
    return ids;
  }
  void AddTo(TestStep* step) { step->SetBlockMemory(memory_, block_bytes_); }
  std::vector<std::byte>& bytes() { return memory_; }
  size_t block_bytes() const { return block_bytes_; }
  double Key(uint32_t block, int head, int slot, int channel) const {
    return At(HeadOf(block, place_.k_offset, head, shape_.head_dim), shape_.head_dim,
              channel * kKeys + slot, channel / kKvGroup * kKeys + slot);
  }
  double Value(uint32_t block, int head, int slot, int channel) const {
    const int groups = int(KvGroups(shape_.value_dim));
    return At(HeadOf(block, place_.v_offset, head, shape_.value_dim), shape_.value_dim,
              slot * shape_.value_dim + channel, slot * groups + channel / kKvGroup);
  }

 private:
  const std::byte* HeadOf(uint32_t block, size_t offset, int head, int channels) const {
    return memory_.data() + block * block_bytes_ + offset +
           size_t(head * kKeys) * KvRowBytes(shape_.dtype, channels);
  }
  // `scale`: index of the element's scale, where it has one.
  double At(const std::byte* place, int channels, int index, int scale) const {
    if (shape_.dtype == DType::kF32) return reinterpret_cast<const float*>(place)[index];
    if (shape_.dtype == DType::kQ8_0) {
      const auto* scales = reinterpret_cast<const uint16_t*>(place + kKeys * channels);
      return reference::ElementOfQ8(scales[scale], static_cast<int8_t>(place[index]));
    }
    const uint16_t bits = reinterpret_cast<const uint16_t*>(place)[index];
    return shape_.dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }

  KvShape shape_;
  KvPlace place_;
  size_t block_bytes_ = 0;
  uint32_t used_ = 0;
  std::vector<std::byte> memory_;
};

// K/V of one sequence.
class KvBlocks {
 public:
  KvBlocks(const KvShape& shape, std::vector<uint32_t> ids, KvMemory* memory)
      : shape_(shape), memory_(memory), ids_(std::move(ids)) {}
  KvBlocks(const KvShape& shape, int tokens, KvMemory* memory)
      : shape_(shape), memory_(memory), ids_(memory->Take(BlocksOf(tokens))) {}

  void AddTo(TestStep* step, int position, int64_t row_begin, int64_t rows) const {
    step->Add(row_begin, rows, position);
    step->AddBlocks(ids_);
  }
  const std::vector<uint32_t>& ids() const { return ids_; }
  // Blocks wholly before `position` are no longer there.
  void Forget(int position) { std::fill_n(ids_.begin(), position / kKeys, kNoBlock); }
  double Key(int position, int head, int channel) const {
    return memory_->Key(ids_[size_t(position / kKeys)], head, position % kKeys, channel);
  }
  double Value(int position, int head, int channel) const {
    return memory_->Value(ids_[size_t(position / kKeys)], head, position % kKeys, channel);
  }

 private:
  KvShape shape_;
  KvMemory* memory_;
  std::vector<uint32_t> ids_;
};

struct AttentionInputs {
  AttentionInputs(Rng& rng, const KvShape& kv, const AttentionParams& attention, int token_count)
      : shape(kv),
        params(attention),
        tokens(token_count),
        q(Uniform(rng, tokens * q_cols(), -2, 2)),
        k(Uniform(rng, tokens * k_cols(), -1, 1)),
        v(Uniform(rng, tokens * v_cols(), -1, 1)) {}

  int64_t q_cols() const { return int64_t{params.q_heads} * shape.head_dim; }
  int64_t k_cols() const { return int64_t{shape.kv_heads} * shape.head_dim; }
  int64_t v_cols() const { return int64_t{shape.kv_heads} * shape.value_dim; }
  int64_t out_cols() const { return int64_t{params.q_heads} * shape.value_dim; }

  // Positions in pieces that end at `cuts` (the last is `tokens`).
  Floats Run(const OpContext& context, std::vector<int> cuts) const {
    KvMemory memory(shape, BlocksOf(tokens));
    const KvBlocks blocks(shape, tokens, &memory);
    Floats out(size_t(tokens * out_cols()), 777.0f);
    cuts.push_back(tokens);
    int begin = 0;
    for (const int end : cuts) {
      Store(context, blocks, &memory, begin, end);
      TestStep step(tokens);
      memory.AddTo(&step);
      blocks.AddTo(&step, begin, begin, end - begin);
      Attend(context, step.Begin(context), memory.place(), shape, params, View(q, q_cols()),
             View(out, out_cols()));
      begin = end;
    }
    return out;
  }

  // K/V of positions [begin, end).
  void Store(const OpContext& context, const KvBlocks& blocks, KvMemory* memory, int begin,
             int end) const {
    TestStep step(tokens);
    memory->AddTo(&step);
    blocks.AddTo(&step, begin, begin, end - begin);
    StoreKv(context, step.Begin(context), memory->place(), shape, View(k, k_cols()),
            View(v, v_cols()));
  }

  KvShape shape;
  AttentionParams params;
  int tokens;
  Floats q, k, v;
};

}  // namespace reprise
