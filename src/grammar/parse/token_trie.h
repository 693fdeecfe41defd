// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/regex/byte_set.h"

namespace reprise::grammar {

// The vocabulary as constraints see it: which bytes each token writes, as flat tries that are
// walked from front to back, children behind their parent, with the length of each subtree to skip
// it.
//
// Tokens are in one of several tries by what they are made of: those of *plain* characters (what
// stands in a JSON string as it is) by their number of characters, and all others. Where any plain
// characters may come, inside of strings, whole tries are answered by a ready-made mask.
//
// Tokens without bytes and special tokens are in none: they are no text. End tokens are told apart.
//
// Thread safety: immutable.
class TokenTrie {
 public:
  static constexpr size_t kTokenBytesMax = 1024;  // longer tokens are never allowed

  struct Node {
    uint32_t end;    // of the subtree, as an index of nodes
    int32_t token;   // that ends here, or -1
    uint32_t rank;   // tokens before this node: those of the subtree begin here in Part::tokens
    uint16_t depth;  // from 1
    uint8_t byte;
    uint8_t chars;  // how much longer tokens of the subtree are, all of it plain; or kNotPlain

    static constexpr uint8_t kNotPlain = 255;
  };
  struct Part {
    int chars_max = 0;  // plain tokens have at most so many characters; 0: not plain
    std::vector<Node> nodes;
    std::vector<int32_t> tokens;  // in the order of nodes
    std::vector<uint64_t> mask;   // [vocab / 64, rounded up] the tokens of this part
  };

  // `bytes[id]` is what token `id` writes; empty: none. `ends` are the tokens that end a text.
  TokenTrie(std::span<const std::string_view> bytes, std::span<const int32_t> ends);

  std::span<const Part> parts() const { return parts_; }
  std::span<const int32_t> ends() const { return ends_; }
  size_t vocab_size() const { return vocab_size_; }
  size_t depth_max() const { return depth_max_; }
  // Bytes that some token writes alone: from these any text can be written.
  const ByteSet& single_bytes() const { return single_bytes_; }
  // REQUIRES: 0 <= token < vocab_size().
  std::string_view bytes(int32_t token) const;

  // The longest token that `text` begins with, or -1.
  int32_t LongestIn(std::string_view text) const;
  // Whether some token begins with `text` and is longer.
  bool BeginsLonger(std::string_view text) const;

 private:
  struct Entry {
    std::string_view bytes;
    int32_t token;
  };
  void BuildPart(std::vector<Entry> entries, Part* part);
  static void CountChars(Part* part);
  // Calls visit(node, bytes so far) for the nodes along `text`.
  template <typename VisitFn>
  static void Follow(const Part& part, std::string_view text, VisitFn&& visit);

  size_t vocab_size_;
  size_t depth_max_ = 0;
  std::vector<int32_t> ends_;
  std::vector<Part> parts_;
  ByteSet single_bytes_;
  std::vector<char> text_;
  std::vector<uint32_t> text_begin_;  // [vocab + 1]
};

}  // namespace reprise::grammar
