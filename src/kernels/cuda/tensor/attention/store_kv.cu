// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/attention/attention.h"
#include "kernels/cuda/tensor/attention/kv_q8.cuh"
#include "kernels/cuda/tensor/mma.cuh"

namespace reprise::cuda {
namespace {

constexpr int kKeys = 64;  // of a block

// Returns whether what is stored is a finite number.
__device__ __forceinline__ bool StoreAs(KvType type, std::byte* base, int64_t index, float x) {
  if (type == KvType::kF32) {
    reinterpret_cast<float*>(base)[index] = x;
    return IsFinite(x);
  }
  const uint16_t rounded = type == KvType::kF16 ? Round16<Half::kF16>(x) : Round16<Half::kBF16>(x);
  reinterpret_cast<uint16_t*>(base)[index] = rounded;
  return type == KvType::kF16 ? IsFinite16<Half::kF16>(rounded) : IsFinite16<Half::kBF16>(rounded);
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
__device__ __forceinline__ bool StoreGroupAt(std::byte* part, int head, int channels, int slot,
                                             int at, bool has_channel, float x) {
  std::byte* codes = CodesOfHead(part, head, channels);
  const int groups = int(KvGroups(channels));
  return StoreGroup(x, has_channel,
                    reinterpret_cast<int8_t*>(codes) + int64_t{slot} * channels + at,
                    ScalesOfHead(codes, channels) + slot * groups + at / kKvGroup);
}

// A row of K or V of type q8_0: a warp takes a group at a time.
__device__ bool StoreRowOfQ8(std::byte* part, int heads, int channels, int slot, const float* x) {
  bool finite = true;
  const int lane = threadIdx.x % kKvGroup, groups = int(KvGroups(channels));
  for (int i = threadIdx.x / kKvGroup; i < heads * groups; i += blockDim.x / kKvGroup) {
    const int head = i / groups, at = i % groups * kKvGroup + lane;
    const bool has_channel = at < channels;
    const float value = has_channel ? x[int64_t{head} * channels + at] : 0.0f;
    finite &= StoreGroupAt(part, head, channels, slot, at, has_channel, value);
  }
  return finite;
}

// Returns whether all that this thread stores is finite.
__device__ bool StoreRow(const StepView& step, const KvView& kv, const View& k, const View& v,
                         int row) {
  const auto [block, slot] = SlotOf(step, row);
  bool finite = true;
  if (kv.type == KvType::kQ8) {
    finite = StoreRowOfQ8(block + kv.k_offset, kv.kv_heads, kv.head_dim, slot,
                          k.data + row * k.stride);
    if (kv.value_in_key) return finite;
    return StoreRowOfQ8(block + kv.v_offset, kv.kv_heads, kv.value_dim, slot,
                        v.data + row * v.stride) &&
           finite;
  }
  for (int64_t i = threadIdx.x; i < k.cols; i += blockDim.x) {
    const int64_t head = i / kv.head_dim;
    const int64_t index = (head * kKeys + slot) * kv.head_dim + i % kv.head_dim;
    finite &= StoreAs(kv.type, block + kv.k_offset, index, k.data[row * k.stride + i]);
  }
  if (kv.value_in_key) return finite;
  for (int64_t i = threadIdx.x; i < v.cols; i += blockDim.x) {
    const int64_t head = i / kv.value_dim;
    const int64_t index = (head * kKeys + slot) * kv.value_dim + i % kv.value_dim;
    finite &= StoreAs(kv.type, block + kv.v_offset, index, v.data[row * v.stride + i]);
  }
  return finite;
}

__global__ void StoreKernel(StepView step, KvView kv, View k, View v) {
  const int row = blockIdx.x;
  if (!StoreRow(step, kv, k, v, row)) SpoilRow(step, row);
}

constexpr int kHeadThreads = 128;
constexpr int kHeadsAtOnce = kHeadThreads / kNormLanes;

// Heads of q, then of k and v, of one row, each by 16 threads, which are the lanes of its norm:
// with every sixteenth channel a thread has all links of its chain, and both channels of every
// rotation.
template <int kChannels>
__global__ void __launch_bounds__(kHeadThreads)
    LaneHeadsKernel(StepView step, KvView kv, HeadsView inputs, View q, View k, View v) {
  constexpr int kEach = kChannels / kNormLanes;
  const int lane = threadIdx.x % kNormLanes;
  const int row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y * kHeadsAtOnce + threadIdx.x / kNormLanes);
  const bool is_query = head < inputs.q_heads;
  const bool is_key = !is_query && head < inputs.q_heads + kv.kv_heads;
  // Where it is, the step said before its first kernel.
  const Slot slot = is_key ? SlotOf(step, row) : Slot{};
  const float* weight = is_query ? inputs.q_norm : inputs.k_norm;
  float w[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) w[i] = weight != nullptr ? weight[i * kNormLanes + lane] : 1.0f;
  WaitForInputs();
  LetNextStart();
  const int index = is_query ? head : head - inputs.q_heads;
  const View& rows = is_query ? q : k;
  float* place = rows.data + row * rows.stride + int64_t{index} * kChannels + lane;
  float x[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = is_query || is_key ? place[i * kNormLanes] : 0.0f;
  bool finite = true;
  if (is_key) {
    const float* values = v.data + row * v.stride + int64_t{index} * kChannels + lane;
    const int64_t at = (int64_t{index} * kKeys + slot.index) * kChannels + lane;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      finite &=
          StoreAs(kv.type, slot.block + kv.v_offset, at + i * kNormLanes, values[i * kNormLanes]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum = fmaf(x[i], x[i], sum);
  sum = SumLanes(sum);
  if (weight != nullptr) {
    const float r = InverseRoot(sum / static_cast<float>(kChannels), inputs.eps);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = (x[i] * r) * w[i];
  }
  // Half as many as there are channels, or fewer: places in registers have to be known.
  const int turned = inputs.half / kNormLanes;
  const float* cos = inputs.cos + int64_t{row} * inputs.half + lane;
  const float* sin = inputs.sin + int64_t{row} * inputs.half + lane;
#pragma unroll
  for (int pairs = 1; pairs <= kEach / 2; ++pairs) {
    if (pairs != turned) continue;
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const float a = x[i], b = x[i + pairs];
      const float c = cos[i * kNormLanes], s = sin[i * kNormLanes];
      x[i] = fmaf(a, c, -(b * s));
      x[i + pairs] = fmaf(b, c, a * s);
    }
  }
  const int64_t at = (int64_t{index} * kKeys + slot.index) * kChannels + lane;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (is_query) place[i * kNormLanes] = x[i];
    if (is_key) finite &= StoreAs(kv.type, slot.block + kv.k_offset, at + i * kNormLanes, x[i]);
  }
  if (!finite) SpoilRow(step, row);
}

// The same for heads of any size, and K/V of any type: one head of q, or of k and v, of one row.
__global__ void __launch_bounds__(kHeadThreads)
    HeadsKernel(StepView step, KvView kv, HeadsView inputs, View q, View k, View v) {
  extern __shared__ float head[];
  const int row = blockIdx.x;
  const bool is_query = blockIdx.y < inputs.q_heads;
  // Where it is, the step said before its first kernel.
  const Slot slot = is_query ? Slot{} : SlotOf(step, row);
  WaitForInputs();
  LetNextStart();
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
  const int64_t first = (int64_t{index} * kKeys + slot.index) * kv.head_dim;
  const bool q8 = kv.type == KvType::kQ8;
  // Whole warps, which are groups of q8_0.
  const int head_end = CeilDiv(kv.head_dim, kKvGroup) * kKvGroup;
  bool finite = true;
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
      finite &= StoreGroupAt(slot.block + kv.k_offset, index, kv.head_dim, slot.index, i,
                             has_channel, x);
    } else if (!has_channel) {
      continue;
    } else if (is_query) {
      place[i] = x;
    } else {
      finite &= StoreAs(kv.type, slot.block + kv.k_offset, first + i, x);
    }
  }
  if (is_query) return;
  const float* values = v.data + row * v.stride + int64_t{index} * kv.value_dim;
  if (q8) {
    for (int i = threadIdx.x; i < CeilDiv(kv.value_dim, kKvGroup) * kKvGroup; i += kHeadThreads) {
      const bool has_channel = i < kv.value_dim;
      finite &= StoreGroupAt(slot.block + kv.v_offset, index, kv.value_dim, slot.index, i,
                             has_channel, has_channel ? values[i] : 0.0f);
    }
  } else {
    const int64_t at = (int64_t{index} * kKeys + slot.index) * kv.value_dim;
#pragma unroll 2
    for (int i = threadIdx.x; i < kv.value_dim; i += kHeadThreads) {
      finite &= StoreAs(kv.type, slot.block + kv.v_offset, at + i, values[i]);
    }
  }
  if (!finite) SpoilRow(step, row);
}

}  // namespace

void StoreKv(Stream stream, const StepView& step, const KvView& kv, const View& k, const View& v) {
  LaunchInTurn(StoreKernel, unsigned(step.rows), 256, 0, stream, step, kv, k, v);
}

void StoreHeads(Stream stream, const StepView& step, const KvView& kv, const HeadsView& inputs,
                const View& q, const View& k, const View& v) {
  const unsigned heads = unsigned(inputs.q_heads + kv.kv_heads);
  const int channels = kv.head_dim;
  const bool lanes = kv.type != KvType::kQ8 && kv.value_dim == channels && !kv.value_in_key &&
                     inputs.half % kNormLanes == 0;
  const auto kernel = channels == 64    ? LaneHeadsKernel<64>
                      : channels == 128 ? LaneHeadsKernel<128>
                      : channels == 256 ? LaneHeadsKernel<256>
                                        : nullptr;
  if (lanes && kernel != nullptr) {
    const dim3 grid(unsigned(step.rows), CeilDiv<unsigned>(heads, kHeadsAtOnce));
    LaunchEarly(kernel, grid, kHeadThreads, 0, stream, step, kv, inputs, q, k, v);
    return;
  }
  const dim3 grid(unsigned(step.rows), heads);
  LaunchEarly(HeadsKernel, grid, kHeadThreads, size_t(kv.head_dim) * sizeof(float), stream, step,
              kv, inputs, q, k, v);
}

}  // namespace reprise::cuda
