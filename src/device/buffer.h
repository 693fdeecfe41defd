// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace reprise {

// Zeroed memory for weights and state, aligned to 64 bytes (2 MiB when large, with transparent huge
// pages asked for: streaming weights through 4 KiB pages costs a tenth of decode speed). Pages
// become resident on first touch. Move-only.
class Buffer {
 public:
  Buffer() = default;
  // Fails with kResourceExhausted and the size if the address space is refused.
  static Result<Buffer> Allocate(size_t bytes);

  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Gives the pages back to the system; the contents become zero.
  void Discard();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes of the mapping that data_ lies in
  std::byte* mapping_ = nullptr;
};

// A bump allocator for the activations of one step. Reset() frees everything at once and keeps the
// memory, so a warmed-up step allocates nothing.
//
// Thread safety: none; the engine thread allocates, workers only use what they are handed.
class ScratchArena {
 public:
  // Memory for `count` floats, aligned to 64 bytes, uninitialised, valid until Reset().
  float* Floats(size_t count) { return static_cast<float*>(Bytes(count * sizeof(float))); }
  void* Bytes(size_t count);
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
    Buffer buffer;
    size_t used = 0;
  };
  static constexpr size_t kChunkMax = 64;
  Chunk chunks_[kChunkMax];
  size_t chunk_count_ = 0;
  size_t current_ = 0;
  size_t total_ = 0;
  size_t peak_ = 0;
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
