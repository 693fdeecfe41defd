// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/table.h"

namespace reprise::cpu {

// Set run_many of the types of 32-blocks and of 256-blocks.
void OverlayAmxMany32(KernelTable* table);
void OverlayAmxMany256(KernelTable* table);

}  // namespace reprise::cpu
