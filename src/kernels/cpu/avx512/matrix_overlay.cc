// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"

namespace reprise::cpu {

void OverlayAvx512Matrix(KernelTable*) {}

}  // namespace reprise::cpu
