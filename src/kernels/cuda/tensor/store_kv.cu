// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/attention.h"
#include "kernels/cuda/tensor/kv_q8.cuh"
#include "kernels/cuda/tensor/mma.cuh"

namespace reprise::cuda {
namespace {

constexpr int kKeys = 64;  // of a block

__device__ __forceinline__ void StoreAs(KvType type, std::byte* base, int64_t index, float x) {
  if (type == KvType::kF32) {
    reinterpret_cast<float*>(base)[index] = x;
  } else {
    reinterpret_cast<uint16_t*>(base)[index] =
        type == KvType::kF16 ? Round16<Half::kF16>(x) : Round16<Half::kBF16>(x);
  }
}

// The place of a row in the blocks of its sequence.
struct Slot {
  std::byte* block;
  int index;
};
__device__ Slot SlotOf(const StepView& step, int row) {
  const SequenceView& sequence = step.sequences[step.row_sequence[row]];
  const int position = sequence.position + row - sequence.row_begin;
  const uint32_t id = step.blocks[sequence.block_begin + position / kKeys];
  return {step.block_memory + int64_t{id} * step.block_bytes, position % kKeys};
}

// Channel `at` of a head, one a lane, by a whole warp: `has_channel` says whether there is one.
__device__ __forceinline__ void StoreGroupAt(std::byte* part, int head, int channels, int slot,
                                             int at, bool has_channel, float x) {
  std::byte* codes = CodesOfHead(part, head, channels);
  const int groups = int(KvGroups(channels));
  StoreGroup(x, has_channel, reinterpret_cast<int8_t*>(codes) + int64_t{slot} * channels + at,
             ScalesOfHead(codes, channels) + slot * groups + at / kKvGroup);
}

// A row of K or V of type q8_0: a warp takes a group at a time.
__device__ void StoreRowOfQ8(std::byte* part, int heads, int channels, int slot, const float* x) {
  const int lane = threadIdx.x % kKvGroup, groups = int(KvGroups(channels));
  for (int i = threadIdx.x / kKvGroup; i < heads * groups; i += blockDim.x / kKvGroup) {
    const int head = i / groups, at = i % groups * kKvGroup + lane;
    const bool has_channel = at < channels;
    const float value = has_channel ? x[int64_t{head} * channels + at] : 0.0f;
    StoreGroupAt(part, head, channels, slot, at, has_channel, value);
  }
}

__global__ void StoreKernel(StepView step, KvView kv, View k, View v) {
  const int row = blockIdx.x;
  const auto [block, slot] = SlotOf(step, row);
  if (kv.type == KvType::kQ8) {
    StoreRowOfQ8(block + kv.k_offset, kv.kv_heads, kv.head_dim, slot, k.data + row * k.stride);
    if (kv.value_in_key) return;
    StoreRowOfQ8(block + kv.v_offset, kv.kv_heads, kv.value_dim, slot, v.data + row * v.stride);
    return;
  }
  for (int64_t i = threadIdx.x; i < k.cols; i += blockDim.x) {
    const int64_t head = i / kv.head_dim;
    const int64_t index = (head * kKeys + slot) * kv.head_dim + i % kv.head_dim;
    StoreAs(kv.type, block + kv.k_offset, index, k.data[row * k.stride + i]);
  }
  if (kv.value_in_key) return;
  for (int64_t i = threadIdx.x; i < v.cols; i += blockDim.x) {
    const int64_t head = i / kv.value_dim;
    const int64_t index = (head * kKeys + slot) * kv.value_dim + i % kv.value_dim;
    StoreAs(kv.type, block + kv.v_offset, index, v.data[row * v.stride + i]);
  }
}

constexpr int kHeadThreads = 128;

// One head of q, or of k and v, of one row.
__global__ void __launch_bounds__(kHeadThreads)
    HeadsKernel(StepView step, KvView kv, HeadsView inputs, View q, View k, View v) {
  extern __shared__ float head[];
  WaitForInputs();
  LetNextStart();
  const int row = blockIdx.x;
  const bool is_query = blockIdx.y < inputs.q_heads;
  const int index = static_cast<int>(blockIdx.y) - (is_query ? 0 : inputs.q_heads);
  const View& rows = is_query ? q : k;
  float* place = rows.data + row * rows.stride + int64_t{index} * kv.head_dim;
#pragma unroll 2
  for (int i = threadIdx.x; i < kv.head_dim; i += kHeadThreads) head[i] = place[i];
  __syncthreads();
  const float* weight = is_query ? inputs.q_norm : inputs.k_norm;
  float r = 1;
  if (weight != nullptr) {
    const float sum =
        SumOfSquares([&](int64_t i) { return head[i]; }, threadIdx.x % kNormLanes, kv.head_dim);
    r = InverseRoot(sum / static_cast<float>(kv.head_dim), inputs.eps);
  }
  const auto normed = [&](int i) {
    return weight != nullptr ? (head[i] * r) * weight[i] : head[i];
  };
  const Slot slot = is_query ? Slot{} : SlotOf(step, row);
  const int64_t first = (int64_t{index} * kKeys + slot.index) * kv.head_dim;
  const bool q8 = kv.type == KvType::kQ8;
  // Whole warps, which are groups of q8_0.
  const int head_end = CeilDiv(kv.head_dim, kKvGroup) * kKvGroup;
#pragma unroll 1
  for (int i = threadIdx.x; i < head_end; i += kHeadThreads) {
    const bool has_channel = i < kv.head_dim;
    float x = has_channel ? normed(i) : 0.0f;
    if (i < 2 * inputs.half) {
      const int pair = i < inputs.half ? i : i - inputs.half;
      const float cos = inputs.cos[int64_t{row} * inputs.half + pair];
      const float sin = inputs.sin[int64_t{row} * inputs.half + pair];
      const float a = normed(pair), b = normed(pair + inputs.half);
      x = i < inputs.half ? fmaf(a, cos, -(b * sin)) : fmaf(b, cos, a * sin);
    }
    if (q8 && !is_query) {
      StoreGroupAt(slot.block + kv.k_offset, index, kv.head_dim, slot.index, i, has_channel, x);
    } else if (!has_channel) {
      continue;
    } else if (is_query) {
      place[i] = x;
    } else {
      StoreAs(kv.type, slot.block + kv.k_offset, first + i, x);
    }
  }
  if (is_query) return;
  const float* values = v.data + row * v.stride + int64_t{index} * kv.value_dim;
  if (q8) {
    for (int i = threadIdx.x; i < CeilDiv(kv.value_dim, kKvGroup) * kKvGroup; i += kHeadThreads) {
      const bool has_channel = i < kv.value_dim;
      StoreGroupAt(slot.block + kv.v_offset, index, kv.value_dim, slot.index, i, has_channel,
                   has_channel ? values[i] : 0.0f);
    }
    return;
  }
  const int64_t at = (int64_t{index} * kKeys + slot.index) * kv.value_dim;
#pragma unroll 2
  for (int i = threadIdx.x; i < kv.value_dim; i += kHeadThreads) {
    StoreAs(kv.type, slot.block + kv.v_offset, at + i, values[i]);
  }
}

}  // namespace

void StoreKv(Stream stream, const StepView& step, const KvView& kv, const View& k, const View& v) {
  StoreKernel<<<unsigned(step.rows), 256, 0, stream>>>(step, kv, k, v);
}

void StoreHeads(Stream stream, const StepView& step, const KvView& kv, const HeadsView& inputs,
                const View& q, const View& k, const View& v) {
  const dim3 grid(unsigned(step.rows), unsigned(inputs.q_heads + kv.kv_heads));
  LaunchEarly(HeadsKernel, grid, kHeadThreads, size_t(kv.head_dim) * sizeof(float), stream, step,
              kv, inputs, q, k, v);
}

}  // namespace reprise::cuda
