// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise {

// Mixes 64 bits so that every input bit reaches every output bit (the finaliser of SplitMix64).
inline uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Counter-based: the number is a function of (seed, counter) alone, so a sampled answer is the same
// in any batch and after any restore.
inline uint64_t RandomAt(uint64_t seed, uint64_t counter) {
  return Mix64(Mix64(seed + 0x9e3779b97f4a7c15ull) ^ (counter * 0x9e3779b97f4a7c15ull + 1));
}

// A sequential generator for tests, synthetic weights and simulations. Not for secrets.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}
  uint64_t Next() { return RandomAt(seed_, counter_++); }
  // In [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // In [0, 1), a multiple of 2^-24.
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace reprise
