// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "text/subword/byte_trie.h"
#include "text/text_range.h"
#include "text/vocab/spec.h"

namespace reprise {

// Whether a token steers the model. Special tokens do, and so does every other added token
// (<tool_call>, <|fim_prefix|>) but those that are white space, which are text like any.
bool IsControl(const AddedToken& token);

// Which tokens may be found where.
struct AddedTokenRule {
  bool control = false;                  // control tokens are found...
  std::span<const TextRange> data = {};  // ... where none of their bytes is data; ascending
  bool added = false;                    // those that are not special are found, everywhere
  bool blanks = true;                    // tokens of white space are found, everywhere
};

// AddedTokens finds added tokens in a text: leftmost, then longest. What the rule does not allow is
// skipped, as text. Immutable and safe to share.
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
  bool FindNext(std::string_view text, size_t from, const AddedTokenRule& rule, Match* match) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // The token whose spelling begins at `at`, or null; how much of it to skip, if so.
  const AddedToken* FindAt(std::string_view text, size_t at, const AddedTokenRule& rule,
                           size_t* length) const;

  std::vector<AddedToken> tokens_;
  std::vector<bool> control_;  // of tokens_
  ByteTrie trie_;              // value: index into tokens_
  std::array<bool, 256> starts_{};
};

}  // namespace reprise
