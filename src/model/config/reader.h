// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/metadata.h"

namespace reprise {

// A parameter by its name in config.json (members of members with dots: "rope_parameters.factor")
// and in GGUF metadata (without the architecture: "attention.head_count"). An empty name means that
// the format does not have it.
struct ConfigKey {
  std::string_view hf;
  std::string_view gguf;
};

// A count or a width whose bound is nobody's concern but memory's.
inline constexpr IntRange kAnySize{1, int64_t{1} << 24};

// Reads the parameters of a model from either format. Every value is hostile until it lies in its
// range. The first error sticks: later calls return harmless values inside their range, and a
// family asks once, at the end, with status().
class ConfigReader {
 public:
  // config.json alone, for models that are still to be written. `config` must outlive the reader.
  explicit ConfigReader(const JsonValue& config);
  // The metadata of a checkpoint; of config.json its text part (member text_config, if it is
  // there).
  explicit ConfigReader(const Checkpoint& checkpoint);

  bool gguf() const { return gguf_; }
  const Status& status() const { return status_; }
  // Members of config.json that its writers may leave out, and what they are then; GGUF files say
  // everything. REQUIRES: valid JSON that outlives the reader.
  void AddDefaults(std::string_view json);
  // Tokens of the longest sequence that the model is to serve; 0: as long as it was made for. Some
  // rotary regimes follow from it.
  void set_context_tokens(int64_t tokens) { context_tokens_ = tokens; }
  int64_t context_tokens() const { return context_tokens_; }
  // Whether a block that predicts further tokens is wanted, where the model has one.
  void set_mtp(bool wanted) { mtp_ = wanted; }
  bool mtp() const { return mtp_; }
  // There is one in a file beside, whatever this one says.
  void set_mtp_beside() { mtp_ = mtp_beside_ = true; }
  bool mtp_beside() const { return mtp_beside_; }
  // Makes `message` the error unless there is one already.
  void Refuse(std::string message);

  // Fails if the parameter is absent and there is no fallback, of another type, or out of range. An
  // array of equal integers (GGUF: one per layer) is taken as one.
  int64_t Int(ConfigKey key, IntRange range, std::optional<int64_t> fallback = std::nullopt);
  double Number(ConfigKey key, NumberRange range, std::optional<double> fallback = std::nullopt);
  bool Bool(ConfigKey key, bool fallback);
  std::string Text(ConfigKey key, std::string_view fallback);
  // Arrays; empty if absent.
  std::vector<int64_t> Ints(ConfigKey key, size_t count_max, IntRange range);
  std::vector<std::string> Texts(ConfigKey key, size_t count_max);
  std::vector<double> Numbers(ConfigKey key, size_t count_max);
  bool Has(ConfigKey key) const;
  bool IsArray(ConfigKey key) const;
  // Whether config.json has that member and says null, which counts as absent everywhere else.
  bool IsNull(std::string_view hf) const;

  // Every parameter that was asked for, with what was said: part of the digest.
  const std::map<std::string, std::string>& taken() const { return taken_; }

  // The tensor of that name, or null; always null where there is no checkpoint.
  const StoredTensor* FindTensor(ConfigKey name) const;

 private:
  struct Place {
    Metadata section;
    std::string key;  // empty: absent
  };
  Place Locate(ConfigKey key) const;
  template <typename T>
  T Take(Result<T> value, T harmless);
  template <typename T>
  T Record(ConfigKey key, T value);

  const Checkpoint* checkpoint_ = nullptr;
  bool gguf_ = false;
  Metadata outer_;  // all of it
  std::optional<JsonDocument> defaults_;
  Metadata inner_;  // section of the architecture, or text part of config.json
  int64_t context_tokens_ = 0;
  bool mtp_ = false;
  bool mtp_beside_ = false;
  std::map<std::string, std::string> taken_;
  Status status_;
};

}  // namespace reprise
