// SPDX-License-Identifier: Apache-2.0
#include "text/subword/token_index.h"

#include <bit>
#include <cstring>

namespace reprise {
namespace {

constexpr uint64_t kKey0 = 0x9e3779b97f4a7c15ull;
constexpr uint64_t kKey1 = 0xe7037ed1a0b428dbull;

uint64_t Load64(const char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, 8);
  return word;
}

uint64_t Load32(const char* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, 4);
  return word;
}

// Both halves of the 128-bit product, folded: each input bit reaches all of the output.
uint64_t FoldedMultiply(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t HashBytes(std::string_view bytes) {
  const char* at = bytes.data();
  const size_t size = bytes.size();
  uint64_t hash = kKey1 ^ size;
  uint64_t first = 0;
  uint64_t second = 0;
  if (size >= 8) {
    size_t left = size;
    for (; left > 16; left -= 16, at += 16) {
      hash = FoldedMultiply(Load64(at) ^ kKey0, Load64(at + 8) ^ hash);
    }
    // The last 8 to 16 bytes, by two loads that may overlap. More than 8 lie before the end.
    const char* const end = bytes.data() + size;
    first = left >= 8 ? Load64(at) : Load64(end - 16);
    second = Load64(end - 8);
  } else if (size >= 4) {
    first = Load32(at);
    second = Load32(at + size - 4);
  } else if (size > 0) {
    first = static_cast<uint8_t>(at[0]) | uint64_t{static_cast<uint8_t>(at[size / 2])} << 8 |
            uint64_t{static_cast<uint8_t>(at[size - 1])} << 16;
  }
  return FoldedMultiply(first ^ kKey0, second ^ hash);
}

}  // namespace

void TokenIndex::Reserve(size_t count) {
  slots_.assign(std::bit_ceil(count * 2 + 1), 0);
  mask_ = slots_.size() - 1;
}

void TokenIndex::Add(const StringTable& texts, int32_t id) {
  const std::string_view text = texts[static_cast<size_t>(id)];
  if (text.empty()) return;
  const uint64_t hash = HashBytes(text);
  size_t slot = hash & mask_;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask_) {
    const int32_t other = static_cast<int32_t>(slots_[slot] & UINT32_MAX) - 1;
    if (slots_[slot] >> 32 == hash >> 32 && texts[static_cast<size_t>(other)] == text) return;
  }
  slots_[slot] = (hash >> 32) << 32 | static_cast<uint32_t>(id + 1);
}

int32_t TokenIndex::Find(const StringTable& texts, std::string_view text) const {
  const uint64_t hash = HashBytes(text);
  for (size_t slot = hash & mask_; slots_[slot] != 0; slot = (slot + 1) & mask_) {
    if (slots_[slot] >> 32 != hash >> 32) continue;
    const int32_t id = static_cast<int32_t>(slots_[slot] & UINT32_MAX) - 1;
    if (texts[static_cast<size_t>(id)] == text) return id;
  }
  return -1;
}

}  // namespace reprise
