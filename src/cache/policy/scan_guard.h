// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "cache/pieces.h"

namespace reprise {

// ScanGuard tells whether the traffic is a scan, and which requests are part of it.
//
// A *subject* is what requests come back to: a conversation, or a document. Under a scan (documents
// that are read once, or more documents in turn than fit) an order by age evicts every subject just
// before it is wanted again. The guard therefore plays two caches beside the real one, on subjects
// and bytes alone:
//
//   by age     least recently used
//   by return  LIRS: subjects that came back are warm and stay; all others are cold and share a
//              tenth. A subject that comes back becomes warm if there is room among the warm ones,
//              or if it was away for a shorter time than the oldest warm one has been by now.
//
// Where the second one finds clearly more tokens, or the first finds nothing, the guard resists:
// the evictor then takes cold entries before warm ones. Otherwise cold and warm mean nothing.
//
// Thread safety: none.
// Invariants (CheckInvariants): a subject stands in one list by age and in at most one by return;
// the bytes of a list are those of its subjects, and no more than its cache holds.
// Costs: Note O(1) amortised, whatever is stored. Subjects are bounded by the budget.
class ScanGuard {
 public:
  struct Subject {
    uint32_t slot = 0;
    uint32_t birth = 0;  // 0: none
  };

  explicit ScanGuard(size_t budget_bytes);

  // A request of this subject (none: a new one, which `subject` names from now on) adds
  // `more_bytes` of state. `known_tokens` of its prompt have been seen before. Returns true if the
  // subject is cold.
  bool Note(Subject* subject, size_t more_bytes, int32_t known_tokens);
  bool resists() const { return resists_; }

  size_t bytes() const { return items_.bytes(); }
  Status CheckInvariants() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum ListId : uint8_t { kRecent, kPast, kWarm, kCold, kNowhere };
  struct Links {
    uint32_t older = kNone;
    uint32_t newer = kNone;
  };
  struct Item {
    uint32_t birth = 0;
    ListId age = kNowhere;      // kRecent: the cache by age has it; kPast: it does not
    ListId place = kNowhere;    // kWarm, kCold: the cache by return has it
    int32_t shared_tokens = 0;  // known before its first request: others have them
    Links by_age, by_place;
    size_t bytes = 0;
    uint64_t used = 0;  // when, in requests
  };
  struct List {
    uint32_t oldest = kNone;
    uint32_t newest = kNone;
    size_t bytes = 0;
  };

  bool Stands(const Subject& subject) const;
  Subject Add(int32_t known_tokens);
  void Judge(const Item& item, int32_t known_tokens);
  void UseByAge(uint32_t slot);
  void UseByReturn(uint32_t slot, bool came_back);
  static Links& LinksOf(Item& item, ListId list);
  void PushNewest(ListId list, uint32_t slot);
  void Unlink(ListId list, uint32_t slot);

  const size_t capacity_;  // bytes
  const size_t warm_max_;  // of them, for the warm ones
  const uint32_t item_max_;
  Pieces<Item> items_;
  std::array<List, 4> lists_;
  uint32_t births_ = 0;
  uint64_t clock_ = 0;
  // Of the subjects that came back lately: how many, their tokens, and those that each cache had.
  double returns_ = 0;
  double tokens_ = 0;
  double found_by_age_ = 0;
  double found_by_return_ = 0;
  bool resists_ = false;
};

}  // namespace reprise
