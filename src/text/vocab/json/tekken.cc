// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/json/tekken.h"

#include <charconv>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/coding/base64.h"
#include "text/subword/byte_alphabet.h"
#include "text/vocab/json/fields.h"

namespace reprise {
namespace {

// Of files that do not list them, by id.
constexpr std::string_view kOldNames[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};
constexpr int kOldVersionLast = 7;

Status Broken(const std::string& what) { return DataLoss("tekken.json: " + what); }

// "v11"; -1 if it is none.
int VersionOf(std::string_view text) {
  int version = -1;
  if (!text.starts_with('v')) return -1;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), version);
  return error == std::errc() && end == text.data() + text.size() ? version : -1;
}

Result<std::vector<std::string>> ReadNames(const JsonValue& root, int version, size_t count) {
  std::vector<std::string> names;
  if (const JsonValue* list = FieldOrNull(root, "special_tokens"); list != nullptr) {
    if (!list->is_array()) return Broken("\"special_tokens\" is not a list");
    for (const JsonValue& item : list->items()) {
      const std::string_view name = StringField(item, "token_str");
      if (name.empty() || IntField(item, "rank", -1) != int64_t(names.size())) {
        return Broken("special token " + std::to_string(names.size()) + " has no name or rank");
      }
      names.emplace_back(name);
    }
  } else if (version <= kOldVersionLast) {
    names.assign(std::begin(kOldNames), std::end(kOldNames));
  } else {
    return Broken("there are no special tokens");
  }
  if (names.size() > count) return Broken("there are more special tokens than their number");
  while (names.size() < count) names.push_back("<SPECIAL_" + std::to_string(names.size()) + ">");
  const std::unordered_set<std::string_view> distinct(names.begin(), names.end());
  if (distinct.size() != names.size()) return Broken("two special tokens have one name");
  return names;
}

void AddSpecial(std::vector<std::string> names, VocabSpec* spec) {
  for (std::string& name : names) {
    const int32_t id = static_cast<int32_t>(spec->tokens.size());
    spec->tokens.Add(name);
    spec->kinds.push_back(TokenKind::kControl);
    spec->scores.push_back(0);
    if (name == "<unk>") spec->unknown_id = id;
    if (name == "<s>") spec->bos_id = id;
    if (name == "</s>") spec->eos_ids.push_back(id);
    if (name == "<pad>") spec->pad_id = id;
    AddedToken token;
    token.id = id;
    token.text = std::move(name);
    token.special = true;
    spec->added.push_back(std::move(token));
  }
  if (spec->bos_id >= 0) spec->prefix_ids = {spec->bos_id};
}

Status AddTokens(std::span<const JsonValue> vocab, VocabSpec* spec) {
  std::unordered_set<std::string> distinct;
  distinct.reserve(vocab.size());
  std::string text;
  for (size_t rank = 0; rank < vocab.size(); ++rank) {
    const JsonValue& item = vocab[rank];
    const std::string place = "token " + std::to_string(rank);
    if (IntField(item, "rank", -1) != int64_t(rank)) return Broken(place + " has another rank");
    const auto bytes = FromBase64(StringField(item, "token_bytes"));
    if (!bytes || bytes->empty()) return Broken(place + " has no bytes in base64");
    if (rank < 256 && *bytes != std::string(1, static_cast<char>(rank))) {
      return Broken(place + " is not that byte");
    }
    text.clear();
    AppendAlphabetText(*bytes, &text);
    if (!distinct.insert(text).second) return Broken(place + " is there twice");
    spec->tokens.Add(text);
    spec->kinds.push_back(TokenKind::kNormal);
    spec->scores.push_back(-double(rank));
  }
  return OkStatus();
}

}  // namespace

bool IsTekken(const JsonValue& root) {
  const JsonValue* config = root.Find("config");
  return root.Find("model") == nullptr && config != nullptr && config->is_object() &&
         !StringField(*config, "pattern").empty();
}

Result<VocabSpec> ParseTekken(const JsonValue& root) {
  const JsonValue& config = *root.Find("config");
  const JsonValue* vocab = root.Find("vocab");
  if (vocab == nullptr || !vocab->is_array()) return Broken("there is no vocabulary");
  const int version = VersionOf(StringField(config, "version"));
  if (version < 0) return Broken("the version is not known");
  const int64_t special = IntField(config, "default_num_special_tokens", -1);
  const int64_t size = IntField(config, "default_vocab_size", -1);
  if (special < 0 || size > int64_t{kVocabTokensMax} || size - special < 256 ||
      size - special > int64_t(vocab->items().size())) {
    return Broken("the sizes of the vocabulary do not fit what is there");
  }
  VocabSpec spec;
  spec.model = VocabSpec::Model::kByteBpe;
  spec.ignore_merges = true;
  REPRISE_ASSIGN(std::vector<std::string> names, ReadNames(root, version, size_t(special)));
  AddSpecial(std::move(names), &spec);
  REPRISE_TRY(AddTokens(vocab->items().first(size_t(size - special)), &spec));
  SplitStep words;
  words.pattern = StringField(config, "pattern");
  spec.split.push_back(std::move(words));
  return spec;
}

}  // namespace reprise
