// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <utility>

#include "text/unicode/classes.h"

namespace reprise {
namespace {

// The character that ends at `at`. REQUIRES: at > 0.
unicode::DecodedChar CharBefore(std::string_view text, size_t at) {
  for (uint32_t length = 2; length <= 4 && length <= at; ++length) {
    const char* const begin = text.data() + at - length;
    const unicode::DecodedChar c = unicode::DecodeChar(begin, text.data() + at);
    if (c.length == length) return c;
  }
  const uint8_t byte = static_cast<uint8_t>(text[at - 1]);
  return {byte < 0x80 ? byte : unicode::kInvalidByte, 1};
}

unicode::DecodedChar CharAt(std::string_view text, size_t at) {
  return unicode::DecodeChar(text.data() + at, text.data() + text.size());
}

bool IsSpace(uint32_t code) { return (unicode::ClassOf(code) & unicode::kSpace) != 0; }

bool IsWord(uint32_t code) {
  static constexpr uint8_t kWord = unicode::kLetter | unicode::kMark | unicode::kNumber;
  return code == '_' || (unicode::ClassOf(code) & kWord) != 0;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<ByteTrie::Key> keys;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].text.empty()) continue;
    keys.push_back({tokens_[i].text, static_cast<int32_t>(i)});
    starts_[static_cast<uint8_t>(tokens_[i].text[0])] = true;
  }
  trie_ = ByteTrie::Build(std::move(keys));
}

bool AddedTokens::FindNext(std::string_view text, size_t from, bool parse_special,
                           Match* match) const {
  for (size_t at = from; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const ByteTrie::Match found = trie_.FindLongest(text.substr(at));
    if (found.value < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found.value)];
    size_t begin = at;
    size_t end = at + found.length;
    at = end;
    if (token.special && !parse_special) continue;
    if (token.single_word) {
      if (begin > 0 && IsWord(CharBefore(text, begin).code)) continue;
      if (end < text.size() && IsWord(CharAt(text, end).code)) continue;
    }
    if (token.lstrip) {
      while (begin > from && IsSpace(CharBefore(text, begin).code)) {
        begin -= CharBefore(text, begin).length;
      }
    }
    if (token.rstrip) {
      while (end < text.size() && IsSpace(CharAt(text, end).code)) {
        end += CharAt(text, end).length;
      }
    }
    *match = {begin, end, token.id};
    return true;
  }
  return false;
}

}  // namespace reprise
