// SPDX-License-Identifier: Apache-2.0
#include "model/config/reader.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "weights/recipe/recipe.h"

namespace reprise {
namespace {

constexpr size_t kLayersMax = 1024;

std::string Shown(int64_t value) { return std::to_string(value); }
std::string Shown(bool value) { return value ? "true" : "false"; }
std::string Shown(const std::string& value) { return value; }
std::string Shown(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

template <typename T>
std::string Shown(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text.append(Shown(value)).append(1, ' ');
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const JsonValue& config) : outer_(config), inner_(config) {
  const JsonValue* text = config.Find("text_config");
  if (text != nullptr && text->is_object()) inner_ = outer_.Section("text_config");
}

ConfigReader::ConfigReader(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint),
      gguf_(checkpoint.format() == CheckpointFormat::kGguf),
      outer_(checkpoint.metadata()),
      inner_(checkpoint.metadata()) {
  if (gguf_) {
    inner_ = outer_.Section(checkpoint.architecture());
  } else if (const JsonValue* text = outer_.FindJson("text_config");
             text != nullptr && text->is_object()) {
    inner_ = outer_.Section("text_config");
  }
  // MXFP4 is known by its tensors (weights/checkpoint.h).
  if (!gguf_ && Has({"quantization_config", ""}) &&
      Text({"quantization_config.quant_method", ""}, "") != "mxfp4") {
    const JsonValue* quantization = outer_.FindJson("quantization_config");
    const Status known = quantization != nullptr && quantization->is_object()
                             ? CheckQuantisation(*quantization)
                             : InvalidArgument(
                                   "a quantization_config that is not of the whole "
                                   "model is not supported; take the original weights "
                                   "or a GGUF file");
    if (!known.ok()) Refuse(known.message());
  }
}

void ConfigReader::AddDefaults(std::string_view json) {
  auto document = JsonDocument::Parse(json);
  CHECK(document.ok());
  defaults_ = std::move(*document);
}

void ConfigReader::Refuse(std::string message) {
  if (status_.ok()) status_ = InvalidArgument(std::move(message));
}

ConfigReader::Place ConfigReader::Locate(ConfigKey key) const {
  if (gguf_) return {inner_, std::string(inner_.Has(key.gguf) ? key.gguf : "")};
  const Metadata defaults = defaults_ ? Metadata(defaults_->root()) : Metadata();
  for (const Metadata* start : {&inner_, &outer_, &defaults}) {
    Metadata section = *start;
    std::string_view rest = key.hf;
    for (size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      section = section.Section(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    if (!rest.empty() && section.Has(rest)) return {section, std::string(rest)};
  }
  return {};
}

bool ConfigReader::Has(ConfigKey key) const { return !Locate(key).key.empty(); }

bool ConfigReader::IsArray(ConfigKey key) const {
  const Place place = Locate(key);
  if (place.key.empty()) return false;
  if (gguf_) return place.section.FindGguf(place.key)->is_array();
  return place.section.FindJson(place.key)->is_array();
}

bool ConfigReader::IsNull(std::string_view hf) const {
  if (gguf_) return false;
  for (Metadata section : {inner_, outer_}) {
    std::string_view rest = hf;
    for (size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      section = section.Section(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    if (section.SaysNull(rest)) return true;
  }
  return false;
}

const StoredTensor* ConfigReader::FindTensor(ConfigKey name) const {
  const std::string_view wanted = gguf_ ? name.gguf : name.hf;
  return checkpoint_ == nullptr || wanted.empty() ? nullptr : checkpoint_->Find(wanted);
}

template <typename T>
T ConfigReader::Take(Result<T> value, T harmless) {
  if (value.ok()) return *value;
  if (status_.ok()) status_ = value.status();
  return harmless;
}

template <typename T>
T ConfigReader::Record(ConfigKey key, T value) {
  if (const std::string_view name = gguf_ ? key.gguf : key.hf; !name.empty()) {
    taken_[std::string(name)] = Shown(value);
  }
  return value;
}

int64_t ConfigReader::Int(ConfigKey key, IntRange range, std::optional<int64_t> fallback) {
  const int64_t harmless = std::clamp(fallback.value_or(range.min), range.min, range.max);
  const Place place = Locate(key);
  if (place.key.empty()) {
    if (fallback) return Record(key, *fallback);
    return Take(inner_.Int(gguf_ ? key.gguf : key.hf, range), harmless);  // says that it is missing
  }
  const GgufValue* value = place.section.FindGguf(place.key);
  if (value == nullptr || !value->is_array()) {
    return Record(key, Take(place.section.Int(place.key, range), harmless));
  }
  const std::vector<int64_t> values =
      Take(place.section.Ints(place.key, kLayersMax, range), std::vector<int64_t>{});
  if (values.empty()) return harmless;
  if (!std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; })) {
    Refuse("the layers of this model differ in " + place.key +
           ", which its family does not expect");
  }
  return Record(key, values[0]);
}

double ConfigReader::Number(ConfigKey key, NumberRange range, std::optional<double> fallback) {
  const double harmless = std::clamp(fallback.value_or(range.min), range.min, range.max);
  const Place place = Locate(key);
  if (!place.key.empty()) {
    return Record(key, Take(place.section.Number(place.key, range), harmless));
  }
  if (fallback) return Record(key, *fallback);
  return Take(inner_.Number(gguf_ ? key.gguf : key.hf, range), harmless);
}

bool ConfigReader::Bool(ConfigKey key, bool fallback) {
  const Place place = Locate(key);
  return Record(key, place.key.empty() ? fallback : Take(place.section.Bool(place.key), fallback));
}

std::string ConfigReader::Text(ConfigKey key, std::string_view fallback) {
  const Place place = Locate(key);
  return Record(
      key,
      std::string(place.key.empty() ? fallback : Take(place.section.Text(place.key), fallback)));
}

std::vector<int64_t> ConfigReader::Ints(ConfigKey key, size_t count_max, IntRange range) {
  const Place place = Locate(key);
  if (place.key.empty()) return Record(key, std::vector<int64_t>{});
  return Record(key, Take(place.section.Ints(place.key, count_max, range), std::vector<int64_t>{}));
}

std::vector<double> ConfigReader::Numbers(ConfigKey key, size_t count_max) {
  const Place place = Locate(key);
  if (place.key.empty()) return Record(key, std::vector<double>{});
  return Record(key, Take(place.section.Numbers(place.key, count_max), std::vector<double>{}));
}

std::vector<std::string> ConfigReader::Texts(ConfigKey key, size_t count_max) {
  const Place place = Locate(key);
  if (place.key.empty()) return Record(key, std::vector<std::string>{});
  const std::vector<std::string_view> views =
      Take(place.section.Texts(place.key, count_max), std::vector<std::string_view>{});
  return Record(key, std::vector<std::string>(views.begin(), views.end()));
}

}  // namespace reprise
