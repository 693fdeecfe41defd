// SPDX-License-Identifier: Apache-2.0
#include "model/config/reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

constexpr size_t kLayersMax = 1024;

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

int64_t ConfigReader::Int(ConfigKey key, IntRange range, std::optional<int64_t> fallback) {
  const int64_t harmless = std::clamp(fallback.value_or(range.min), range.min, range.max);
  const Place place = Locate(key);
  if (place.key.empty()) {
    if (fallback) return *fallback;
    return Take(inner_.Int(gguf_ ? key.gguf : key.hf, range), harmless);  // says that it is missing
  }
  const GgufValue* value = place.section.FindGguf(place.key);
  if (value == nullptr || !value->is_array())
    return Take(place.section.Int(place.key, range), harmless);
  const std::vector<int64_t> values =
      Take(place.section.Ints(place.key, kLayersMax, range), std::vector<int64_t>{});
  if (values.empty()) return harmless;
  if (!std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; })) {
    Refuse("the layers of this model differ in " + place.key +
           ", which its family does not expect");
  }
  return values[0];
}

double ConfigReader::Number(ConfigKey key, NumberRange range, std::optional<double> fallback) {
  const double harmless = std::clamp(fallback.value_or(range.min), range.min, range.max);
  const Place place = Locate(key);
  if (!place.key.empty()) return Take(place.section.Number(place.key, range), harmless);
  if (fallback) return *fallback;
  return Take(inner_.Number(gguf_ ? key.gguf : key.hf, range), harmless);
}

bool ConfigReader::Bool(ConfigKey key, bool fallback) {
  const Place place = Locate(key);
  return place.key.empty() ? fallback : Take(place.section.Bool(place.key), fallback);
}

std::string ConfigReader::Text(ConfigKey key, std::string_view fallback) {
  const Place place = Locate(key);
  if (place.key.empty()) return std::string(fallback);
  return std::string(Take(place.section.Text(place.key), fallback));
}

std::vector<int64_t> ConfigReader::Ints(ConfigKey key, size_t count_max, IntRange range) {
  const Place place = Locate(key);
  if (place.key.empty()) return {};
  return Take(place.section.Ints(place.key, count_max, range), std::vector<int64_t>{});
}

std::vector<double> ConfigReader::Numbers(ConfigKey key, size_t count_max) {
  const Place place = Locate(key);
  if (place.key.empty()) return {};
  return Take(place.section.Numbers(place.key, count_max), std::vector<double>{});
}

std::vector<std::string> ConfigReader::Texts(ConfigKey key, size_t count_max) {
  const Place place = Locate(key);
  if (place.key.empty()) return {};
  const std::vector<std::string_view> views =
      Take(place.section.Texts(place.key, count_max), std::vector<std::string_view>{});
  return {views.begin(), views.end()};
}

}  // namespace reprise
