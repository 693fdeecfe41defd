// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/format/gguf.h"

namespace reprise {

// Both ends belong to the range.
struct IntRange {
  int64_t min;
  int64_t max;
};
struct NumberRange {
  double min;
  double max;
};
inline constexpr NumberRange kFinite{-std::numeric_limits<double>::max(),
                                     std::numeric_limits<double>::max()};

// The hyper-parameters of a checkpoint, from GGUF metadata or from config.json, with one way to ask
// for them: by key, type and range. What comes back has been checked; what is wrong gives one
// sentence with the key. Keys are those of the format: "block_count" of section "qwen3" in GGUF,
// "num_hidden_layers" in config.json. JSON null means absent.
//
//   const Metadata qwen = checkpoint.metadata().Section("qwen3");
//   REPRISE_ASSIGN(const int64_t layers, qwen.Int("block_count", {1, 1024}));
//   REPRISE_ASSIGN(const double theta, qwen.NumberOr("rope.freq_base", 1e4, {1, 1e12}));
//
// A cheap view: what it was made from must outlive it. Thread safety: immutable.
class Metadata {
 public:
  Metadata() = default;                                      // empty
  explicit Metadata(const GgufFile* gguf) : gguf_(gguf) {}   // GGUF
  explicit Metadata(const JsonValue& root) : json_(root) {}  // config.json

  // Keys under `name`: in GGUF those that begin with "name.", in JSON the members of that object.
  Metadata Section(std::string_view name) const;

  bool Has(std::string_view key) const;
  // Whether a JSON member is there, and null.
  bool SaysNull(std::string_view key) const;

  Result<int64_t> Int(std::string_view key, IntRange range) const;
  Result<double> Number(std::string_view key, NumberRange range = kFinite) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string_view> Text(std::string_view key) const;
  // The same, or `fallback` if the key is absent. A value of the wrong type is still an error.
  Result<int64_t> IntOr(std::string_view key, int64_t fallback, IntRange range) const;
  Result<double> NumberOr(std::string_view key, double fallback, NumberRange range = kFinite) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;
  Result<std::string_view> TextOr(std::string_view key, std::string_view fallback) const;

  // An array of exactly `count`, or one value that stands for all (as GGUF has it for settings per
  // layer). Booleans count as 0 and 1.
  Result<std::vector<int64_t>> IntPerLayer(std::string_view key, size_t count,
                                           IntRange range) const;
  // Arrays of any length up to `count_max`. Strings are views of the file.
  Result<std::vector<int64_t>> Ints(std::string_view key, size_t count_max, IntRange range) const;
  Result<std::vector<double>> Numbers(std::string_view key, size_t count_max) const;
  Result<std::vector<std::string_view>> Texts(std::string_view key, size_t count_max) const;

  // The value itself, for what the above does not cover; null if absent or of the other format.
  const GgufValue* FindGguf(std::string_view key) const;
  const JsonValue* FindJson(std::string_view key) const;

 private:
  std::string Shown(std::string_view key) const;
  Status Missing(std::string_view key) const;
  Status WrongType(std::string_view key, const char* expected) const;
  Status WrongLength(std::string_view key, uint64_t size, const std::string& expected) const;

  const GgufFile* gguf_ = nullptr;
  JsonValue json_;
  std::string prefix_;  // "qwen3."
};

// config.json as its writers understand JSON: Infinity, -Infinity and NaN may stand where a number
// does (Python writes them so, or as {"__float__": "Infinity"}; Number takes both).
Result<JsonDocument> ParseConfigJson(std::string_view text);

}  // namespace reprise
