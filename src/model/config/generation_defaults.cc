// SPDX-License-Identifier: Apache-2.0
#include "model/config/generation_defaults.h"

#include <string>
#include <string_view>

#include "base/json.h"
#include "weights/metadata.h"

namespace reprise {
namespace {

constexpr NumberRange kTemperatures{0, 100};
constexpr NumberRange kShares{0, 1};
constexpr NumberRange kPenalties{0.01, 100};
constexpr IntRange kCounts{-1, INT32_MAX};

// The same settings have other names in other formats.
struct Names {
  std::string_view temperature, top_k, top_p, min_p, repetition_penalty;
};
constexpr Names kHuggingFace{"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};
constexpr Names kGguf{"temp", "top_k", "top_p", "min_p", "penalty_repeat"};

Status ReadNumber(const Metadata& from, std::string_view key, NumberRange range,
                  std::optional<float>* out) {
  if (!from.Has(key)) return OkStatus();
  REPRISE_ASSIGN(const double value, from.Number(key, range));
  *out = float(value);
  return OkStatus();
}

Result<GenerationDefaults> Read(const Metadata& from, const Names& names) {
  GenerationDefaults defaults;
  REPRISE_TRY(ReadNumber(from, names.temperature, kTemperatures, &defaults.temperature));
  REPRISE_TRY(ReadNumber(from, names.top_p, kShares, &defaults.top_p));
  REPRISE_TRY(ReadNumber(from, names.min_p, kShares, &defaults.min_p));
  REPRISE_TRY(ReadNumber(from, names.repetition_penalty, kPenalties, &defaults.repetition_penalty));
  if (from.Has(names.top_k)) {
    REPRISE_ASSIGN(const int64_t count, from.Int(names.top_k, kCounts));
    defaults.top_k = count < 0 ? 0 : int32_t(count);  // -1: all, as some write it
  }
  return defaults;
}

Result<GenerationDefaults> ReadFolder(const Checkpoint& checkpoint) {
  const auto text = checkpoint.ReadText("generation_config.json");
  if (!text.ok()) {
    if (text.status().code() == StatusCode::kNotFound) return GenerationDefaults();
    return text.status();
  }
  REPRISE_ASSIGN(const JsonDocument document, ParseConfigJson(*text));
  if (!document.root().is_object()) return DataLoss("it is not an object");
  const Metadata config(document.root());
  REPRISE_ASSIGN(GenerationDefaults defaults, Read(config, kHuggingFace));
  REPRISE_ASSIGN(const bool sample, config.BoolOr("do_sample", true));
  if (!sample) defaults.temperature = 0.0f;
  return defaults;
}

}  // namespace

Result<GenerationDefaults> ReadGenerationDefaults(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    auto defaults = Read(checkpoint.metadata().Section("general").Section("sampling"), kGguf);
    if (!defaults.ok()) return defaults.status().Annotate(checkpoint.path());
    return defaults;
  }
  auto defaults = ReadFolder(checkpoint);
  if (!defaults.ok()) {
    return defaults.status().Annotate(checkpoint.path() + "/generation_config.json");
  }
  return defaults;
}

void PutGenerationDefaults(const GenerationDefaults& defaults, GgufWriter* out) {
  const std::string section = "general.sampling.";
  const auto put = [&](std::string_view key, const std::optional<float>& value) {
    if (value) out->Put<float>(section + std::string(key), *value);
  };
  put(kGguf.temperature, defaults.temperature);
  if (defaults.top_k) out->Put<int32_t>(section + std::string(kGguf.top_k), *defaults.top_k);
  put(kGguf.top_p, defaults.top_p);
  put(kGguf.min_p, defaults.min_p);
  put(kGguf.repetition_penalty, defaults.repetition_penalty);
}

}  // namespace reprise
