// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "cache/component/kv.h"
#include "cache/pieces.h"
#include "cache/tier/tier.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// Where the bytes of a stored prefix are. What is in memory is an entry, what a lower tier has is a
// record; both are known by their place in the tree, and a prefix may have either or both:
//
//               entry   record
//   resident    yes     no, or yes: then eviction loses nothing
//   spilling    yes     in the making
//   spilled     no      yes
//   fetching    no      yes, and a load is under way
enum class Residency : uint8_t { kResident, kSpilling, kSpilled, kFetching };

// Records: what lower tiers have, as marks on the tree. A mark keeps the tokens of its node known
// (RadixTree::Ref), though no state of it may be in memory.
//
// Thread safety: none.
// Invariants: each record has one mark, in (begin, end] of its node, which it refers to.
// Costs: all O(log records); Deepest from the end of the path up to the first mark; Reach the nodes
// and marks behind `from`. looks() counts the marks that both have looked at.
class Records {
 public:
  struct Record {
    RecordHead head;
    NodeId node;
    int64_t used_ms = 0;
    bool ready = false;  // false: it is being written
  };

  Records(RadixTree* tree, int32_t block_tokens) : tree_(tree), block_tokens_(block_tokens) {}

  // A record at head.position of the node. Returns its id.
  TierRecordId Add(NodeId node, RecordHead head, int64_t used_ms, bool ready);
  void SetReady(TierRecordId id) { records_.at(id).ready = true; }
  void Touch(TierRecordId id, int64_t used_ms);
  void Remove(TierRecordId id);

  const Record* Find(TierRecordId id) const;
  // The one at that position of the node, if any.
  const Record* At(NodeId node, int32_t position) const;
  // The deepest on the path at or above `position`, if any.
  const Record* Deepest(const RadixTree::Path& path, int32_t position) const;
  // The one that was used longest ago; of those of one moment the deepest.
  const Record* Oldest() const;
  std::vector<TierRecordId> at(NodeId node) const;
  // Whether a record that is ready ends at that position of the node, or behind it.
  bool Covers(NodeId node, int32_t position) const;

  // What to read to come from `from` (which is in memory) as deep as possible, but not behind
  // `limit`, with nothing that was not used since `since_ms`. Empty: nothing leads on from there.
  // A record that has all that `kv` needs at its end (null, no K/V: all have) is enough alone.
  std::vector<RecordHead> Reach(const RadixTree::Path& path, int32_t from, int32_t limit,
                                const Kv* kv, int64_t since_ms) const;

  void OnSplit(NodeId upper, NodeId lower);

  size_t size() const { return records_.size(); }
  size_t token_count() const { return token_count_; }  // an upper bound of those only they keep
  uint64_t looks() const { return looks_; }
  size_t bytes() const;
  Status CheckInvariants() const;

 private:
  struct Mark {
    int32_t position = 0;
    TierRecordId record;
  };
  using UseOrder = std::set<std::tuple<int64_t, int32_t, TierRecordId>>;  // (used, -position, id)
  std::vector<Mark>& MarksOf(NodeId node);
  // Those of the node behind a position, ascending.
  std::span<const Mark> MarksBehind(NodeId node, int32_t position) const;
  size_t TokensOf(const RecordHead& head) const;

  RadixTree* tree_;
  int32_t block_tokens_;
  std::unordered_map<TierRecordId, Record> records_;
  Pieces<std::vector<Mark>> marks_;  // by node, ascending
  UseOrder by_use_;
  size_t token_count_ = 0;
  uint32_t next_ = 0;
  mutable uint64_t looks_ = 0;
};

}  // namespace reprise
