// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace reprise::grammar {

// A vector that grows chunk by chunk: adding an element never moves more than the first chunk, so
// it costs the same at any size.
//
// Thread safety: none.
template <typename T>
class StableVector {
 public:
  T& operator[](size_t at) { return chunks_[at / kChunk][at % kChunk]; }
  const T& operator[](size_t at) const { return chunks_[at / kChunk][at % kChunk]; }
  size_t size() const { return size_; }

  void push_back(T value) {
    if (size_ % kChunk == 0) chunks_.emplace_back();
    std::vector<T>& last = chunks_.back();
    // The first chunk begins small; a copy of a vector has no room left.
    if (chunks_.size() > 1 && last.capacity() < kChunk) last.reserve(kChunk);
    last.push_back(std::move(value));
    ++size_;
  }
  template <typename... Args>
  void emplace_back(Args&&... args) {
    push_back(T(std::forward<Args>(args)...));
  }

 private:
  static constexpr size_t kChunk = 1024;

  std::vector<std::vector<T>> chunks_;
  size_t size_ = 0;
};

}  // namespace reprise::grammar
