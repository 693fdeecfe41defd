// SPDX-License-Identifier: Apache-2.0
#include "model/layers/rotary.h"

#include <algorithm>

namespace reprise {

using Scaling = RopeConfig::Scaling;

void Rotary::Declare(TensorPlan* plan) {
  DeclareAngles(plan);
  if (config_.scaling == Scaling::kNone || config_.scaling == Scaling::kLlama3 ||
      config_.scaling == Scaling::kProportional) {
    plan->AddOptional("rope_freqs.weight", StoredDivisors(config_), &divisors_);
  } else if (config_.scaling == Scaling::kLongRope) {
    const auto add = [&](const char* name, const std::vector<double>& factors,
                         std::vector<float>* out) {
      plan->AddOptional(name, {factors.begin(), factors.end()}, out);
    };
    add("rope_factors_long.weight", config_.long_factors, &long_factors_);
    add("rope_factors_short.weight", config_.short_factors, &short_factors_);
  }
}

void Rotary::CompleteWeights() {
  const std::vector<float>& factors = config_.long_regime ? long_factors_ : short_factors_;
  frequencies_.values() =
      InverseFrequencies(config_, config_.scaling == Scaling::kLongRope ? factors : divisors_);
}

RopeTable Rotary::Table(const Step& step) const {
  // Rows that stand at one number have it for a position (Step).
  const auto is_one = [](const RopePlace& at) { return at[0] == at[1] && at[0] == at[2]; };
  const auto& places = step.batch().places;
  const bool placed = !std::all_of(places.begin(), places.end(), is_one);
  if (placed && !config_.axes.empty()) {
    return MakePlacedRopeTable(step.context(), step.batch().places, config_.axes,
                               frequencies_.data(), RopeMagnitude(config_));
  }
  return MakeRopeTable(step.context(), step.layout(), frequencies_.data(), int(frequencies_.size()),
                       RopeMagnitude(config_));
}

}  // namespace reprise
