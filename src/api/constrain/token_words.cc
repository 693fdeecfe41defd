// SPDX-License-Identifier: Apache-2.0
#include "api/constrain/token_words.h"

#include <algorithm>
#include <string_view>

namespace reprise::api {

std::shared_ptr<const std::vector<int32_t>> TokenWords::TokensWith(
    const std::vector<std::string>& strings) {
  const auto find = [&]() -> std::shared_ptr<const std::vector<int32_t>> {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::ranges::find_if(lists_, [&](const List& list) { return list.first == strings; });
    if (known == lists_.end()) return nullptr;
    std::rotate(lists_.begin(), known, known + 1);
    return lists_.front().second;
  };
  if (auto known = find()) return known;
  auto tokens = std::make_shared<std::vector<int32_t>>();
  for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
    const std::string_view text = tokenizer_.TokenBytes(id);
    const auto inside = [&](const std::string& one) {
      return text.find(one) != std::string_view::npos;
    };
    if (std::ranges::any_of(strings, inside)) tokens->push_back(id);
  }
  const std::lock_guard lock(mutex_);
  lists_.emplace_front(strings, tokens);
  if (lists_.size() > kListsMax) lists_.pop_back();
  return tokens;
}

Result<std::vector<std::vector<int32_t>>> TokenWords::Spellings(
    const std::vector<std::string>& words) const {
  std::vector<std::vector<int32_t>> spellings;
  for (const std::string& word : words) {
    for (const char* before : {"", " "}) {
      std::vector<int32_t> ids;
      REPRISE_TRY(tokenizer_.Encode(before + word, {.add_special = false}, &ids));
      if (!ids.empty() && (spellings.empty() || spellings.back() != ids)) {
        spellings.push_back(std::move(ids));
      }
    }
  }
  return spellings;
}

}  // namespace reprise::api
