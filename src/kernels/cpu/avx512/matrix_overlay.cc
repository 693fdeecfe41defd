// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/integer-inl.h"
#include "kernels/cpu/avx512/matrix_float.h"
#include "kernels/cpu/generic/matrix-inl.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {

void OverlayAvx512Matrix(KernelTable* table) {
  OverlayQuantised<IntegerAvx512>("avx512", table);
  OverlayAvx512FloatMatrices(table);
  table->quantise_32 = Quantise32Avx512;
  table->quantise_256 = Quantise256Avx512;
}

}  // namespace reprise::cpu
