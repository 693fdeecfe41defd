// SPDX-License-Identifier: Apache-2.0
#include "cache/store/block_pool.h"

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

// Changes the references of a block, and whatever is counted by them.
template <typename Change>
void BlockPool::Update(BlockId id, const Change& change) {
  Refs& refs = refs_[id.value];
  CHECK(refs.tree > 0 || refs.lease > 0);
  leased_count_ -= refs.lease > 0 ? 1 : 0;
  cached_of_[refs.owner] -= refs.cached() ? 1 : 0;
  change(refs);
  leased_count_ += refs.lease > 0 ? 1 : 0;
  cached_of_[refs.owner] += refs.cached() ? 1 : 0;
  if (refs.tree > 0 || refs.lease > 0) return;
  ids_.Free(id);
  actions_->push_back({.verb = Action::Verb::kFreeBlock, .from = id.value});
}

void BlockPool::RefTree(BlockId id) {
  Update(id, [](Refs& refs) { ++refs.tree; });
}

void BlockPool::UnrefTree(BlockId id) {
  CHECK(refs_[id.value].tree > 0);
  Update(id, [](Refs& refs) { --refs.tree; });
}

void BlockPool::RefLease(BlockId id) {
  Update(id, [](Refs& refs) { ++refs.lease; });
}

void BlockPool::UnrefLease(BlockId id) {
  CHECK(refs_[id.value].lease > 0);
  Update(id, [](Refs& refs) { --refs.lease; });
}

}  // namespace reprise
