// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/table.h"

namespace reprise::cpu {

// Sets run_many of k-quants.
void OverlayVnniPanels(KernelTable* table);

}  // namespace reprise::cpu
