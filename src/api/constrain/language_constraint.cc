// SPDX-License-Identifier: Apache-2.0
#include "api/constrain/language_constraint.h"

#include <string>

#include "grammar/reply/reply_grammar.h"

namespace reprise::api {
namespace {

constexpr size_t kForcedBytesMax = 512;
constexpr size_t kRecentMax = 64;

}  // namespace

Status LanguageConstraint::Fill(TokenMask* allowed) {
  const Status status = matcher_.Fill(allowed->words());
  return status.ok() ? status : InvalidArgument(status.message());
}

Status LanguageConstraint::Accept(int32_t token) {
  const size_t begin = matcher_.text().size();
  REPRISE_TRY(matcher_.Accept(token));
  if (matcher_.ended() || matcher_.text()[begin] == grammar::kSpecialByte) {
    recent_.clear();  // text behind a special token is cut on its own
    return OkStatus();
  }
  recent_.push_back({token, begin});
  if (recent_.size() > kRecentMax) recent_.pop_front();
  return OkStatus();
}

bool LanguageConstraint::Take(int32_t token, std::vector<int32_t>* tokens) {
  if (!Accept(token).ok()) return false;
  tokens->push_back(token);
  return true;
}

void LanguageConstraint::Force(std::vector<int32_t>* tokens) {
  bool ends = false;
  const std::string forced = matcher_.Forced(kForcedBytesMax, &ends);
  std::string_view left = forced;
  while (!left.empty()) {
    const size_t special = left.find(grammar::kSpecialByte);
    if (special == 0) {
      const int32_t token = language_->trie().LongestIn(left);
      if (token < 0 || !Take(token, tokens)) return;
      left.remove_prefix(language_->trie().bytes(token).size());
      continue;
    }
    const std::string_view text = left.substr(0, special);
    if (!ForceText(text, special == left.npos && !ends, tokens)) return;
    left.remove_prefix(text.size());
  }
}

bool LanguageConstraint::ForceText(std::string_view text, bool open, std::vector<int32_t>* tokens) {
  const grammar::TokenTrie& trie = language_->trie();
  const size_t begin = recent_.empty() ? matcher_.text().size() : recent_.front().begin;
  std::string whole = matcher_.text().substr(begin);
  whole += text;
  std::vector<int32_t> ids;
  if (!tokenizer_->Encode(whole, {.add_special = false}, &ids).ok()) return false;

  // The tokens so far must be the first ones, and write exactly this text.
  if (ids.size() < recent_.size()) return false;
  std::vector<size_t> begins;
  std::string written;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i < recent_.size() && ids[i] != recent_[i].token) return false;
    begins.push_back(written.size());
    written += trie.bytes(ids[i]);
  }
  if (written != whole) return false;

  size_t end = ids.size();
  const size_t first = recent_.size();
  for (size_t i = first; open && i < end; ++i) {
    if (trie.BeginsLonger(std::string_view(whole).substr(begins[i]))) end = i;
  }
  for (size_t i = first; i < end; ++i) {
    if (!Take(ids[i], tokens)) return false;
  }
  return end == ids.size();
}

}  // namespace reprise::api
