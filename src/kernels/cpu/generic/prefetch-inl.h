// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/table.h"

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

// The same of memory that is named by where it begins, a piece at a time: what is left of a line
// that was asked for is not asked for again.
class Asked {
 public:
  explicit Asked(uintptr_t begin) : until_(begin), line_(begin) {}
  // Most often kMost, or nothing.
  template <int kMost>
  void More(int bytes) {
    until_ += uintptr_t(bytes);
    if (bytes == kMost) {
      for (int i = 0; i < kMost; i += 64) Ask(line_ + uintptr_t(i));
      line_ = until_;
    }
    for (; line_ < until_; line_ += 64) Ask(line_);
  }

 private:
  static void Ask(uintptr_t at) { __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 3); }

  uintptr_t until_;
  uintptr_t line_;
};

// Asks for the activations that the next tile of as many tokens meets in the same block: in a panel
// of few blocks their rows are too short for the hardware to see where they go.
template <int kTokens>
inline void AskActivations(const QuantisedRows& x, int64_t b) {
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* const q = x.q + (kTokens + t) * x.q_stride + 256 * b;
    for (int i = 0; i < 256; i += 64) __builtin_prefetch(q + i, 0, 3);
    __builtin_prefetch(x.sum + (kTokens + t) * x.sum_stride + 16 * b, 0, 3);
  }
}

}  // namespace
}  // namespace reprise::cpu
