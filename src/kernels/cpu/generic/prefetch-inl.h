// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise::cpu {
namespace {

// Asks for the bytes that come kPrefetchAhead after [p, p + bytes): hardware alone stops at every
// page of 4 KiB, and leaves a third of the bandwidth.
constexpr int kPrefetchAhead = 8192;
inline void PrefetchAhead(const uint8_t* p, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + kPrefetchAhead + i, 0, 3);
}

}  // namespace
}  // namespace reprise::cpu
