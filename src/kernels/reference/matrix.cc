// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/matrix.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/codec.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

using cpu::kLanes;
using cpu::QuantisedRows;

template <DType kType>
size_t GroupBytes(int64_t cols) {
  return (RowBytes(kType, cols) + 63) / 64 * 64;
}

template <DType kType>
void Pack(const void* source, size_t, int rows, int64_t cols, void* group) {
  CHECK(rows == 1);
  std::memcpy(group, source, RowBytes(kType, cols));
}

template <DType kType>
void UnpackRow(const void* group, int, int64_t cols, float* out) {
  DequantiseRow(kType, group, out, cols);
}

float LoadValue(DType dtype, const void* row, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(row)[i];
  const uint16_t bits = static_cast<const uint16_t*>(row)[i];
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

template <DType kType>
void RunFloat(const void* group, int, int64_t cols, const float* x, int64_t x_stride,
              const QuantisedRows*, int tokens, float* y, int64_t y_stride) {
  for (int t = 0; t < tokens; ++t) {
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < cols; ++i) {
      float& lane = lanes[i % kLanes];
      lane = std::fma(LoadValue(kType, group, i), x[t * x_stride + i], lane);
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    y[t * y_stride] = lanes[0];
  }
}

int32_t Dot(const int16_t* w, const int8_t* q, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += int32_t{w[i]} * q[i];
  return sum;
}

template <DType kType>
void Run32(const void* group, int, int64_t cols, const float*, int64_t, const QuantisedRows* x,
           int tokens, float* y, int64_t y_stride) {
  const char* blocks = static_cast<const char*>(group);
  for (int t = 0; t < tokens; ++t) y[t * y_stride] = 0;
  for (int64_t b = 0; b < cols / 32; ++b) {
    IntegerBlock block;
    ExpandBlock(kType, blocks + b * TraitsOf(kType).block_bytes, &block);
    for (int t = 0; t < tokens; ++t) {
      const float dx = x->scale[t * x->scale_stride + b];
      const int32_t isum = Dot(block.w, x->q + t * x->q_stride + 32 * b, 32);
      float acc = std::fma(block.d * dx, float(isum), y[t * y_stride]);
      if (HasMinimum(kType)) {
        acc = std::fma(block.m * dx, float(x->sum[t * x->sum_stride + b]), acc);
      }
      y[t * y_stride] = acc;
    }
  }
}

template <DType kType>
void Run256(const void* group, int, int64_t cols, const float*, int64_t, const QuantisedRows* x,
            int tokens, float* y, int64_t y_stride) {
  const char* blocks = static_cast<const char*>(group);
  for (int t = 0; t < tokens; ++t) y[t * y_stride] = 0;
  for (int64_t b = 0; b < cols / 256; ++b) {
    IntegerBlock block;
    ExpandBlock(kType, blocks + b * TraitsOf(kType).block_bytes, &block);
    for (int t = 0; t < tokens; ++t) {
      const float dx = x->scale[t * x->scale_stride + b];
      const int32_t isum = Dot(block.w, x->q + t * x->q_stride + 256 * b, 256);
      float acc = std::fma(block.d * dx, float(isum), y[t * y_stride]);
      if (HasMinimum(kType)) {
        const int16_t* sums = x->sum + t * x->sum_stride + 16 * b;
        int32_t minima = 0;
        for (int s = 0; s < 16; ++s) minima += int32_t{block.min[s]} * sums[s];
        acc = std::fma(-(block.m * dx), float(minima), acc);
      }
      y[t * y_stride] = acc;
    }
  }
}

template <DType kType>
cpu::MatrixKernel Kernel() {
  cpu::MatrixKernel kernel = {};
  kernel.isa = "scalar";
  kernel.format = "rows";
  kernel.group_rows = 1;
  kernel.group_bytes = GroupBytes<kType>;
  kernel.pack = Pack<kType>;
  kernel.unpack_row = UnpackRow<kType>;
  switch (TraitsOf(kType).block_elements) {
    case 1:
      kernel.activations = cpu::ActivationFormat::kF32;
      kernel.run = RunFloat<kType>;
      break;
    case 32:
      kernel.activations = cpu::ActivationFormat::kQ8Block32;
      kernel.run = Run32<kType>;
      break;
    default:
      kernel.activations = cpu::ActivationFormat::kQ8Block256;
      kernel.run = Run256<kType>;
      break;
  }
  return kernel;
}

}  // namespace

cpu::MatrixKernel MatrixKernelOf(DType dtype) {
  switch (dtype) {
#define REPRISE_KERNEL(name, ...) \
  case DType::k##name:            \
    return Kernel<DType::k##name>();
    REPRISE_WEIGHT_TYPES(REPRISE_KERNEL)
#undef REPRISE_KERNEL
    case DType::kI32:
      break;
  }
  CHECK(!"a type of weights");
  return {};
}

namespace {

// One row of weights times x, in the order that products of their type have.
float DotRow(DType dtype, const std::byte* row, int64_t cols, const float* x) {
  const cpu::MatrixKernel kernel = MatrixKernelOf(dtype);
  std::vector<std::byte> group(kernel.group_bytes(cols));
  kernel.pack(row, RowBytes(dtype, cols), 1, cols, group.data());
  float y = 0;
  kernel.run(group.data(), 1, cols, x, cols, nullptr, 1, &y, 1);
  return y;
}

}  // namespace

void AddLowRank(const LowRankFactors& factors, const float* x, float* y) {
  std::vector<float> between(static_cast<size_t>(factors.rank));
  const size_t down_bytes = RowBytes(factors.dtype, factors.cols);
  const size_t up_bytes = RowBytes(factors.dtype, factors.rank);
  for (int64_t r = 0; r < factors.rank; ++r) {
    const std::byte* row = factors.down + static_cast<size_t>(r) * down_bytes;
    between[static_cast<size_t>(r)] = DotRow(factors.dtype, row, factors.cols, x) * factors.scale;
  }
  for (int64_t r = 0; r < factors.rows; ++r) {
    const std::byte* row = factors.up + static_cast<size_t>(r) * up_bytes;
    y[r] += DotRow(factors.dtype, row, factors.rank, between.data());
  }
}

}  // namespace reprise::reference
