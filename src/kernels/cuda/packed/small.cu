// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/packed/small.h"
#include "kernels/cuda/packed/unit.cuh"
#include "kernels/cuda/tensor/few/small.cuh"

namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kUnits = kTensorSlice / kUnitCols;  // of a piece, one row of them

// Units of 8 rows, or pairs of them, one behind another. A launch has weights of one form, or of
// two that files mix.
template <int kRows, PackedForm kForm, PackedForm kOther = PackedForm::kNone>
struct UnitPieces {
  static constexpr bool kMixed = kOther != PackedForm::kNone;
  static constexpr int kTile = kRows;
  static constexpr int kHigh = kTile / kUnitRows;  // units, one above another
  static constexpr int kBytes = kUnits * kHigh * std::max(UnitBytes(kForm), UnitBytes(kOther));

  static __device__ __forceinline__ void Ask(std::byte* to, const small::Part& part, int tile,
                                             int slice, int cols) {
    if constexpr (kMixed) {
      if (part.other) return AskFor<kOther>(to, part, tile, slice, cols);
    }
    AskFor<kForm>(to, part, tile, slice, cols);
  }
  static __device__ __forceinline__ void Multiply(const std::byte* piece, const small::Part& part,
                                                  const uint32_t* x, float* sums) {
    if constexpr (kMixed) {
      if (part.other) return MultiplyUnits<kOther>(piece, x, sums);
    }
    MultiplyUnits<kForm>(piece, x, sums);
  }

 private:
  template <PackedForm kThis>
  static __device__ __forceinline__ void AskFor(std::byte* to, const small::Part& part, int tile,
                                                int slice, int cols) {
    constexpr int kRun = kHigh * UnitBytes(kThis);  // bytes that lie together
    constexpr int kStride = 2 * UnitBytes(kThis);   // from one to the next
    constexpr int kCopies = (kUnits * kRun / 16 + 31) / 32;
    constexpr int kAtOnce = 4;
    const int first = tile * kTile / kPackedRows * (cols / kUnitCols) + slice * kUnits;
    const auto* from = static_cast<const std::byte*>(part.weight) + int64_t{first} * kStride +
                       tile * kTile % kPackedRows / kUnitRows * UnitBytes(kThis);
    const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = 16 * (32 * i + lane);
      // Behind the piece lies that of the next warp.
      if (at < kUnits * kRun) CopyAsync16(to + at, from + at / kRun * kStride + at % kRun, true);
      // Not all at once: behind so much, what the kernel in front still writes would have to wait.
      if (i % kAtOnce == kAtOnce - 1 && i + 1 < kCopies) {
        CommitAsync();
        if (i >= kAtOnce) WaitAsync<1>();
      }
    }
  }

  template <PackedForm kThis>
  static __device__ __forceinline__ void MultiplyUnits(const std::byte* piece, const uint32_t* x,
                                                       float* sums) {
    const int lane = static_cast<int>(threadIdx.x);
    const auto* mine = reinterpret_cast<const uint4*>(x) + lane % 4;
    const auto* unit = reinterpret_cast<const uint8_t*>(piece);
    float acc[4] = {0, 0, 0, 0};
#pragma unroll 2
    for (int u = 0; u < kUnits; ++u, unit += kHigh * UnitBytes(kThis)) {
      const uint4 first = mine[8 * u], second = mine[8 * u + 4];
      const uint32_t of_x[8] = {first.x,  first.y,  first.z,  first.w,
                                second.x, second.y, second.z, second.w};
      if constexpr (kTile == 8) {
        // The row on the left: of 16 rows there is one, the others are sums of something. What a
        // lane has of a row on the left, it has of a column on the right.
        UnitRow<kThis> row;
        row.Load(unit, lane);
        uint32_t b[8];
        row.template Weights<0>(b[0], b[1]);
        row.template Weights<1>(b[2], b[3]);
        row.template Weights<2>(b[4], b[5]);
        row.template Weights<3>(b[6], b[7]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          Mma<Half::kF16>(acc, {of_x[2 * j], 0, of_x[2 * j + 1], 0}, b[2 * j], b[2 * j + 1]);
        }
      } else {
        UnitPair<kThis> pair;
        pair.Load(unit, lane);
        uint32_t a[16];
        pair.Fragments(a);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          Mma<Half::kF16>(acc, {a[4 * j], a[4 * j + 1], a[4 * j + 2], a[4 * j + 3]}, of_x[2 * j],
                          of_x[2 * j + 1]);
        }
      }
    }
    if constexpr (kTile == 8) {
      if (lane < 4) reinterpret_cast<float2*>(sums)[lane] = make_float2(acc[0], acc[1]);
    } else if (lane % 4 == 0) {
      sums[lane / 4] = acc[0];
      sums[8 + lane / 4] = acc[2];
    }
  }
};

template <PackedForm kForm, PackedForm kOther = PackedForm::kNone>
bool RunForms(Stream stream, const FewProducts& few) {
  return small::RunPieces<UnitPieces<8, kForm, kOther>, UnitPieces<16, kForm, kOther>>(
      stream, few, [&](small::Call& call) {
        for (size_t i = 0; i < few.products.size(); ++i) {
          call.part[i].other = few.products[i].weight.packed != kForm;
        }
      });
}

}  // namespace

bool RunSmallPacked(Stream stream, const FewProducts& few, const FormSet& forms) {
  using enum PackedForm;
  if (!ThisGpu().early_launch) return false;
  if (forms == FormSet{kBytes}) return RunForms<kBytes>(stream, few);
  if (forms == FormSet{kNibbles}) return RunForms<kNibbles>(stream, few);
  if (forms == FormSet{kFives}) return RunForms<kFives>(stream, few);
  if (forms == FormSet{kSixes}) return RunForms<kSixes>(stream, few);
  if (forms == FormSet{kNibbles, kSixes}) return RunForms<kNibbles, kSixes>(stream, few);
  if (forms == FormSet{kFives, kSixes}) return RunForms<kFives, kSixes>(stream, few);
  return false;
}

}  // namespace reprise::cuda
