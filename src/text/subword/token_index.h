// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/subword/hash_filter.h"
#include "text/vocab/string_table.h"

namespace reprise {

// TokenIndex finds the id of a token by its text: an open-addressing hash table over a StringTable,
// which must outlive it and not change. A filter of one byte per token answers for most texts that
// are none. Immutable once filled, so lookups need no lock.
class TokenIndex {
 public:
  // Makes room for `count` tokens. REQUIRES: empty.
  void Reserve(size_t count);

  // Adds texts[id] unless that text is empty or already there. REQUIRES: room was made.
  void Add(const StringTable& texts, int32_t id);

  // The id of the token with this text, or -1.
  int32_t Find(const StringTable& texts, std::string_view text) const;

 private:
  std::vector<uint64_t> slots_ = {0};  // upper half of the hash, id + 1; 0: empty
  uint64_t mask_ = 0;
  HashFilter filter_;
};

}  // namespace reprise
