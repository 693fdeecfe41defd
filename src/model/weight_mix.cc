// SPDX-License-Identifier: Apache-2.0
#include "model/weight_mix.h"

#include <algorithm>

#include "base/check.h"
#include "weights/convert.h"

namespace reprise {
namespace {

using Rule = WeightMix::Rule;

constexpr WeightMix kMixes[] = {
    {"f32", DType::kF32, Rule::kUniform, 0},      {"f16", DType::kF16, Rule::kUniform, 1},
    {"bf16", DType::kBF16, Rule::kUniform, 32},   {"q8_0", DType::kQ8_0, Rule::kUniform, 7},
    {"q6_k", DType::kQ6_K, Rule::kUniform, 18},   {"q5_k_m", DType::kQ5_K, Rule::kMedium, 17},
    {"q5_k", DType::kQ5_K, Rule::kUniform, 16},   {"q4_k_m", DType::kQ4_K, Rule::kMedium, 15},
    {"q4_k_s", DType::kQ4_K, Rule::kQ4KS, 14},    {"q4_k", DType::kQ4_K, Rule::kUniform, 14},
    {"q3_k_m", DType::kQ3_K, Rule::kQ3KM, 12},    {"q3_k", DType::kQ3_K, Rule::kUniform, 11},
    {"q2_k", DType::kQ2_K, Rule::kQ2K, 10},       {"q5_1", DType::kQ5_1, Rule::kUniform, 9},
    {"q5_0", DType::kQ5_0, Rule::kUniform, 8},    {"q4_1", DType::kQ4_1, Rule::kUniform, 3},
    {"q4_0", DType::kQ4_0, Rule::kUniform, 2},    {"iq4_nl", DType::kIQ4_NL, Rule::kIQ4, 25},
    {"iq4_xs", DType::kIQ4_XS, Rule::kIQ4, 30},   {"tq1_0", DType::kTQ1_0, Rule::kUniform, 36},
    {"tq2_0", DType::kTQ2_0, Rule::kUniform, 37}, {"mxfp4_moe", DType::kMXFP4, Rule::kExperts, 38},
};

// The first and last eighth of the layers and every third between.
bool WantsMoreBits(int layer, int layer_count) {
  return layer < layer_count / 8 || layer >= 7 * layer_count / 8 ||
         (layer - layer_count / 8) % 3 == 2;
}

bool IsHead(const PlannedTensor& tensor) {
  return tensor.role == TensorRole::kHead || tensor.role == TensorRole::kEmbeddingAndHead;
}

bool EndsWith(const PlannedTensor& tensor, std::string_view suffix) {
  return std::string_view(tensor.gguf).ends_with(suffix);
}

}  // namespace

std::string WeightMixNames() {
  std::string names;
  for (const WeightMix& mix : kMixes) {
    if (!names.empty()) names += ", ";
    names += mix.name;
  }
  return names;
}

Result<WeightMix> FindWeightMix(std::string_view name) {
  for (const WeightMix& mix : kMixes) {
    if (mix.name == name) return mix;
  }
  return InvalidArgument("there is no weight type '" + std::string(name) +
                         "' to convert to (known: " + WeightMixNames() + ")");
}

MixedTypes::MixedTypes(const WeightMix& mix, const TensorPlan& plan) : mix_(mix) {
  int64_t values = 0;
  int64_t queries = 0;
  for (const PlannedTensor& tensor : plan.tensors()) {
    layer_count_ = std::max(layer_count_, tensor.layer + 1);
    if (EndsWith(tensor, ".attn_v.weight")) values = tensor.rows;
    if (EndsWith(tensor, ".attn_output.weight")) queries = tensor.cols;
  }
  if (values > 0) query_group_ = queries / values;
}

DType MixedTypes::TypeOf(const PlannedTensor& tensor) const {
  CHECK(tensor.is_matrix());
  if (tensor.precise) return DType::kF32;
  return FittingType(Mixed(tensor), tensor.cols);
}

DType MixedTypes::Mixed(const PlannedTensor& tensor) const {
  const DType base = mix_.base;
  if (!IsQuantised(base) || base == DType::kQ8_0) return base;
  if (mix_.rule == Rule::kExperts) return tensor.slices > 1 ? base : DType::kQ8_0;
  if (IsHead(tensor)) return DType::kQ6_K;
  const bool values = EndsWith(tensor, ".attn_v.weight") || EndsWith(tensor, ".attn_qkv.weight");
  const bool down =
      EndsWith(tensor, ".ffn_down.weight") || EndsWith(tensor, ".ffn_down_exps.weight");
  const bool output = EndsWith(tensor, ".attn_output.weight");
  const int layer = tensor.layer;
  switch (mix_.rule) {
    case Rule::kUniform:
    case Rule::kExperts:
      return base;
    case Rule::kQ2K:
      if (values) return query_group_ >= 4 ? DType::kQ4_K : DType::kQ3_K;
      return down || output ? DType::kQ3_K : base;
    case Rule::kQ3KM:
      if (values) return layer < 2 ? DType::kQ5_K : DType::kQ4_K;
      if (down) return layer < layer_count_ / 16 ? DType::kQ5_K : DType::kQ4_K;
      return output ? DType::kQ4_K : base;
    case Rule::kQ4KS:
      if (values && layer < 4) return DType::kQ5_K;
      return down && layer < layer_count_ / 8 ? DType::kQ5_K : base;
    case Rule::kMedium:
      return (values || down) && WantsMoreBits(layer, layer_count_) ? DType::kQ6_K : base;
    case Rule::kIQ4:
      if (values && query_group_ >= 4) return DType::kQ5_K;
      return down && layer < layer_count_ / 8 ? DType::kQ5_K : base;
  }
  return base;
}

}  // namespace reprise
