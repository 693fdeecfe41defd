// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/json/pipeline.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/coding/base64.h"
#include "text/split/scanner.h"
#include "text/vocab/json/fields.h"

namespace reprise {
namespace {

using Behavior = SplitStep::Behavior;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

Status Unsupported(const char* part, std::string_view type) {
  return Unimplemented("tokenizer.json: the " + std::string(part) + " \"" + std::string(type) +
                       "\" is not supported");
}

// Calls visit(step) for `value`, or for each step of a Sequence, whose list is named `list`.
template <typename Visit>
Status ForEachStep(const JsonValue& value, std::string_view list, const char* part, Visit visit) {
  if (value.is_null()) return OkStatus();
  if (!value.is_object())
    return DataLoss("tokenizer.json: the " + std::string(part) + " is not an object");
  if (StringField(value, "type") != "Sequence") return visit(value);
  const JsonValue* steps = value.Find(list);
  if (steps == nullptr || !steps->is_array()) {
    return DataLoss("tokenizer.json: the " + std::string(part) + " sequence has no list");
  }
  for (const JsonValue& step : steps->items()) {
    // Sequences inside sequences: the parser bounds the depth.
    REPRISE_TRY(ForEachStep(step, list, part, visit));
  }
  return OkStatus();
}

// {"String": ...} or {"Regex": ...}.
Status ParsePattern(const JsonValue& step, const char* part, bool* is_regex, std::string* pattern) {
  const JsonValue* value = step.Find("pattern");
  if (value != nullptr) {
    for (const bool regex : {true, false}) {
      const JsonValue* text = value->Find(regex ? "Regex" : "String");
      if (text != nullptr && text->is_string() && !text->as_string().empty()) {
        *is_regex = regex;
        *pattern = text->as_string();
        return OkStatus();
      }
    }
  }
  return DataLoss("tokenizer.json: a " + std::string(part) + " has no pattern");
}

Status ParseBehavior(std::string_view name, Behavior* behavior) {
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  for (const auto& [known, value] : kNames) {
    if (known == name) {
      *behavior = value;
      return OkStatus();
    }
  }
  return Unsupported("split behavior", name);
}

void AddRegex(std::string_view pattern, Behavior behavior, VocabSpec* spec) {
  SplitStep step;
  step.pattern = pattern;
  step.behavior = behavior;
  spec->split.push_back(std::move(step));
}

Status AddSplit(const JsonValue& value, VocabSpec* spec) {
  SplitStep step;
  bool is_regex = false;
  REPRISE_TRY(ParsePattern(value, "Split", &is_regex, &step.pattern));
  REPRISE_TRY(ParseBehavior(StringField(value, "behavior"), &step.behavior));
  step.kind = is_regex ? SplitStep::Kind::kRegex : SplitStep::Kind::kLiteral;
  step.invert = BoolField(value, "invert", false);
  spec->split.push_back(std::move(step));
  return OkStatus();
}

Status AddMetaspace(const JsonValue& value, VocabSpec* spec) {
  if (StringField(value, "replacement", kMetaspace) != kMetaspace) {
    return Unsupported("Metaspace replacement", StringField(value, "replacement"));
  }
  SplitStep step;
  step.kind = SplitStep::Kind::kMetaspace;
  const bool legacy = BoolField(value, "add_prefix_space", true);
  const std::string_view scheme = StringField(value, "prepend_scheme", legacy ? "always" : "never");
  if (scheme == "always") {
    step.prepend = SplitStep::Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = SplitStep::Prepend::kFirst;
  } else if (scheme != "never") {
    return Unsupported("Metaspace prepend_scheme", scheme);
  }
  spec->split.push_back(step);
  if (BoolField(value, "split", true)) {
    SplitStep cut;
    cut.kind = SplitStep::Kind::kLiteral;
    cut.behavior = Behavior::kMergedWithNext;
    cut.pattern = kMetaspace;
    spec->split.push_back(std::move(cut));
  }
  return OkStatus();
}

Status AddByteLevel(const JsonValue& value, VocabSpec* spec) {
  if (BoolField(value, "add_prefix_space", true)) {
    SplitStep step;
    step.kind = SplitStep::Kind::kPrefixSpace;
    spec->split.push_back(std::move(step));
  }
  if (BoolField(value, "use_regex", true)) AddRegex(kGpt2Pattern, Behavior::kIsolated, spec);
  return OkStatus();
}

Status AddPreTokenizer(const JsonValue& value, VocabSpec* spec) {
  const std::string_view type = StringField(value, "type");
  if (type == "Split") return AddSplit(value, spec);
  if (type == "ByteLevel") return AddByteLevel(value, spec);
  if (type == "Metaspace") return AddMetaspace(value, spec);
  if (type == "Digits") {
    const bool single = BoolField(value, "individual_digits", false);
    AddRegex(single ? kNumberPattern : kNumbersPattern, Behavior::kIsolated, spec);
    return OkStatus();
  }
  if (type == "Punctuation") {
    Behavior behavior = Behavior::kIsolated;
    REPRISE_TRY(ParseBehavior(StringField(value, "behavior", "Isolated"), &behavior));
    AddRegex(R"([\p{P}$+<=>^`|~])", behavior, spec);
    return OkStatus();
  }
  if (type == "WhitespaceSplit") {
    AddRegex(R"(\s)", Behavior::kRemoved, spec);
    return OkStatus();
  }
  if (type == "Whitespace") {
    AddRegex(R"(\w+|[^\w\s]+)", Behavior::kRemoved, spec);
    spec->split.back().invert = true;
    return OkStatus();
  }
  return Unsupported("pre-tokenizer", type);
}

Status AddNormalizer(const JsonValue& value, VocabSpec* spec) {
  const std::string_view type = StringField(value, "type");
  NormalizeStep step;
  if (type == "NFC") {
    step.kind = NormalizeStep::Kind::kNfc;
  } else if (type == "Prepend") {
    step.kind = NormalizeStep::Kind::kPrepend;
    step.to = StringField(value, "prepend");
  } else if (type == "Replace") {
    bool is_regex = false;
    REPRISE_TRY(ParsePattern(value, "Replace", &is_regex, &step.from));
    step.kind = is_regex ? NormalizeStep::Kind::kReplaceRegex : NormalizeStep::Kind::kReplace;
    step.to = StringField(value, "content");
  } else if (type == "Strip") {
    step.kind = NormalizeStep::Kind::kStrip;
    if (BoolField(value, "strip_left", true)) step.from = "left";
    if (BoolField(value, "strip_right", true)) step.to = "right";
  } else if (type == "Precompiled") {
    step.kind = NormalizeStep::Kind::kCharsMap;
    auto map = FromBase64(StringField(value, "precompiled_charsmap"));
    if (!map) return DataLoss("tokenizer.json: the precompiled character map is not base64");
    step.from = std::move(*map);
  } else {
    return Unsupported("normalizer", type);
  }
  spec->normalize.push_back(std::move(step));
  return OkStatus();
}

Status AddDecoder(const JsonValue& value, VocabSpec* spec) {
  const std::string_view type = StringField(value, "type");
  if (type == "ByteLevel" || type == "Fuse" || type == "ByteFallback") return OkStatus();
  if (type == "Metaspace") {
    const bool legacy = BoolField(value, "add_prefix_space", true);
    spec->decode_metaspace = true;
    if (StringField(value, "prepend_scheme", legacy ? "always" : "never") != "never") {
      spec->decode = VocabSpec::Decode::kStripFirstToken;
    }
    return OkStatus();
  }
  if (type == "Replace") {
    bool is_regex = false;
    std::string pattern;
    REPRISE_TRY(ParsePattern(value, "Replace", &is_regex, &pattern));
    if (is_regex || pattern != kMetaspace || StringField(value, "content") != " ") {
      return Unsupported("decoder Replace of", pattern);
    }
    spec->decode_metaspace = true;
    return OkStatus();
  }
  if (type == "Strip") {
    if (StringField(value, "content") != " " || IntField(value, "start", 0) != 1 ||
        IntField(value, "stop", 0) != 0) {
      return Unsupported("decoder", "Strip with other than one leading space");
    }
    spec->decode = VocabSpec::Decode::kStripOne;
    return OkStatus();
  }
  return Unsupported("decoder", type);
}

Status AddSpecialIds(const JsonValue& processor, std::string_view name, std::vector<int32_t>* ids) {
  const JsonValue* tokens = processor.Find("special_tokens");
  const JsonValue* token = tokens == nullptr ? nullptr : tokens->Find(name);
  const JsonValue* list = token == nullptr ? nullptr : token->Find("ids");
  if (list == nullptr || !list->is_array()) {
    return DataLoss("tokenizer.json: the post-processor uses \"" + std::string(name) +
                    "\" and does not say what it is");
  }
  for (const JsonValue& id : list->items()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= int64_t{kVocabTokensMax}) {
      return DataLoss("tokenizer.json: the post-processor has an id out of range");
    }
    ids->push_back(static_cast<int32_t>(id.as_int()));
  }
  return OkStatus();
}

// [special..., sequence A, special...]
Status AddTemplate(const JsonValue& value, VocabSpec* spec) {
  const JsonValue* single = value.Find("single");
  if (single == nullptr || !single->is_array()) {
    return DataLoss("tokenizer.json: the TemplateProcessing has no \"single\" list");
  }
  bool after = false;
  for (const JsonValue& item : single->items()) {
    if (const JsonValue* special = item.Find("SpecialToken")) {
      auto* ids = after ? &spec->suffix_ids : &spec->prefix_ids;
      REPRISE_TRY(AddSpecialIds(value, StringField(*special, "id"), ids));
    } else if (item.Find("Sequence") != nullptr && !after) {
      after = true;
    } else {
      return Unsupported("post-processor", "TemplateProcessing with other than one sequence");
    }
  }
  static constexpr size_t kSpecialsMax = 64;
  if (!after || spec->prefix_ids.size() + spec->suffix_ids.size() > kSpecialsMax) {
    return DataLoss("tokenizer.json: the TemplateProcessing is not a template of one text");
  }
  return OkStatus();
}

// ["<s>", 0]
Status AddPair(const JsonValue& value, const char* key, std::vector<int32_t>* ids) {
  const JsonValue* pair = value.Find(key);
  if (pair == nullptr || !pair->is_array() || pair->items().size() != 2 ||
      !pair->items()[1].is_int() || pair->items()[1].as_int() < 0 ||
      pair->items()[1].as_int() >= int64_t{kVocabTokensMax}) {
    return DataLoss("tokenizer.json: the post-processor has no valid \"" + std::string(key) + "\"");
  }
  ids->push_back(static_cast<int32_t>(pair->items()[1].as_int()));
  return OkStatus();
}

Status AddPostProcessor(const JsonValue& value, VocabSpec* spec) {
  const std::string_view type = StringField(value, "type");
  if (type == "ByteLevel") return OkStatus();  // about offsets only
  if (type == "TemplateProcessing") return AddTemplate(value, spec);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    REPRISE_TRY(AddPair(value, "cls", &spec->prefix_ids));
    return AddPair(value, "sep", &spec->suffix_ids);
  }
  return Unsupported("post-processor", type);
}

}  // namespace

Status ParseNormalizer(const JsonValue& value, VocabSpec* spec) {
  return ForEachStep(value, "normalizers", "normalizer",
                     [&](const JsonValue& step) { return AddNormalizer(step, spec); });
}

Status ParsePreTokenizer(const JsonValue& value, VocabSpec* spec, bool* byte_level) {
  *byte_level = false;
  bool in_alphabet = false;
  return ForEachStep(value, "pretokenizers", "pre-tokenizer", [&](const JsonValue& step) {
    const bool is_byte_level = StringField(step, "type") == "ByteLevel";
    if (is_byte_level && *byte_level) {
      return Unsupported("pre-tokenizer", "ByteLevel twice");
    }
    if (*byte_level && !in_alphabet) {
      // Steps after ByteLevel see its alphabet, not the text.
      SplitStep alphabet;
      alphabet.kind = SplitStep::Kind::kAlphabet;
      spec->split.push_back(std::move(alphabet));
      in_alphabet = true;
    }
    *byte_level |= is_byte_level;
    return AddPreTokenizer(step, spec);
  });
}

Status ParseDecoder(const JsonValue& value, VocabSpec* spec) {
  return ForEachStep(value, "decoders", "decoder",
                     [&](const JsonValue& step) { return AddDecoder(step, spec); });
}

Status ParsePostProcessor(const JsonValue& value, VocabSpec* spec) {
  return ForEachStep(value, "processors", "post-processor",
                     [&](const JsonValue& step) { return AddPostProcessor(step, spec); });
}

}  // namespace reprise
