// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode/classes.h"

namespace reprise {
namespace {

constexpr uint32_t kMetaspace = 0x2581;  // how SentencePiece writes a space

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

bool IsControl(const AddedToken& token) {
  if (token.special) return true;
  for (size_t at = 0; at < token.text.size();) {
    const unicode::DecodedChar c = CharAt(token.text, at);
    if (!IsSpace(c.code) && c.code != kMetaspace) return true;
    at += c.length;
  }
  return false;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<ByteTrie::Key> keys;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    control_.push_back(IsControl(tokens_[i]));
    if (tokens_[i].text.empty()) continue;
    keys.push_back({tokens_[i].text, static_cast<int32_t>(i)});
    starts_[static_cast<uint8_t>(tokens_[i].text[0])] = true;
  }
  trie_ = ByteTrie::Build(std::move(keys));
}

const AddedToken* AddedTokens::FindAt(std::string_view text, size_t at, const AddedTokenRule& rule,
                                      size_t* length) const {
  const ByteTrie::Match found = trie_.FindLongest(text.substr(at));
  *length = 1;
  if (found.value < 0) return nullptr;
  const AddedToken* token = &tokens_[static_cast<size_t>(found.value)];
  *length = found.length;
  if (!control_[static_cast<size_t>(found.value)]) return rule.blanks ? token : nullptr;
  if (!token->special && rule.added) return token;
  if (!rule.control) return nullptr;
  const auto data =
      std::upper_bound(rule.data.begin(), rule.data.end(), at,
                       [](size_t offset, const TextRange& range) { return offset < range.end; });
  if (data == rule.data.end() || at + found.length <= data->begin) return token;
  if (data->begin <= at) {  // it begins as data: text, as far as it is that
    *length = std::min(found.length, data->end - at);
    return nullptr;
  }
  // It reaches into data, which must not make another token of what stands before it.
  const ByteTrie::Match own = trie_.FindLongest(text.substr(at, data->begin - at));
  *length = own.value < 0 ? 1 : own.length;
  return own.value < 0 ? nullptr : &tokens_[static_cast<size_t>(own.value)];
}

bool AddedTokens::FindNext(std::string_view text, size_t from, const AddedTokenRule& rule,
                           Match* match) const {
  for (size_t at = from; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    size_t length = 0;
    const AddedToken* const found = FindAt(text, at, rule, &length);
    size_t begin = at;
    size_t end = at + length;
    at = end;
    if (found == nullptr) continue;
    const AddedToken& token = *found;
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
