// SPDX-License-Identifier: Apache-2.0
// K and V of the rows of a step go to their blocks: as they are, or from the projections of a layer
// in one op, norms and angles of a head while it is in the nearest cache.
#include <algorithm>
#include <bit>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/heads/kv_block.h"
#include "kernels/cpu/segments.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/joint_ops.h"
#include "kernels/raw_rows.h"

namespace reprise::cpu {
namespace {

// What all tasks of a call that stores share.
struct Store {
  const KernelTable& table;
  const StepLayout& step;
  const KvPlace& place;
  const KvShape& shape;
  const ConstRows& k;
  const ConstRows& v;
};

// `count` rows of one head into its part of a block, from `slot` on.
void StoreKeys(const KernelTable& table, const KvShape& shape, const float* x, int64_t stride,
               int count, int slot, void* keys) {
  switch (shape.dtype) {
    case DType::kF32:
      return table.store_keys_f32(x, stride, count, shape.head_dim, slot,
                                  static_cast<float*>(keys));
    case DType::kF16:
      return table.store_keys_f16(x, stride, count, shape.head_dim, slot,
                                  static_cast<uint16_t*>(keys));
    case DType::kBF16:
      return table.store_keys_bf16(x, stride, count, shape.head_dim, slot,
                                   static_cast<uint16_t*>(keys));
    default:
      return table.store_keys_q8_0(x, stride, count, shape.head_dim, slot, keys);
  }
}

void StoreValues(const KernelTable& table, const KvShape& shape, const float* x, int64_t stride,
                 int count, int slot, void* values) {
  const int64_t channels = shape.value_dim;
  if (shape.dtype == DType::kQ8_0) {
    return table.store_values_q8_0(x, stride, count, shape.value_dim, slot, values);
  }
  for (int64_t t = 0; t < count; ++t) {
    const float* from = x + t * stride;
    if (shape.dtype == DType::kF32) {
      std::copy_n(from, channels, static_cast<float*>(values) + (slot + t) * channels);
    } else {
      (shape.dtype == DType::kF16 ? table.f32_to_f16 : table.f32_to_bf16)(
          from, channels, static_cast<uint16_t*>(values) + (slot + t) * channels);
    }
  }
}

// The bits of the least magnitude that is not a finite number when it is stored. (A scale of q8_0
// is the largest magnitude of a group by 127, in f16.)
uint32_t LimitOf(DType type) {
  switch (type) {
    case DType::kF16:
      return std::bit_cast<uint32_t>(65520.0f);
    case DType::kBF16:
      return 0x7F7F8000;
    case DType::kQ8_0:
      return std::bit_cast<uint32_t>(65520.0f * 127.0f);
    default:
      return kInfinity;
  }
}

// Rows [row, row + count) of a sequence, all in one block, of one K/V head.
void StoreBlock(const Store& call, const StepSequence& s, int64_t head, int64_t row, int count) {
  const KernelTable& table = call.table;
  const KvShape& shape = call.shape;
  const int64_t position = s.position + row;
  const int slot = static_cast<int>(position % kKeys);
  const float* k_row = RowOf(call.k, s.row_begin + row) + head * shape.head_dim;
  std::byte* block = BlockOf(call.step, s, position / kKeys);
  std::byte* keys = block + call.place.k_offset + HeadOffset(shape.dtype, head, shape.head_dim);
  StoreKeys(table, shape, k_row, call.k.stride, count, slot, keys);
  const auto look = [&](const float* x, int64_t stride, int64_t channels) {
    if (AllBelow(LimitOf(shape.dtype), x, count, stride, channels)) return;
    Spoil(call.step, size_t(&s - call.step.host.sequences.data()));
  };
  look(k_row, call.k.stride, shape.head_dim);
  if (shape.value_in_key) return;
  const float* v_row = RowOf(call.v, s.row_begin + row) + head * shape.value_dim;
  std::byte* values = block + call.place.v_offset + HeadOffset(shape.dtype, head, shape.value_dim);
  StoreValues(table, shape, v_row, call.v.stride, count, slot, values);
  look(v_row, call.v.stride, shape.value_dim);
}

// All rows of a sequence.
void StoreSequence(const Store& call, const StepSequence& s, int64_t head) {
  for (int64_t row = 0; row < s.row_count;) {
    const int64_t left = kKeys - (s.position + row) % kKeys;
    const int count = static_cast<int>(std::min<int64_t>(left, s.row_count - row));
    StoreBlock(call, s, head, row, count);
    row += count;
  }
}

// Norm and angles of one head of a row, in place.
void PrepareHead(const KernelTable& table, const HeadInputs& inputs, ConstFloats norm, int64_t row,
                 int width, float* x) {
  const int half = inputs.rope.half;
  if (norm) table.rms_norm(x, Raw(norm), inputs.eps, width, x);
  if (half == 0) return;
  table.rope(x, Raw(inputs.rope.cos) + row * half, Raw(inputs.rope.sin) + row * half, half);
}

}  // namespace

void CpuBackend::StoreKv(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                         const ConstRows& k, const ConstRows& v) {
  const Store call{*table_, step, place, shape, k, v};
  const std::span<const StepSequence> sequences = step.host.sequences;
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * shape.kv_heads;
  ForTasks(*pool_, tasks, step.rows() * 2 * k.cols, [&](int64_t task, int) {
    StoreSequence(call, sequences[size_t(task / shape.kv_heads)], task % shape.kv_heads);
  });
}

// For steps of one token a sequence: a task is a K/V head with the query heads that share it. More
// tokens leave too few of those.
bool CpuBackend::StoreHeads(const StepLayout& step, const KvPlace& place, const KvShape& shape,
                            const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                            const ConstRows& v) {
  constexpr int64_t kCost = 3;  // of an element, relative to an addition
  const std::span<const StepSequence> sequences = step.host.sequences;
  const bool one_each = std::all_of(sequences.begin(), sequences.end(),
                                    [](const StepSequence& s) { return s.row_count == 1; });
  const int group = inputs.q_heads / shape.kv_heads;
  if (!one_each || inputs.q_heads % shape.kv_heads != 0) return false;
  const Store call{*table_, step, place, shape, k, v};
  const int width = shape.head_dim;
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * shape.kv_heads;
  const int64_t elements = step.rows() * (q.cols + 4 * k.cols) * kCost;
  ForTasks(*pool_, tasks, elements, [&](int64_t task, int) {
    const StepSequence& s = sequences[size_t(task / shape.kv_heads)];
    const int64_t head = task % shape.kv_heads;
    const int64_t row = s.row_begin;
    for (int64_t i = head * group; i < (head + 1) * group; ++i) {
      PrepareHead(*table_, inputs, inputs.q_norm, row, width, RowOf(q, row) + i * width);
    }
    // k is not kept (joint_ops.h).
    float* const key = const_cast<float*>(RowOf(k, row)) + head * width;
    PrepareHead(*table_, inputs, inputs.k_norm, row, width, key);
    StoreSequence(call, s, head);
  });
  return true;
}

}  // namespace reprise::cpu
