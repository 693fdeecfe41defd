// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {

// The table of this process: every overlay that the CPU supports, or those that the environment
// variable REPRISE_ISA names (a comma-separated list; scalar is always in). Built on the first
// call. A wrong REPRISE_ISA ends the program with a message: it must never be ignored silently.
const KernelTable& ActiveTable();

// A table of the named overlays: "" or "all" for every one the CPU supports, else a list such as
// "avx2,avx512". Fails on an unknown name and on one that this CPU does not support.
Result<KernelTable> BuildTable(std::string_view isas);

// Overlays that this CPU supports, slowest first; "scalar" is the first.
std::vector<std::string> AvailableIsas();

struct ActiveEntry {
  std::string op;   // "matrix q8_0", "rms_norm"
  std::string isa;  // the overlay that set it
};
// Which overlay each entry of BuildTable(isas) comes from, in table order: for --version, the page
// and docs/kernels.md. REQUIRES: BuildTable(isas) succeeds.
std::vector<ActiveEntry> DescribeTable(std::string_view isas);

}  // namespace reprise::cpu
