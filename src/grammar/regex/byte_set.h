// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace reprise::grammar {

// A set of byte values.
class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet Range(int first, int last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }
  static constexpr ByteSet Of(char byte) {
    ByteSet set;
    set.Add(static_cast<uint8_t>(byte));
    return set;
  }

  constexpr void Add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  constexpr bool Has(uint8_t byte) const { return words_[byte >> 6] >> (byte & 63) & 1; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr int count() const {
    int bits = 0;
    for (const uint64_t word : words_) bits += std::popcount(word);
    return bits;
  }
  const std::array<uint64_t, 4>& words() const { return words_; }

  constexpr ByteSet operator|(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < 4; ++i) set.words_[i] = words_[i] | other.words_[i];
    return set;
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < 4; ++i) set.words_[i] = words_[i] & other.words_[i];
    return set;
  }
  constexpr ByteSet operator~() const {
    ByteSet set;
    for (size_t i = 0; i < 4; ++i) set.words_[i] = ~words_[i];
    return set;
  }
  bool operator==(const ByteSet&) const = default;

 private:
  std::array<uint64_t, 4> words_ = {};
};

}  // namespace reprise::grammar
