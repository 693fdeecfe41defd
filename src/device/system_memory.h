// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace reprise {

// Bytes that this process can still make resident without swapping: the kernel's estimate, and what
// the control group leaves if that is less. SIZE_MAX where neither can be read.
size_t AvailableMemoryBytes();

// Bytes of this process that are resident now; 0 where that cannot be read.
size_t ResidentMemoryBytes();

// "1.50 GB", "764 MB": for people, in powers of ten.
std::string FormatBytes(size_t bytes);

}  // namespace reprise
