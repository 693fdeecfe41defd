// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/index/lease_record.h"
#include "cache/pieces.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// Flights: the leases of an index, and who waits for whom.
//
// A lease that has started and computes its prompt is a flight: others may wait for what it will
// publish. Who waits remembers how far its prompt agrees with that flight, so that nothing is
// compared twice: while the flight is under way the answer stands, and when it lands the waiting
// lease finds its place in the tree where the flight has left it.
//
// Thread safety: none.
// Invariants: a record is free (id 0) or in use; under_way_ names the flights, in order of their
// start. Costs: all O(1) but Remove, which is O(records) for a flight with passengers.
class Flights {
 public:
  explicit Flights(RadixTree* tree) : tree_(tree) {}

  // A record with an id of its own. Where it sits is used again once it is removed; the id is not.
  uint32_t Add();
  void Remove(uint32_t seat);
  LeaseRecord& operator[](uint32_t seat) { return records_[seat]; }
  const LeaseRecord& operator[](uint32_t seat) const { return records_[seat]; }
  const Pieces<LeaseRecord>& records() const { return records_; }  // free ones too
  size_t size() const { return records_.size() - free_.size(); }

  // The record has started; its prompt is computed.
  void TakeOff(uint32_t seat);
  void Arrive(uint32_t seat);
  // The waiting record's flight ends or has published what it promised: it stands where that one
  // has come to, and waits no more.
  void Disembark(LeaseRecord& waiting, const LeaseRecord& flight);

  // The flight that the record waits for, or null if it waits for none or that has ended.
  LeaseRecord* AwaitedBy(const LeaseRecord& waiting);
  void Await(LeaseRecord& waiting, const LeaseRecord& flight, Awaited awaited, int32_t common);

  template <typename Visit>
  void ForEachWaitingFor(const LeaseRecord& flight, const Visit& visit) {
    if (!flight.passengers) return;
    for (LeaseRecord& waiting : records_) {
      if (waiting.wait.for_what.lease_id == flight.id) visit(waiting);
    }
  }
  // Calls visit(flight) for the flights in the record's namespace that it has not looked at yet.
  template <typename Visit>
  void ForEachNew(LeaseRecord& waiting, const Visit& visit) {
    const uint64_t seen = waiting.flights_seen;
    waiting.flights_seen = take_offs_;
    for (auto seat = under_way_.rbegin(); seat != under_way_.rend(); ++seat) {
      LeaseRecord& flight = records_[*seat];
      if (flight.take_off <= seen) return;
      if (flight.root == waiting.root && flight.in_flight()) visit(flight);
    }
  }
  // How far the prompts of both agree, if the flight runs along the path that the waiting one has
  // found so far; else 0: what they share was computed before.
  int32_t CommonWith(const LeaseRecord& flight, const LeaseRecord& waiting,
                     const RadixTree::Path& path, int32_t known) const;

 private:
  RadixTree* tree_;
  Pieces<LeaseRecord> records_;  // none of them ever moves
  std::vector<uint32_t> free_;
  std::vector<uint32_t> under_way_;  // seats, by take_off
  uint64_t next_id_ = 1;
  uint64_t take_offs_ = 0;
};

}  // namespace reprise
