// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace reprise {

// An array that grows in pieces: beyond the first piece nothing is ever copied or moved, so that no
// single operation costs more the longer the array is. (A std::vector of a million elements moves
// them all when it grows by one.) Large elements never move at all: their first piece is whole from
// the beginning.
//
// Thread safety: none. Costs: all O(1), but for the first piece, which doubles until it is whole.
template <typename T>
class Pieces {
 public:
  T& operator[](size_t i) { return pieces_[i / kPiece][i % kPiece]; }
  const T& operator[](size_t i) const { return pieces_[i / kPiece][i % kPiece]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }

  void push_back(T value) {
    if (size_ / kPiece == pieces_.size()) {
      pieces_.emplace_back();
      if (size_ > 0 || kLarge) pieces_.back().reserve(kPiece);
    }
    pieces_[size_ / kPiece].push_back(std::move(value));
    ++size_;
  }
  void pop_back() { pieces_[--size_ / kPiece].pop_back(); }  // the memory stays
  // At least so many elements: new ones are T().
  void Grow(size_t count) {
    while (size_ < count) push_back(T());
  }

  size_t bytes() const {
    if (pieces_.empty()) return 0;
    const size_t more = pieces_.size() - 1;
    return pieces_.capacity() * sizeof(pieces_[0]) +
           (pieces_.front().capacity() + more * kPiece) * sizeof(T);
  }

  template <typename Array, typename Value>
  class Iterator {
   public:
    Iterator(Array* array, size_t at) : array_(array), at_(at) {}
    Value& operator*() const { return (*array_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    Array* array_;
    size_t at_;
  };
  auto begin() { return Iterator<Pieces, T>(this, 0); }
  auto end() { return Iterator<Pieces, T>(this, size_); }
  auto begin() const { return Iterator<const Pieces, const T>(this, 0); }
  auto end() const { return Iterator<const Pieces, const T>(this, size_); }

 private:
  static constexpr bool kLarge = sizeof(T) >= 256;
  static constexpr size_t kPiece = sizeof(T) <= 32 ? 1024 : kLarge ? 64 : 256;

  std::vector<std::vector<T>> pieces_;
  size_t size_ = 0;
};

}  // namespace reprise
