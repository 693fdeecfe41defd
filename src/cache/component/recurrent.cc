// SPDX-License-Identifier: Apache-2.0
#include "cache/component/recurrent.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace reprise {
namespace {

bool Before(const Recurrent::Mark& mark, int32_t position) { return mark.position < position; }

}  // namespace

Recurrent::Marks& Recurrent::MarksOf(NodeId node) {
  marks_.Grow(size_t{node.value} + 1);
  return marks_[node.value];
}

std::span<const Recurrent::Mark> Recurrent::marks(NodeId node) const {
  if (node.value >= marks_.size()) return {};
  return marks_[node.value].list;
}

std::optional<Recurrent::Mark> Recurrent::Deepest(NodeId node, int32_t position) const {
  const auto list = marks(node);
  for (auto it = std::lower_bound(list.begin(), list.end(), position + 1, Before);
       it != list.begin();) {
    if ((--it)->entry.valid()) return *it;
  }
  return std::nullopt;
}

std::optional<Recurrent::Mark> Recurrent::Next(NodeId node, int32_t position) const {
  const auto list = marks(node);
  for (auto it = std::lower_bound(list.begin(), list.end(), position + 1, Before); it != list.end();
       ++it) {
    if (it->entry.valid()) return *it;
  }
  return std::nullopt;
}

std::optional<Recurrent::Place> Recurrent::Previous(NodeId node, int32_t position) const {
  while (!tree_->IsRoot(node)) {
    if (const auto mark = Deepest(node, position - 1)) return Place{node, *mark};
    position = tree_->begin(node) + 1;
    node = tree_->parent(node);
  }
  return std::nullopt;
}

int32_t Recurrent::Serve(const RadixTree::Path& path, int32_t limit) const {
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    if (tree_->begin(step->node) >= limit) continue;
    if (const auto mark = Deepest(step->node, std::min(step->end, limit))) return mark->position;
  }
  return 0;
}

std::optional<Recurrent::Mark> Recurrent::Find(const RadixTree::Path& path,
                                               int32_t position) const {
  for (const RadixTree::PathStep& step : path) {
    if (step.end < position) continue;
    const auto mark = Deepest(step.node, position);
    return mark && mark->position == position ? mark : std::nullopt;
  }
  return std::nullopt;
}

int32_t Recurrent::FindEvicted(const RadixTree::Path& path, int32_t above, int32_t upto) const {
  for (auto step = path.rbegin(); step != path.rend() && step->end > above; ++step) {
    const auto list = marks(step->node);
    for (auto mark = list.rbegin(); mark != list.rend(); ++mark) {
      if (mark->position <= std::min(step->end, upto) && mark->position > above &&
          !mark->entry.valid()) {
        return mark->position;
      }
    }
  }
  return 0;
}

void Recurrent::Add(NodeId node, int32_t position, EntryId entry) {
  CHECK(position > tree_->begin(node) && position <= tree_->end(node) && entry.valid());
  Marks& marks = MarksOf(node);
  const auto it = std::lower_bound(marks.list.begin(), marks.list.end(), position, Before);
  if (it != marks.list.end() && it->position == position) {
    CHECK(!it->entry.valid());
    it->entry = entry;
  } else {
    marks.list.insert(it, {position, entry});
    ++mark_count_;
  }
  if (marks.snapshots++ == 0) tree_->Hold(node);
}

void Recurrent::Remove(NodeId node, int32_t position, bool remember) {
  Marks& marks = MarksOf(node);
  const auto it = std::lower_bound(marks.list.begin(), marks.list.end(), position, Before);
  CHECK(it != marks.list.end() && it->position == position && it->entry.valid());
  const size_t evicted = marks.list.size() - marks.snapshots;
  if (remember && evicted < kEvictedMarksMax) {
    it->entry = EntryId();
  } else {
    marks.list.erase(it);
    --mark_count_;
  }
  if (--marks.snapshots == 0) tree_->Release(node);
}

void Recurrent::OnSplit(NodeId upper, NodeId lower) {
  if (marks(lower).empty()) return;
  Marks& up = MarksOf(upper);  // may move marks_
  Marks& low = marks_[lower.value];
  const auto cut =
      std::lower_bound(low.list.begin(), low.list.end(), tree_->end(upper) + 1, Before);
  up.list.assign(low.list.begin(), cut);
  low.list.erase(low.list.begin(), cut);
  for (const Mark& mark : up.list) {
    if (!mark.entry.valid()) continue;
    ++up.snapshots;
    if (owner_ != nullptr) owner_->OnEntryMoved(mark.entry, upper);
  }
  const bool held = low.snapshots > 0;
  low.snapshots -= up.snapshots;
  if (up.snapshots > 0) tree_->Hold(upper);
  if (held && low.snapshots == 0) tree_->Release(lower);
}

void Recurrent::OnRemove(NodeId node) {
  if (node.value >= marks_.size()) return;
  CHECK(marks_[node.value].snapshots == 0);
  mark_count_ -= marks_[node.value].list.size();
  marks_[node.value] = Marks();
}

size_t Recurrent::bytes() const {
  return marks_.bytes() + mark_count_ * 2 * sizeof(Mark);
}

Status Recurrent::CheckNode(NodeId node) const {
  const auto fail = [node](const char* what) {
    return Internal(fmt::format("snapshots of node #{}: {}", node.value, what));
  };
  int32_t last = tree_->begin(node);
  uint32_t snapshots = 0;
  for (const Mark& mark : marks(node)) {
    if (mark.position <= last) return fail("not ascending");
    last = mark.position;
    if (mark.entry.valid()) ++snapshots;
  }
  if (last > tree_->end(node)) return fail("behind the end of the run");
  if (node.value < marks_.size() && marks_[node.value].snapshots != snapshots) {
    return fail("count is wrong");
  }
  return OkStatus();
}

std::string Recurrent::Describe(NodeId node) const {
  std::string out;
  for (const Mark& mark : marks(node)) {
    fmt::format_to(std::back_inserter(out), " {}{}", mark.entry.valid() ? "@" : "!", mark.position);
  }
  return out;
}

}  // namespace reprise
