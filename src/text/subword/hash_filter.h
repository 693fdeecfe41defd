// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise {

// HashFilter stands before a hash table that is asked mostly for what it does not have: two bits in
// one word for each hash that was added. It is a few times smaller than its table and stays in the
// second-level cache; of a hash that it does not hold the table need not be asked.
//
// The word is chosen by the highest bits of the hash, the two bits by those around the middle; the
// lowest are the table's.
class HashFilter {
 public:
  HashFilter() { Reserve(0); }

  // Forgets everything; has at least so many words from then on, and two.
  void Reserve(size_t words) {
    words_.assign(std::bit_ceil(words < 2 ? 2 : words), 0);
    shift_ = 64 - std::countr_zero(words_.size());  // below 64, as a shift by 64 is none
  }
  void Add(uint64_t hash) { words_[hash >> shift_] |= Bits(hash); }
  bool MayHold(uint64_t hash) const {
    const uint64_t bits = Bits(hash);
    return (words_[hash >> shift_] & bits) == bits;
  }

 private:
  static uint64_t Bits(uint64_t hash) {
    return uint64_t{1} << (hash >> 26 & 63) | uint64_t{1} << (hash >> 32 & 63);
  }

  std::vector<uint64_t> words_;  // a power of two of them
  int shift_ = 0;
};

}  // namespace reprise
