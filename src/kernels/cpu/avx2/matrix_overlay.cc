// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2/integer-inl.h"
#include "kernels/cpu/avx2/matrix_float.h"
#include "kernels/cpu/generic/matrix-inl.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {

void OverlayAvx2Matrix(KernelTable* table) {
  OverlayQuantised<IntegerAvx2>("avx2", table);
  OverlayAvx2FloatMatrices(table);
  table->quantise_32 = Quantise32Avx2;
  table->quantise_256 = Quantise256Avx2;
}

}  // namespace reprise::cpu
