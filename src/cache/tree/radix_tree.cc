// SPDX-License-Identifier: Apache-2.0
#include "cache/tree/radix_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace reprise {

int32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  constexpr size_t kStride = 128;  // tokens per memcmp: two vector loops, one early exit
  const size_t count = std::min(a.size(), b.size());
  size_t i = 0;
  while (i + kStride <= count && std::memcmp(&a[i], &b[i], kStride * sizeof(TokenId)) == 0) {
    i += kStride;
  }
  while (i < count && a[i] == b[i]) ++i;
  return static_cast<int32_t>(i);
}

NodeId RadixTree::NewNode() {
  NodeId id;
  if (free_.empty()) {
    id.value = static_cast<uint32_t>(nodes_.size());
    CHECK(id.valid());
    nodes_.push_back(Node());
  } else {
    id = free_.back();
    free_.pop_back();
  }
  nodes_[id.value].in_use = true;
  nodes_[id.value].birth = ++births_;
  return id;
}

void RadixTree::FreeNode(NodeId id) {
  Node& node = nodes_[id.value];
  CHECK(node.in_use && node.holds == 0 && node.refs == 0 && !node.first_child.valid());
  token_count_ -= node.run.size();
  ghost_token_count_ -= node.run.size();  // only ghosts are freed
  run_bytes_ -= node.run.capacity() * sizeof(TokenId);
  node = Node();
  free_.push_back(id);
}

NodeId RadixTree::AddRoot() { return NewNode(); }

void RadixTree::RemoveRoot(NodeId root) {
  CHECK(IsRoot(root));
  if (observer_ != nullptr) observer_->OnRemove(root);
  FreeNode(root);
}

int32_t RadixTree::Match(NodeId root, std::span<const TokenId> tokens, Path* path,
                         Place* place) const {
  Path steps;
  NodeId id = root;
  size_t position = 0;
  if (place != nullptr && Stands(*place)) {
    const Cursor at = Resolve(place->at);
    steps = PathTo(at);
    id = at.node;
    position = static_cast<size_t>(at.position);
    const auto rest = run(id).subspan(position - static_cast<size_t>(begin(id)));
    position += CommonPrefix(rest, tokens.subspan(position));
    steps.back().end = static_cast<int32_t>(position);
  }
  while (position < tokens.size() && static_cast<int32_t>(position) == end(id)) {
    const NodeId next = children_.Find(id, tokens[position]);
    if (!next.valid()) break;
    id = next;
    position += CommonPrefix(nodes_[id.value].run, tokens.subspan(position));
    steps.push_back({id, static_cast<int32_t>(position)});
  }
  if (place != nullptr && id != root) *place = PlaceOf({id, static_cast<int32_t>(position)});
  if (path != nullptr) *path = std::move(steps);
  return static_cast<int32_t>(position);
}

RadixTree::Path RadixTree::PathTo(Cursor at) const {
  at = Resolve(at);
  Path path;
  for (NodeId node = at.node; !IsRoot(node); node = parent(node)) path.push_back({node, end(node)});
  std::reverse(path.begin(), path.end());
  if (!path.empty()) path.back().end = at.position;
  return path;
}

RadixTree::Cursor RadixTree::Resolve(Cursor at) const {
  while (at.position <= nodes_[at.node.value].begin && !IsRoot(at.node)) at.node = parent(at.node);
  return at;
}

RadixTree::Cursor RadixTree::Insert(Cursor at, std::span<const TokenId> tokens) {
  at = Resolve(at);
  while (!tokens.empty()) {
    const Node& node = nodes_[at.node.value];
    const auto rest = std::span<const TokenId>(node.run).subspan(at.position - node.begin);
    const int32_t same = CommonPrefix(rest, tokens);
    at.position += same;
    tokens = tokens.subspan(same);
    if (tokens.empty()) break;
    if (at.position < node.end()) {
      at.node = Split(at.node, at.position);
    } else if (const NodeId child = children_.Find(at.node, tokens[0]); child.valid()) {
      at.node = child;
      continue;
    } else if (!node.first_child.valid() && !IsRoot(at.node)) {
      Extend(at.node, tokens);
      at.position += static_cast<int32_t>(tokens.size());
      break;
    }
    at.position += static_cast<int32_t>(tokens.size());
    at.node = AddLeaf(at.node, tokens);
    break;
  }
  return at;
}

NodeId RadixTree::Split(NodeId lower, int32_t position) {
  const NodeId upper = NewNode();
  Node& low = nodes_[lower.value];
  Node& up = nodes_[upper.value];
  const size_t keep = position - low.begin;
  CHECK(keep > 0 && keep < low.run.size());

  // The child table and the sibling list see the upper half where the whole node was.
  up.begin = low.begin;
  up.parent = low.parent;
  up.next_sibling = low.next_sibling;
  up.previous_sibling = low.previous_sibling;
  if (up.next_sibling.valid()) nodes_[up.next_sibling.value].previous_sibling = upper;
  if (up.previous_sibling.valid()) {
    nodes_[up.previous_sibling.value].next_sibling = upper;
  } else {
    nodes_[up.parent.value].first_child = upper;
  }
  children_.Replace(up.parent, low.run[0], upper);

  run_bytes_ -= low.run.capacity() * sizeof(TokenId);
  up.run.assign(low.run.begin(), low.run.begin() + keep);
  std::vector<TokenId>(low.run.begin() + keep, low.run.end()).swap(low.run);
  run_bytes_ += (low.run.capacity() + up.run.capacity()) * sizeof(TokenId);
  low.begin = position;
  low.parent = upper;
  low.next_sibling = low.previous_sibling = NodeId();
  up.first_child = lower;
  up.live_children = low.live() ? 1 : 0;
  children_.Insert(upper, low.run[0], lower);
  if (observer_ != nullptr) observer_->OnSplit(upper, lower);
  return upper;
}

NodeId RadixTree::AddLeaf(NodeId parent, std::span<const TokenId> tokens) {
  const NodeId leaf = NewNode();
  Node& node = nodes_[leaf.value];
  node.begin = nodes_[parent.value].end();
  node.run.assign(tokens.begin(), tokens.end());
  token_count_ += tokens.size();
  ghost_token_count_ += tokens.size();
  run_bytes_ += node.run.capacity() * sizeof(TokenId);
  LinkChild(parent, leaf);
  UpdateQueue(parent, false);
  UpdateQueue(leaf, false);
  return leaf;
}

void RadixTree::Extend(NodeId id, std::span<const TokenId> tokens) {
  Node& node = nodes_[id.value];
  token_count_ += tokens.size();
  if (!node.live()) ghost_token_count_ += tokens.size();
  run_bytes_ -= node.run.capacity() * sizeof(TokenId);
  node.run.insert(node.run.end(), tokens.begin(), tokens.end());
  run_bytes_ += node.run.capacity() * sizeof(TokenId);
}

void RadixTree::LinkChild(NodeId parent, NodeId child) {
  Node& node = nodes_[child.value];
  node.parent = parent;
  node.next_sibling = nodes_[parent.value].first_child;
  if (node.next_sibling.valid()) nodes_[node.next_sibling.value].previous_sibling = child;
  nodes_[parent.value].first_child = child;
  children_.Insert(parent, node.run[0], child);
}

void RadixTree::UnlinkChild(NodeId child) {
  const Node& node = nodes_[child.value];
  children_.Erase(node.parent, node.run[0]);
  if (node.next_sibling.valid()) {
    nodes_[node.next_sibling.value].previous_sibling = node.previous_sibling;
  }
  if (node.previous_sibling.valid()) {
    nodes_[node.previous_sibling.value].next_sibling = node.next_sibling;
  } else {
    nodes_[node.parent.value].first_child = node.next_sibling;
  }
}

void RadixTree::Hold(NodeId id) {
  Node& node = nodes_[id.value];
  const bool was_live = node.live();
  ++node.holds;
  if (!was_live) BecomeLive(id);
}

void RadixTree::Release(NodeId id) {
  Node& node = nodes_[id.value];
  CHECK(node.holds > 0);
  --node.holds;
  if (!node.live()) BecomeGhost(id);
}

// REQUIRES: the node has just become live.
void RadixTree::BecomeLive(NodeId id) {
  while (true) {
    Node& node = nodes_[id.value];
    ghost_token_count_ -= node.run.size();
    UpdateQueue(id, false);
    if (IsRoot(id)) return;
    id = node.parent;
    if (++nodes_[id.value].live_children > 1 || nodes_[id.value].holds > 0) return;
  }
}

// REQUIRES: the node has just stopped being live.
void RadixTree::BecomeGhost(NodeId id) {
  while (true) {
    Node& node = nodes_[id.value];
    ghost_token_count_ += node.run.size();
    UpdateQueue(id, false);
    if (IsRoot(id)) return;
    id = node.parent;
    if (--nodes_[id.value].live_children > 0 || nodes_[id.value].holds > 0) return;
  }
}

void RadixTree::Ref(NodeId id) {
  ++nodes_[id.value].refs;
  UpdateQueue(id, false);
}

void RadixTree::Unref(NodeId id) {
  CHECK(nodes_[id.value].refs > 0);
  --nodes_[id.value].refs;
  UpdateQueue(id, false);
}

// Puts the node into the ghost queue or takes it out, as invariant (5) wants.
void RadixTree::UpdateQueue(NodeId id, bool as_oldest) {
  Node& node = nodes_[id.value];
  const bool wanted =
      !node.live() && node.refs == 0 && !node.first_child.valid() && node.parent.valid();
  if (wanted == node.queued) return;
  node.queued = wanted;
  if (wanted) {
    node.older_ghost = as_oldest ? NodeId() : newest_ghost_;
    node.newer_ghost = as_oldest ? oldest_ghost_ : NodeId();
  }
  const NodeId older = node.older_ghost, newer = node.newer_ghost;
  (older.valid() ? nodes_[older.value].newer_ghost : oldest_ghost_) = wanted ? id : newer;
  (newer.valid() ? nodes_[newer.value].older_ghost : newest_ghost_) = wanted ? id : older;
  if (!wanted) node.older_ghost = node.newer_ghost = NodeId();
}

void RadixTree::RemoveLeaf(NodeId id) {
  const NodeId above = parent(id);
  if (observer_ != nullptr) observer_->OnRemove(id);
  Node& node = nodes_[id.value];
  node.refs = 1;  // takes it out of the queue
  UpdateQueue(id, false);
  node.refs = 0;
  UnlinkChild(id);
  FreeNode(id);
  UpdateQueue(above, true);
}

void RadixTree::PurgeGhosts(size_t token_count_max) {
  while (ghost_token_count_ > token_count_max && oldest_ghost_.valid()) RemoveLeaf(oldest_ghost_);
}

void RadixTree::PurgeBelow(NodeId root) {
  std::vector<NodeId> nodes;
  Walk(root, [&](NodeId node, int) {
    nodes.push_back(node);
    return true;
  });
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (nodes_[node->value].queued) RemoveLeaf(*node);
  }
}

size_t RadixTree::bytes() const {
  return nodes_.bytes() + free_.bytes() + run_bytes_ +
         children_.bytes();
}

Status RadixTree::CheckNode(NodeId id, size_t* table_entries, size_t* ghost_tokens) const {
  const auto fail = [id](const char* what) {
    return Internal(fmt::format("tree node #{}: {}", id.value, what));
  };
  const Node& node = nodes_[id.value];
  const bool root = !node.parent.valid();
  if (root != node.run.empty()) return fail("a run belongs to every node but a root");
  if (!root) {
    if (node.begin != nodes_[node.parent.value].end()) return fail("begin is not the parent's end");
    if (children_.Find(node.parent, node.run[0]) != id) return fail("not in the child table");
    ++*table_entries;
  }
  uint32_t live = 0;
  NodeId previous;
  for (NodeId c = node.first_child; c.valid(); c = nodes_[c.value].next_sibling) {
    if (nodes_[c.value].parent != id) return fail("a child has another parent");
    if (nodes_[c.value].previous_sibling != previous) return fail("sibling links disagree");
    if (nodes_[c.value].live()) ++live;
    previous = c;
  }
  if (live != node.live_children) return fail("live_children is wrong");
  if (!node.live()) *ghost_tokens += node.run.size();
  const bool queued = !node.live() && node.refs == 0 && !node.first_child.valid() && !root;
  if (queued != node.queued) return fail("ghost queue membership is wrong");
  return OkStatus();
}

Status RadixTree::CheckInvariants() const {
  size_t used = 0, tokens = 0, run_bytes = 0, entries = 0, ghosts = 0, queued = 0, walked = 0;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].in_use) continue;
    REPRISE_TRY(CheckNode({i}, &entries, &ghosts));
    ++used;
    tokens += nodes_[i].run.size();
    run_bytes += nodes_[i].run.capacity() * sizeof(TokenId);
    if (nodes_[i].queued) ++queued;
  }
  NodeId older;
  for (NodeId g = oldest_ghost_; g.valid(); g = nodes_[g.value].newer_ghost) {
    if (nodes_[g.value].older_ghost != older) return Internal("ghost queue links disagree");
    older = g;
    if (++walked > queued) return Internal("ghost queue has a cycle");
  }
  if (older != newest_ghost_ || walked != queued) return Internal("ghost queue is cut");
  if (used != node_count()) return Internal("node_count is wrong");
  if (tokens != token_count_) return Internal("token_count is wrong");
  if (ghosts != ghost_token_count_) return Internal("ghost_token_count is wrong");
  if (run_bytes != run_bytes_) return Internal("run bytes are wrong");
  if (entries != children_.size()) return Internal("the child table has strangers");
  return OkStatus();
}

std::vector<NodeId> RadixTree::SortedChildren(NodeId id) const {
  std::vector<NodeId> children;
  for (NodeId c = first_child(id); c.valid(); c = next_sibling(c)) children.push_back(c);
  std::sort(children.begin(), children.end(),
            [this](NodeId a, NodeId b) { return run(a)[0] < run(b)[0]; });
  return children;
}

std::string RadixTree::Dump(NodeId root, const std::function<std::string(NodeId)>& note) const {
  constexpr size_t kTokensShown = 8;
  std::string out;
  Walk(root, [&](NodeId id, int depth) {
    const Node& node = nodes_[id.value];
    out.append(2 * static_cast<size_t>(depth), ' ');
    fmt::format_to(std::back_inserter(out), "[{},{})", node.begin, node.end());
    for (size_t i = 0; i < std::min(node.run.size(), kTokensShown); ++i) {
      fmt::format_to(std::back_inserter(out), " {}", node.run[i]);
    }
    if (node.run.size() > kTokensShown) out += " ..";
    if (note) out += note(id);
    if (!node.live()) out += " ghost";
    out += "\n";
    return true;
  });
  return out;
}

void RadixTree::Walk(NodeId root, const std::function<bool(NodeId, int)>& visit) const {
  std::vector<std::pair<NodeId, int>> stack;  // not recursion: depth is the clients' choice
  const auto push_children = [&](NodeId id, int depth) {
    const std::vector<NodeId> children = SortedChildren(id);
    for (auto c = children.rbegin(); c != children.rend(); ++c) stack.emplace_back(*c, depth);
  };
  push_children(root, 0);
  while (!stack.empty()) {
    const auto [id, depth] = stack.back();
    stack.pop_back();
    if (!visit(id, depth)) return;
    push_children(id, depth + 1);
  }
}

std::vector<NodeId> RadixTree::NodesBelow(NodeId root) const {
  std::vector<NodeId> nodes;
  Walk(root, [&](NodeId node, int) {
    nodes.push_back(node);
    return true;
  });
  return nodes;
}

}  // namespace reprise
