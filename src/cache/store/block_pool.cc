// SPDX-License-Identifier: Apache-2.0
#include "cache/store/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

BlockId BlockPool::Allocate(uint32_t owner) {
  const BlockId id = ids_.Allocate();
  refs_.Grow(ids_.limit());
  if (cached_of_.size() <= owner) cached_of_.resize(owner + 1);
  refs_[id.value] = {.lease = 1, .owner = owner};
  ++leased_count_;
  actions_->push_back({.verb = Action::Verb::kTakeBlock, .to = id.value});
  return id;
}

void BlockPool::FreeIfUnused(BlockId id) {
  if (refs_[id.value].tree > 0 || refs_[id.value].lease > 0) return;
  ids_.Free(id);
  actions_->push_back({.verb = Action::Verb::kFreeBlock, .from = id.value});
}

void BlockPool::RefTree(BlockId id) {
  Refs& refs = refs_[id.value];
  CHECK(refs.tree > 0 || refs.lease > 0);
  ++refs.tree;
}

void BlockPool::UnrefTree(BlockId id) {
  Refs& refs = refs_[id.value];
  CHECK(refs.tree > 0);
  if (--refs.tree > 0 || refs.lease > 0) return;
  --cached_of_[refs.owner];
  FreeIfUnused(id);
}

void BlockPool::RefLease(std::span<const BlockId> table) {
  for (const BlockId id : table) {
    if (!id.valid()) continue;
    Refs& refs = refs_[id.value];
    CHECK(refs.tree > 0 || refs.lease > 0);
    if (refs.lease++ > 0) continue;
    ++leased_count_;
    --cached_of_[refs.owner];
  }
}

void BlockPool::UnrefLease(std::span<const BlockId> table) {
  for (const BlockId id : table) {
    if (!id.valid()) continue;
    Refs& refs = refs_[id.value];
    CHECK(refs.lease > 0);
    if (--refs.lease > 0) continue;
    --leased_count_;
    if (refs.tree > 0) ++cached_of_[refs.owner];
    FreeIfUnused(id);
  }
}

size_t BlockPool::CountLeased(std::span<const BlockId> table) const {
  return static_cast<size_t>(std::count_if(table.begin(), table.end(), [this](BlockId id) {
    return id.valid() && refs_[id.value].lease > 0;
  }));
}

}  // namespace reprise
