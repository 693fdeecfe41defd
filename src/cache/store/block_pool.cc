// SPDX-License-Identifier: Apache-2.0
#include "cache/store/block_pool.h"

#include "base/check.h"

namespace reprise {

BlockId BlockPool::Allocate() {
  const BlockId id = ids_.Allocate();
  if (refs_.size() < ids_.limit()) refs_.resize(ids_.limit());
  refs_[id.value].lease = 1;
  ++leased_count_;
  actions_->push_back({.verb = Action::Verb::kTakeBlock, .to = id.value});
  return id;
}

void BlockPool::RefTree(BlockId id) {
  CHECK(used(id));
  ++refs_[id.value].tree;
}

void BlockPool::UnrefTree(BlockId id) {
  CHECK(used(id) && refs_[id.value].tree > 0);
  --refs_[id.value].tree;
  FreeIfUnused(id);
}

void BlockPool::RefLease(BlockId id) {
  CHECK(used(id));
  if (refs_[id.value].lease++ == 0) ++leased_count_;
}

void BlockPool::UnrefLease(BlockId id) {
  CHECK(used(id) && refs_[id.value].lease > 0);
  if (--refs_[id.value].lease == 0) --leased_count_;
  FreeIfUnused(id);
}

void BlockPool::FreeIfUnused(BlockId id) {
  if (refs_[id.value].tree > 0 || refs_[id.value].lease > 0) return;
  ids_.Free(id);
  actions_->push_back({.verb = Action::Verb::kFreeBlock, .from = id.value});
}

}  // namespace reprise
