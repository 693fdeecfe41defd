// SPDX-License-Identifier: Apache-2.0
#include "model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "kernels/reference/math.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;
// What llama.cpp divides angles by that are to be none.
constexpr double kNoTurn = 1e30;
constexpr int64_t kMostTokens = int64_t{1} << 30;

// Dynamic NTK: theta for the context that is served.
double StretchedTheta(const RopeConfig& config) {
  if (config.served_context <= config.original_context) return config.theta;
  const double longer =
      config.factor * config.served_context / config.original_context - (config.factor - 1);
  return config.theta *
         reference::PowDouble(longer, double(config.rotary_dim) / (config.rotary_dim - 2));
}

// theta^(-2f / dim), the unscaled angle of pair f.
double BaseFrequency(const RopeConfig& config, int f) {
  const bool stretched = config.scaling == RopeConfig::Scaling::kDynamic;
  return reference::PowDouble(stretched ? StretchedTheta(config) : config.theta,
                              -2.0 * f / config.rotary_dim);
}

// The pair whose wave fits `turns` times into the original context (YaRN).
double CorrectionPair(const RopeConfig& config, double turns) {
  return config.rotary_dim * reference::LogDouble(config.original_context / (turns * kTwoPi)) /
         (2 * reference::LogDouble(config.theta));
}

// 1 where YaRN leaves the frequency alone, 0 where it divides it by the factor.
double YarnKeep(const RopeConfig& config, int f) {
  const double first = CorrectionPair(config, config.beta_fast);
  const double last = CorrectionPair(config, config.beta_slow);
  const double low = std::max(0.0, config.truncate ? std::floor(first) : first);
  const double high = std::min(config.rotary_dim - 1.0, config.truncate ? std::ceil(last) : last);
  const double ramp = (f - low) / std::max(0.001, high - low);
  return 1 - std::clamp(ramp, 0.0, 1.0);
}

// How much louder YaRN makes both q and k, by `mscale`.
double YarnMagnitude(const RopeConfig& config, double mscale) {
  return config.factor <= 1 ? 1 : 0.1 * mscale * reference::LogDouble(config.factor) + 1;
}

double Llama3Divisor(const RopeConfig& config, int f) {
  const double turns = config.original_context * BaseFrequency(config, f) / kTwoPi;
  if (turns > config.high_frequency_factor) return 1;
  if (turns < config.low_frequency_factor) return config.factor;
  const double smooth = (turns - config.low_frequency_factor) /
                        (config.high_frequency_factor - config.low_frequency_factor);
  return 1 / ((1 - smooth) / config.factor + smooth);
}

double Divisor(const RopeConfig& config, int f) {
  switch (config.scaling) {
    case RopeConfig::Scaling::kNone:
    case RopeConfig::Scaling::kDynamic:
      return 1;
    case RopeConfig::Scaling::kLinear:
      return config.factor;
    case RopeConfig::Scaling::kLlama3:
      return Llama3Divisor(config, f);
    case RopeConfig::Scaling::kYarn: {
      const double keep = YarnKeep(config, f);
      return 1 / ((1 - keep) / config.factor + keep);
    }
    case RopeConfig::Scaling::kProportional:
      return f < config.turning_pairs ? config.factor : kNoTurn;
    case RopeConfig::Scaling::kLongRope:
      return (config.long_regime ? config.long_factors : config.short_factors)[size_t(f)];
  }
  return 1;
}

// The member of config.json that holds the regime: "rope_parameters" since Transformers 5, before
// that "rope_scaling" (null where there is none).
std::string ScalingMember(const ConfigReader& reader, std::string_view member) {
  if (!reader.Has({"rope_parameters", ""})) return "rope_scaling.";
  const std::string nested = "rope_parameters." + std::string(member);
  return !member.empty() && reader.Has({nested, ""}) ? nested + "." : "rope_parameters.";
}

// Where the scaling begins. Beside the member or in it; the outer one counts.
double ReadOriginalContext(ConfigReader* reader, const std::string& member,
                           int64_t context_length) {
  const std::string_view outer = "original_max_position_embeddings";
  const std::string inner = member + std::string(outer);
  return reader->Number(
      {reader->Has({outer, ""}) ? outer : inner, "rope.scaling.original_context_length"}, {2, 1e9},
      double(context_length));
}

// The factors come as lists in config.json and as tensors in GGUF files (ones until they are read).
void ReadLongRope(ConfigReader* reader, const std::string& member, int64_t context_length,
                  RopeConfig* config) {
  const size_t half = size_t(config->rotary_dim / 2);
  config->scaling = RopeConfig::Scaling::kLongRope;
  config->original_context = ReadOriginalContext(reader, member, context_length);
  config->factor = reader->Number({member + "factor", ""}, {1e-6, 1e6},
                                  double(context_length) / config->original_context);
  const int64_t wanted = reader->context_tokens();
  const int64_t served = wanted > 0 ? std::min(wanted, context_length) : context_length;
  config->long_regime = double(served) > config->original_context;
  // Both regimes scale alike. GGUF files that do not say do not scale.
  config->attention_factor =
      reader->Number({member + "attention_factor", "rope.scaling.attn_factor"}, {0, 1e3},
                     reader->gguf() ? 1.0 : 0.0);
  for (const char* unknown : {"short_mscale", "long_mscale"}) {
    if (reader->Has({member + unknown, ""})) {
      reader->Refuse("rotary scaling 'longrope' with " + std::string(unknown) +
                     " is not supported");
    }
  }
  if (reader->gguf()) {
    if (reader->FindTensor({"", "rope_factors_long.weight"}) == nullptr) {
      reader->Refuse("rotary scaling 'longrope' needs the tensor rope_factors_long.weight");
    }
    config->short_factors.assign(half, 1);
    config->long_factors.assign(half, 1);
    return;
  }
  config->short_factors = reader->Numbers({member + "short_factor", ""}, 1024);
  config->long_factors = reader->Numbers({member + "long_factor", ""}, 1024);
  for (std::vector<double>* factors : {&config->short_factors, &config->long_factors}) {
    const bool sound =
        factors->size() == half && std::all_of(factors->begin(), factors->end(),
                                               [](double v) { return v >= 1e-6 && v <= 1e9; });
    if (sound) continue;
    reader->Refuse("rotary scaling 'longrope' needs " + std::to_string(half) +
                   " positive numbers in short_factor and in long_factor");
    factors->assign(half, 1);
  }
}

void ReadYarn(ConfigReader* reader, const std::string& member, const RopeExpectations& expected,
              RopeConfig* config) {
  config->scaling = RopeConfig::Scaling::kYarn;
  const auto number = [&](const char* hf, const char* gguf, double min, double max,
                          double fallback) {
    return reader->Number({member + hf, gguf}, {min, max}, fallback);
  };
  config->beta_fast = number("beta_fast", "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0);
  config->beta_slow = number("beta_slow", "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0);
  config->attention_factor = number("attention_factor", "", 0, 1e3, 0.0);
  // One without the other counts for nothing. GGUF files have the second only, and the first is 1.
  config->mscale = number("mscale", "", 0, 1e3, reader->gguf() ? 1.0 : 0.0);
  config->mscale_all = number("mscale_all_dim", "rope.scaling.yarn_log_multiplier", 0, 1e3, 0.0);
  if (config->mscale == 0 || config->mscale_all == 0) config->mscale = config->mscale_all = 0;
  // GGUF files say how it differs from the published one.
  if (const double factor = number("", "rope.scaling.attn_factor", 1e-6, 1e3, 1.0); factor != 1) {
    config->attention_factor = factor * double(RopeMagnitude(*config));
  }
  config->truncate = reader->Bool({member + "truncate", "rope.scaling.yarn_truncate"},
                                  !reader->gguf() || expected.gguf_truncate);
  if (!config->truncate && member.find('.') + 1 != member.size()) {
    reader->Refuse("rotary scaling 'yarn' without truncate is not supported for a kind of layers");
  }
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    if (reader->Number({"", key}, {-1e6, 1e6}, 1.0) != 1) {
      reader->Refuse(std::string("rotary scaling 'yarn' with ") + key + " is not supported");
    }
  }
}

constexpr const char* kDynamicFactor = "rope.scaling.dynamic_factor";  // not known to llama.cpp

std::string ReadType(ConfigReader* reader, const std::string& member) {
  const std::string type = reader->Text({member + "type", "rope.scaling.type"}, "default");
  return reader->Text({member + "rope_type", "rope.scaling.type"}, type);
}

bool IsDynamic(const ConfigReader& reader, const std::string& type) {
  return reader.gguf() ? reader.Has({"", kDynamicFactor}) : type == "dynamic";
}

double ReadDynamicFactor(ConfigReader* reader, const std::string& member) {
  return reader->Number({member + "factor", kDynamicFactor}, {1, 1e6});
}

// "dynamic" with a member alpha stands for a larger theta, whatever the length of the sequence.
double ReadAlpha(ConfigReader* reader, const std::string& member) {
  return reader->Number({member + "alpha", ""}, {0, 1e9}, 0.0);
}

void ReadScaling(ConfigReader* reader, const std::string& member, int64_t context_length,
                 const RopeExpectations& expected, RopeConfig* config) {
  const auto number = [&](const char* hf, const char* gguf, double min, double max,
                          std::optional<double> fallback) {
    return reader->Number({member + hf, gguf}, {min, max}, fallback);
  };
  const std::string type = ReadType(reader, member);
  const bool factors = reader->FindTensor({"", "rope_factors_long.weight"}) != nullptr;
  const bool plain = type == "default" || type == "none";
  if (type == "longrope" || type == "su" || (factors && plain)) {
    return ReadLongRope(reader, member, context_length, config);
  }
  const bool dynamic = IsDynamic(*reader, type);
  if (type == "mrope" || (plain && !dynamic)) return;
  const double alpha = expected.stretched_theta && dynamic ? ReadAlpha(reader, member) : 0;
  if (alpha != 0) {
    number("factor", "", 1e-6, 1e6, std::nullopt);  // has to be there, and counts for nothing
    config->theta *=
        reference::PowDouble(alpha, double(config->rotary_dim) / (config->rotary_dim - 2));
    return;
  }
  if (dynamic) {
    config->scaling = RopeConfig::Scaling::kDynamic;
    config->factor = ReadDynamicFactor(reader, member);
    config->original_context = double(context_length);
    config->served_context = double(ServedContext(reader, context_length));
    if (config->rotary_dim < 4) reader->Refuse("rotary scaling 'dynamic' needs more channels");
    return;
  }
  if (expected.proportional && type == "proportional") {
    config->scaling = RopeConfig::Scaling::kProportional;
    config->factor = number("factor", "", 1e-6, 1e6, 1.0);
    return;
  }
  // llama.cpp takes no factor for one.
  config->factor = number("factor", "rope.scaling.factor", 1e-6, 1e6,
                          reader->gguf() ? std::optional(1.0) : std::nullopt);
  if (type == "linear") {
    config->scaling = RopeConfig::Scaling::kLinear;
    return;
  }
  config->original_context = ReadOriginalContext(reader, member, context_length);
  if (type == "llama3") {
    config->scaling = RopeConfig::Scaling::kLlama3;
    config->low_frequency_factor = number("low_freq_factor", "", 1e-6, 1e6, std::nullopt);
    config->high_frequency_factor = number("high_freq_factor", "", 1e-6, 1e6, std::nullopt);
    if (config->high_frequency_factor <= config->low_frequency_factor) {
      reader->Refuse("high_freq_factor of the rotary scaling must be above low_freq_factor");
    }
  } else if (type == "yarn") {
    ReadYarn(reader, member, expected, config);
  } else {
    reader->Refuse("rotary scaling '" + type +
                   "' is not supported (known: default, dynamic, linear, llama3, longrope, yarn)");
  }
}

}  // namespace

std::vector<float> GrowthFactors(const QueryGrowth& growth, int64_t context_length) {
  std::vector<float> factors;
  for (int64_t i = 0; i * growth.period < context_length; ++i) {
    factors.push_back(float(1 + double(growth.beta) * reference::LogDouble(1 + double(i))));
  }
  return factors;
}

int64_t ServedContext(ConfigReader* reader, int64_t made_for) {
  const std::string member = ScalingMember(*reader, "");
  if (!IsDynamic(*reader, reader->gguf() ? "" : ReadType(reader, member)) ||
      reader->Has({member + "alpha", ""})) {
    return made_for;
  }
  const double most = ReadDynamicFactor(reader, member) * double(made_for);
  const int64_t wanted = reader->context_tokens();
  return std::max(made_for, std::min(wanted, int64_t(std::min(most, double(kMostTokens)))));
}

RopeConfig ReadRopeConfig(ConfigReader* reader, int head_dim, const RopeExpectations& expected) {
  RopeConfig config;
  const std::string place = ScalingMember(*reader, expected.member);
  const auto nested = [&](const char* key) {
    return reader->Has({place + key, ""}) ? place + key : std::string(key);
  };
  config.theta = reader->Number({nested("rope_theta"), "rope.freq_base"}, {1, 1e12},
                                reader->gguf() ? 10000.0 : expected.theta);
  const double part = reader->Number({nested("partial_rotary_factor"), ""}, {1e-3, 1}, 1.0);
  const bool proportional =
      expected.proportional && reader->Text({place + "rope_type", ""}, "") == "proportional";
  if (part != 1 && !expected.partial && !proportional) {
    reader->Refuse("partial_rotary_factor is not supported for this family");
  }
  config.turning_pairs = proportional ? int(part * head_dim / 2) : 0;
  config.rotary_dim = int(reader->Int({"", "rope.dimension_count"}, {2, head_dim},
                                      proportional ? head_dim : int64_t(part * head_dim)));
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0) {
    reader->Refuse("a rotary width of " + std::to_string(config.rotary_dim) +
                   " channels is not even and positive");
    config.rotary_dim = 2;
  }
  const int64_t context_length =
      reader->Int({"max_position_embeddings", "context_length"}, {1, int64_t{1} << 30}, 1);
  ReadScaling(reader, place, context_length, expected, &config);
  return config;
}

RopeConfig ReadWindowRope(ConfigReader* reader, const RopeConfig& rope,
                          const WindowRopePlace& place) {
  RopeConfig window;
  window.rotary_dim = rope.rotary_dim;
  const std::string member = "rope_parameters." + std::string(place.member) + ".";
  const std::string nested = member + "rope_theta";
  window.theta =
      reader->Number({reader->Has({nested, ""}) ? nested : place.alias, "rope.freq_base_swa"},
                     {1, 1e12}, place.theta);
  for (const char* key : {"rope_type", "type"}) {
    const std::string type = reader->Text({member + key, ""}, "default");
    if (type != "default") {
      reader->Refuse("rotary scaling '" + type + "' of " + std::string(place.member) +
                     " is not supported");
    }
  }
  return window;
}

std::string RopeConfig::Describe() const {
  char text[256];
  std::snprintf(text, sizeof(text),
                "dim %d theta %.9g scaling %d %.9g %.9g %.9g %.9g %.9g %.9g %.9g", rotary_dim,
                theta, int(scaling), factor, original_context, low_frequency_factor,
                high_frequency_factor, beta_fast, beta_slow, attention_factor);
  std::string all = text;
  if (mscale != 0) {
    std::snprintf(text, sizeof(text), " mscale %.9g %.9g", mscale, mscale_all);
    all += text;
  }
  if (served_context != 0) all += " served " + std::to_string(int64_t(served_context));
  if (!truncate) all += " untruncated";
  if (turning_pairs != 0) all += " turning " + std::to_string(turning_pairs);
  if (scaling == Scaling::kLongRope) all += long_regime ? " long" : " short";
  for (const double divisor : long_regime ? long_factors : short_factors) {
    std::snprintf(text, sizeof(text), " %.9g", divisor);
    all += text;
  }
  return all;
}

void DescribeRope(const RopeConfig& config, const std::string& prefix, GgufWriter* out) {
  out->Put<uint32_t>(prefix + "rope.dimension_count", uint32_t(config.rotary_dim));
  out->Put<float>(prefix + "rope.freq_base", float(config.theta));
  if (config.scaling == RopeConfig::Scaling::kDynamic) {
    out->Put<float>(prefix + kDynamicFactor, float(config.factor));
  }
  const bool yarn = config.scaling == RopeConfig::Scaling::kYarn;
  const bool longrope = config.scaling == RopeConfig::Scaling::kLongRope;
  if (yarn || longrope) {
    out->Put<uint32_t>(prefix + "rope.scaling.original_context_length",
                       uint32_t(config.original_context));
  }
  if (longrope) {
    out->PutString(prefix + "rope.scaling.type", "longrope");
    out->Put<float>(prefix + "rope.scaling.attn_factor", RopeMagnitude(config));
  }
  if (!yarn && config.scaling != RopeConfig::Scaling::kLinear) return;
  out->PutString(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
  out->Put<float>(prefix + "rope.scaling.factor", float(config.factor));
  if (!yarn) return;
  out->Put<float>(prefix + "rope.scaling.yarn_beta_fast", float(config.beta_fast));
  out->Put<float>(prefix + "rope.scaling.yarn_beta_slow", float(config.beta_slow));
  // Not known to llama.cpp.
  if (!config.truncate) out->Put<bool>(prefix + "rope.scaling.yarn_truncate", false);
  RopeConfig published = config;
  published.attention_factor = 0;
  if (config.mscale != 0) {
    out->Put<float>(prefix + "rope.scaling.yarn_log_multiplier", float(config.mscale_all));
    published.mscale = 1;
  }
  if (RopeMagnitude(config) != RopeMagnitude(published)) {
    out->Put<float>(prefix + "rope.scaling.attn_factor",
                    RopeMagnitude(config) / RopeMagnitude(published));
  }
}

std::string RopeConfig::Regime() const {
  if (scaling == Scaling::kDynamic && served_context > original_context) {
    return "dynamic NTK, theta for contexts of " + std::to_string(int64_t(served_context)) +
           " tokens";
  }
  if (scaling != Scaling::kLongRope) return {};
  const std::string original = std::to_string(int64_t(original_context)) + " tokens";
  return long_regime ? "LongRoPE, long factors (for contexts above " + original + ")"
                     : "LongRoPE, short factors (for contexts of up to " + original + ")";
}

std::vector<float> InverseFrequencies(const RopeConfig& config,
                                      const std::vector<float>& divisors) {
  std::vector<float> frequencies(size_t(config.rotary_dim / 2));
  CHECK(divisors.empty() || divisors.size() == frequencies.size());
  for (size_t f = 0; f < frequencies.size(); ++f) {
    const double divisor = divisors.empty() ? Divisor(config, int(f)) : double(divisors[f]);
    frequencies[f] = float(BaseFrequency(config, int(f)) / divisor);
  }
  return frequencies;
}

std::vector<float> StoredDivisors(const RopeConfig& config) {
  std::vector<float> divisors(size_t(config.rotary_dim / 2));
  for (size_t f = 0; f < divisors.size(); ++f) divisors[f] = float(Divisor(config, int(f)));
  return divisors;
}

float RopeMagnitude(const RopeConfig& config) {
  const bool longrope = config.scaling == RopeConfig::Scaling::kLongRope;
  if (config.scaling != RopeConfig::Scaling::kYarn && !longrope) return 1;
  if (config.attention_factor != 0) return float(config.attention_factor);
  if (longrope) {
    const double ratio =
        reference::LogDouble(config.factor) / reference::LogDouble(config.original_context);
    return config.factor <= 1 ? 1.0f : float(std::sqrt(1 + ratio));
  }
  if (config.mscale == 0) return float(YarnMagnitude(config, 1));
  return float(YarnMagnitude(config, config.mscale) / YarnMagnitude(config, config.mscale_all));
}

}  // namespace reprise
