// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2/vector-inl.h"
#include "kernels/cpu/table.h"
// The algorithms are written in terms of the vector above.
#include "kernels/cpu/generic/overlay-inl.h"

namespace reprise::cpu {

void OverlayAvx2Float(KernelTable* table) { OverlayGeneric(table); }

}  // namespace reprise::cpu
