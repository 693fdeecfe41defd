// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/tensor_plan.h"
#include "tensor/dtype.h"

namespace reprise {

// A named choice of types for the matrices of a model: "q8_0" is one type for all but the head,
// "q4_k_m" spends more bits where llama.cpp spends them, so that files and sizes compare.
struct WeightMix {
  enum class Rule : uint8_t { kUniform, kQ2K, kQ3KM, kQ4KS, kMedium, kIQ4, kExperts };
  std::string_view name;
  DType base = DType::kF16;
  Rule rule = Rule::kUniform;
  int file_type = 0;  // general.file_type of GGUF
};

// Fails with the list of names if there is no such mix.
Result<WeightMix> FindWeightMix(std::string_view name);
// "f32, f16, ...": for help texts.
std::string WeightMixNames();

// The types that a mix gives to the matrices of one model.
class MixedTypes {
 public:
  // `plan` is only read here.
  MixedTypes(const WeightMix& mix, const TensorPlan& plan);

  // REQUIRES: tensor.is_matrix(). Rows that are not whole blocks get a type that fits.
  DType TypeOf(const PlannedTensor& tensor) const;

 private:
  DType Mixed(const PlannedTensor& tensor) const;

  WeightMix mix_;
  int layer_count_ = 1;
  int64_t query_group_ = 1;  // query heads per K/V head
};

}  // namespace reprise
