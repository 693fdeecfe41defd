// SPDX-License-Identifier: Apache-2.0
#include "cache/tree/child_table.h"

#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace reprise {
namespace {

constexpr size_t kListsMin = 64;

}  // namespace

ChildTable::ChildTable() : half_(kListsMin) { lists_.Grow(kListsMin); }

// Those of the lists [0, lists - half) have been divided: half of their pairs are in the list
// `half` further on.
size_t ChildTable::ListOf(NodeId parent, TokenId token) const {
  const uint64_t pair = uint64_t{parent.value} << 32 | static_cast<uint32_t>(token);
  const uint64_t hash = Mix64(pair);
  const size_t list = hash & (2 * half_ - 1);
  return list < lists_.size() ? list : list - half_;
}

NodeId ChildTable::Find(NodeId parent, TokenId token) const {
  NodeId child = lists_[ListOf(parent, token)];
  while (child.valid()) {
    const Link& link = links_[child.value];
    if (link.parent == parent && link.token == token) break;
    child = link.next;
  }
  return child;
}

NodeId& ChildTable::PlaceOf(NodeId parent, TokenId token) {
  NodeId* place = &lists_[ListOf(parent, token)];
  while (place->valid()) {
    Link& link = links_[place->value];
    if (link.parent == parent && link.token == token) break;
    place = &link.next;
  }
  return *place;
}

void ChildTable::PushFront(size_t list, NodeId child) {
  links_[child.value].next = std::exchange(lists_[list], child);
}

void ChildTable::Insert(NodeId parent, TokenId token, NodeId child) {
  CHECK(parent.valid() && child.valid());
  CHECK(!PlaceOf(parent, token).valid());
  links_.Grow(size_t{child.value} + 1);
  links_[child.value] = {parent, token, NodeId()};
  PushFront(ListOf(parent, token), child);
  if (++size_ > lists_.size()) Divide();
}

void ChildTable::Replace(NodeId parent, TokenId token, NodeId child) {
  NodeId& place = PlaceOf(parent, token);
  CHECK(place.valid() && child.valid());
  const NodeId before = place;
  place = links_[before.value].next;
  links_[before.value] = {};
  links_.Grow(size_t{child.value} + 1);
  links_[child.value] = {parent, token, NodeId()};
  PushFront(ListOf(parent, token), child);
}

void ChildTable::Erase(NodeId parent, TokenId token) {
  NodeId& place = PlaceOf(parent, token);
  CHECK(place.valid());
  place = std::exchange(links_[place.value], Link()).next;
  if (--size_ < lists_.size() / 2 && lists_.size() > kListsMin) Join();
}

// One more list: it gets its pairs from the first that was not divided yet.
void ChildTable::Divide() {
  const size_t from = lists_.size() - half_;
  NodeId child = std::exchange(lists_[from], NodeId());
  lists_.push_back(NodeId());
  while (child.valid()) {
    const Link& link = links_[child.value];
    const NodeId next = link.next;
    PushFront(ListOf(link.parent, link.token), child);
    child = next;
  }
  if (lists_.size() == 2 * half_) half_ *= 2;
}

// One list less: its pairs go back to where they came from.
void ChildTable::Join() {
  if (lists_.size() == half_) half_ /= 2;
  NodeId child = lists_.back();
  lists_.pop_back();
  while (child.valid()) {
    const NodeId next = links_[child.value].next;
    PushFront(lists_.size() - half_, child);
    child = next;
  }
}

}  // namespace reprise
