// SPDX-License-Identifier: Apache-2.0
// Which bytes a pool, and which of them an expression, tells apart.
#include <algorithm>

#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {
namespace {

constexpr size_t kFirstSetsMax = 256;
constexpr uint32_t kAllSets = ~uint32_t{0};

}  // namespace

void RegexPool::SplitClasses(const ByteSet& set) {
  // The part of each class inside of `set` becomes a class of its own, unless it is all of it.
  std::array<bool, 256> inside = {};
  std::array<bool, 256> outside = {};
  for (int byte = 0; byte < 256; ++byte) {
    (set.Has(static_cast<uint8_t>(byte)) ? inside : outside)[class_of_[static_cast<size_t>(byte)]] =
        true;
  }
  std::array<int, 256> moved;
  moved.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) {
    const size_t old = class_of_[byte];
    if (!set.Has(static_cast<uint8_t>(byte)) || !inside[old] || !outside[old]) continue;
    if (moved[old] < 0) {
      moved[old] = static_cast<int>(representatives_.size());
      representatives_.push_back(static_cast<uint8_t>(byte));
    }
    class_of_[byte] = static_cast<uint8_t>(moved[old]);
  }
  // What stayed may have lost its lowest byte.
  for (size_t byte = 256; byte-- > 0;) {
    representatives_[class_of_[byte]] = static_cast<uint8_t>(byte);
  }
}

bool RegexPool::FirstSets(std::span<const RegexId> expressions, std::vector<uint32_t>* sets) {
  constexpr size_t kNodesMax = 2000;
  std::vector<uint32_t> open;
  met_.resize(nodes_.size(), 0);
  ++met_now_;
  const auto meet = [&](uint32_t node) {
    if (met_[node] != met_now_) open.push_back(node);
    met_[node] = met_now_;
  };
  for (const RegexId r : expressions) meet(Index(r));
  for (size_t at = 0; at < open.size(); ++at) {
    if (open.size() > kNodesMax) return false;
    const Node& node = nodes_[open[at]];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
        break;
      case Kind::kBytes:
        sets->push_back(node.a);
        break;
      case Kind::kConcat:
        meet(node.a);
        if (nodes_[node.a].nullable) meet(node.b);
        break;
      case Kind::kOr:
      case Kind::kAnd:
        for (const RegexId child : Children(node)) meet(Index(child));
        break;
      case Kind::kNot:
      case Kind::kRepeat:
        meet(node.a);
        break;
      case Kind::kMultiple:
        return false;
    }
  }
  std::sort(sets->begin(), sets->end());
  sets->erase(std::unique(sets->begin(), sets->end()), sets->end());
  return sets->size() <= kFirstSetsMax;
}

std::vector<uint8_t> RegexPool::GroupBySets(std::span<const uint32_t> sets) const {
  if (sets.size() == 1 && sets[0] == kAllSets) {
    std::vector<uint8_t> each(representatives_.size());
    for (size_t i = 0; i < each.size(); ++i) each[i] = static_cast<uint8_t>(i);
    return each;
  }
  using Signature = std::array<uint64_t, kFirstSetsMax / 64 + 1>;
  std::vector<std::pair<Signature, uint8_t>> leaders;
  std::vector<uint8_t> groups(representatives_.size());
  const size_t words = (sets.size() + 63) / 64;
  for (size_t i = 0; i < groups.size(); ++i) {
    const uint8_t byte = representatives_[i];
    Signature signature = {};
    for (size_t bit = 0; bit < sets.size(); ++bit) {
      signature[bit / 64] |= uint64_t{sets_[sets[bit]].Has(byte)} << (bit % 64);
    }
    signature[words] = alphabet_.Has(byte) ? 1 : 0;
    const auto same = std::ranges::find_if(leaders, [&](const auto& leader) {
      return std::equal(signature.begin(), signature.begin() + words + 1, leader.first.begin());
    });
    groups[i] = same != leaders.end() ? same->second : static_cast<uint8_t>(i);
    if (same == leaders.end()) leaders.emplace_back(signature, static_cast<uint8_t>(i));
  }
  return groups;
}

RegexPool::GroupingId RegexPool::GroupClasses(std::span<const RegexId> expressions) {
  const bool single = expressions.size() == 1;
  if (single) {
    grouping_of_.resize(nodes_.size(), kNoGrouping);
    const GroupingId known = grouping_of_[Index(expressions[0])];
    if (known != kNoGrouping && IsCurrent(groupings_[known])) return known;
  }
  std::vector<uint32_t> sets;
  if (!FirstSets(expressions, &sets)) sets = {kAllSets};
  const uint64_t hash = HashSpan(std::span<const uint32_t>(sets));
  uint32_t id =
      grouping_index_.Find(hash, [&](uint32_t at) { return groupings_[at].sets == sets; });
  if (id == InternIndex::kNone) {
    id = static_cast<uint32_t>(groupings_.size());
    grouping_index_.Insert(hash, id);
    groupings_.push_back({std::move(sets), {}});
  }
  Grouping& grouping = groupings_[id];
  if (!IsCurrent(grouping)) grouping.groups = GroupBySets(grouping.sets);
  if (single) grouping_of_[Index(expressions[0])] = id;
  return id;
}

}  // namespace reprise::grammar
