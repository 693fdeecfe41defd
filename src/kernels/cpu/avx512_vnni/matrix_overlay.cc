// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512_vnni/integer-inl.h"
#include "kernels/cpu/generic/matrix-inl.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {

void OverlayAvx512VnniMatrix(KernelTable* table) {
  OverlayQuantised<IntegerVnni>("avx512_vnni", table);
}

}  // namespace reprise::cpu
