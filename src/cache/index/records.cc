// SPDX-License-Identifier: Apache-2.0
#include "cache/index/records.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

std::vector<Records::Mark>& Records::MarksOf(NodeId node) {
  marks_.Grow(size_t{node.value} + 1);
  return marks_[node.value];
}

TierRecordId Records::Add(NodeId node, RecordHead head, int64_t used_ms, bool ready) {
  CHECK(head.position > tree_->begin(node) && head.position <= tree_->end(node));
  head.id = {next_++};
  std::vector<Mark>& marks = MarksOf(node);
  const auto at = std::lower_bound(marks.begin(), marks.end(), head.position,
                                   [](const Mark& m, int32_t p) { return m.position < p; });
  CHECK(at == marks.end() || at->position != head.position);
  marks.insert(at, {head.position, head.id});
  tree_->Ref(node);
  records_[head.id] = {head, node, used_ms, ready};
  by_use_.emplace(used_ms, -head.position, head.id);
  token_count_ += TokensOf(head);
  return head.id;
}

// Those that it keeps known, if nobody else does, beside what it continues.
size_t Records::TokensOf(const RecordHead& head) const {
  const int32_t from = head.parent.valid() ? head.first_block * block_tokens_ : 0;
  return static_cast<size_t>(head.position - from);
}

void Records::Touch(TierRecordId id, int64_t used_ms) {
  Record& record = records_.at(id);
  by_use_.erase({record.used_ms, -record.head.position, id});
  record.used_ms = std::max(record.used_ms, used_ms);
  by_use_.emplace(record.used_ms, -record.head.position, id);
}

void Records::Remove(TierRecordId id) {
  const Record record = records_.at(id);
  const std::span<const Mark> marks = MarksBehind(record.node, record.head.position - 1);
  CHECK(!marks.empty() && marks.front().record == id);
  std::vector<Mark>& all = MarksOf(record.node);
  all.erase(all.end() - static_cast<ptrdiff_t>(marks.size()));
  by_use_.erase({record.used_ms, -record.head.position, id});
  token_count_ -= TokensOf(record.head);
  records_.erase(id);
  tree_->Unref(record.node);
}

const Records::Record* Records::Find(TierRecordId id) const {
  const auto at = records_.find(id);
  return at == records_.end() ? nullptr : &at->second;
}

std::span<const Records::Mark> Records::MarksBehind(NodeId node, int32_t position) const {
  if (node.value >= marks_.size()) return {};
  const std::vector<Mark>& marks = marks_[node.value];
  const auto first = std::upper_bound(marks.begin(), marks.end(), position,
                                      [](int32_t p, const Mark& m) { return p < m.position; });
  return std::span(marks).subspan(static_cast<size_t>(first - marks.begin()));
}

const Records::Record* Records::At(NodeId node, int32_t position) const {
  const std::span<const Mark> marks = MarksBehind(node, position - 1);
  const bool found = !marks.empty() && marks.front().position == position;
  return found ? &records_.at(marks.front().record) : nullptr;
}

const Records::Record* Records::Deepest(const RadixTree::Path& path, int32_t position) const {
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    if (step->node.value >= marks_.size()) continue;
    const std::vector<Mark>& marks = marks_[step->node.value];
    const size_t behind = MarksBehind(step->node, std::min(position, step->end)).size();
    ++looks_;
    if (behind < marks.size()) return &records_.at(marks[marks.size() - behind - 1].record);
  }
  return nullptr;
}

const Records::Record* Records::Oldest() const {
  return by_use_.empty() ? nullptr : &records_.at(std::get<TierRecordId>(*by_use_.begin()));
}

std::vector<TierRecordId> Records::at(NodeId node) const {
  std::vector<TierRecordId> ids;
  if (node.value >= marks_.size()) return ids;
  for (const Mark& mark : marks_[node.value]) ids.push_back(mark.record);
  return ids;
}

// From the last mark up: only the few that are being written are not ready.
bool Records::Covers(NodeId node, int32_t position) const {
  const std::span<const Mark> marks = MarksBehind(node, position - 1);
  for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) {
    ++looks_;
    if (records_.at(mark->record).ready) return true;
  }
  return false;
}

std::vector<RecordHead> Records::Reach(const RadixTree::Path& path, int32_t from, int32_t limit,
                                       const Kv* kv, int64_t since_ms) const {
  std::vector<RecordHead> heads;
  int32_t reached = from;
  const auto begin = std::partition_point(
      path.begin(), path.end(), [&](const RadixTree::PathStep& step) { return step.end <= from; });
  for (auto step = begin; step != path.end(); ++step) {
    for (const Mark& mark : MarksBehind(step->node, from)) {
      if (mark.position > std::min(limit, step->end)) break;
      ++looks_;
      const Record& record = records_.at(mark.record);
      if (!record.ready || record.used_ms < since_ms) continue;
      const int32_t first = record.head.first_block;
      const bool alone = kv == nullptr || first <= kv->FirstBlock(mark.position);
      if (!alone && first * block_tokens_ > reached) continue;
      if (alone) heads.clear();
      heads.push_back(record.head);
      reached = mark.position;
    }
  }
  return heads;
}

void Records::OnSplit(NodeId upper, NodeId lower) {
  if (lower.value >= marks_.size()) return;
  MarksOf(upper);  // may move the other
  std::vector<Mark>& low = marks_[lower.value];
  const int32_t end = tree_->end(upper);
  const auto first_low =
      std::find_if(low.begin(), low.end(), [&](const Mark& m) { return m.position > end; });
  for (auto mark = low.begin(); mark != first_low; ++mark) {
    marks_[upper.value].push_back(*mark);
    records_.at(mark->record).node = upper;
    tree_->Ref(upper);
    tree_->Unref(lower);
  }
  low.erase(low.begin(), first_low);
}

size_t Records::bytes() const {
  constexpr size_t kRecordBytes = 256;  // in a hash table, an ordered set and a list of marks
  return records_.size() * kRecordBytes + marks_.bytes();
}

Status Records::CheckInvariants() const {
  size_t marks = 0;
  for (uint32_t node = 0; node < marks_.size(); ++node) {
    for (const Mark& mark : marks_[node]) {
      ++marks;
      const Record* record = Find(mark.record);
      if (record == nullptr || record->node.value != node ||
          record->head.position != mark.position || mark.position <= tree_->begin({node}) ||
          mark.position > tree_->end({node}) || tree_->refs({node}) == 0) {
        return Internal("record at position " + std::to_string(mark.position) + " of node #" +
                        std::to_string(node) + " is misplaced");
      }
    }
  }
  if (marks != records_.size() || marks != by_use_.size()) {
    return Internal("records are counted wrongly");
  }
  return OkStatus();
}

}  // namespace reprise
