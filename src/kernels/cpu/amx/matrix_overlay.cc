// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/amx/matrix_many.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {

// AMX implies VNNI, which packs the weights and serves the steps of few tokens.
void OverlayAmxMatrix(KernelTable* table) {
  OverlayAvx512VnniMatrix(table);
  OverlayAmxMany32(table);
  OverlayAmxMany256(table);
  table->byte_multiply_adds = nullptr;  // tiles do more than that
}

}  // namespace reprise::cpu
