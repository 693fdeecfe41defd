// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise::cpu {
namespace {

// Asks for the bytes that come kPrefetchAhead after [p, p + bytes): hardware alone stops at every
// page of 4 KiB, and leaves a third of the bandwidth. A number, not a pointer: what is asked for
// may lie behind the end of the weights.
constexpr int kPrefetchAhead = 8192;
inline void PrefetchAhead(const uint8_t* p, int bytes) {
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(p) + kPrefetchAhead;
  for (int i = 0; i < bytes; i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + uintptr_t(i)), 0, 3);
  }
}

}  // namespace
}  // namespace reprise::cpu
