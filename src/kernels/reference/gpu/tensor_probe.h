// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/reference/gpu/tensor_core.h"

// Tiles for an instruction of a tensor core, by whose outputs one sees which of the specified ones
// (kTensorCores) computed them. Their values are such that one place more or fewer, or another
// number of products in a step, gives other bits: random exponents near each other and far apart,
// sums that cancel, large accumulators, zeros beside large factors. All are finite.
namespace reprise::reference {

class TensorProbe {
 public:
  static constexpr int kTiles = 5'000;  // of 16 x 8 outputs
  static constexpr int kA = 16 * kTensorStep, kB = 8 * kTensorStep, kC = 16 * 8;  // of a tile

  explicit TensorProbe(Half type);

  const std::vector<uint16_t>& a() const { return a_; }  // [kTiles, 16, 16]: rows
  const std::vector<uint16_t>& b() const { return b_; }  // [kTiles, 8, 16]: columns
  const std::vector<float>& c() const { return c_; }     // [kTiles, 16, 8]

  // Output `at` of a tile.
  float Expected(TensorCore core, int tile, int at) const;
  // The outputs of a tile that are judged: a few, all places in turn.
  static constexpr int kJudged = 2;
  static int Judged(int tile, int i) { return ((tile * kJudged + i) * 37 + tile) % kC; }
  // The specification of these outputs, [kTiles, 16, 8]. None: there is none.
  std::optional<TensorCore> Judge(std::span<const float> outputs) const;

 private:
  bool Equals(TensorCore core, std::span<const float> outputs) const;

  const Half type_;
  std::vector<uint16_t> a_, b_;
  std::vector<float> c_;
};

}  // namespace reprise::reference
