// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/pieces.h"
#include "cache/store/action.h"
#include "cache/store/id_pool.h"
#include "state/ids.h"

namespace reprise {

// BlockPool counts who uses each K/V block: nodes of the tree and tables of leases, apart, because
// the first can be taken away and the second cannot. Ids only; the bytes are StateStore's.
//
// Who may write: rows of a block below what any node or other table refers to are immutable. The
// lease that allocated a block may append rows to it, also after the tree refers to its first
// rows. Whoever continues inside a block that it did not allocate copies it first.
//
// Thread safety: none.
// Invariants:
//  (1) A block is free (no refs), leased (lease refs > 0), or cached (tree refs only). Never two.
//  (2) leased_count() + cached_count() == used_count(); cached_count() is the sum over owners.
// Costs: every operation O(1), on a table a few nanoseconds for each of its blocks.
class BlockPool {
 public:
  BlockPool(uint32_t capacity, Actions* actions) : ids_(capacity), actions_(actions) {}

  bool full() const { return ids_.full(); }
  // A block with one lease ref, of this owner. REQUIRES: !full().
  BlockId Allocate(uint32_t owner = 0);
  std::vector<BlockId> Next(uint32_t count) const { return ids_.Next(count); }
  void RefTree(BlockId id);
  void UnrefTree(BlockId id);
  void RefLease(BlockId id) { RefLease(std::span(&id, 1)); }
  void UnrefLease(BlockId id) { UnrefLease(std::span(&id, 1)); }
  // For every block of a table; where that has gaps, ids are invalid.
  void RefLease(std::span<const BlockId> table);
  void UnrefLease(std::span<const BlockId> table);
  // How many blocks of the table some lease refers to.
  size_t CountLeased(std::span<const BlockId> table) const;

  uint32_t tree_refs(BlockId id) const { return refs_[id.value].tree; }
  uint32_t lease_refs(BlockId id) const { return refs_[id.value].lease; }
  bool used(BlockId id) const { return ids_.used(id); }
  uint32_t used_count() const { return ids_.used_count(); }
  uint32_t leased_count() const { return leased_count_; }
  uint32_t cached_count() const { return used_count() - leased_count_; }
  uint32_t cached_count(uint32_t owner) const {
    return owner < cached_of_.size() ? cached_of_[owner] : 0;
  }
  uint32_t capacity() const { return ids_.capacity(); }
  uint32_t limit() const { return ids_.limit(); }
  size_t bytes() const { return ids_.bytes() + refs_.bytes(); }

 private:
  struct Refs {
    uint32_t tree = 0;
    uint32_t lease = 0;
    uint32_t owner = 0;
    bool cached() const { return tree > 0 && lease == 0; }
  };
  void FreeIfUnused(BlockId id);

  IdPool<BlockId> ids_;
  Pieces<Refs> refs_;
  std::vector<uint32_t> cached_of_;  // by owner
  uint32_t leased_count_ = 0;
  Actions* actions_;
};

}  // namespace reprise
