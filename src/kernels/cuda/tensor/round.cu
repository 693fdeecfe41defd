// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/joined/riders.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/round.h"
#include "kernels/cuda/tensor/tiles.cuh"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float LargestOrNaN(const float* x, int64_t cols) {
  __shared__ float shared[kThreads / kWarp];
  float largest = 0;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    const float magnitude = fabsf(x[i]);
    largest = magnitude > largest || isnan(magnitude) ? magnitude : largest;
    if (isnan(magnitude)) break;
  }
  const auto join = [](float a, float b) { return isnan(a) || a > b ? a : b; };
  for (int d = kWarp / 2; d > 0; d /= 2) {
    largest = join(largest, __shfl_xor_sync(~0u, largest, d));
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (int w = 0; w < kThreads / kWarp; ++w) largest = join(largest, shared[w]);
  return largest;
}

__device__ __forceinline__ int64_t PlaceOf(const RowSlots& slots, int64_t row, int k) {
  return slots.slot != nullptr ? slots.slot[row * slots.each + k] : row;
}

__global__ void __launch_bounds__(kThreads) RoundAnyRows(View x, RowSlots slots, HalfRows out) {
  WaitForInputs();
  LetNextStart();
  const int64_t row = blockIdx.x;
  const float* in = x.data + row * x.stride;
  const float scale = RowScale(LargestOrNaN(in, x.cols));
  const float inverse = 1 / scale;
  for (int k = 0; k < slots.each; ++k) {
    const int64_t to_row = PlaceOf(slots, row, k);
    uint32_t* to = reinterpret_cast<uint32_t*>(out.data + to_row * out.stride);
    for (int64_t i = threadIdx.x; i < out.stride / 2; i += kThreads) {
      const float low = 2 * i < x.cols ? in[2 * i] : 0.0f;
      const float high = 2 * i + 1 < x.cols ? in[2 * i + 1] : 0.0f;
      to[i] = Pack2<Half::kF16>(low * inverse, high * inverse);
    }
    if (threadIdx.x == 0) out.scale[to_row] = scale;
  }
}

// --- Rows that a block holds: whole groups of four, at most kHold of them a thread --------------

constexpr int64_t kHoldMost = 16;

__device__ __forceinline__ float4* FourAt(const View& x, int64_t row, int four) {
  return reinterpret_cast<float4*>(x.data + row * x.stride) + four;
}
// Calls act(group of this thread, group of the row).
template <int kHold, typename Act>
__device__ __forceinline__ void ForGroups(int fours, const Act& act) {
#pragma unroll
  for (int j = 0; j < kHold; ++j) {
    const int i = threadIdx.x + j * kThreads;
    if (i < fours) act(j, i);
  }
}

// Where rows come from. Make is called by the whole block; all loads come before the first store,
// for which they would wait.
struct StoredRows {
  View y;

  template <int kHold>
  __device__ __forceinline__ void Make(int64_t row, int fours, float4 (&held)[kHold]) const {
    ForGroups<kHold>(fours, [&](int j, int i) { held[j] = *FourAt(y, row, i); });
  }
};

struct GatesOfRows : GatedRows {
  template <int kHold>
  __device__ __forceinline__ void Make(int64_t row, int fours, float4 (&held)[kHold]) const {
    ForGroups<kHold>(fours, [&](int j, int i) {
      const float4 g = *FourAt(gate, row, i), u = *FourAt(up, row, i);
      held[j] = make_float4(Gated(op, g.x, u.x), Gated(op, g.y, u.y), Gated(op, g.z, u.z),
                            Gated(op, g.w, u.w));
    });
    ForGroups<kHold>(fours, [&](int j, int i) { *FourAt(y, row, i) = held[j]; });
  }
};

template <bool kAdd>
struct NormsOfRows : NormedRows {
  template <int kHold>
  __device__ __forceinline__ void Make(int64_t row, int fours, float4 (&held)[kHold]) const {
    extern __shared__ __align__(16) float lane_memory[];
    const LaneRow lanes(lane_memory, 4 * fours);
    ForGroups<kHold>(fours, [&](int j, int i) {
      held[j] = *FourAt(x, row, i);
      if (kAdd) {
        const float4 more = *FourAt(added, row, i);
        held[j] = make_float4(held[j].x + more.x, held[j].y + more.y, held[j].z + more.z,
                              held[j].w + more.w);
      }
    });
    ForGroups<kHold>(fours, [&](int j, int i) {
      lanes.Store(4 * i, held[j]);
      if (kAdd) *FourAt(x, row, i) = held[j];
    });
    const float r = lanes.NormFactor(static_cast<int>(threadIdx.x), eps);
    ForGroups<kHold>(fours, [&](int j, int i) {
      const float4 w = __ldg(reinterpret_cast<const float4*>(weight) + i);
      held[j] = make_float4((held[j].x * r) * w.x, (held[j].y * r) * w.y, (held[j].z * r) * w.z,
                            (held[j].w * r) * w.w);
      *FourAt(y, row, i) = held[j];
    });
  }
};

template <int kHold, typename Source>
__global__ void __launch_bounds__(kThreads)
    RoundHeldRows(Source source, RowSlots slots, HalfRows out) {
  WaitForInputs();
  LetNextStart();
  const int64_t row = blockIdx.x;
  const View& y = source.y;
  const int fours = static_cast<int>(y.cols / 4);
  float4 held[kHold];
  source.Make(row, fours, held);
  float largest = 0;  // or NaN
  ForGroups<kHold>(fours, [&](int j, int) {
    for (const float value : {held[j].x, held[j].y, held[j].z, held[j].w}) {
      largest = fabsf(value) > largest ? fabsf(value) : largest;
    }
  });
  float scale = 1;
  // Rare: a value that does not fit, for which all is looked at again.
  if (__syncthreads_or(largest >= 65520.0f)) {
    scale = RowScale(LargestOrNaN(y.data + row * y.stride, y.cols));
  }
  const float inverse = 1 / scale;
  for (int k = 0; k < slots.each; ++k) {
    const int64_t to_row = PlaceOf(slots, row, k);
    auto* to = reinterpret_cast<uint2*>(out.data + to_row * out.stride);
    ForGroups<kHold>(fours, [&](int j, int i) {
      to[i] = make_uint2(Pack2<Half::kF16>(held[j].x * inverse, held[j].y * inverse),
                         Pack2<Half::kF16>(held[j].z * inverse, held[j].w * inverse));
    });
    if (threadIdx.x == 0) out.scale[to_row] = scale;
  }
}

// Nothing lies between a row and the end of its last 16 values.
bool MayHold(const View& x) {
  return x.cols % 16 == 0 && x.cols <= kHoldMost * 4 * kThreads && Aligned16(x.data, x.stride);
}

template <typename Source>
void RoundHeld(Stream stream, const Source& source, size_t shared, const HalfRows& out,
               const RowSlots& slots = {}) {
  const int64_t hold = CeilDiv<int64_t>(source.y.cols, 4 * kThreads);
  const auto kernel = hold <= 1   ? RoundHeldRows<1, Source>
                      : hold <= 4 ? RoundHeldRows<4, Source>
                                  : RoundHeldRows<kHoldMost, Source>;
  LaunchEarly(kernel, unsigned(source.y.rows), kThreads, shared, stream, source, slots, out);
}

size_t LaneBytes(int64_t cols) { return size_t(LaneRow::Floats(int(cols))) * sizeof(float); }

}  // namespace

void RoundRows(Stream stream, const View& x, const HalfRows& out) {
  RoundRowsToSlots(stream, x, {}, out);
}

void RoundRowsToSlots(Stream stream, const View& x, const RowSlots& slots, const HalfRows& out) {
  if (MayHold(x)) return RoundHeld(stream, StoredRows{x}, 0, out, slots);
  LaunchEarly(RoundAnyRows, unsigned(x.rows), kThreads, 0, stream, x, slots, out);
}

bool MayMakeAndRound(const MadeRows& rows) {
  if (const auto* gated = std::get_if<GatedRows>(&rows)) {
    return MayHold(gated->gate) && MayHold(gated->up) && MayHold(gated->y);
  }
  const auto& normed = std::get<NormedRows>(rows);
  constexpr size_t kUnaskedBytes = 48 << 10;  // of shared memory
  return MayHold(normed.x) && (normed.added.data == nullptr || MayHold(normed.added)) &&
         MayHold(normed.y) && reinterpret_cast<uintptr_t>(normed.weight) % 16 == 0 &&
         LaneBytes(normed.y.cols) <= kUnaskedBytes;
}

void MakeAndRoundRows(Stream stream, const MadeRows& rows, const HalfRows& out) {
  if (const auto* gated = std::get_if<GatedRows>(&rows)) {
    return RoundHeld(stream, GatesOfRows{*gated}, 0, out);
  }
  const auto& normed = std::get<NormedRows>(rows);
  const size_t shared = LaneBytes(normed.y.cols);
  if (normed.added.data == nullptr) {
    RoundHeld(stream, NormsOfRows<false>{normed}, shared, out);
  } else {
    RoundHeld(stream, NormsOfRows<true>{normed}, shared, out);
  }
}

}  // namespace reprise::cuda
