// SPDX-License-Identifier: Apache-2.0
// StateIndex: what it says about itself, and whether it is true.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cache/index/kind/entry_kind.h"

namespace reprise {

CacheStats StateIndex::stats() const {
  CacheStats s = stats_;
  s.bytes_budget = options_.cache.budget_bytes;
  s.bytes_leased =
      blocks_.leased_count() * block_bytes_ + size_t(live_states_ + draft_states_) * state_bytes_;
  s.snapshots = states_.used_count() - size_t(live_states_ + draft_states_);
  s.bytes_snapshots = s.snapshots * state_bytes_;
  s.bytes_cached = blocks_.cached_count() * block_bytes_ + s.bytes_snapshots;
  s.bytes_metadata = bytes_metadata();
  s.blocks_leased = blocks_.leased_count();
  s.blocks_cached = blocks_.cached_count();
  s.entries = kind_->count();
  s.entries_pinned = pins_.size();
  s.nodes = tree_.node_count();
  s.tokens_stored = tree_.token_count();
  s.namespaces = namespaces_.size();
  s.leases = flights_.size() - transfers();
  s.records = records_.size();
  s.moves_under_way = transfers();
  return s;
}

std::string StateIndex::DescribeNode(NodeId node) const {
  std::string text;
  for (const Component* component : components_) text += component->Describe(node);
  return text;
}

std::string StateIndex::Dump() const {
  std::string out;
  for (const auto& [name, root] : namespaces_) {
    out += fmt::format("namespace {}/{}\n", name.first, name.second);
    out += tree_.Dump(root, [this](NodeId node) { return DescribeNode(node); });
  }
  return out;
}

TreeNodeView StateIndex::ViewOf(NodeId node, int depth, std::span<const TokenId> prompt) const {
  constexpr size_t kHeadTokens = 32;
  const auto run = tree_.run(node);
  TreeNodeView view;
  view.id = node.value;
  view.depth = depth;
  view.begin = tree_.begin(node);
  view.end = tree_.end(node);
  view.lit_end = view.begin + CommonPrefix(run, prompt);
  view.kv_end = kv_ ? kv_->end(node) : view.begin;
  view.snapshots = kind_->SnapshotsAt(node);
  const int64_t used_ms = kind_->UsedMs(node);
  view.idle_ms = used_ms < 0 ? -1 : now_ms_ - used_ms;
  // Who runs along a node holds its first block, or, behind a window, its last.
  if (kv_ && kv_->holds(node)) {
    for (const BlockId block : {kv_->blocks(node).front(), kv_->blocks(node).back()}) {
      view.leased = view.leased || (block.valid() && blocks_.lease_refs(block) > 0);
    }
  }
  view.head.assign(run.begin(), run.begin() + std::min(run.size(), kHeadTokens));
  return view;
}

// Of a node with more children than are wanted those that came last are shown, and the lit one: a
// picture costs what it shows.
std::vector<TreeNodeView> StateIndex::View(const NamespaceKey& key, size_t node_count_max,
                                           std::span<const TokenId> prompt) const {
  struct Next {
    NodeId node;
    int depth;
    bool lit;
  };
  std::vector<TreeNodeView> views;
  const auto it = namespaces_.find({key.salt, key.digest});
  if (it == namespaces_.end()) return views;
  std::vector<Next> stack;  // not recursion: depth is the clients' choice
  const auto push_children = [&](NodeId node, int depth, bool lit) {
    const auto at = static_cast<size_t>(tree_.end(node));
    const NodeId bright = lit && at < prompt.size() ? tree_.child(node, prompt[at]) : NodeId();
    std::vector<NodeId> children;
    if (bright.valid()) children.push_back(bright);
    for (NodeId c = tree_.first_child(node);
         c.valid() && views.size() + stack.size() + children.size() < node_count_max;
         c = tree_.next_sibling(c)) {
      if (c != bright) children.push_back(c);
    }
    std::sort(children.begin(), children.end(),
              [this](NodeId a, NodeId b) { return tree_.run(a)[0] > tree_.run(b)[0]; });
    for (const NodeId c : children) stack.push_back({c, depth, c == bright});
  };
  push_children(it->second, 0, true);
  while (!stack.empty() && views.size() < node_count_max) {
    const Next next = stack.back();
    stack.pop_back();
    const auto from = static_cast<size_t>(tree_.begin(next.node));
    views.push_back(ViewOf(next.node, next.depth,
                           next.lit ? prompt.subspan(from) : std::span<const TokenId>()));
    push_children(next.node, next.depth + 1, next.lit && views.back().lit_end == views.back().end);
  }
  return views;
}

Status StateIndex::CheckNodes() const {
  Status status;
  for (const auto& [name, root] : namespaces_) {
    tree_.Walk(root, [&](NodeId node, int) {
      for (const Component* component : components_) {
        if (status.ok()) status = component->CheckNode(node);
      }
      if (status.ok()) status = kind_->CheckNode(node);
      return status.ok();
    });
    if (!status.ok()) return status;
  }
  return OkStatus();
}

// Invariant (2): every reference is named once.
Status StateIndex::CheckRefs() const {
  std::vector<uint32_t> tree(blocks_.limit()), lease(blocks_.limit());
  size_t node_count = namespaces_.size();
  for (const auto& [name, root] : namespaces_) {
    tree_.Walk(root, [&](NodeId node, int) {
      ++node_count;
      if (!kv_) return true;
      for (const BlockId block : kv_->blocks(node)) {
        if (block.valid()) ++tree[block.value];
      }
      return true;
    });
  }
  size_t leases = 0;
  for (const LeaseRecord& record : flights_.records()) {
    if (record.id == 0) continue;
    ++leases;
    if (record.ahead && record.rows_free(options_.block_tokens) < options_.block_tokens) {
      return Internal(fmt::format("lease {}: the block taken ahead is in use", record.id));
    }
    for (const BlockId block : record.table) {
      if (block.valid()) ++lease[block.value];
    }
  }
  for (uint32_t i = 0; i < blocks_.limit(); ++i) {
    const BlockId id{i};
    const bool used = tree[i] > 0 || lease[i] > 0;
    if (blocks_.used(id) != used || blocks_.tree_refs(id) != tree[i] ||
        blocks_.lease_refs(id) != lease[i]) {
      return Internal(fmt::format("block {}: tree refs {} (found {}), lease refs {} (found {})", i,
                                  blocks_.tree_refs(id), tree[i], blocks_.lease_refs(id),
                                  lease[i]));
    }
  }
  const auto leased = std::count_if(lease.begin(), lease.end(), [](uint32_t n) { return n > 0; });
  if (leased != blocks_.leased_count()) return Internal("leased blocks are counted wrongly");
  if (leases != flights_.size()) return Internal("leases are counted wrongly");
  if (node_count != tree_.node_count()) return Internal("a node belongs to no namespace");
  return OkStatus();
}

// Invariant (3), pins, counts.
Status StateIndex::CheckEntries() const {
  size_t pinned = 0, leaves = 0, states = 0, rungs = 0;
  std::vector<bool> seen(states_.limit());
  for (uint32_t i = 0; i < order_.limit(); ++i) {
    if (!order_.in_use({i})) continue;
    const Entry& entry = order_[{i}];
    if (entry.pinned_until_ms > 0) ++pinned;
    if (entry.leaf) ++leaves;
    if (!entry.snapshot.valid()) {
      if (TailOf(entry.node).value != i) return Internal("a stray entry");
      continue;
    }
    ++states;
    if (entry.reason == SnapshotReason::kEdit) ++rungs;
    if (!states_.used(entry.snapshot) || seen[entry.snapshot.value]) {
      return Internal(fmt::format("snapshot {} has two entries or none", entry.snapshot.value));
    }
    seen[entry.snapshot.value] = true;
    const auto mark = recurrent_->Deepest(entry.node, entry.position);
    if (!mark || mark->position != entry.position || mark->entry.value != i) {
      return Internal(fmt::format("entry {} has no mark", i));
    }
  }
  std::vector<uint32_t> snapshots_of(Tenants::kOwnersMax);
  for (uint32_t i = 0; i < order_.limit(); ++i) {
    if (order_.in_use({i}) && order_[{i}].snapshot.valid()) ++snapshots_of[order_[{i}].owner];
  }
  for (uint32_t owner = 0; owner < snapshots_of_.size(); ++owner) {
    if (snapshots_of[owner] != snapshots_of_[owner]) {
      return Internal("the snapshots of a tenant are counted wrongly");
    }
  }
  int32_t live = 0, drafts = 0;
  for (const LeaseRecord& record : flights_.records()) {
    std::vector<StateId> mine;
    for (const PendingSnapshot& one : record.pending) mine.push_back(one.state);
    rungs += size_t(std::count(record.pending_reasons.begin(), record.pending_reasons.end(),
                               SnapshotReason::kEdit));
    mine.insert(mine.end(), record.draft_states.begin(), record.draft_states.end());
    drafts += static_cast<int32_t>(record.draft_states.size());
    if (record.state.valid()) mine.push_back(record.state);
    if (record.state.valid()) ++live;
    for (const StateId state : mine) {
      ++states;
      if (!states_.used(state) || seen[state.value]) {
        return Internal(fmt::format("state {} of a lease is another's too, or free", state.value));
      }
      seen[state.value] = true;
    }
  }
  REPRISE_TRY(CheckReaders());
  if (states != states_.used_count()) return Internal("a state has no owner");
  if (rungs != rung_count_) return Internal("rungs are counted wrongly");
  if (drafts != draft_states_) return Internal("states of drafts are counted wrongly");
  if (live != live_states_) return Internal("live states are counted wrongly");
  if (pinned != pins_.size()) return Internal("pins are counted wrongly");
  REPRISE_TRY(pins_.CheckInvariants());
  if (leaves != leaf_count_) return Internal("leaves are counted wrongly");
  return OkStatus();
}

Status StateIndex::CheckReaders() const {
  std::map<uint32_t, int32_t> readers;  // by entry
  for (const LeaseRecord& record : flights_.records()) {
    if (record.id != 0 && record.reads.valid()) ++readers[record.reads.value];
  }
  for (uint32_t i = 0; i < order_.limit(); ++i) {
    const EntryId id{i};
    if (!order_.in_use(id)) continue;
    const auto at = readers.find(i);
    if (order_[id].readers != (at == readers.end() ? 0 : at->second)) {
      return Internal(fmt::format("the readers of entry {} are counted wrongly", i));
    }
    if (order_[id].readers > 0 && order_.queued(id)) {
      return Internal(fmt::format("entry {} is read, and may be evicted", i));
    }
  }
  return OkStatus();
}

Status StateIndex::CheckInvariants() const {
  REPRISE_TRY(tree_.CheckInvariants());
  REPRISE_TRY(order_.CheckInvariants());
  REPRISE_TRY(records_.CheckInvariants());
  REPRISE_TRY(CheckNodes());
  REPRISE_TRY(CheckRefs());
  REPRISE_TRY(CheckEntries());
  for (const LeaseRecord& record : flights_.records()) {
    if (record.id == 0 || !record.started) continue;
    if (!record.load && record.last != record.tokens.back()) {
      return Internal(fmt::format("lease {} names another token as its last", record.id));
    }
    const RadixTree::Cursor at = tree_.Resolve(record.cursor);
    if (record.published > record.computed.logical || at.position != record.published ||
        at.position > tree_.end(at.node)) {
      return Internal(
          fmt::format("the cursor of lease {} points nowhere: {} published, {} computed, "
                      "cursor {}, node [{}, {})",
                      record.id, record.published, record.computed.logical, at.position,
                      tree_.begin(at.node), tree_.end(at.node)));
    }
  }
  if (tree_.node_count() - namespaces_.size() > node_count_max_) return Internal("too many nodes");
  if (bytes_used() > options_.cache.budget_bytes && order_.Min().valid()) {
    return Internal(
        fmt::format("{} bytes used, {} allowed", bytes_used(), options_.cache.budget_bytes));
  }
  return OkStatus();
}

}  // namespace reprise
