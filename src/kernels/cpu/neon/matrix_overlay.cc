// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/neon/matrix.h"

namespace reprise::cpu {

void OverlayNeonMatrix(KernelTable* table) {
  neon::SetQuantised(table);
  neon::SetFloat(table);
  table->quantise_32 = neon::Quantise32;
  table->quantise_256 = neon::Quantise256;
}

}  // namespace reprise::cpu
