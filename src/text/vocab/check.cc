// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/check.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>

namespace reprise {
namespace {

bool IsToken(const VocabSpec& spec, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < spec.tokens.size();
}

Status CheckSizes(const VocabSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0) return DataLoss("the vocabulary has no tokens");
  if (count > kVocabTokensMax) {
    return DataLoss("the vocabulary has " + std::to_string(count) +
                    " tokens, beyond the limit of " + std::to_string(kVocabTokensMax));
  }
  if (spec.merges.size() % 2 != 0) return DataLoss("a merge of the tokenizer has no second part");
  if (spec.merges.size() / 2 > kVocabMergesMax) {
    return DataLoss("the tokenizer has " + std::to_string(spec.merges.size() / 2) +
                    " merges, beyond the limit of " + std::to_string(kVocabMergesMax));
  }
  if (!spec.kinds.empty() && spec.kinds.size() != count) {
    return DataLoss("the vocabulary has " + std::to_string(count) + " tokens but " +
                    std::to_string(spec.kinds.size()) + " token types");
  }
  if (!spec.scores.empty() && spec.scores.size() != count) {
    return DataLoss("the vocabulary has " + std::to_string(count) + " tokens but " +
                    std::to_string(spec.scores.size()) + " scores");
  }
  const bool trie =
      spec.model == VocabSpec::Model::kUnigram || spec.model == VocabSpec::Model::kRwkvWorld;
  const size_t bytes_max = trie ? kTrieTokenBytesMax : kTokenBytesMax;
  for (size_t id = 0; id < count; ++id) {
    if (spec.tokens[id].size() > bytes_max) {
      return DataLoss("token " + std::to_string(id) + " is " +
                      std::to_string(spec.tokens[id].size()) + " bytes long, beyond the limit of " +
                      std::to_string(bytes_max));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckVocab(const VocabSpec& spec) {
  REPRISE_TRY(CheckSizes(spec));
  for (const double score : spec.scores) {
    if (!std::isfinite(score)) return DataLoss("the score of a token is not a finite number");
  }
  const auto check_id = [&](int32_t id, const char* what, bool optional) {
    if ((optional && id == -1) || IsToken(spec, id)) return OkStatus();
    return DataLoss("the " + std::string(what) + " token has the id " + std::to_string(id) +
                    ", but the vocabulary ends at " + std::to_string(spec.tokens.size() - 1));
  };
  REPRISE_TRY(check_id(spec.bos_id, "beginning-of-text", true));
  REPRISE_TRY(check_id(spec.unknown_id, "unknown", true));
  REPRISE_TRY(check_id(spec.pad_id, "padding", true));
  for (const int32_t id : spec.eos_ids) REPRISE_TRY(check_id(id, "end-of-text", false));
  for (const int32_t id : spec.prefix_ids) REPRISE_TRY(check_id(id, "first", false));
  for (const int32_t id : spec.suffix_ids) REPRISE_TRY(check_id(id, "last", false));
  for (const AddedToken& token : spec.added) {
    REPRISE_TRY(check_id(token.id, "added", false));
    if (token.text.size() > kTrieTokenBytesMax) {
      return DataLoss("an added token is longer than " + std::to_string(kTrieTokenBytesMax) +
                      " bytes");
    }
  }
  return OkStatus();
}

void AddKnownEndTokens(VocabSpec* spec) {
  static constexpr std::string_view kNames[] = {
      "<|im_end|>",
      "<|eot_id|>",
      "<|end_of_text|>",
      "<|endoftext|>",
      "<|eom_id|>",
      "<|end|>",
      "<|return|>",
      "<|call|>",
      "<end_of_turn>",
      "<turn|>",
      "</s>",
      "<eos>",
      "<EOT>",
      "<｜end▁of▁sentence｜>",
      "<|END_OF_TURN_TOKEN|>",
  };
  const auto has_special = [&](std::string_view text) {
    return std::any_of(spec->added.begin(), spec->added.end(),
                       [&](const AddedToken& t) { return t.special && t.text == text; });
  };
  // In this format "<|end|>" ends one message of several.
  const bool harmony = has_special("<|return|>") && has_special("<|call|>");
  // Every token that is generated is compared with them all.
  static constexpr size_t kEndTokensMax = 256;
  for (const AddedToken& token : spec->added) {
    if (spec->eos_ids.size() >= kEndTokensMax) break;
    if (!token.special || (harmony && token.text == "<|end|>")) continue;
    const bool known =
        std::find(std::begin(kNames), std::end(kNames), token.text) != std::end(kNames);
    const auto& ids = spec->eos_ids;
    if (known && std::find(ids.begin(), ids.end(), token.id) == ids.end()) {
      spec->eos_ids.push_back(token.id);
    }
  }
}

}  // namespace reprise
