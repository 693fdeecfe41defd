// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "cache/tier/copy_pace.h"
#include "tier/path_id.h"

namespace reprise {

// The path of a prompt that is to be stored, computed between the steps of requests in pieces: all
// of a long one takes a millisecond or two.
//
// Thread safety: none.
class PacedPath {
 public:
  // Computes some of it: all at rest; between two steps as much as the pace allows, or, where
  // nothing is paced (`beside`), a fixed number of blocks. True: all of it is there.
  bool Advance(const PathId& root, std::span<const TokenId> tokens, CopyPace* pace, bool beside) {
    constexpr size_t kPieceBlocks = 16;       // about 10 us
    constexpr size_t kBesideBlocks = 4 * 16;  // in one call
    if (!path_) path_.emplace(root, tokens, PromptPath::InPieces());
    if (pace->at_rest()) return path_->Extend(tokens.size());
    if (beside) return path_->Extend(kBesideBlocks);
    bool whole = path_->Extend(0);
    while (!whole && pace->MayCopy()) {
      pace->Spend([&] { whole = path_->Extend(kPieceBlocks); });
    }
    return whole;
  }
  // REQUIRES: Advance has said that all of it is there.
  const PromptPath& operator*() const { return *path_; }

 private:
  std::optional<PromptPath> path_;
};

}  // namespace reprise
