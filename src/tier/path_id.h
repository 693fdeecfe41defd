// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "state/ids.h"

namespace reprise {

// PathId names a prefix of tokens in one namespace, outside of this process too: SHA-256 chained
// over blocks of kBlockTokens, beginning with the namespace's own id. Equal ids mean equal tokens,
// so records need not hold any.
//
//   grid(0) = the namespace   grid(i + 1) = H(grid(i), tokens of block i)
//   id(p)   = grid(p / 64)                            at a block's end
//           = H(grid(p / 64), the tokens behind it)   elsewhere
struct PathId {
  std::array<uint8_t, 32> bytes{};

  bool empty() const { return *this == PathId(); }
  friend bool operator==(const PathId&, const PathId&) = default;
};

PathId ExtendPath(const PathId& from, std::span<const TokenId> tokens);

// The ids along one prompt, computed once. The tokens must outlive it.
// Costs: O(tokens), about a microsecond for a block.
class PromptPath {
 public:
  PromptPath(const PathId& root, std::span<const TokenId> tokens);
  // One that is computed in pieces: nothing of it at first.
  struct InPieces {};
  PromptPath(const PathId& root, std::span<const TokenId> tokens, InPieces)
      : tokens_(tokens), grid_(1, root) {}
  // Computes up to `blocks` more. True: all are there.
  bool Extend(size_t blocks);

  std::span<const TokenId> tokens() const { return tokens_; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  // REQUIRES: block <= size() / kBlockTokens.
  const PathId& grid(int32_t block) const { return grid_[static_cast<size_t>(block)]; }
  // REQUIRES: position <= size().
  PathId At(int32_t position) const;

 private:
  std::span<const TokenId> tokens_;
  std::vector<PathId> grid_;
};

// The paths of one prompt in the namespaces by which tiers name it; equal ones are one. The tokens
// must outlive it.
class PromptPaths {
 public:
  // Nothing of them at first.
  PromptPaths(std::span<const PathId> roots, std::span<const TokenId> tokens);
  // Computes up to `blocks` more. True: all are there.
  bool Extend(size_t blocks);
  // All that Extend would have to compute at first.
  size_t blocks() const { return paths_.size() * (tokens_.size() / size_t{kBlockTokens}); }

  std::span<const TokenId> tokens() const { return tokens_; }
  // Null: it is none of them. REQUIRES: all are there.
  const PromptPath* In(const PathId& root) const;

 private:
  std::span<const TokenId> tokens_;
  std::vector<PromptPath> paths_;
};

}  // namespace reprise

template <>
struct std::hash<reprise::PathId> {
  size_t operator()(const reprise::PathId& id) const noexcept {
    size_t word = 0;
    std::memcpy(&word, id.bytes.data(), sizeof(word));
    return word;
  }
};
