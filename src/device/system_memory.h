// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace reprise {

// Bytes of this process that are resident now; 0 where that cannot be read.
size_t ResidentMemoryBytes();

}  // namespace reprise
