// SPDX-License-Identifier: Apache-2.0
#include "weights/metadata.h"

#include <cmath>
#include <optional>

#include "weights/format/stored_tensor.h"

namespace reprise {
namespace {

std::optional<int64_t> IntOf(const JsonValue& value) {
  if (value.is_int()) return value.as_int();
  if (!value.is_number()) return std::nullopt;
  const double number = value.as_double();  // 1e6 is an integer, too
  if (std::trunc(number) != number || std::fabs(number) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<double> NumberOf(const JsonValue& value) {
  if (value.is_number()) return value.as_double();
  const JsonValue* special = value.Find("__float__");
  if (special == nullptr || !special->is_string()) return std::nullopt;
  if (special->as_string() == "Infinity") return INFINITY;
  if (special->as_string() == "-Infinity") return -INFINITY;
  if (special->as_string() == "NaN") return NAN;
  return std::nullopt;
}

std::optional<int64_t> IntOrBoolOf(const JsonValue& value) {
  if (value.is_bool()) return value.as_bool() ? 1 : 0;
  return IntOf(value);
}

std::optional<int64_t> IntOrBoolAt(const GgufValue& value, uint64_t index) {
  if (const std::optional<bool> flag = value.BoolAt(index)) return *flag ? 1 : 0;
  return value.IntAt(index);
}

std::string ShortNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

Metadata Metadata::Section(std::string_view name) const {
  if (gguf_ != nullptr) {
    Metadata section(gguf_);
    section.prefix_ = prefix_ + std::string(name) + ".";
    return section;
  }
  const JsonValue* object = FindJson(name);
  Metadata section;
  if (object != nullptr && object->is_object()) section.json_ = *object;
  section.prefix_ = prefix_ + std::string(name) + ".";
  return section;
}

const GgufValue* Metadata::FindGguf(std::string_view key) const {
  if (gguf_ == nullptr) return nullptr;
  return prefix_.empty() ? gguf_->Find(key) : gguf_->Find(prefix_ + std::string(key));
}

const JsonValue* Metadata::FindJson(std::string_view key) const {
  const JsonValue* value = json_.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Metadata::Has(std::string_view key) const {
  return FindGguf(key) != nullptr || FindJson(key) != nullptr;
}

bool Metadata::SaysNull(std::string_view key) const {
  const JsonValue* value = json_.Find(key);
  return value != nullptr && value->is_null();
}

std::string Metadata::Shown(std::string_view key) const {
  return (gguf_ != nullptr ? "metadata " : "config.json: ") + Quoted(prefix_ + std::string(key));
}

Status Metadata::Missing(std::string_view key) const {
  return NotFound(Shown(key) + " is missing");
}

Status Metadata::WrongType(std::string_view key, const char* expected) const {
  return DataLoss(Shown(key) + " is not " + expected);
}

Status Metadata::WrongLength(std::string_view key, uint64_t size,
                             const std::string& expected) const {
  return DataLoss(Shown(key) + " has " + std::to_string(size) + " elements; expected " + expected);
}

Result<int64_t> Metadata::Int(std::string_view key, IntRange range) const {
  std::optional<int64_t> value;
  if (const GgufValue* gguf = FindGguf(key)) {
    if (!gguf->is_array()) value = gguf->IntAt(0);
  } else if (const JsonValue* json = FindJson(key)) {
    value = IntOf(*json);
  } else {
    return Missing(key);
  }
  if (!value) return WrongType(key, "an integer");
  if (*value < range.min || *value > range.max) {
    return DataLoss(Shown(key) + " is " + std::to_string(*value) + "; expected " +
                    std::to_string(range.min) + " to " + std::to_string(range.max));
  }
  return *value;
}

Result<double> Metadata::Number(std::string_view key, NumberRange range) const {
  std::optional<double> value;
  if (const GgufValue* gguf = FindGguf(key)) {
    if (!gguf->is_array()) value = gguf->NumberAt(0);
  } else if (const JsonValue* json = FindJson(key)) {
    value = NumberOf(*json);
  } else {
    return Missing(key);
  }
  if (!value) return WrongType(key, "a number");
  if (!(*value >= range.min && *value <= range.max)) {
    return DataLoss(Shown(key) + " is " + ShortNumber(*value) + "; expected " +
                    ShortNumber(range.min) + " to " + ShortNumber(range.max));
  }
  return *value;
}

Result<bool> Metadata::Bool(std::string_view key) const {
  std::optional<bool> value;
  if (const GgufValue* gguf = FindGguf(key)) {
    if (!gguf->is_array()) value = gguf->BoolAt(0);
  } else if (const JsonValue* json = FindJson(key)) {
    if (json->is_bool()) value = json->as_bool();
  } else {
    return Missing(key);
  }
  if (!value) return WrongType(key, "true or false");
  return *value;
}

Result<std::string_view> Metadata::Text(std::string_view key) const {
  if (const GgufValue* gguf = FindGguf(key)) {
    if (!gguf->is_array() && gguf->type() == GgufType::kString) return *gguf->strings().begin();
  } else if (const JsonValue* json = FindJson(key)) {
    if (json->is_string()) return json->as_string();
  } else {
    return Missing(key);
  }
  return WrongType(key, "a string");
}

Result<int64_t> Metadata::IntOr(std::string_view key, int64_t fallback, IntRange range) const {
  return Has(key) ? Int(key, range) : Result<int64_t>(fallback);
}

Result<double> Metadata::NumberOr(std::string_view key, double fallback, NumberRange range) const {
  return Has(key) ? Number(key, range) : Result<double>(fallback);
}

Result<bool> Metadata::BoolOr(std::string_view key, bool fallback) const {
  return Has(key) ? Bool(key) : Result<bool>(fallback);
}

Result<std::string_view> Metadata::TextOr(std::string_view key, std::string_view fallback) const {
  return Has(key) ? Text(key) : Result<std::string_view>(fallback);
}

Result<std::vector<int64_t>> Metadata::IntPerLayer(std::string_view key, size_t count,
                                                   IntRange range) const {
  const GgufValue* gguf = FindGguf(key);
  const JsonValue* json = FindJson(key);
  const bool is_array =
      (gguf != nullptr && gguf->is_array()) || (json != nullptr && json->is_array());
  if (!is_array) {
    if (Result<bool> flag = Bool(key); flag.ok()) return std::vector<int64_t>(count, *flag ? 1 : 0);
    REPRISE_ASSIGN(const int64_t value, Int(key, range));
    return std::vector<int64_t>(count, value);
  }
  REPRISE_ASSIGN(std::vector<int64_t> values, Ints(key, count, range));
  if (values.size() != count) return WrongLength(key, values.size(), std::to_string(count));
  return values;
}

Result<std::vector<int64_t>> Metadata::Ints(std::string_view key, size_t count_max,
                                            IntRange range) const {
  const GgufValue* gguf = FindGguf(key);
  const JsonValue* json = FindJson(key);
  if (gguf == nullptr && json == nullptr) return Missing(key);
  if (gguf != nullptr ? !gguf->is_array() : !json->is_array()) return WrongType(key, "an array");
  const uint64_t size = gguf != nullptr ? gguf->size() : json->items().size();
  if (size > count_max) return WrongLength(key, size, "at most " + std::to_string(count_max));
  std::vector<int64_t> values;
  values.reserve(size);
  for (uint64_t i = 0; i < size; ++i) {
    const std::optional<int64_t> value =
        gguf != nullptr ? IntOrBoolAt(*gguf, i) : IntOrBoolOf(json->items()[i]);
    if (!value) return WrongType(key, "an array of integers");
    if (*value < range.min || *value > range.max) {
      return DataLoss(Shown(key) + " holds " + std::to_string(*value) + "; expected " +
                      std::to_string(range.min) + " to " + std::to_string(range.max));
    }
    values.push_back(*value);
  }
  return values;
}

Result<std::vector<double>> Metadata::Numbers(std::string_view key, size_t count_max) const {
  const GgufValue* gguf = FindGguf(key);
  const JsonValue* json = FindJson(key);
  if (gguf == nullptr && json == nullptr) return Missing(key);
  if (gguf != nullptr ? !gguf->is_array() : !json->is_array()) return WrongType(key, "an array");
  const uint64_t size = gguf != nullptr ? gguf->size() : json->items().size();
  if (size > count_max) return WrongLength(key, size, "at most " + std::to_string(count_max));
  std::vector<double> values;
  values.reserve(size);
  for (uint64_t i = 0; i < size; ++i) {
    const std::optional<double> value =
        gguf != nullptr ? gguf->NumberAt(i) : NumberOf(json->items()[i]);
    if (!value || std::isnan(*value)) return WrongType(key, "an array of numbers");
    values.push_back(*value);
  }
  return values;
}

Result<std::vector<std::string_view>> Metadata::Texts(std::string_view key,
                                                      size_t count_max) const {
  std::vector<std::string_view> texts;
  if (const GgufValue* gguf = FindGguf(key)) {
    if (!gguf->is_array() || gguf->type() != GgufType::kString) {
      return WrongType(key, "an array of strings");
    }
    if (gguf->size() > count_max) {
      return WrongLength(key, gguf->size(), "at most " + std::to_string(count_max));
    }
    texts.reserve(gguf->size());
    for (const std::string_view text : gguf->strings()) texts.push_back(text);
    return texts;
  }
  const JsonValue* json = FindJson(key);
  if (json == nullptr) return Missing(key);
  if (!json->is_array()) return WrongType(key, "an array of strings");
  if (json->items().size() > count_max) {
    return WrongLength(key, json->items().size(), "at most " + std::to_string(count_max));
  }
  for (const JsonValue& item : json->items()) {
    if (!item.is_string()) return WrongType(key, "an array of strings");
    texts.push_back(item.as_string());
  }
  return texts;
}

Result<JsonDocument> ParseConfigJson(std::string_view text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string strict;
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (in_string) {
      const size_t take = c == '\\' && at + 1 < text.size() ? 2 : 1;
      in_string = c != '"';
      strict.append(text, at, take);
      at += take;
      continue;
    }
    in_string = c == '"';
    std::string_view found;
    for (const std::string_view word : kWords) {
      if (text.substr(at, word.size()) == word) found = word;
    }
    if (found.empty()) {
      strict += c;
      ++at;
    } else {
      strict += "{\"__float__\":\"" + std::string(found) + "\"}";
      at += found.size();
    }
  }
  return JsonDocument::Parse(strict);
}

}  // namespace reprise
