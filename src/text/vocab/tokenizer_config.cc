// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "text/vocab/json/fields.h"

namespace reprise {
namespace {

constexpr size_t kTemplatesMax = 64;

Status Broken(const std::string& what) { return DataLoss("tokenizer_config.json: " + what); }

int32_t FindText(const VocabSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added) {
    if (token.text == text) return token.id;
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return -1;
}

// "eos_token": a string, or an object with the string in "content". -1 if absent or unknown.
int32_t FindNamed(const JsonValue& root, const char* key, const VocabSpec& spec) {
  const JsonValue* value = FieldOrNull(root, key);
  if (value == nullptr) return -1;
  const std::string_view text =
      value->is_string() ? value->as_string() : StringField(*value, "content");
  return text.empty() ? -1 : FindText(spec, text);
}

void AddEos(int32_t id, VocabSpec* spec) {
  auto& ids = spec->eos_ids;
  if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// "add_bos_token": true puts the token into the template, false takes it out.
void SetTemplateToken(const JsonValue& root, const char* key, int32_t id,
                      std::vector<int32_t>* ids) {
  const JsonValue* value = root.Find(key);
  if (value == nullptr || !value->is_bool() || id < 0) return;
  const bool there = std::find(ids->begin(), ids->end(), id) != ids->end();
  if (value->as_bool() && !there) ids->push_back(id);
  if (!value->as_bool() && there) std::erase(*ids, id);
}

// Puts tokens beyond the end of the vocabulary, or into its holes.
void SetTexts(const std::vector<AddedToken>& tokens, VocabSpec* spec) {
  if (tokens.empty()) return;
  std::vector<std::string_view> texts;
  for (size_t id = 0; id < spec->tokens.size(); ++id) texts.push_back(spec->tokens[id]);
  for (const AddedToken& token : tokens) {
    const size_t id = static_cast<size_t>(token.id);
    if (id >= texts.size()) texts.resize(id + 1);
    texts[id] = token.text;
  }
  StringTable table;
  for (const std::string_view text : texts) table.Add(text);
  if (!spec->kinds.empty()) spec->kinds.resize(texts.size(), TokenKind::kUnused);
  if (!spec->scores.empty()) spec->scores.resize(texts.size(), 0.0);
  spec->tokens = std::move(table);
}

// "added_tokens_decoder": {"151643": {"content": ..., "special": ...}, ...}
Status ApplyAddedTokens(const JsonValue& root, VocabSpec* spec) {
  const JsonValue* decoder = FieldOrNull(root, "added_tokens_decoder");
  if (decoder == nullptr) return OkStatus();
  if (!decoder->is_object()) return Broken("\"added_tokens_decoder\" is not an object");
  std::vector<AddedToken> fresh;
  for (const JsonValue::Member& member : decoder->members()) {
    AddedToken token;
    const char* const end = member.key.data() + member.key.size();
    const auto [parsed, error] = std::from_chars(member.key.data(), end, token.id);
    token.text = StringField(member.value, "content");
    if (error != std::errc() || parsed != end || token.id < 0 ||
        static_cast<size_t>(token.id) >= kVocabTokensMax || token.text.empty()) {
      return Broken("an added token has no valid id or no content");
    }
    token.special = BoolField(member.value, "special", false);
    token.lstrip = BoolField(member.value, "lstrip", false);
    token.rstrip = BoolField(member.value, "rstrip", false);
    token.single_word = BoolField(member.value, "single_word", false);
    token.normalized = BoolField(member.value, "normalized", !token.special);
    const size_t id = static_cast<size_t>(token.id);
    const bool hole = id >= spec->tokens.size() || spec->tokens[id].empty();
    if (!hole && spec->tokens[id] != token.text) {
      return Broken("token " + std::to_string(id) + " is not the one of tokenizer.json");
    }
    if (hole) fresh.push_back(token);
    std::erase_if(spec->added, [&](const AddedToken& other) { return other.id == token.id; });
    spec->added.push_back(std::move(token));
  }
  SetTexts(fresh, spec);
  if (!spec->kinds.empty()) {
    for (const AddedToken& token : spec->added) {
      spec->kinds[static_cast<size_t>(token.id)] =
          token.special ? TokenKind::kControl : TokenKind::kUserDefined;
    }
  }
  return OkStatus();
}

// A string, or a list of {"name", "template"}.
Status TakeTemplates(const JsonValue& root, std::vector<ChatTemplateSource>* templates) {
  const JsonValue* value = FieldOrNull(root, "chat_template");
  if (value == nullptr) return OkStatus();
  if (value->is_string()) {
    templates->push_back({"default", std::string(value->as_string())});
    return OkStatus();
  }
  if (!value->is_array()) return Broken("\"chat_template\" is neither a text nor a list");
  if (value->items().size() > kTemplatesMax) return Broken("there are too many chat templates");
  for (const JsonValue& item : value->items()) {
    const JsonValue* source = item.Find("template");
    const std::string_view name = StringField(item, "name");
    if (name.empty() || source == nullptr || !source->is_string()) {
      return Broken("a chat template has no name or no text");
    }
    const auto at = name == "default" ? templates->begin() : templates->end();
    templates->insert(at, {std::string(name), std::string(source->as_string())});
  }
  return OkStatus();
}

}  // namespace

Status ApplyTokenizerConfig(std::string_view json, VocabSpec* spec,
                            std::vector<ChatTemplateSource>* templates) {
  const auto document = JsonDocument::Parse(json);
  if (!document.ok()) return Broken(document.status().message());
  const JsonValue& root = document->root();
  REPRISE_TRY(ApplyAddedTokens(root, spec));
  if (const int32_t bos = FindNamed(root, "bos_token", *spec); bos >= 0) spec->bos_id = bos;
  if (const int32_t pad = FindNamed(root, "pad_token", *spec); pad >= 0) spec->pad_id = pad;
  const int32_t eos = FindNamed(root, "eos_token", *spec);
  AddEos(eos, spec);
  SetTemplateToken(root, "add_bos_token", spec->bos_id, &spec->prefix_ids);
  SetTemplateToken(root, "add_eos_token", eos, &spec->suffix_ids);
  return TakeTemplates(root, templates);
}

Status ApplyGenerationConfig(std::string_view json, VocabSpec* spec) {
  const auto document = JsonDocument::Parse(json);
  if (!document.ok()) return DataLoss("generation_config.json: " + document.status().message());
  const JsonValue* value = FieldOrNull(document->root(), "eos_token_id");
  if (value == nullptr) return OkStatus();
  const std::span<const JsonValue> ids = value->is_array() ? value->items() : std::span(value, 1);
  for (const JsonValue& id : ids) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= int64_t(spec->tokens.size())) {
      return DataLoss("generation_config.json: \"eos_token_id\" is not a token of the vocabulary");
    }
    AddEos(static_cast<int32_t>(id.as_int()), spec);
  }
  return OkStatus();
}

}  // namespace reprise
