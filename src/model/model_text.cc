// SPDX-License-Identifier: Apache-2.0
#include "model/model_text.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "text/vocab/file.h"
#include "text/vocab/gguf.h"

namespace reprise {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

Status WrongType(std::string_view key) {
  return DataLoss("metadata key tokenizer.ggml." + std::string(key) + " has an unexpected type");
}

Status ReadTable(const Metadata& ggml, std::string_view key, size_t count_max, StringTable* out) {
  const GgufValue* value = ggml.FindGguf(key);
  if (value == nullptr) return OkStatus();
  if (!value->is_array() || value->type() != GgufType::kString) return WrongType(key);
  if (value->size() > count_max) {
    return DataLoss("tokenizer.ggml." + std::string(key) + " has too many entries");
  }
  out->Reserve(value->size(), value->bytes().size());
  for (const std::string_view text : value->strings()) out->Add(text);
  return OkStatus();
}

template <typename T, typename At>
Status ReadArray(const Metadata& ggml, std::string_view key, const At& at, std::vector<T>* out) {
  const GgufValue* value = ggml.FindGguf(key);
  if (value == nullptr) return OkStatus();
  if (!value->is_array() || value->size() > kVocabTokensMax) return WrongType(key);
  out->reserve(value->size());
  for (uint64_t i = 0; i < value->size(); ++i) {
    const auto item = at(*value, i);
    if (!item) return WrongType(key);
    out->push_back(static_cast<T>(*item));
  }
  return OkStatus();
}

Status ReadFlag(const Metadata& ggml, std::string_view key, std::optional<bool>* out) {
  if (!ggml.Has(key)) return OkStatus();
  REPRISE_ASSIGN(*out, ggml.Bool(key));
  return OkStatus();
}

Status ReadId(const Metadata& ggml, std::string_view key, std::optional<uint32_t>* out) {
  if (!ggml.Has(key)) return OkStatus();
  REPRISE_ASSIGN(const int64_t id, ggml.Int(key, {0, int64_t{UINT32_MAX}}));
  *out = uint32_t(id);
  return OkStatus();
}

Result<GgufVocab> ReadGgufVocab(const Metadata& ggml) {
  GgufVocab vocab;
  REPRISE_ASSIGN(const std::string_view model, ggml.Text("model"));
  vocab.model = model;
  REPRISE_ASSIGN(const std::string_view pre, ggml.TextOr("pre", ""));
  vocab.pre = pre;
  REPRISE_TRY(ReadTable(ggml, "tokens", kVocabTokensMax, &vocab.tokens));
  REPRISE_TRY(ReadTable(ggml, "merges", kVocabMergesMax, &vocab.merges));
  const auto number = [](const GgufValue& value, uint64_t i) { return value.NumberAt(i); };
  const auto integer = [](const GgufValue& value, uint64_t i) -> std::optional<int64_t> {
    const auto item = value.IntAt(i);
    return item && *item >= INT32_MIN && *item <= INT32_MAX ? item : std::nullopt;
  };
  REPRISE_TRY(ReadArray(ggml, "scores", number, &vocab.scores));
  REPRISE_TRY(ReadArray(ggml, "token_type", integer, &vocab.types));
  if (const GgufValue* map = ggml.FindGguf("precompiled_charsmap"); map != nullptr) {
    vocab.chars_map.assign(reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size());
  }
  REPRISE_TRY(ReadFlag(ggml, "add_bos_token", &vocab.add_bos));
  REPRISE_TRY(ReadFlag(ggml, "add_eos_token", &vocab.add_eos));
  REPRISE_TRY(ReadFlag(ggml, "add_space_prefix", &vocab.add_space_prefix));
  REPRISE_TRY(ReadFlag(ggml, "remove_extra_whitespaces", &vocab.remove_extra_whitespaces));
  REPRISE_TRY(ReadId(ggml, "bos_token_id", &vocab.bos_id));
  REPRISE_TRY(ReadId(ggml, "eos_token_id", &vocab.eos_id));
  REPRISE_TRY(ReadId(ggml, "eot_token_id", &vocab.eot_id));
  REPRISE_TRY(ReadId(ggml, "eom_token_id", &vocab.eom_id));
  REPRISE_TRY(ReadId(ggml, "unknown_token_id", &vocab.unknown_id));
  REPRISE_TRY(ReadId(ggml, "padding_token_id", &vocab.padding_id));
  return vocab;
}

Result<ModelText> ReadGgufText(const Checkpoint& checkpoint) {
  const Metadata ggml = checkpoint.metadata().Section("tokenizer").Section("ggml");
  if (!ggml.Has("model")) return NotFound(checkpoint.path() + " has no tokenizer");
  REPRISE_ASSIGN(GgufVocab vocab, ReadGgufVocab(ggml));
  if (vocab.model == "none" || vocab.model == "no_vocab") {
    return NotFound(checkpoint.path() + " has no tokenizer");
  }
  REPRISE_ASSIGN(VocabSpec spec, VocabFromGguf(std::move(vocab)));
  ModelText text;
  REPRISE_ASSIGN(text.tokenizer, Tokenizer::Make(std::move(spec)));
  if (checkpoint.metadata().Has(kTemplateKey)) {
    REPRISE_ASSIGN(const std::string_view source, checkpoint.metadata().Text(kTemplateKey));
    text.chat_templates.push_back({"default", std::string(source)});
  }
  return text;
}

Result<ModelText> MakeText(Result<TokenizerFolder> folder) {
  if (!folder.ok()) return folder.status();
  ModelText text;
  REPRISE_ASSIGN(text.tokenizer, Tokenizer::Make(std::move(folder->vocab)));
  text.chat_templates = std::move(folder->chat_templates);
  return text;
}

}  // namespace

Result<ModelText> ReadModelText(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    auto text = ReadGgufText(checkpoint);
    if (text.ok() || text.status().code() == StatusCode::kNotFound) return text;
    return text.status().Annotate(checkpoint.path());
  }
  return ReadTextFile(checkpoint.path());
}

Result<ModelText> ReadTextFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    if (!HasVocab(path)) return NotFound(path + " has no tokenizer");
    return MakeText(ReadTokenizerFolder(path));
  }
  if (path.ends_with(".gguf")) {
    REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
    return ReadModelText(checkpoint);
  }
  REPRISE_ASSIGN(VocabSpec spec, ReadVocabFile(path));
  ModelText text;
  REPRISE_ASSIGN(text.tokenizer, Tokenizer::Make(std::move(spec)));
  return text;
}

}  // namespace reprise
