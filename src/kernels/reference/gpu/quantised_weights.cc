// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/quantised_weights.h"

#include <bit>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/factored.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

// A scale and a shift for weights [first, first + count).
void Put(const ScaledRow& row, int first, int count, uint16_t scale, uint16_t shift) {
  for (int i = first / kScaledWeights; i < (first + count) / kScaledWeights; ++i) {
    row.scale[i] = scale;
    row.shift[i] = shift;
  }
}
void PutNibbles(const uint8_t* qs, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = int8_t(qs[j] & 15);
    q[j + 16] = int8_t(qs[j] >> 4);
  }
}

void Take(const BlockQ8_0& block, const ScaledRow& row) {
  for (int i = 0; i < 32; ++i) row.q[i] = block.qs[i];
  Put(row, 0, 32, block.d, 0);
}

void Take(const BlockQ4_0& block, const ScaledRow& row) {
  PutNibbles(block.qs, row.q);
  Put(row, 0, 32, block.d, F32ToF16(-8 * F16ToF32(block.d)));
}

void Take(const BlockQ4_1& block, const ScaledRow& row) {
  PutNibbles(block.qs, row.q);
  Put(row, 0, 32, block.d, block.m);
}

void PutFifth(const uint8_t* qh, int8_t* q) {
  for (int e = 0; e < 32; ++e) q[e] = int8_t(q[e] | (qh[e / 8] >> (e % 8) & 1) << 4);
}

void Take(const BlockQ5_0& block, const ScaledRow& row) {
  PutNibbles(block.qs, row.q);
  PutFifth(block.qh, row.q);
  Put(row, 0, 32, block.d, F32ToF16(-16 * F16ToF32(block.d)));
}

void Take(const BlockQ5_1& block, const ScaledRow& row) {
  PutNibbles(block.qs, row.q);
  PutFifth(block.qh, row.q);
  Put(row, 0, 32, block.d, block.m);
}

// Q4_K, and Q5_K but for the fifth bits.
template <typename Block>
void TakeFours(const Block& block, const ScaledRow& row) {
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  const uint8_t* const scales = block.scales;
  for (int s = 0; s < 8; ++s) {
    const int scale = s < 4 ? scales[s] & 63 : (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
    const int min = s < 4 ? scales[s + 4] & 63 : scales[s + 4] >> 4 | scales[s] >> 6 << 4;
    const uint8_t* qs = block.qs + 32 * (s / 2);
    for (int l = 0; l < 32; ++l) row.q[32 * s + l] = int8_t(s % 2 == 0 ? qs[l] & 15 : qs[l] >> 4);
    Put(row, 32 * s, 32, F32ToF16(d * float(scale)), F32ToF16(-dmin * float(min)));
  }
}

void Take(const BlockQ4_K& block, const ScaledRow& row) { TakeFours(block, row); }

void Take(const BlockQ5_K& block, const ScaledRow& row) {
  TakeFours(block, row);
  for (int e = 0; e < 256; ++e) {
    row.q[e] = int8_t(row.q[e] | (block.qh[e % 32] >> (e / 32) & 1) << 4);
  }
}

void Take(const BlockQ6_K& block, const ScaledRow& row) {
  const float d = F16ToF32(block.d);
  for (int s = 0; s < 16; ++s) {
    const int half = s / 8, k = s % 8 / 2, l0 = 16 * (s % 2);
    const uint8_t* ql = block.ql + 64 * half + 32 * (k & 1) + l0;
    const uint8_t* qh = block.qh + 32 * half + l0;
    const int low_shift = k < 2 ? 0 : 4;
    for (int l = 0; l < 16; ++l) {
      const int q = (ql[l] >> low_shift & 15) | (qh[l] >> (2 * k) & 3) << 4;
      row.q[16 * s + l] = int8_t(q - 32);
    }
    Put(row, 16 * s, 16, F32ToF16(d * float(block.scales[s])), 0);
  }
}

template <typename Block, int kElements>
void TakeRow(const void* blocks, int64_t cols, ScaledRow row) {
  const Block* block = static_cast<const Block*>(blocks);
  for (int64_t done = 0; done < cols; done += kElements) {
    Take(*block++, row);
    row.q += kElements;
    row.scale += kElements / kScaledWeights;
    row.shift += kElements / kScaledWeights;
  }
}

// Types whose values are few: points of grids, a part of `kPart` times as large, and ternary ones.
template <DType kType, int kPart>
void TakeCoded(const void* blocks, int64_t cols, ScaledRow row) {
  constexpr bool kTernary = kType == DType::kTQ1_0 || kType == DType::kTQ2_0;
  const auto* block = static_cast<const std::byte*>(blocks);
  FactoredBlock factors;
  for (int64_t done = 0; done < cols; done += 256, block += TraitsOf(kType).block_bytes) {
    reprise::TakeApart(kType, block, &factors);
    for (int e = 0; e < 256; ++e) {
      *row.q++ = int8_t(kTernary ? factors.value[e] + 1 : factors.value[e] / kPart);
    }
    const float d = F16ToF32(factors.d) * (factors.unit * kPart);
    for (int s = 0; s < 256 / kScaledWeights; ++s) {
      *row.scale++ = F32ToF16(d * float(factors.scale[s]));
      *row.shift++ = kTernary ? F32ToF16(-d) : uint16_t{0};
    }
  }
}

using TakeFunction = void (*)(const void*, int64_t, ScaledRow);
TakeFunction TakeOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return TakeRow<BlockQ8_0, 32>;
    case DType::kQ4_0:
      return TakeRow<BlockQ4_0, 32>;
    case DType::kQ4_1:
      return TakeRow<BlockQ4_1, 32>;
    case DType::kQ5_0:
      return TakeRow<BlockQ5_0, 32>;
    case DType::kQ5_1:
      return TakeRow<BlockQ5_1, 32>;
    case DType::kQ4_K:
      return TakeRow<BlockQ4_K, 256>;
    case DType::kQ5_K:
      return TakeRow<BlockQ5_K, 256>;
    case DType::kQ6_K:
      return TakeRow<BlockQ6_K, 256>;
    case DType::kIQ1_S:
      return TakeCoded<DType::kIQ1_S, 1>;
    case DType::kIQ1_M:
      return TakeCoded<DType::kIQ1_M, 1>;
    case DType::kIQ3_XXS:
      return TakeCoded<DType::kIQ3_XXS, 2>;
    case DType::kIQ3_S:
      return TakeCoded<DType::kIQ3_S, 1>;
    case DType::kTQ1_0:
      return TakeCoded<DType::kTQ1_0, 1>;
    case DType::kTQ2_0:
      return TakeCoded<DType::kTQ2_0, 1>;
    default:
      return nullptr;
  }
}

}  // namespace

bool HasHalfWeights(DType dtype) { return TakeOf(dtype) != nullptr; }

void TakeApart(DType dtype, const void* blocks, int64_t cols, const ScaledRow& row) {
  CHECK(HasHalfWeights(dtype));
  TakeOf(dtype)(blocks, cols, row);
}

uint16_t HalfWeight(int q, uint16_t scale, uint16_t shift) {
  // Exact in f64. On the way to f16 it is rounded to odd in f32, which has more than two bits more
  // than f16: so the last rounding is the only one that counts.
  const double exact = double(F16ToF32(scale)) * q + double(F16ToF32(shift));
  float odd = float(exact);
  if (std::isfinite(exact) && double(odd) != exact) {
    if (std::fabs(double(odd)) > std::fabs(exact)) odd = std::nextafter(odd, 0.0f);
    odd = std::bit_cast<float>(std::bit_cast<uint32_t>(odd) | 1);
  }
  return F32ToF16(odd);
}

void HalfWeights(DType dtype, const void* blocks, std::span<uint16_t> weights) {
  std::vector<int8_t> q(weights.size());
  std::vector<uint16_t> scale(weights.size() / kScaledWeights), shift(scale.size());
  TakeApart(dtype, blocks, int64_t(weights.size()), {q.data(), scale.data(), shift.data()});
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = HalfWeight(q[i], scale[i / kScaledWeights], shift[i / kScaledWeights]);
  }
}

}  // namespace reprise::reference
