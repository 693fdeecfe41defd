// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"
#include "kernels/reference/matrix.h"

namespace reprise::cpu {

void OverlayScalarMatrix(KernelTable* table) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (dtype != DType::kI32) table->matrix[i] = reference::MatrixKernelOf(dtype);
  }
  table->quantise_32 = reference::Quantise32;
  table->quantise_256 = reference::Quantise256;
}

}  // namespace reprise::cpu
