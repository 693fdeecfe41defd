// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "device/raw.h"
#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/ops.h"

// What tests of ops share: a CPU to run them on, operands in the memory of the host, steps made by
// hand.
namespace reprise {

using Floats = std::vector<float>;

inline Floats Uniform(Rng& rng, int64_t n, float low, float high) {
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = low + rng.Uniform() * (high - low);
  return x;
}

inline Rows View(Floats& x, int64_t cols) {
  return {PlaceAt(x.data()), static_cast<int64_t>(x.size()) / cols, cols, cols};
}
inline ConstRows View(const Floats& x, int64_t cols) {
  return {PlaceAt(x.data()), static_cast<int64_t>(x.size()) / cols, cols, cols};
}
inline ConstFloats View(const Floats& x) { return PlaceAt(x.data()); }

inline bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Threads, tables and scratch for one configuration.
class Machine {
 public:
  explicit Machine(int threads, const std::string& isas = "all")
      : pool_(threads), table_(*cpu::BuildTable(isas)), backend_(&pool_, &table_) {}
  OpContext context() { return {&backend_, &scratch_}; }
  ScratchArena& scratch() { return scratch_; }

 private:
  ThreadPool pool_;
  cpu::KernelTable table_;
  cpu::CpuBackend backend_;
  ScratchArena scratch_;
};

// A step over `rows` rows, of which the sequences that are added need not cover all.
class TestStep {
 public:
  explicit TestStep(int64_t rows)
      : tokens_(static_cast<size_t>(rows)),
        positions_(static_cast<size_t>(rows)),
        row_sequences_(static_cast<size_t>(rows)) {}
  TestStep(const TestStep&) = delete;
  TestStep& operator=(const TestStep&) = delete;

  void SetTokens(const std::vector<int32_t>& tokens) { tokens_ = tokens; }
  void SetPositions(const std::vector<int32_t>& positions) { positions_ = positions; }
  // `begin` and `count` are rows, the sequence's first of them stands at `position`.
  StepSequence& Add(int64_t begin, int64_t count, int64_t position, uint32_t state = 0) {
    for (int64_t i = 0; i < count; ++i) {
      positions_[static_cast<size_t>(begin + i)] = static_cast<int32_t>(position + i);
      row_sequences_[static_cast<size_t>(begin + i)] = static_cast<int32_t>(sequences_.size());
    }
    StepSequence& s = sequences_.emplace_back();
    s.row_begin = static_cast<int32_t>(begin);
    s.row_count = static_cast<int32_t>(count);
    s.position = static_cast<int32_t>(position);
    s.block_begin = static_cast<int32_t>(blocks_.size());
    s.tap_begin = static_cast<int32_t>(taps_.size());
    s.state = state;
    return s;
  }
  // For the sequence that was added last.
  void AddBlocks(const std::vector<uint32_t>& ids) {
    blocks_.insert(blocks_.end(), ids.begin(), ids.end());
    sequences_.back().block_count += static_cast<int32_t>(ids.size());
  }
  void AddTap(int64_t row, uint32_t state) {
    taps_.push_back({static_cast<int32_t>(row), state});
    ++sequences_.back().tap_count;
  }
  void SetBlockMemory(std::vector<std::byte>& memory, size_t block_bytes) {
    layout_.block_memory = PlaceAt(memory.data());
    layout_.block_bytes = block_bytes;
  }
  // Units of `floats` floats.
  void SetStates(Floats& states, int64_t floats) {
    layout_.state_memory = PlaceAt(states.data()).As<std::byte>();
    layout_.state_bytes = static_cast<size_t>(floats) * sizeof(float);
  }

  const StepLayout& Begin(const OpContext& context) {
    layout_.host = {tokens_, positions_, row_sequences_, sequences_, blocks_, taps_, {}};
    BeginStep(context, &layout_);
    return layout_;
  }
  const std::vector<StepSequence>& sequences() const { return sequences_; }

 private:
  std::vector<int32_t> tokens_, positions_, row_sequences_;
  std::vector<StepSequence> sequences_;
  std::vector<uint32_t> blocks_;
  std::vector<StepTap> taps_;
  StepLayout layout_;
};

}  // namespace reprise
