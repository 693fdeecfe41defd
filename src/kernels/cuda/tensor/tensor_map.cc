// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor/tensor_map.h"

#include <cuda_runtime.h>

#include "base/check.h"

namespace reprise::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode FindEncode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) == cudaSuccess);
  CHECK(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Encode>(found);
}

struct Matrix {
  CUtensorMapDataType type;
  int element_bytes;
  const void* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;  // bytes
};

const Encode& Encoder() {
  static const Encode encode = FindEncode();
  return encode;
}

CUtensorMap Make(const Matrix& matrix, const ByteBox& box) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.cols),
                              static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride)};
  const cuuint32_t sides[] = {static_cast<cuuint32_t>(box.bytes / matrix.element_bytes),
                              static_cast<cuuint32_t>(box.rows)};
  const cuuint32_t steps[] = {1, 1};
  CHECK(Encoder()(&map, matrix.type, 2, const_cast<void*>(matrix.data), sizes, strides, sides,
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  box.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

}  // namespace

CUtensorMap MakeTensorMap(const uint16_t* data, int64_t rows, int64_t cols, int64_t stride,
                          int box_rows) {
  // Which 16-bit type it is would only matter for arithmetic on the way, of which there is none.
  return Make({CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, data, rows, cols, stride * 2},
              {128, box_rows, true});
}

CUtensorMap MakePageMap(const void* data, int64_t block_bytes, int64_t rows, int64_t cols) {
  constexpr cuuint64_t kBlocks = 1 << 30;  // more than there can be
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows),
                              kBlocks};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(cols * 2),
                                static_cast<cuuint64_t>(block_bytes)};
  const cuuint32_t sides[] = {64, 64, 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CHECK(Encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(data), sizes, strides,
                  sides, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

CUtensorMap MakeFloatMap(const float* data, int64_t rows, int64_t cols, int64_t stride,
                         int box_rows) {
  return Make({CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, data, rows, cols, stride * 4},
              {128, box_rows, true});
}

CUtensorMap MakeByteMap(const void* data, int64_t rows, int64_t bytes, const ByteBox& box) {
  return Make({CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, data, rows, bytes, bytes}, box);
}

CUtensorMap MakePieceMap(int element_bytes, const void* data, int64_t rows, int64_t cols,
                         int64_t stride, int box_rows) {
  const auto type =
      element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32;
  return Make({type, element_bytes, data, rows, cols, stride}, {16, box_rows});
}

}  // namespace reprise::cuda
