// SPDX-License-Identifier: Apache-2.0
#include "cache/index/flights.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

uint32_t Flights::Add() {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(records_.size()));
    records_.push_back(LeaseRecord());
  }
  const uint32_t seat = free_.back();
  free_.pop_back();
  records_[seat].id = next_id_++;
  records_[seat].seat = seat;
  return seat;
}

void Flights::Remove(uint32_t seat) {
  const LeaseRecord& ending = records_[seat];
  std::erase(under_way_, seat);
  if (ending.passengers) {
    for (LeaseRecord& waiting : records_) {
      if (waiting.wait.for_what.lease_id == ending.id) Disembark(waiting, ending);
    }
  }
  records_[seat] = LeaseRecord();
  free_.push_back(seat);
}

void Flights::TakeOff(uint32_t seat) {
  if (!records_[seat].in_flight()) return;
  records_[seat].take_off = ++take_offs_;
  under_way_.push_back(seat);
}

void Flights::Arrive(uint32_t seat) { std::erase(under_way_, seat); }

LeaseRecord* Flights::AwaitedBy(const LeaseRecord& waiting) {
  const LeaseRecord::Wait& wait = waiting.wait;
  if (wait.for_what.lease_id == 0) return nullptr;
  LeaseRecord& flight = records_[wait.seat];
  return flight.id == wait.for_what.lease_id ? &flight : nullptr;
}

void Flights::Await(LeaseRecord& waiting, const LeaseRecord& flight, Awaited awaited,
                    int32_t common) {
  waiting.wait = {awaited, flight.seat, common};
  records_[waiting.wait.seat].passengers = true;
}

void Flights::Disembark(LeaseRecord& waiting, const LeaseRecord& flight) {
  const int32_t position = std::min(waiting.wait.common, flight.published);
  if (position > waiting.place.at.position) {
    waiting.place = tree_->PlaceOf(tree_->Resolve({flight.cursor.node, position}));
  }
  waiting.wait = {};
  waiting.flights_seen = 0;
}

int32_t Flights::CommonWith(const LeaseRecord& flight, const LeaseRecord& waiting,
                            const RadixTree::Path& path, int32_t known) const {
  const int32_t begin = flight.published;
  if (begin > known) return 0;
  if (begin > 0) {
    const auto step = std::find_if(path.begin(), path.end(),
                                   [&](const RadixTree::PathStep& s) { return s.end >= begin; });
    CHECK(step != path.end());
    if (tree_->Resolve(flight.cursor).node != step->node) return 0;
  }
  const auto theirs = std::span(flight.tokens).first(flight.prompt_tokens).subspan(begin);
  const auto mine = std::span(waiting.tokens).first(waiting.limit());
  if (static_cast<size_t>(begin) >= mine.size()) return 0;
  return begin + CommonPrefix(theirs, mine.subspan(begin));
}

}  // namespace reprise
