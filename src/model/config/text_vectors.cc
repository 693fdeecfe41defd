// SPDX-License-Identifier: Apache-2.0
#include "model/config/text_vectors.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "weights/convert.h"
#include "weights/metadata.h"

namespace reprise {
namespace {

// llama.cpp's numbers for "<architecture>.pooling_type".
enum GgufPooling : int64_t { kGgufNone = 0, kGgufMean = 1, kGgufCls = 2, kGgufLast = 3, kGgufRank };

constexpr char kRankPrompt[] = "tokenizer.chat_template.rerank";
constexpr size_t kModulesMax = 16;

Status ReadRankHead(const Checkpoint& checkpoint, int64_t dim, TextVectors* vectors) {
  const StoredTensor* head = checkpoint.Find(kRankTensor);
  const Metadata& metadata = checkpoint.metadata();
  if (head == nullptr || !metadata.Has(kRankPrompt)) {
    vectors->why_not =
        "it ranks documents, but its file lacks the tensor cls.output.weight or the key "
        "tokenizer.chat_template.rerank";
    return OkStatus();
  }
  const int64_t labels = head->shape.elements() / dim;
  REPRISE_ASSIGN(head, checkpoint.Require(kRankTensor, Shape({labels, dim})));
  if (labels != 1 && labels != 2) {
    vectors->why_not = "it sorts texts into " + std::to_string(labels) + " classes";
    return OkStatus();
  }
  REPRISE_ASSIGN(const std::string_view prompt, metadata.Text(kRankPrompt));
  if (prompt.find("{query}") == std::string_view::npos ||
      prompt.find("{document}") == std::string_view::npos) {
    return DataLoss(std::string(kRankPrompt) + " has no place for {query} or {document}");
  }
  vectors->rank_prompt = prompt;
  vectors->rank_rows.resize(size_t(labels * dim));
  ConvertRows(*head, DType::kF32, 0, labels,
              reinterpret_cast<std::byte*>(vectors->rank_rows.data()));
  return OkStatus();
}

Result<TextVectors> ReadGguf(const Checkpoint& checkpoint, int64_t dim) {
  TextVectors vectors;
  const Metadata section = checkpoint.metadata().Section(checkpoint.architecture());
  REPRISE_ASSIGN(const int64_t type, section.IntOr("pooling_type", kGgufNone, {-1, 255}));
  switch (type) {
    case -1:
    case kGgufNone:
      break;
    case kGgufMean:
      vectors.pooling = Pooling::kMean;
      break;
    case kGgufLast:
      vectors.pooling = Pooling::kLast;
      break;
    case kGgufRank:
      REPRISE_TRY(ReadRankHead(checkpoint, dim, &vectors));
      break;
    default:
      vectors.why_not = type == kGgufCls ? "it pools at a token that stands first"
                                         : "its way of pooling is unknown";
  }
  return vectors;
}

// sentence-transformers: the text goes through these modules, one after another.
struct Module {
  std::string kind;  // the last part of the name of a class
  std::string path;
};

Result<std::vector<Module>> ReadModules(const JsonValue& list) {
  if (!list.is_array() || list.items().size() > kModulesMax) {
    return DataLoss("it is not a short list");
  }
  std::vector<Module> modules;
  for (const JsonValue& item : list.items()) {
    const JsonValue* type = item.is_object() ? item.Find("type") : nullptr;
    const JsonValue* path = item.is_object() ? item.Find("path") : nullptr;
    if (type == nullptr || !type->is_string() || path == nullptr || !path->is_string()) {
      return DataLoss("a module has no type or path");
    }
    const std::string_view name = type->as_string();
    modules.push_back(
        {std::string(name.substr(name.rfind('.') + 1)), std::string(path->as_string())});
  }
  return modules;
}

// Both spellings: {"pooling_mode": "mean"} and {"pooling_mode_mean_tokens": true}.
Pooling ReadPooling(const JsonValue& config) {
  const auto says = [&](std::string_view mode, std::string_view flag) {
    const JsonValue* named = config.Find("pooling_mode");
    if (named != nullptr) return named->is_string() && named->as_string() == mode;
    const JsonValue* set = config.Find(flag);
    return set != nullptr && set->is_bool() && set->as_bool();
  };
  const bool mean = says("mean", "pooling_mode_mean_tokens");
  const bool last = says("lasttoken", "pooling_mode_lasttoken");
  const bool others = says("cls", "pooling_mode_cls_token") ||
                      says("max", "pooling_mode_max_tokens") ||
                      says("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens") ||
                      says("weightedmean", "pooling_mode_weightedmean_tokens");
  if (mean == last || others) return Pooling::kNone;
  return mean ? Pooling::kMean : Pooling::kLast;
}

Result<TextVectors> ReadFolder(const Checkpoint& checkpoint) {
  TextVectors vectors;
  const auto text = checkpoint.ReadText("modules.json");
  if (!text.ok()) {
    if (text.status().code() == StatusCode::kNotFound) return vectors;
    return text.status();
  }
  REPRISE_ASSIGN(const JsonDocument document, ParseConfigJson(*text));
  REPRISE_ASSIGN(const std::vector<Module> modules, ReadModules(document.root()));
  for (const Module& module : modules) {
    if (module.kind == "Transformer" || module.kind == "Normalize") continue;
    if (module.kind != "Pooling") {
      vectors.why_not = "its module " + Quoted(module.kind) + " is not computed here";
      return vectors;
    }
    REPRISE_ASSIGN(const std::string config, checkpoint.ReadText("config.json", module.path));
    REPRISE_ASSIGN(const JsonDocument parsed, ParseConfigJson(config));
    if (!parsed.root().is_object()) return DataLoss("the pooling's config.json is not an object");
    vectors.pooling = ReadPooling(parsed.root());
    if (vectors.pooling == Pooling::kNone) {
      vectors.why_not = "it pools neither by the mean nor at the last token";
    }
  }
  return vectors;
}

}  // namespace

Result<TextVectors> ReadTextVectors(const Checkpoint& checkpoint, int64_t dim) {
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  auto vectors = gguf ? ReadGguf(checkpoint, dim) : ReadFolder(checkpoint);
  if (vectors.ok()) {
    if (!vectors->why_not.empty()) vectors->pooling = Pooling::kNone;
    return vectors;
  }
  return vectors.status().Annotate(gguf ? checkpoint.path() : checkpoint.path() + "/modules.json");
}

void PutPooling(Pooling pooling, std::string_view architecture, GgufWriter* out) {
  if (pooling == Pooling::kNone) return;
  out->Put<uint32_t>(std::string(architecture) + ".pooling_type",
                     pooling == Pooling::kMean ? kGgufMean : kGgufLast);
}

Pooling FindPooling(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  return name == "last" ? Pooling::kLast : Pooling::kNone;
}

}  // namespace reprise
