// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/json/tokenizer_json.h"

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/subword/byte_token.h"
#include "text/vocab/json/fields.h"
#include "text/vocab/json/pipeline.h"
#include "text/vocab/json/tekken.h"

namespace reprise {
namespace {

Status Broken(const std::string& what) { return DataLoss("tokenizer.json: " + what); }

bool IsId(const JsonValue& value) {
  return value.is_int() && value.as_int() >= 0 && value.as_int() < int64_t{kVocabTokensMax};
}

// Tokens by id, gathered from the model's vocabulary and the added tokens before they become a
// table. Ids may have holes.
class TokenList {
 public:
  Status Add(const JsonValue& id, std::string_view text) {
    if (!IsId(id)) {
      return Broken("token \"" + std::string(text.substr(0, 64)) +
                    "\" has an id that is not a number from 0 to " +
                    std::to_string(kVocabTokensMax - 1));
    }
    const size_t index = static_cast<size_t>(id.as_int());
    if (index >= texts_.size()) {
      texts_.resize(index + 1);
      kinds_.resize(index + 1, TokenKind::kUnused);
    }
    if (kinds_[index] != TokenKind::kUnused && texts_[index] != text) {
      return Broken("two tokens have the id " + std::to_string(index));
    }
    texts_[index] = text;
    kinds_[index] = TokenKind::kNormal;
    return OkStatus();
  }

  // Adds a token with the next id.
  void Append(std::string_view text) {
    texts_.push_back(text);
    kinds_.push_back(TokenKind::kNormal);
  }

  void SetKind(int32_t id, TokenKind kind) { kinds_[static_cast<size_t>(id)] = kind; }

  int32_t Find(std::string_view text) const {
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (kinds_[id] != TokenKind::kUnused && texts_[id] == text) return static_cast<int32_t>(id);
    }
    return -1;
  }

  void MoveTo(VocabSpec* spec) {
    size_t bytes = 0;
    for (const std::string_view text : texts_) bytes += text.size();
    spec->tokens.Reserve(texts_.size(), bytes);
    for (size_t id = 0; id < texts_.size(); ++id) {
      spec->tokens.Add(texts_[id]);
      const bool plain = kinds_[id] == TokenKind::kNormal;
      if (plain && spec->byte_fallback && ParseByteToken(texts_[id]) >= 0) {
        kinds_[id] = TokenKind::kByte;
      }
    }
    spec->kinds = std::move(kinds_);
  }

 private:
  std::vector<std::string_view> texts_;
  std::vector<TokenKind> kinds_;  // kUnused: a hole
};

Status ParseMerge(const JsonValue& merge, VocabSpec* spec) {
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const size_t space = text.find(' ', 1);
    if (space != text.npos && space + 1 < text.size() && text.find(' ', space + 1) == text.npos) {
      spec->merges.Add(text.substr(0, space));
      spec->merges.Add(text.substr(space + 1));
      return OkStatus();
    }
  } else if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() &&
             merge.items()[1].is_string()) {
    spec->merges.Add(merge.items()[0].as_string());
    spec->merges.Add(merge.items()[1].as_string());
    return OkStatus();
  }
  return Broken("merge " + std::to_string(spec->merges.size() / 2) + " is not a pair of tokens");
}

Status ParseBpe(const JsonValue& model, bool byte_level, TokenList* tokens, VocabSpec* spec) {
  spec->model = byte_level ? VocabSpec::Model::kByteBpe : VocabSpec::Model::kCharBpe;
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!StringField(model, key).empty()) {
      return Unimplemented("tokenizer.json: a BPE model with \"" + std::string(key) +
                           "\" is not supported");
    }
  }
  spec->byte_fallback = BoolField(model, "byte_fallback", false);
  spec->fuse_unknown = BoolField(model, "fuse_unk", false);
  spec->ignore_merges = BoolField(model, "ignore_merges", false);
  const JsonValue* vocab = model.Find("vocab");
  const JsonValue* merges = model.Find("merges");
  if (vocab == nullptr || !vocab->is_object()) return Broken("the model has no vocabulary");
  if (merges == nullptr || !merges->is_array()) return Broken("the model has no merges");
  if (merges->items().size() > kVocabMergesMax) return Broken("the model has too many merges");
  for (const JsonValue::Member& member : vocab->members()) {
    REPRISE_TRY(tokens->Add(member.value, member.key));
  }
  spec->merges.Reserve(merges->items().size() * 2, merges->items().size() * 12);
  for (const JsonValue& merge : merges->items()) REPRISE_TRY(ParseMerge(merge, spec));
  if (const std::string_view unknown = StringField(model, "unk_token"); !unknown.empty()) {
    spec->unknown_id = tokens->Find(unknown);
    if (spec->unknown_id < 0) return Broken("the unknown token is not in the vocabulary");
  }
  return OkStatus();
}

Status ParseUnigram(const JsonValue& model, TokenList* tokens, VocabSpec* spec) {
  spec->model = VocabSpec::Model::kUnigram;
  spec->byte_fallback = BoolField(model, "byte_fallback", false);
  const JsonValue* vocab = model.Find("vocab");
  if (vocab == nullptr || !vocab->is_array()) return Broken("the model has no vocabulary");
  if (vocab->items().size() > kVocabTokensMax) return Broken("the vocabulary is too large");
  for (const JsonValue& entry : vocab->items()) {
    if (!entry.is_array() || entry.items().size() != 2 || !entry.items()[0].is_string() ||
        !entry.items()[1].is_number()) {
      return Broken("an entry of the vocabulary is not a pair of token and score");
    }
    tokens->Append(entry.items()[0].as_string());
    spec->scores.push_back(entry.items()[1].as_double());
  }
  if (const JsonValue* unknown = FieldOrNull(model, "unk_id")) {
    if (!IsId(*unknown) || unknown->as_int() >= int64_t(vocab->items().size())) {
      return Broken("the unknown token is not in the vocabulary");
    }
    spec->unknown_id = static_cast<int32_t>(unknown->as_int());
  }
  return OkStatus();
}

Status ParseModel(const JsonValue& root, bool byte_level, TokenList* tokens, VocabSpec* spec) {
  const JsonValue* model = root.Find("model");
  if (model == nullptr || !model->is_object()) return Broken("there is no model");
  // Old files do not name the type; then the members tell.
  std::string_view type = StringField(*model, "type");
  if (type.empty()) type = model->Find("merges") != nullptr ? "BPE" : "Unigram";
  if (type == "BPE") return ParseBpe(*model, byte_level, tokens, spec);
  if (type == "Unigram") return ParseUnigram(*model, tokens, spec);
  return Unimplemented("tokenizer.json: the model \"" + std::string(type) + "\" is not supported");
}

Status ParseAddedTokens(const JsonValue& root, TokenList* tokens, VocabSpec* spec) {
  const JsonValue* list = FieldOrNull(root, "added_tokens");
  if (list == nullptr) return OkStatus();
  if (!list->is_array()) return Broken("\"added_tokens\" is not a list");
  for (const JsonValue& item : list->items()) {
    const JsonValue* id = item.Find("id");
    const JsonValue* text = item.Find("content");
    if (id == nullptr || text == nullptr || !text->is_string()) {
      return Broken("an added token has no id or no content");
    }
    if (text->as_string().empty()) continue;
    REPRISE_TRY(tokens->Add(*id, text->as_string()));
    AddedToken token;
    token.id = static_cast<int32_t>(id->as_int());
    token.text = text->as_string();
    token.special = BoolField(item, "special", false);
    token.lstrip = BoolField(item, "lstrip", false);
    token.rstrip = BoolField(item, "rstrip", false);
    token.single_word = BoolField(item, "single_word", false);
    token.normalized = BoolField(item, "normalized", !token.special);
    tokens->SetKind(token.id, token.special ? TokenKind::kControl : TokenKind::kUserDefined);
    spec->added.push_back(std::move(token));
  }
  return OkStatus();
}

}  // namespace

Result<VocabSpec> ParseTokenizerJson(std::string_view json) {
  const auto document = JsonDocument::Parse(json);
  if (!document.ok()) return DataLoss("tokenizer.json: " + document.status().message());
  const JsonValue& root = document->root();
  if (!root.is_object()) return Broken("the document is not an object");
  if (IsTekken(root)) return ParseTekken(root);
  static const JsonValue kNull{};
  const auto part = [&](const char* key) -> const JsonValue& {
    const JsonValue* value = root.Find(key);
    return value == nullptr ? kNull : *value;
  };
  VocabSpec spec;
  bool byte_level = false;
  REPRISE_TRY(ParseNormalizer(part("normalizer"), &spec));
  REPRISE_TRY(ParsePreTokenizer(part("pre_tokenizer"), &spec, &byte_level));
  TokenList tokens;
  REPRISE_TRY(ParseModel(root, byte_level, &tokens, &spec));
  REPRISE_TRY(ParseAddedTokens(root, &tokens, &spec));
  tokens.MoveTo(&spec);
  if (!spec.scores.empty()) spec.scores.resize(spec.tokens.size(), 0.0);
  REPRISE_TRY(ParseDecoder(part("decoder"), &spec));
  REPRISE_TRY(ParsePostProcessor(part("post_processor"), &spec));
  return spec;
}

}  // namespace reprise
