// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "state/ids.h"

namespace reprise {

// What others are told about the cache: blocks of kBlockTokens tokens, each named by a hash of its
// tokens and of all before them, from which a request that begins so can go on, or no longer can.
struct BlockEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kCleared;           // kCleared: all blocks are gone
  std::vector<uint64_t> hashes = {};    // kStored: of blocks that follow one another
  std::optional<uint64_t> parent = {};  // kStored: the block before the first; none: it is block 0
  std::vector<TokenId> tokens = {};     // kStored: of all these blocks
};

}  // namespace reprise
