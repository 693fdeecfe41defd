// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace reprise::api {

// Strings of requests as tokens, for what a sampler rules out.
//
// Thread safety: all calls may come at the same time.
class TokenWords {
 public:
  // The tokenizer outlives this.
  explicit TokenWords(const Tokenizer* tokenizer) : tokenizer_(*tokenizer) {}

  // The tokens whose text has one of the strings in it, ascending. The lists of the last requests
  // are kept: finding one looks at the whole vocabulary.
  std::shared_ptr<const std::vector<int32_t>> TokensWith(const std::vector<std::string>& strings);

  // How each word may be written, alone and behind a space, in the tokens that text is cut into.
  Result<std::vector<std::vector<int32_t>>> Spellings(const std::vector<std::string>& words) const;

 private:
  static constexpr size_t kListsMax = 8;
  using List = std::pair<std::vector<std::string>, std::shared_ptr<const std::vector<int32_t>>>;

  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::deque<List> lists_;  // the last one used first
};

}  // namespace reprise::api
