// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "state/ids.h"
#include "text/split/regex.h"

namespace reprise {

// What adapter_config.json of PEFT says of a LoRA adapter: how far each module's product counts.
// What would change the answer and is not computed here (DoRA, biases, whole modules that were
// trained, starts that change the base) is refused by its name, and so is what nobody knows yet.
class AdapterConfig {
 public:
  static constexpr size_t kBytesMax = 1 << 20;
  static constexpr int64_t kRankMax = 4096;

  // Fails with one sentence. Costs: time and memory in proportion to the text.
  static Result<AdapterConfig> Parse(std::string_view json);

  // What the product of a module is multiplied by, by its name ("model.layers.0.mlp.up_proj") and
  // the rank that its tensors have. Fails if that is another rank than the configuration gives it.
  Result<double> ScaleOf(std::string_view module, int64_t rank) const;

  // Whether tensors of that rank may hold several of the module's, one for each expert.
  bool MayStack(std::string_view module, int64_t rank) const;
  // Whether what was trained of an embedding belongs to a head that is the same table, too.
  bool ties_weights() const { return ties_weights_; }

  // Tokens from whose last occurrence on the adapter counts (aLoRA); empty: everywhere.
  const std::vector<TokenId>& invocation() const { return invocation_; }

 private:
  // A number for the modules whose name ends with what the pattern matches; the first counts.
  struct Pattern {
    std::string text;
    std::shared_ptr<const Regex> regex;
    double value = 0;
  };
  static Result<std::vector<Pattern>> ReadPatterns(const class JsonValue& root, const char* key);
  static Result<double> Find(const std::vector<Pattern>& patterns, std::string_view module,
                             double otherwise);

  double rank_ = 0;
  double alpha_ = 0;
  bool ties_weights_ = false;
  bool stabilised_ = false;  // alpha / sqrt(r) instead of alpha / r
  std::vector<Pattern> ranks_;
  std::vector<Pattern> alphas_;
  std::vector<TokenId> invocation_;
};

}  // namespace reprise
