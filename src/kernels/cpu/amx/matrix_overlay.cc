// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"

namespace reprise::cpu {

// AMX implies VNNI, which serves the steps of few tokens.
void OverlayAmxMatrix(KernelTable* table) {
  OverlayAvx512VnniMatrix(table);
  for (MatrixKernel& kernel : table->matrix) {
    if (kernel.run != nullptr && kernel.group_rows == 32) kernel.isa = "amx";
  }
}

}  // namespace reprise::cpu
