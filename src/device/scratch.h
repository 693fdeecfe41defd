// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "device/memory.h"

namespace reprise {

// A bump allocator for the activations of one step, in the memory of the device that computes them.
// Reset() frees everything at once and keeps the memory, so a warmed-up step allocates nothing.
//
// Thread safety: none; the engine thread allocates, workers only use what they are handed.
class ScratchArena {
 public:
  explicit ScratchArena(DeviceMemory& memory = HostMemory()) : memory_(&memory) {}

  // Room for `count` elements, aligned to 64 bytes, uninitialised, valid until Reset().
  template <typename T>
  DevicePtr<T> Take(size_t count) {
    static_assert(alignof(T) <= kAlignment);
    return Bytes(count * sizeof(T)).template As<T>();
  }
  DevicePtr<float> Floats(size_t count) { return Take<float>(count); }
  // Memory, now, for `bytes` more than are taken. Fails with what the device says.
  Status Provide(size_t bytes);

  // Where the device has no memory left, Take gives addresses that may have nothing behind them
  // from then on, and the arena says so here. Ops are not run on them (kernels/front looks), so a
  // step that is refused memory goes on without computing; whoever runs it takes the refusal, and
  // none of its results.
  bool refused() const { return !refusal_.ok(); }
  const Status& refusal() const { return refusal_; }
  Status TakeRefusal();

  void Reset();
  // The most bytes that one step has needed so far.
  size_t peak_bytes() const { return peak_; }

  // A place to come back to: see ScratchScope.
  struct Mark {
    size_t chunk = 0;
    size_t used = 0;
    size_t total = 0;
  };
  Mark mark() const;
  // Frees everything taken since `mark`. REQUIRES: no Reset and no rewind below it in between.
  void Rewind(const Mark& mark);

 private:
  struct Chunk {
    DeviceBuffer buffer;
    size_t used = 0;
  };
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kChunkMax = 64;

  DevicePtr<std::byte> Bytes(size_t count);
  DevicePtr<std::byte> Nowhere(size_t count);
  Status Grow(size_t count);

  DeviceMemory* memory_;
  Chunk chunks_[kChunkMax];
  size_t chunk_count_ = 0;
  size_t current_ = 0;
  size_t total_ = 0;
  size_t peak_ = 0;
  Status refusal_;
  std::vector<DeviceBuffer> nowhere_;  // addresses that were given out since
};

// Gives back at its end what was taken from the arena in between, so that the layers of a step use
// the same (cache-warm) memory one after another.
class ScratchScope {
 public:
  explicit ScratchScope(ScratchArena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ScratchScope() { arena_.Rewind(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  ScratchArena& arena_;
  const ScratchArena::Mark mark_;
};

}  // namespace reprise
