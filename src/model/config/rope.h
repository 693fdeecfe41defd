// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/reader.h"

namespace reprise {

class GgufWriter;

// Llama 4's scaling: queries at position p are multiplied by 1 + beta ln(1 + floor(p / period)).
struct QueryGrowth {
  float beta = 0;  // 0: they are not
  int64_t period = 0;
};
// The factor of each period of a context.
std::vector<float> GrowthFactors(const QueryGrowth& growth, int64_t context_length);

// Which angle a channel pair turns by per position. All regimes here are static: the angles depend
// on the context that the model is loaded for, never on the length of a sequence, so cached keys
// stay valid.
struct RopeConfig {
  enum class Scaling : uint8_t {
    kNone,
    kLinear,
    kLlama3,
    kYarn,
    kLongRope,
    kProportional,
    kDynamic
  };

  int rotary_dim = 0;  // channels of a head that turn: the first ones
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double original_context = 0;  // kLlama3, kYarn, kLongRope, kDynamic
  // kDynamic: the longest sequence that the model serves, where that is more than the original
  // context. Theta is then stretched for it, from the first token on.
  double served_context = 0;
  int turning_pairs = 0;  // kProportional: the others of rotary_dim / 2 stay as they are
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double beta_fast = 32;  // kYarn
  double beta_slow = 1;
  bool truncate = true;  // kYarn: the ramp between the two begins and ends at whole pairs
  // kYarn, both or neither: cos and sin are multiplied by (0.1 mscale ln(factor) + 1) / (0.1
  // mscale_all ln(factor) + 1). 0: neither.
  double mscale = 0;
  double mscale_all = 0;
  // kYarn, kLongRope: what cos and sin are multiplied by; 0: as published, for YaRN as mscale says,
  // else by 0.1 ln(factor) + 1, for LongRoPE by sqrt(1 + ln(factor) / ln(original_context)).
  double attention_factor = 0;
  // kLongRope: divisors of the two regimes [rotary_dim / 2]. A model that serves contexts longer
  // than the original uses the long ones from the first token on, any other the short ones; which
  // regime it is belongs to the model's digest.
  std::vector<double> short_factors;
  std::vector<double> long_factors;
  bool long_regime = false;
  // Multimodal RoPE: by which of time, row and column each angle turns [rotary_dim / 2]. Empty:
  // there is one position. (Text has three that are equal, so models of text need not know.)
  std::vector<uint8_t> axes;

  // "theta 500000 dim 64 llama3 ...": part of the digest.
  std::string Describe() const;
  // For people: "LongRoPE, short factors (...)"; empty where the context decides nothing.
  std::string Regime() const;
};

// What a family expects of its rotary positions.
struct RopeExpectations {
  std::string_view member = {};  // of rope_parameters, for models with a regime per kind of layer
  double theta = 10000;          // where config.json does not say
  bool partial = false;          // config.json may let a part of the head turn
  bool gguf_truncate = true;     // RopeConfig::truncate of GGUF files that do not say
  // "dynamic" with a member alpha stands for a larger theta, whatever the length of the sequence.
  bool stretched_theta = false;
  // "proportional" is known: angles of a whole head, for a part of its pairs.
  bool proportional = false;
};

// The longest sequence of a model that was made for so many tokens: with "dynamic" as many as are
// wanted, up to its factor times as many.
int64_t ServedContext(ConfigReader* reader, int64_t made_for);

// Reads the regime; errors, regimes that are not known (by name) included, stick to the reader.
RopeConfig ReadRopeConfig(ConfigReader* reader, int head_dim,
                          const RopeExpectations& expected = {});

// How layers with a window turn q and k where they have angles of their own.
struct WindowRopePlace {
  std::string_view member;  // of rope_parameters
  std::string_view alias;   // of theta in config files without that member; "": none
  double theta = 10000;     // where neither is there
};
// Unscaled; another regime is refused by name.
RopeConfig ReadWindowRope(ConfigReader* reader, const RopeConfig& rope,
                          const WindowRopePlace& place);

// [rotary_dim / 2] angles per position, divided by `divisors` (of the same size, or empty: the
// rope_freqs.weight of GGUF files).
std::vector<float> InverseFrequencies(const RopeConfig& config,
                                      const std::vector<float>& divisors = {});
// The parameters as metadata of a GGUF file, under `prefix`; divisors are tensors.
void DescribeRope(const RopeConfig& config, const std::string& prefix, GgufWriter* out);
// The per-frequency divisors as GGUF stores them: of Llama 3 scaling, of proportional angles (1e30
// where nothing turns), else ones.
std::vector<float> StoredDivisors(const RopeConfig& config);
// What cos and sin are multiplied by: 1 except for YaRN and LongRoPE.
float RopeMagnitude(const RopeConfig& config);

}  // namespace reprise
