// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

// A set of tokens, one bit each: those that may be chosen. Plain words, so that a grammar can fill
// them 64 tokens at a time and a device can read them as they are.
//
//   words[t / 64] bit t % 64   token t is in the set; bits behind the vocabulary are 0
//
// Thread safety: none. Costs: a 64th of a word for each token of the vocabulary.
class TokenMask {
 public:
  // REQUIRES: vocab_size > 0.
  explicit TokenMask(size_t vocab_size, bool all = true)
      : vocab_size_(vocab_size), words_((vocab_size + 63) / 64) {
    all ? AllowAll() : Clear();
  }

  size_t vocab_size() const { return vocab_size_; }
  std::span<const uint64_t> words() const { return words_; }
  std::span<uint64_t> words() { return words_; }

  bool allows(int32_t token) const { return (words_[Word(token)] & Bit(token)) != 0; }
  void Allow(int32_t token) { words_[Word(token)] |= Bit(token); }
  void Forbid(int32_t token) { words_[Word(token)] &= ~Bit(token); }

  void AllowAll() {
    for (uint64_t& word : words_) word = ~uint64_t{0};
    if (vocab_size_ % 64 != 0) words_.back() >>= 64 - vocab_size_ % 64;
  }
  void Clear() {
    for (uint64_t& word : words_) word = 0;
  }
  // Only what both allow. REQUIRES: the same vocabulary.
  void And(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  }
  bool empty() const {
    uint64_t any = 0;
    for (const uint64_t word : words_) any |= word;
    return any == 0;
  }

 private:
  static size_t Word(int32_t token) { return static_cast<size_t>(token) / 64; }
  static uint64_t Bit(int32_t token) { return uint64_t{1} << static_cast<size_t>(token) % 64; }

  size_t vocab_size_;
  std::vector<uint64_t> words_;
};

}  // namespace reprise
