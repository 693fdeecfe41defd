// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/chars_map.h"

#include <cstring>

#include "text/unicode/classes.h"

namespace reprise {
namespace {

// Fields of a darts-clone unit.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t LeafValue(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & (0x80000000 | 0xFF); }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

uint32_t ReadLittleEndian(const char* at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(at[i]);
  return value;
}

}  // namespace

Result<CharsMap> CharsMap::Parse(std::string_view bytes) {
  static constexpr size_t kBytesMax = size_t{64} << 20;
  if (bytes.size() < 4 || bytes.size() > kBytesMax) {
    return DataLoss("the tokenizer's precompiled character map has an impossible size");
  }
  const size_t trie_bytes = ReadLittleEndian(bytes.data());
  bytes.remove_prefix(4);
  if (trie_bytes > bytes.size() || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return DataLoss("the tokenizer's precompiled character map is cut off");
  }
  CharsMap map;
  map.units_.reserve(trie_bytes / 4);
  for (size_t at = 0; at < trie_bytes; at += 4) {
    map.units_.push_back(ReadLittleEndian(bytes.data() + at));
  }
  map.replacements_ = bytes.substr(trie_bytes);
  return map;
}

size_t CharsMap::FindLongest(std::string_view text, uint32_t* replacement) const {
  static constexpr size_t kEntryBytesMax = 256;  // published maps stay below 64
  size_t longest = 0;
  uint32_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size() && i < kEntryBytesMax; ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    const uint32_t value = LeafValue(units_[node]);
    if (value < replacements_.size()) {
      longest = i + 1;
      *replacement = value;
    }
  }
  return longest;
}

void CharsMap::Append(std::string_view text, size_t size_max, std::string* out) const {
  while (!text.empty() && out->size() <= size_max) {
    uint32_t replacement = 0;
    size_t length = FindLongest(text, &replacement);
    if (length > 0) {
      const char* const begin = replacements_.c_str() + replacement;
      out->append(begin, std::strlen(begin));
    } else {
      length = unicode::DecodeChar(text.data(), text.data() + text.size()).length;
      out->append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
}

}  // namespace reprise
