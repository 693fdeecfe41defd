// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "device/raw.h"
#include "device/thread_pool.h"
#include "kernels/step_layout.h"

namespace reprise::cpu {

// Rows of one sequence with the state that they read and leave behind.
struct Segment {
  float* state = nullptr;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  int32_t position = 0;  // of its first row in the text
  size_t sequence = 0;   // of the step
};

inline int64_t TotalRows(std::span<const Segment> segments) {
  int64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.row_count;
  return rows;
}

// One tensor of the recurrent state of every sequence of a step.
class StateOperand {
 public:
  StateOperand(const StepLayout& step, size_t offset, int64_t floats)
      : step_(step), offset_(offset), bytes_(size_t(floats) * sizeof(float)) {}

  // The rows of each sequence between its tap number `done - 1` and the next one.
  void Next(size_t done, std::vector<Segment>* segments) const {
    segments->clear();
    for (const StepSequence& s : step_.host.sequences) {
      const size_t taps = size_t(s.tap_count);
      if (done > taps) continue;
      const int32_t begin = done == 0 ? s.row_begin : tap(s, done - 1).row;
      const int32_t end = done == taps ? s.row_begin + s.row_count : tap(s, done).row;
      if (begin == end) continue;
      segments->push_back({reinterpret_cast<float*>(unit(s.state)), begin, end - begin,
                           step_.host.positions[size_t(begin)],
                           size_t(&s - step_.host.sequences.data())});
    }
  }

  // Copies the states that are wanted at taps number `done`.
  void CopyTaps(ThreadPool& pool, size_t done) const {
    // Large enough to be worth a thread, small enough to share one tensor among several.
    constexpr int64_t kGrainBytes = 64 << 10;
    for (const StepSequence& s : step_.host.sequences) {
      if (done >= size_t(s.tap_count)) continue;
      const std::byte* from = unit(s.state);
      std::byte* to = unit(tap(s, done).state);
      pool.ParallelFor(int64_t(bytes_), kGrainBytes, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, size_t(end - begin));
      });
    }
  }

  size_t taps_max() const {
    int32_t most = 0;
    for (const StepSequence& s : step_.host.sequences) most = std::max(most, s.tap_count);
    return size_t(most);
  }

 private:
  const StepTap& tap(const StepSequence& s, size_t index) const {
    return step_.host.taps[size_t(s.tap_begin) + index];
  }
  std::byte* unit(uint32_t id) const {
    return Raw(step_.state_memory) + size_t{id} * step_.state_bytes + offset_;
  }

  const StepLayout& step_;
  const size_t offset_;
  const size_t bytes_;
};

// Calls op(segments) so that every row of every sequence is run once, in order. Where a state is
// wanted on the way the rows come in several calls and the state is copied between them: scans give
// the same bits however they are cut.
template <typename Op>
void ForSegments(ThreadPool& pool, const StateOperand& state, const Op& op) {
  const size_t taps_max = state.taps_max();
  std::vector<Segment> segments;
  size_t done = 0;
  do {
    state.Next(done, &segments);
    if (!segments.empty()) op(std::span<const Segment>(segments));  // a tap may be at the end
    state.CopyTaps(pool, done);
  } while (++done <= taps_max);
}

// --- What ops that have to do with state look at on the way (StepLayout::spoilt) -------------

// Any thread, any number of times.
inline void Spoil(const StepLayout& step, size_t sequence) {
  if (!step.spoilt) return;
  std::atomic_ref<int32_t>(Raw(step.spoilt)[sequence]).store(1, std::memory_order_relaxed);
}

// Whether all are finite, and with that of a magnitude below the one whose bits are `limit`.
inline bool AllBelow(uint32_t limit, const float* x, int64_t count) {
  constexpr int64_t kAtOnce = 16;            // the compiler makes vectors of them
  const uint32_t more = 0x80000000 - limit;  // brings what is not below to the sign
  uint32_t seen[kAtOnce] = {};
  int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    for (int64_t j = 0; j < kAtOnce; ++j) {
      seen[j] |= (std::bit_cast<uint32_t>(x[i + j]) & 0x7FFFFFFF) + more;
    }
  }
  for (; i < count; ++i) seen[0] |= (std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF) + more;
  uint32_t all = 0;
  for (const uint32_t one : seen) all |= one;
  return all >> 31 == 0;
}
constexpr uint32_t kInfinity = 0x7F800000;

// A matrix of `rows` rows, `stride` floats apart.
inline bool AllBelow(uint32_t limit, const float* x, int64_t rows, int64_t stride, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    if (!AllBelow(limit, x + r * stride, cols)) return false;
  }
  return true;
}

}  // namespace reprise::cpu
