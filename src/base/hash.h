// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/rng.h"

namespace reprise {

// Hashes for tables that a file or a client fills. They differ from process to process and are the
// same within one, so nobody can choose keys that all share a slot. Not for what is stored or
// compared between processes.

// The number that makes the difference. Where there is no randomness, its own address must do.
inline uint64_t HashSeed() {
  static const uint64_t seed = [] {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
      random = reinterpret_cast<uintptr_t>(&random);
    }
    return Mix64(random);
  }();
  return seed;
}

// Both halves of the 128-bit product, folded: each input bit reaches all of the output.
inline uint64_t FoldedMultiply(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t HashBytes(std::string_view bytes) {
  static const uint64_t key0 = HashSeed() ^ 0x9e3779b97f4a7c15ull;
  static const uint64_t key1 = Mix64(HashSeed());
  const auto load64 = [](const char* from) {
    uint64_t word = 0;
    std::memcpy(&word, from, 8);
    return word;
  };
  const auto load32 = [](const char* from) {
    uint32_t word = 0;
    std::memcpy(&word, from, 4);
    return uint64_t{word};
  };
  const char* at = bytes.data();
  const size_t size = bytes.size();
  uint64_t hash = key1 ^ size;
  uint64_t first = 0;
  uint64_t second = 0;
  if (size >= 8) {
    size_t left = size;
    for (; left > 16; left -= 16, at += 16) {
      hash = FoldedMultiply(load64(at) ^ key0, load64(at + 8) ^ hash);
    }
    // The last 8 to 16 bytes, by two loads that may overlap. More than 8 lie before the end.
    const char* const end = bytes.data() + size;
    first = left >= 8 ? load64(at) : load64(end - 16);
    second = load64(end - 8);
  } else if (size >= 4) {
    first = load32(at);
    second = load32(at + size - 4);
  } else if (size > 0) {
    first = static_cast<uint8_t>(at[0]) | uint64_t{static_cast<uint8_t>(at[size / 2])} << 8 |
            uint64_t{static_cast<uint8_t>(at[size - 1])} << 16;
  }
  return FoldedMultiply(first ^ key0, second ^ hash);
}

}  // namespace reprise
