// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"

namespace reprise::cpu {

void OverlayI8mmMatrix(KernelTable*) {}

}  // namespace reprise::cpu
