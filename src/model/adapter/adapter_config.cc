// SPDX-License-Identifier: Apache-2.0
#include "model/adapter/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "weights/format/stored_tensor.h"

namespace reprise {
namespace {

constexpr size_t kPatternsMax = 256;
constexpr size_t kPatternBytesMax = 512;
constexpr size_t kInvocationMax = 1024;

// Keys that are read, or that say nothing of what is computed from the tensors.
constexpr std::string_view kKnown[] = {
    "alora_invocation_tokens",
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "target_parameters",
    "task_type",
    "use_rslora",
};

// Starts of training that leave the base as it is. Others (pissa, olora, corda, loftq) take a part
// of its weights away, which an adapter alone cannot say.
constexpr std::string_view kStarts[] = {"gaussian", "orthogonal", "eva"};

// null, false, 0, and what is empty: the option is not used.
bool IsNothing(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return !value.as_bool();
    case JsonValue::Kind::kInt:
      return value.as_int() == 0;
    case JsonValue::Kind::kDouble:
      return value.as_double() == 0;
    case JsonValue::Kind::kString:
      return value.as_string().empty();
    case JsonValue::Kind::kArray:
      return value.items().empty();
    case JsonValue::Kind::kObject:
      return value.members().empty();
  }
  return false;
}

Status CheckMembers(const JsonValue& root) {
  for (const auto& [key, value] : root.members()) {
    if (key == "peft_type") {
      if (value.is_string() && value.as_string() == "LORA") continue;
      return Unimplemented("adapters of type " +
                           (value.is_string() ? Quoted(value.as_string()) : "unknown") +
                           " are not supported; 'LORA' is");
    }
    if (key == "bias") {
      if (IsNothing(value) || (value.is_string() && value.as_string() == "none")) continue;
      return Unimplemented("adapters with trained biases ('bias' is not 'none') are not supported");
    }
    if (key == "use_dora" && !IsNothing(value)) {
      return Unimplemented("DoRA adapters ('use_dora') are not supported");
    }
    if (key == "init_lora_weights" && value.is_string() &&
        std::find(std::begin(kStarts), std::end(kStarts), value.as_string()) == std::end(kStarts)) {
      return Unimplemented("the adapter belongs to a changed base ('init_lora_weights' is " +
                           Quoted(value.as_string()) + "); convert it to a plain LoRA");
    }
    if (std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown)) continue;
    if (IsNothing(value)) continue;
    return Unimplemented(Quoted(key) + " of adapter_config.json is not supported");
  }
  if (root.Find("peft_type") == nullptr) {
    return InvalidArgument("adapter_config.json does not say its 'peft_type'");
  }
  return OkStatus();
}

bool IsRank(double value) {
  return value >= 1 && value <= double(AdapterConfig::kRankMax) && value == std::floor(value);
}

// A number within what scales can be.
bool IsScale(double value) { return std::isfinite(value) && std::abs(value) <= 1e9; }

}  // namespace

Result<std::vector<AdapterConfig::Pattern>> AdapterConfig::ReadPatterns(const JsonValue& root,
                                                                        const char* key) {
  std::vector<Pattern> patterns;
  const JsonValue* found = root.Find(key);
  if (found == nullptr || found->is_null()) return patterns;
  const std::string name = std::string("'") + key + "' of adapter_config.json";
  if (!found->is_object()) return InvalidArgument(name + " is no object");
  if (found->members().size() > kPatternsMax) return InvalidArgument(name + " is too long");
  for (const auto& [text, value] : found->members()) {
    if (!value.is_number() || !IsScale(value.as_double())) {
      return InvalidArgument(name + " has a value that is no number");
    }
    if (text.empty() || text.size() > kPatternBytesMax) {
      return InvalidArgument(name + " has a pattern of " + std::to_string(text.size()) + " bytes");
    }
    auto regex = Regex::Compile("\\A(?:.*\\.)?(?:" + std::string(text) + ")\\z");
    if (!regex.ok()) return regex.status().Annotate(name + ", " + Quoted(text));
    patterns.push_back({std::string(text), std::move(*regex), value.as_double()});
  }
  return patterns;
}

Result<double> AdapterConfig::Find(const std::vector<Pattern>& patterns, std::string_view module,
                                   double otherwise) {
  if (patterns.empty()) return otherwise;
  const Regex::ScratchPtr scratch = Regex::MakeScratch();
  std::vector<Regex::Span> spans;
  for (const Pattern& pattern : patterns) {
    spans.clear();
    REPRISE_TRY(pattern.regex->FindAll(module, scratch.get(), &spans)
                    .Annotate("pattern " + Quoted(pattern.text)));
    const bool matches =
        std::any_of(spans.begin(), spans.end(), [](const Regex::Span& span) { return span.match; });
    if (matches) return pattern.value;
  }
  return otherwise;
}

Result<AdapterConfig> AdapterConfig::Parse(std::string_view json) {
  if (json.size() > kBytesMax) return InvalidArgument("adapter_config.json is too large");
  auto document = JsonDocument::Parse(json);
  if (!document.ok()) return document.status().Annotate("adapter_config.json");
  const JsonValue& root = document->root();
  if (!root.is_object()) return InvalidArgument("adapter_config.json is no object");
  REPRISE_TRY(CheckMembers(root));
  AdapterConfig config;
  const JsonValue* rank = root.Find("r");
  const JsonValue* alpha = root.Find("lora_alpha");
  if (rank == nullptr || !rank->is_number() || !IsRank(rank->as_double())) {
    return InvalidArgument("'r' of adapter_config.json is no rank from 1 to " +
                           std::to_string(kRankMax));
  }
  if (alpha == nullptr || !alpha->is_number() || !IsScale(alpha->as_double())) {
    return InvalidArgument("'lora_alpha' of adapter_config.json is no number");
  }
  config.rank_ = rank->as_double();
  config.alpha_ = alpha->as_double();
  const JsonValue* stabilised = root.Find("use_rslora");
  config.stabilised_ = stabilised != nullptr && !IsNothing(*stabilised);
  REPRISE_ASSIGN(config.ranks_, ReadPatterns(root, "rank_pattern"));
  REPRISE_ASSIGN(config.alphas_, ReadPatterns(root, "alpha_pattern"));
  for (const Pattern& pattern : config.ranks_) {
    if (!IsRank(pattern.value)) {
      return InvalidArgument("'rank_pattern' of adapter_config.json has " +
                             std::to_string(pattern.value) + ", which is no rank");
    }
  }
  const JsonValue* tied = root.Find("ensure_weight_tying");
  config.ties_weights_ = tied != nullptr && !IsNothing(*tied);
  const JsonValue* invocation = root.Find("alora_invocation_tokens");
  if (invocation != nullptr && !IsNothing(*invocation)) {
    if (!invocation->is_array() || invocation->items().size() > kInvocationMax) {
      return InvalidArgument("'alora_invocation_tokens' is no list of tokens");
    }
    for (const JsonValue& token : invocation->items()) {
      if (!token.is_int() || token.as_int() < 0 || token.as_int() > INT32_MAX) {
        return InvalidArgument("'alora_invocation_tokens' has what is no token");
      }
      config.invocation_.push_back(TokenId(token.as_int()));
    }
  }
  return config;
}

bool AdapterConfig::MayStack(std::string_view module, int64_t rank) const {
  const auto wanted = Find(ranks_, module, rank_);
  return wanted.ok() && double(rank) > *wanted && std::fmod(double(rank), *wanted) == 0;
}

Result<double> AdapterConfig::ScaleOf(std::string_view module, int64_t rank) const {
  REPRISE_ASSIGN(const double wanted, Find(ranks_, module, rank_));
  REPRISE_ASSIGN(const double alpha, Find(alphas_, module, alpha_));
  if (double(rank) != wanted) {
    return InvalidArgument("the tensors of " + Quoted(module) + " have rank " +
                           std::to_string(rank) + ", but adapter_config.json says " +
                           std::to_string(int64_t(wanted)));
  }
  return stabilised_ ? alpha / std::sqrt(wanted) : alpha / wanted;
}

}  // namespace reprise
