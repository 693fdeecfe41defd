// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/sequence.h"
#include "sched/rank.h"

namespace reprise {

// Roster knows who waits, who runs, and the one order among them (sched/rank.h): who is started
// next, and who makes way. It takes no decision about memory; that is the engine's.
//
// A sequence whose prefix is being computed by another one waits for it and lends it its priority:
// whoever holds up an urgent request is as urgent.
//
// Thread safety: none.
// Invariants:
//  (1) At most running_max sequences run.
//  (2) The loads of tenants are the sequences that wait and run.
// Costs: O(sequences) for each call; there are a few hundred.
class Roster {
 public:
  explicit Roster(int32_t running_max) : running_max_(running_max) {}

  // Once per step.
  void SetTime(int64_t now_ms) { now_ms_ = now_ms; }

  // A request joins the queue. Those of a tenant take turns with those of others.
  void Add(std::unique_ptr<Sequence> sequence);
  void Start(Sequence& sequence);     // waiting -> running. REQUIRES: !full()
  void SendBack(Sequence& sequence);  // running -> waiting
  void RemoveFinished();

  std::span<const std::unique_ptr<Sequence>> waiting() const { return waiting_; }
  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }
  bool full() const { return running_.size() >= static_cast<size_t>(running_max_); }

  // Grows whenever somebody comes, goes, starts, is sent back, or waits for another no more.
  uint64_t changes() const { return changes_; }

  // Forgets the waits that are over: the flight has ended, or has left what was awaited. Once per
  // step, before anything else is asked.
  void EndWaits();
  // Lends priorities to those that are waited for. Whenever waits have changed.
  void Lend();

  // The first in the queue that waits for nobody; null: there is none.
  Sequence* Next() const;
  // The last of those that run; null: nobody does.
  Sequence* Last() const;
  // The last of those that run, if it has to make way for one that waits; else null.
  Sequence* Yielding(const Sequence& waiting) const;
  // Of a queue that has become too long, the last of the tenant that has most for its weight: one
  // that may be displaced. Null: none may.
  Sequence* Surplus() const;

  int32_t ShareOf(const TenantLoad& tenant) const;           // of the places of those that run
  // Whether the tenant of one that runs has more than its share of the places, where others have
  // requests here, or had until some seconds ago.
  bool Crowds(const Sequence& sequence) const;
  std::map<std::string, TenantLoad> QueuedByTenant() const;  // those that wait
  std::string Dump() const;

 private:
  Rank RankOf(const Sequence& sequence, bool running) const;
  std::unordered_map<uint64_t, Sequence*> Flights() const;
  void Count(TenantLoad& tenant, int32_t waiting, int32_t running);

  const int32_t running_max_;
  std::vector<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::unordered_map<std::string, std::shared_ptr<TenantLoad>> tenants_;
  int64_t weights_ = 0;          // of the tenants that are present
  int64_t weights_lately_ = 0;   // of those that were lately,
  int64_t lately_until_ms_ = 0;  // as long as one of them counts
  int64_t now_ms_ = 0;
  double turn_ = 0;     // of the one that was started last
  bool waits_ = false;  // somebody waited for another when priorities were lent
  uint64_t changes_ = 1;
};

}  // namespace reprise
