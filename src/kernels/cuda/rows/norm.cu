// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/reference/math.h"

// An op over parts of rows is a struct with
//   Value(row, i)                    the element that is reduced (i counts within the row)
//   Reduce(value, lane, n)           what every thread of the part must know, by 16 threads
//   Store(row, i, part, value, known)
// and runs in one of two kernels: 16 threads a part, or a block a part with the values in shared
// memory. An element is always read and stored by the same thread, so x and y may be one.
namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = kNormLanes;
constexpr int kBatch = 8;
constexpr int kNarrow = 512;                 // parts up to here take 16 threads
constexpr int64_t kSharedBytes = 200 << 10;  // the most a block asks for

template <typename Op>
__global__ void __launch_bounds__(kThreads)
    NarrowParts(Op op, int64_t parts, int groups, int64_t n) {
  WaitForInputs();
  LetNextStart();
  const int64_t part = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const int lane = threadIdx.x % kLanes;
  // Threads without a part of their own repeat the last one up to the shuffles of its sum.
  const int64_t mine = part < parts ? part : parts - 1;
  const int64_t row = mine / groups;
  const int64_t begin = mine % groups * n;
  const auto value = [&](int64_t i) { return op.Value(row, begin + i); };
  const auto known = op.Reduce(value, lane, n);
  if (part >= parts) return;
  for (int64_t i = lane; i < n; i += kLanes) {
    op.Store(row, begin + i, i, value(i), known);
  }
}

template <typename Op>
__global__ void __launch_bounds__(kThreads) WideParts(Op op, int64_t parts, int groups, int64_t n) {
  WaitForInputs();
  LetNextStart();
  extern __shared__ float values[];
  __shared__ decltype(op.Reduce([](int64_t) { return 0.0f; }, 0, int64_t{0})) shared_known;
  for (int64_t part = blockIdx.x; part < parts; part += gridDim.x) {
    const int64_t row = part / groups;
    const int64_t begin = part % groups * n;
    // Values are asked for in batches: whatever is stored between two loads, the second waits.
    for (int64_t i = threadIdx.x; i < n; i += kBatch * kThreads) {
      float batch[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (i + j * kThreads < n) batch[j] = op.Value(row, begin + i + j * kThreads);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (i + j * kThreads < n) values[i + j * kThreads] = batch[j];
      }
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // both halves of the warp do the same
      const auto value = [&](int64_t i) { return values[i]; };
      const auto known = op.Reduce(value, threadIdx.x % kLanes, n);
      if (threadIdx.x == 0) shared_known = known;
    }
    __syncthreads();
    const auto known = shared_known;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      op.Store(row, begin + i, i, values[i], known);
    }
    __syncthreads();
  }
}

template <typename Op>
void Launch(Stream stream, const View& shape, int groups, const Op& op) {
  if (shape.rows == 0 || shape.cols == 0) return;
  const int64_t n = shape.cols / groups;
  const int64_t parts = shape.rows * groups;
  const int64_t bytes = n * int64_t{sizeof(float)};
  const size_t most = std::min<size_t>(kSharedBytes, ThisGpu().block_shared - 1024);
  if (n <= kNarrow || size_t(bytes) > most) {
    LaunchEarly(NarrowParts<Op>, Blocks(parts * kLanes, kThreads), kThreads, 0, stream, op, parts,
                groups, n);
    return;
  }
  const auto blocks = static_cast<unsigned>(parts < (1 << 30) ? parts : 1 << 30);
  LaunchEarly(WideParts<Op>, blocks, kThreads, size_t(bytes), stream, op, parts, groups, n);
}

// RMS norm of a value that a derived struct defines; every part has the same weight where
// kShared, else its own piece.
template <bool kSharedWeight>
struct RmsOp {
  const float* weight;
  float eps;
  View y;

  template <typename ValueOf>
  __device__ float Reduce(const ValueOf& value, int lane, int64_t n) const {
    return InverseRoot(SumOfSquares(value, lane, n) / static_cast<float>(n), eps);
  }
  __device__ float Normal(int64_t i, int64_t at, float value, float r) const {
    return (value * r) * __ldg(weight + (kSharedWeight ? at : i));
  }
};

template <bool kSharedWeight>
struct RmsNormOp : RmsOp<kSharedWeight> {
  View x;
  __device__ float Value(int64_t row, int64_t i) const { return x.data[row * x.stride + i]; }
  __device__ void Store(int64_t row, int64_t i, int64_t at, float value, float r) const {
    this->y.data[row * this->y.stride + i] = this->Normal(i, at, value, r);
  }
};

struct AddRmsNormOp : RmsOp<true> {
  View a;
  View b;
  View sum;
  __device__ float Value(int64_t row, int64_t i) const {
    return a.data[row * a.stride + i] + b.data[row * b.stride + i];
  }
  __device__ void Store(int64_t row, int64_t i, int64_t at, float value, float r) const {
    sum.data[row * sum.stride + i] = value;
    y.data[row * y.stride + i] = Normal(i, at, value, r);
  }
};

struct RmsNormGatedOp : RmsOp<true> {
  View x;
  View gate;
  __device__ float Value(int64_t row, int64_t i) const { return x.data[row * x.stride + i]; }
  __device__ void Store(int64_t row, int64_t i, int64_t at, float value, float r) const {
    const float normal = Normal(i, at, value, r);
    y.data[row * y.stride + i] = reference::Silu(gate.data[row * gate.stride + i]) * normal;
  }
};

struct GateRmsNormOp : RmsOp<false> {
  View x;
  View gate;
  __device__ float Value(int64_t row, int64_t i) const {
    return reference::Silu(gate.data[row * gate.stride + i]) * x.data[row * x.stride + i];
  }
  __device__ void Store(int64_t row, int64_t i, int64_t at, float value, float r) const {
    y.data[row * y.stride + i] = Normal(i, at, value, r);
  }
};

struct L2NormOp {
  View x;
  float eps;
  float scale;
  View y;
  __device__ float Value(int64_t row, int64_t i) const { return x.data[row * x.stride + i]; }
  template <typename ValueOf>
  __device__ float Reduce(const ValueOf& value, int lane, int64_t n) const {
    return InverseRoot(SumOfSquares(value, lane, n), eps);
  }
  __device__ void Store(int64_t row, int64_t i, int64_t, float value, float r) const {
    y.data[row * y.stride + i] = (value * r) * scale;
  }
};

struct LayerNormOp {
  View x;
  const float* weight;
  const float* bias;
  float eps;
  View y;
  struct Known {
    float mean;
    float r;
  };
  __device__ float Value(int64_t row, int64_t i) const { return x.data[row * x.stride + i]; }
  template <typename ValueOf>
  __device__ Known Reduce(const ValueOf& value, int lane, int64_t n) const {
    float sum = 0;
#pragma unroll 8
    for (int64_t i = lane; i < n; i += kLanes) sum += value(i);
    const float mean = SumLanes(sum) / static_cast<float>(n);
    const auto deviation = [&](int64_t i) { return value(i) - mean; };
    const float squares = SumOfSquares(deviation, lane, n);
    return {mean, InverseRoot(squares / static_cast<float>(n), eps)};
  }
  __device__ void Store(int64_t row, int64_t i, int64_t, float value, Known known) const {
    const float scaled = (value - known.mean) * known.r;
    y.data[row * y.stride + i] =
        bias != nullptr ? fmaf(scaled, weight[i], bias[i]) : scaled * weight[i];
  }
};

struct CutBelowOp {
  View x;
  float factor;
  View y;
  __device__ float Value(int64_t row, int64_t i) const { return x.data[row * x.stride + i]; }
  template <typename ValueOf>
  __device__ float Reduce(const ValueOf& value, int lane, int64_t n) const {
    float sum = 0;
#pragma unroll 8
    for (int64_t i = lane; i < n; i += kLanes) sum += value(i);
    const float mean = SumLanes(sum) / static_cast<float>(n);
    const auto deviation = [&](int64_t i) { return value(i) - mean; };
    const float squares = SumOfSquares(deviation, lane, n);
    return fmaf(sqrtf(squares / static_cast<float>(n)), factor, mean);
  }
  __device__ void Store(int64_t row, int64_t i, int64_t, float value, float least) const {
    const float above = value - least;
    y.data[row * y.stride + i] = above < 0 ? 0 : above;
  }
};

struct SoftmaxOp {
  View x;
  View y;
  struct Known {
    float max;
    float r;
  };
  __device__ float Value(int64_t row, int64_t i) const { return x.data[row * x.stride + i]; }
  template <typename ValueOf>
  __device__ Known Reduce(const ValueOf& value, int lane, int64_t n) const {
    float max = -INFINITY;  // NaN is never larger; the largest has no order
    for (int64_t i = lane; i < n; i += kLanes) max = value(i) > max ? value(i) : max;
    for (int half = 8; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(kFullWarp, max, half, kLanes);
      max = other > max ? other : max;
    }
    float sum = 0;
#pragma unroll 4
    for (int64_t i = lane; i < n; i += kLanes) sum += reference::Exp(value(i) - max);
    return {max, 1.0f / SumLanes(sum)};
  }
  __device__ void Store(int64_t row, int64_t i, int64_t, float value, Known known) const {
    y.data[row * y.stride + i] = reference::Exp(value - known.max) * known.r;
  }
};

// The sum is of (r * k) * weight, so that fma(value, weight) needs the index: a reduction of its
// own.
__global__ void __launch_bounds__(kThreads)
    RwkvBonusParts(View r, View k, const float* weight, View v, int heads, View y) {
  const int64_t parts = y.rows * heads;
  const int64_t n = y.cols / heads;
  const int64_t part = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t mine = part < parts ? part : parts - 1;
  const int64_t row = mine / heads;
  const int64_t begin = mine % heads * n;
  float sum = 0;
  for (int64_t i = begin + lane; i < begin + n; i += kLanes) {
    sum = fmaf(r.data[row * r.stride + i] * k.data[row * k.stride + i], weight[i], sum);
  }
  sum = SumLanes(sum);
  if (part >= parts) return;
  for (int64_t i = begin + lane; i < begin + n; i += kLanes) {
    float* out = y.data + row * y.stride + i;
    *out = fmaf(sum, v.data[row * v.stride + i], *out);
  }
}

}  // namespace

void RmsNorm(Stream stream, const View& x, const float* weight, int groups, float eps,
             const View& y) {
  Launch(stream, x, groups, RmsNormOp<true>{{weight, eps, y}, x});
}
void AddRmsNorm(Stream stream, const View& a, const View& b, const float* weight, float eps,
                const View& sum, const View& y) {
  Launch(stream, a, 1, AddRmsNormOp{{weight, eps, y}, a, b, sum});
}
void RmsNormGated(Stream stream, const View& x, const View& gate, const float* weight, int groups,
                  float eps, const View& y) {
  Launch(stream, x, groups, RmsNormGatedOp{{weight, eps, y}, x, gate});
}
void L2Norm(Stream stream, const View& x, int groups, float eps, float scale, const View& y) {
  Launch(stream, x, groups, L2NormOp{x, eps, scale, y});
}
void GroupRmsNorm(Stream stream, const View& x, const float* weight, int groups, float eps,
                  const View& y) {
  Launch(stream, x, groups, RmsNormOp<false>{{weight, eps, y}, x});
}
void GateRmsNorm(Stream stream, const View& x, const View& gate, const float* weight, int groups,
                 float eps, const View& y) {
  Launch(stream, x, groups, GateRmsNormOp{{weight, eps, y}, x, gate});
}
void LayerNorm(Stream stream, const View& x, const float* weight, const float* bias, int groups,
               float eps, const View& y) {
  Launch(stream, x, groups, LayerNormOp{x, weight, bias, eps, y});
}
void CutBelow(Stream stream, const View& x, float factor, const View& y) {
  Launch(stream, x, 1, CutBelowOp{x, factor, y});
}
void Softmax(Stream stream, const View& x, const View& y) { Launch(stream, x, 1, SoftmaxOp{x, y}); }
void RwkvBonus(Stream stream, const View& r, const View& k, const float* weight, const View& v,
               int heads, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  const unsigned blocks = Blocks(y.rows * heads * kLanes, kThreads);
  LaunchInTurn(RwkvBonusParts, blocks, kThreads, 0, stream, r, k, weight, v, heads, y);
}

}  // namespace reprise::cuda
