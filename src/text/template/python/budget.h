// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/status.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// What one render may use. A template comes with a model file and a conversation from a network
// client: neither is trusted with the server's time or memory.
struct Limits {
  uint64_t steps_max = 10'000'000;              // nodes evaluated, items and bytes looked at
  size_t memory_bytes_max = size_t{256} << 20;  // all that was ever allocated, freed or not
  size_t output_bytes_max = size_t{8} << 20;
  int depth_max = 800;  // of the evaluator's recursion: macros that call each other
  std::chrono::milliseconds time_max{1000};
  // Where several renders share a time that began before this one: it ends then, if that is
  // earlier.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // Whether nobody waits for the result any more. Asked now and then; optional.
  std::function<bool()> abandoned;
};

// Counts what a render uses. Every operation pays before it allocates, so that a doubling string
// stops at the limit and not at the machine's memory.
class Budget {
 public:
  static constexpr int kValueDepthMax = 128;

  explicit Budget(const Limits& limits);

  // Pays for `count` nodes, items or words of text.
  Status Spend(uint64_t count) {
    steps_ += count < limits_.steps_max ? count : limits_.steps_max;
    return steps_ < next_check_ ? OkStatus() : Check();
  }
  // Pays for `bytes` of memory, and the time to fill them.
  Status Allocate(size_t bytes);
  // Pays for a value that was just made, and refuses one that is nested too deeply.
  Status Admit(const Value& value);
  // As Allocate, for `count` copies of something of `bytes` bytes; safe from overflow.
  Status AllocateProduct(size_t count, size_t bytes);
  Status CheckOutput(size_t bytes) const;

  uint64_t steps() const { return steps_; }
  size_t memory_bytes() const { return memory_bytes_; }
  int depth_max() const { return limits_.depth_max; }

 private:
  using Clock = std::chrono::steady_clock;
  Status Check();

  const Limits limits_;
  const Clock::time_point deadline_;
  uint64_t steps_ = 0;
  uint64_t next_check_;
  size_t memory_bytes_ = 0;
};

}  // namespace reprise::jinja
