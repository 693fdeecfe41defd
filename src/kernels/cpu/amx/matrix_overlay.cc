// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"

namespace reprise::cpu {

void OverlayAmxMatrix(KernelTable*) {}

}  // namespace reprise::cpu
