// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/tensor_probe.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace reprise::reference {
namespace {

// What the values of a tile look like: exponents of factors and of the accumulator, from the least
// one on, and how many of 16 are zero.
struct Look {
  int factor_least, factor_count;
  int sum_least, sum_count;
  int zeros;
};
constexpr Look kLooks[] = {
    {-3, 7, -4, 9, 0},      // near each other
    {0, 1, 0, 4, 0},        // of one size: they cancel
    {-14, 29, -20, 45, 1},  // as far apart as f16 has them
    {-8, 16, 4, 20, 6},     // a large accumulator, zeros beside it
};

}  // namespace

TensorProbe::TensorProbe(Half type)
    : type_(type), a_(size_t{kTiles} * kA), b_(size_t{kTiles} * kB), c_(size_t{kTiles} * kC) {
  const int mantissa = type == Half::kF16 ? 10 : 7, bias = type == Half::kF16 ? 15 : 127;
  // Each start waits for this.
  uint64_t counter = 0;
  const auto next = [&] { return Mix64(counter += 0x9E3779B97F4A7C15u); };
  const auto factor = [&](const Look& look, uint32_t random) {
    const uint32_t sign = (random & 1) << 15;
    if ((random >> 1 & 15) < uint32_t(look.zeros)) return uint16_t(sign);
    const int exponent =
        look.factor_least + int((random >> 5 & 0xFF) * uint32_t(look.factor_count) >> 8);
    const uint32_t field = uint32_t(exponent + bias);
    return uint16_t(sign | field << mantissa | (random >> 16 & ((1u << mantissa) - 1)));
  };
  const auto fill = [&](const Look& look, uint16_t* to, int count) {
    for (int i = 0; i < count; i += 2) {
      const uint64_t two = next();
      to[i] = factor(look, uint32_t(two));
      to[i + 1] = factor(look, uint32_t(two >> 32));
    }
  };
  for (int tile = 0; tile < kTiles; ++tile) {
    const Look& look = kLooks[size_t(tile) % std::size(kLooks)];
    fill(look, &a_[size_t(tile) * kA], kA);
    fill(look, &b_[size_t(tile) * kB], kB);
    for (int i = 0; i < kC; ++i) {
      const uint64_t random = next();
      const int exponent = look.sum_least + int((random >> 32) % uint64_t(look.sum_count));
      c_[size_t(tile) * kC + size_t(i)] =
          std::bit_cast<float>(uint32_t(random & 0x807FFFFF) | uint32_t(exponent + 127) << 23);
    }
  }
}

float TensorProbe::Expected(TensorCore core, int tile, int at) const {
  return TensorChain(core, type_, &a_[size_t(tile) * kA + size_t(at / 8) * kTensorStep],
                     &b_[size_t(tile) * kB + size_t(at % 8) * kTensorStep], kTensorStep,
                     c_[size_t(tile) * kC + size_t(at)]);
}

bool TensorProbe::Equals(TensorCore core, std::span<const float> outputs) const {
  for (int i = 0; i < kTiles * kJudged; ++i) {
    const int tile = i / kJudged, at = Judged(tile, i % kJudged);
    const float output = outputs[size_t(tile) * kC + size_t(at)];
    if (std::bit_cast<uint32_t>(output) != std::bit_cast<uint32_t>(Expected(core, tile, at))) {
      return false;
    }
  }
  return true;
}

std::optional<TensorCore> TensorProbe::Judge(std::span<const float> outputs) const {
  CHECK(outputs.size() == c_.size());
  for (const TensorCore core : kTensorCores) {
    if (Equals(core, outputs)) return core;
  }
  return std::nullopt;
}

}  // namespace reprise::reference
