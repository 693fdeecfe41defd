// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "text/subword/byte_trie.h"
#include "text/vocab/spec.h"

namespace reprise {

// AddedTokens finds added tokens in a text: leftmost, then longest. Special ones are skipped, as
// text, unless the caller asks for them. Immutable and safe to share.
class AddedTokens {
 public:
  struct Match {
    size_t begin;  // with the white space that the token swallows
    size_t end;
    int32_t id;
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Finds the first token in text[from, ...); what lies before `from` is only looked at to judge
  // word boundaries. False if there is none.
  bool FindNext(std::string_view text, size_t from, bool parse_special, Match* match) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // value: index into tokens_
  std::array<bool, 256> starts_{};
};

}  // namespace reprise
