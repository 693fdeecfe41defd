// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/quantise.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr uint32_t kSmallestBits = 0x0D800000;  // 2^-100

// Eight values a thread: 4 threads hold a block of 32, 32 threads one of 256.
constexpr int kValues = 8;

template <int kBlock>
__global__ void __launch_bounds__(kThreads) QuantiseRows(View x, QuantisedView to) {
  WaitForInputs();
  LetNextStart();
  constexpr int kTeam = kBlock / kValues;
  const int64_t per_row = x.cols / kValues;
  // Whole warps stay: a thread behind the end works on the last values and stores nothing.
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool inside = index < per_row;
  const int64_t column = (inside ? index : per_row - 1) * kValues;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    const float* from = x.data + row * x.stride + column;
    float value[kValues];
    uint32_t max_bits = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      value[i] = from[i];
      max_bits = max(max_bits, __float_as_uint(value[i]) & 0x7FFFFFFF);
    }
#pragma unroll
    for (int half = kTeam / 2; half > 0; half /= 2) {
      max_bits = max(max_bits, __shfl_xor_sync(kFullWarp, max_bits, half));
    }
    const bool zero = max_bits < kSmallestBits || max_bits >= kInfinityBits;
    const float largest = __uint_as_float(max_bits);
    const float inverse = zero ? 0.0f : 127.0f / largest;
    int sum = 0;
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int q = zero ? 0 : __float2int_rn(value[i] * inverse);
      sum += q;
      words[i / 4] |= (q & 0xFFu) << (8 * (i % 4));
    }
    // Sums are of 32 values (4 threads), or of 16 (2 threads) in blocks of 256.
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    if (kBlock == 32) sum += __shfl_xor_sync(kFullWarp, sum, 2);
    constexpr int kSummed = kBlock == 32 ? 32 : 16;
    if (!inside) continue;
    *reinterpret_cast<uint2*>(to.q + row * to.cols + column) = make_uint2(words[0], words[1]);
    if (column % kSummed == 0) {
      to.sum[row * (to.cols / kSummed) + column / kSummed] = static_cast<int16_t>(sum);
    }
    if (column % kBlock == 0) {
      const float scale = max_bits >= kInfinityBits ? NAN : zero ? 0.0f : largest / 127.0f;
      to.scale[row * (to.cols / kBlock) + column / kBlock] = scale;
    }
  }
}

template <int kBlock>
void Launch(Stream stream, const View& x, const QuantisedView& to) {
  if (x.rows == 0 || x.cols == 0) return;
  const dim3 grid(Blocks(x.cols, kThreads * kValues), RowBlocks(x.rows));
  LaunchEarly(QuantiseRows<kBlock>, grid, kThreads, 0, stream, x, to);
}

}  // namespace

void Quantise32(Stream stream, const View& x, const QuantisedView& to) {
  Launch<32>(stream, x, to);
}
void Quantise256(Stream stream, const View& x, const QuantisedView& to) {
  Launch<256>(stream, x, to);
}

}  // namespace reprise::cuda
