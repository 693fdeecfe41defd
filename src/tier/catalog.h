// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "state/ids.h"
#include "state/shares.h"
#include "tier/path_id.h"
#include "tier/record.h"

namespace reprise {

using RecordId = Id<struct RecordTag>;

// Catalog knows which records there are, how they continue one another, and which goes first. It
// touches no file.
//
// A record that is lost, and all that continue it, and all records of a namespace that was lost,
// are found by nobody from then on. They are removed one by one, by the caller (NextLost): so the
// loss of one record that many continue takes no time of its own.
//
// Thread safety: none.
// Invariants:
//  (1) The parent of every record is here, and its place there is where the record begins.
//  (2) A record is among the leaves exactly if no record continues it and nobody holds it.
//  (3) bytes() is the sum over all records, lost ones too.
// Costs: Find O(blocks of the prompt) look-ups and at most 63 digests a block that has ends in it;
// while there are lost ones, O(ancestors) more; Add, Replace and Remove O(marks + log records);
// Touch O(ancestors); Lose and LoseSpace O(1), NextLost O(1) on the average.
class Catalog {
  struct Space;

 public:
  struct Record {
    std::string name;
    RecordFacts facts;
    RecordId parent;
    uint64_t bytes = 0;  // what the file takes
    int64_t used_ms = 0;
    int64_t seen_ms = 0;  // of a shared home: when it was last found there (See)
    uint32_t children = 0;
    uint32_t holds = 0;

   private:
    friend class Catalog;
    Space* space = nullptr;
    RecordId first;           // of those that continue it
    RecordId before, behind;  // among those that continue the same
    bool lost = false;
  };
  struct Place {
    RecordId record;
    int32_t position = 0;
  };

  // Nothing is added, and the id is invalid, if the path is there already or the parent is not.
  RecordId Add(std::string name, RecordFacts facts, uint64_t bytes, int64_t used_ms);
  // Another record of the same path takes the place of this one; what continues it stays. False,
  // and nothing has changed: what it continues is not here, or it has less places than the old one.
  // REQUIRES: facts of the same path.
  bool Replace(RecordId id, std::string name, RecordFacts facts, uint64_t bytes);
  // REQUIRES: a leaf.
  void Remove(RecordId id);

  // The record is of no use any more, nor is what continues it.
  void Lose(RecordId id);
  void LoseSpace(const PathId& space);
  void LoseAll();
  // A lost one that can be removed now. Nothing: there is none, or a held one is in the way.
  std::optional<RecordId> NextLost();
  bool losing() const { return !lost_.empty() || !lost_spaces_.empty(); }

  // The record, and with it those that it continues, was used.
  void Touch(RecordId id, int64_t used_ms);
  // It was found in its home.
  void See(RecordId id, int64_t now_ms) { At(id).seen_ms = now_ms; }
  // A record that is held does not become the oldest leaf.
  void Hold(RecordId id);
  void Release(RecordId id);

  // The deepest place at or above `limit` that lies on the path.
  std::optional<Place> Find(const PromptPath& path, int32_t limit) const;
  // Ids that were looked for so far: what Find takes time for. For one who has nothing here it does
  // not depend on what others have.
  uint64_t probes() const { return probes_; }
  // Records that were looked at for what continues them, or what they continue, so far.
  uint64_t steps() const { return steps_; }
  // The leaf that was not used for longest.
  std::optional<RecordId> OldestLeaf() const { return EndLeaf(true); }
  std::optional<RecordId> EndLeaf(bool oldest) const;  // or the one that was used last
  // The leaf that goes first when `bytes` more of the namespace are to fit into `bytes_max`: of the
  // namespaces that have more than their share, which is the same for all, the leaf that was not
  // used for longest. Nothing: they have none. kOwnersMax namespaces are counted apart.
  std::optional<RecordId> NextToGo(const PathId& space, uint64_t bytes, uint64_t bytes_max) const;
  uint64_t bytes_of(const PathId& space) const { return owners_[OwnerOf(space)].bytes; }
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [id, record] : records_) visit(id, record);
  }

  // Ids are not used twice. A lost one is not here.
  bool Has(RecordId id) const { return records_.contains(id) && Sound(id); }
  // REQUIRES: not removed.
  const Record& operator[](RecordId id) const { return records_.at(id); }
  size_t size() const { return records_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Space {  // those that continue nothing, of one namespace
    PathId id;
    RecordId first;
    bool lost = false;
    uint32_t owner = 0;
  };
  using Leaves = std::set<std::pair<int64_t, uint32_t>>;  // (used_ms, record)
  struct Owner {  // a namespace, or those beyond kOwnersMax
    uint32_t spaces = 0;
    uint64_t bytes = 0;
    Leaves leaves;
  };

  uint32_t OwnerOf(const PathId& space) const;  // or whose it would be
  Leaves& LeavesOf(const Record& record) { return owners_[record.space->owner].leaves; }
  Record& At(RecordId id) { return records_.at(id); }
  bool IsLeaf(const Record& record) const { return record.children == 0 && record.holds == 0; }
  void Requeue(RecordId id, bool was_leaf, int64_t was_used_ms);
  bool Sound(RecordId id) const;
  RecordId* FirstOf(const Record& record);  // of the list that it is in
  void Join(RecordId id);
  void Part(RecordId id);
  void AddPlaces(RecordId id);
  void RemovePlaces(RecordId id);
  std::optional<Place> SoundPlace(const PathId& path) const;

  std::unordered_map<RecordId, Record> records_;
  uint32_t next_ = 0;
  std::unordered_map<PathId, Place> places_;  // ends and marks
  // By the last block's end before them: how many records end so many tokens behind it.
  std::unordered_map<PathId, std::map<int32_t, uint32_t>> tails_;
  std::array<Owner, kOwnersMax> owners_;
  std::list<Space> spaces_;
  std::unordered_map<PathId, std::list<Space>::iterator> space_of_;  // that are not lost
  std::deque<RecordId> lost_;
  std::list<Space> lost_spaces_;  // that have records
  uint64_t bytes_ = 0;
  mutable uint64_t probes_ = 0;
  mutable uint64_t steps_ = 0;
};

}  // namespace reprise
