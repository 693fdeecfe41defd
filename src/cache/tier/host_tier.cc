// SPDX-License-Identifier: Apache-2.0
#include "cache/tier/host_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

// How much of what goes out is under way where a device copies by itself: what is to come in waits
// behind it.
constexpr size_t kOutBytesBeside = size_t{64} << 20;
// What one call copies into memory that this thread copies into, but not this machine's own.
constexpr size_t kInBytes = size_t{16} << 20;
// What comes in on a thread of its own is copied in pieces: nobody waits longer to call it off.
constexpr size_t kArrivalPieceBytes = size_t{256} << 10;

size_t Pieces(size_t bytes, size_t piece) { return (bytes + piece - 1) / piece; }

// Blocks do not lie across slots.
size_t SlotBytes(const StateShape& shape) {
  if (shape.block_bytes == 0) return shape.state_bytes;
  const size_t least = Pieces(shape.state_bytes, HostTier::kStateSlots);
  return std::max<size_t>(1, Pieces(least, shape.block_bytes)) * shape.block_bytes;
}

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::Make(const StateLayout& layout, size_t bytes,
                                                 DeviceMemory& device, const Clock& clock) {
  const StateShape shape{layout.block_bytes(), layout.state_bytes()};
  const size_t slot = SlotBytes(shape);
  const size_t least = Pieces(shape.block_bytes + shape.state_bytes, slot) * slot;
  if (bytes < least || bytes / slot > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument(
        fmt::format("{:.1f} MiB of host memory cannot hold state of this model: the shortest "
                    "prompt's takes {:.1f} MiB",
                    double(bytes) / (1 << 20), double(least) / (1 << 20)));
  }
  REPRISE_ASSIGN(std::unique_ptr<HostLane> lane, OpenLane(device, bytes / slot * slot));
  return std::unique_ptr<HostTier>(new HostTier(shape, std::move(lane), clock));
}

HostTier::HostTier(StateShape shape, std::unique_ptr<HostLane> lane, const Clock& clock)
    : shape_(shape),
      slot_bytes_(SlotBytes(shape)),
      lane_(std::move(lane)),
      clock_(clock),
      slot_count_(lane_->size() / slot_bytes_) {
  free_.resize(slot_count_);
  for (size_t i = 0; i < slot_count_; ++i) free_[i] = static_cast<uint32_t>(slot_count_ - 1 - i);
}

size_t HostTier::SlotsOf(const RecordFacts& facts) const {
  return Pieces(facts.block_count * shape_.block_bytes + facts.state_bytes, slot_bytes_);
}

// Where a model has recurrent state, the index knows all that is here unless it has forgotten some;
// else others may begin in the middle of a record, too.
void HostTier::AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const {
  if (shape_.state_bytes == 0 || strangers_) roots->push_back(RootOf(key));
}

void HostTier::Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) {
  const PromptPath* path = prompt.In(RootOf(key));
  if (path != nullptr) known_.Tell(catalog_, *path, shape_, found);
}

void HostTier::Begin(const Move& move) {
  Flight flight;
  flight.move = move;
  flight.begun_ns = clock_.NowNs();
  if (move.kind == Move::Kind::kSpill) {
    spills_.push_back(std::move(flight));
    return;
  }
  flight.failed = !PlanFetch(&flight);
  if (!flight.failed && ComesBeside(flight)) FetchBeside(&flight);
  if (!flight.failed && lane_->beside()) {
    size_t all = std::numeric_limits<size_t>::max();
    lane_->Follow();
    (void)Ask(&flight, &all);
  }
  fetches_.push_back(std::move(flight));
}

// Copies between what a record has from `offset` on and a place of the device.
void HostTier::AddHops(std::span<const uint32_t> slots, size_t offset, DevicePtr<std::byte> there,
                       size_t bytes, std::vector<Hop>* hops) const {
  while (bytes > 0) {
    const size_t within = offset % slot_bytes_;
    const size_t some = std::min(bytes, slot_bytes_ - within);
    std::byte* const slot = lane_->data() + slots[offset / slot_bytes_] * slot_bytes_;
    hops->push_back({slot + within, there, some});
    there = there + static_cast<int64_t>(some);
    offset += some;
    bytes -= some;
  }
}

bool HostTier::PlanFetch(Flight* flight) {
  const Move& move = flight->move;
  const auto place = known_.PlaceOf(move.records.back().id);
  const auto plan =
      place ? PlanRead(catalog_, *place, static_cast<uint32_t>(move.first_block)) : std::nullopt;
  if (!plan || plan->block_count != move.blocks.size()) return false;
  for (const ReadPlan::Step& step : plan->steps) {
    const std::span<const uint32_t> slots = slots_.at(step.record);
    const RecordFacts& facts = catalog_[step.record].facts;
    for (uint32_t i = 0; i < step.block_count; ++i) {
      const uint32_t block = step.first_block + i;
      const BlockId to = move.blocks[block - static_cast<uint32_t>(move.first_block)];
      AddHops(slots, (block - facts.first_block) * shape_.block_bytes, memory_.block(to),
              shape_.block_bytes, &flight->hops);
    }
    if (!step.state) continue;
    AddHops(slots, facts.block_count * shape_.block_bytes, memory_.state(move.state),
            shape_.state_bytes, &flight->hops);
  }
  flight->held = plan->record;
  catalog_.Hold(plan->record);
  catalog_.Touch(plan->record, ++uses_);
  return true;
}

bool HostTier::ComesBeside(const Flight& flight) const {
  size_t bytes = 0;
  for (const Hop& hop : flight.hops) bytes += hop.bytes;
  return bytes >= kInBytesPerCall && !lane_->beside() && device_->copies_by_caller();
}

// All that the thread reads and writes stays as it is until the flight ends.
void HostTier::FetchBeside(Flight* flight) {
  flight->arrival = std::make_shared<Chore>();
  for (const Hop& hop : flight->hops) flight->bytes += hop.bytes;
  copier_.Post([device = device_, chore = flight->arrival, hops = std::move(flight->hops)] {
    if (!chore->Begin()) return;
    for (const Hop& hop : hops) {
      for (size_t at = 0; at < hop.bytes && !chore->off(); at += kArrivalPieceBytes) {
        device->Upload(hop.there + static_cast<int64_t>(at), hop.here + at,
                       std::min(kArrivalPieceBytes, hop.bytes - at));
      }
    }
    chore->End();
  });
  flight->hops.clear();
}

// Asks for copies until so many bytes are under way; of what this thread copies down itself, as
// much as the pace allows. True: all of them are.
bool HostTier::Ask(Flight* flight, size_t* bytes_left) {
  const bool out = flight->move.kind == Move::Kind::kSpill;
  const bool paced = out && !lane_->beside();
  while (flight->next < flight->hops.size() && *bytes_left > 0 && (!paced || pace_.MayCopy())) {
    const Hop& hop = flight->hops[flight->next];
    const size_t left = hop.bytes - flight->offset;
    const size_t most = paced ? CopyPace::kPieceBytes : lane_->beside() ? left : *bytes_left;
    const size_t bytes = std::min(left, most);
    std::byte* const here = hop.here + flight->offset;
    const DevicePtr<std::byte> there = hop.there + static_cast<int64_t>(flight->offset);
    const auto copy = [&] { out ? lane_->Out(here, there, bytes) : lane_->In(there, here, bytes); };
    paced ? pace_.Spend(copy) : copy();
    flight->bytes += bytes;
    flight->offset += bytes;
    *bytes_left -= std::min(*bytes_left, bytes);
    if (bytes < left) continue;
    ++flight->next;
    flight->offset = 0;
  }
  flight->mark = lane_->Mark();
  return flight->next == flight->hops.size();
}

// What the flight has of the catalog and of the memory.
void HostTier::Release(Flight* flight) {
  if (flight->held.valid()) catalog_.Release(flight->held);
  free_.insert(free_.end(), flight->slots.begin(), flight->slots.end());
}

// Copies that a device was asked for go on; whatever it or the lane is asked next comes after them.
// What another thread copies in ends with the piece that is under way.
void HostTier::Cancel(uint64_t move) {
  const auto cancel = [&](Flight& flight) {
    if (flight.move.id != move) return false;
    if (flight.bytes > 0) lane_->Join();
    if (flight.arrival) flight.arrival->CallOff(copier_);
    if (flight.facts) ++stats_.stores_aborted;
    Release(&flight);
    return true;
  };
  CHECK(std::erase_if(spills_, cancel) + std::erase_if(fetches_, cancel) == 1);
}

// What the index forgets may be found again.
void HostTier::Remove(TierRecordId record) {
  known_.Forget(record);
  strangers_ = true;
}

// The index has ended all moves that have to do with it. Nothing is found from now on; the records
// go some with each Poll, so that a tenant with many keeps nobody waiting.
void HostTier::Reset(const NamespaceKey* key) {
  key != nullptr ? catalog_.LoseSpace(RootOf(*key)) : catalog_.LoseAll();
  (void)DropLost();
}

// False: there are more.
bool HostTier::DropLost() {
  for (size_t i = 0; i < kDropsPerPoll; ++i) {
    const auto lost = catalog_.NextLost();
    if (!lost) break;
    Drop(*lost);
  }
  return !catalog_.losing();
}

void HostTier::Drop(RecordId record) {
  catalog_.Remove(record);
  const auto slots = slots_.find(record);
  free_.insert(free_.end(), slots->second.begin(), slots->second.end());
  slots_.erase(slots);
  const std::vector<TierRecordId> lost = known_.Lose(record);
  lost_.insert(lost_.end(), lost.begin(), lost.end());
}

bool HostTier::MakeRoom(size_t slots, const PathId& space) {
  if (slots > slot_count_) return false;
  while (free_.size() < slots) {
    if (const auto lost = catalog_.NextLost()) {
      Drop(*lost);
      continue;
    }
    const auto next = catalog_.NextToGo(space, slots * slot_bytes_, slot_count_ * slot_bytes_);
    if (!next) return false;
    Drop(*next);
    ++stats_.evicted;
  }
  return true;
}

Tier::News HostTier::Poll(When when) {
  News news;
  pace_.Begin(when);
  CopyIn(&news);
  CopyOut(&news);
  news.more = !DropLost();
  news.lost = std::exchange(lost_, {});
  return news;
}

void HostTier::CopyIn(News* news) {
  if (fetches_.empty()) return;
  size_t bytes_left = lane_->beside()               ? std::numeric_limits<size_t>::max()
                      : device_->copies_by_caller() ? kInBytesPerCall
                                                    : kInBytes;
  std::erase_if(fetches_, [&](Flight& flight) {
    if (flight.arrival && !flight.arrival->done()) return false;
    if (!flight.failed && flight.next < flight.hops.size()) {
      lane_->Follow();
      if (!Ask(&flight, &bytes_left)) return false;
    }
    if (!flight.failed && !lane_->Reached(flight.mark)) return false;
    const int64_t ns = clock_.NowNs() - flight.begun_ns;
    Release(&flight);
    ++(flight.failed ? stats_.fetches_failed : stats_.fetches);
    stats_.bytes_read += flight.bytes;
    stats_.fetch_ns += flight.failed ? 0 : static_cast<uint64_t>(ns);
    news->done.push_back(
        {.id = flight.move.id, .ok = !flight.failed, .bytes = flight.bytes, .ns = ns});
    return true;
  });
}

void HostTier::CopyOut(News* news) {
  size_t bytes_left = lane_->beside() ? kOutBytesBeside : kOutBytesPerCall;
  while (!spills_.empty()) {
    Flight& flight = spills_.front();
    bool stored = false;
    const auto hashed = [&] {
      const PathId root = RootOf(*flight.move.key);
      return flight.path.Advance(root, flight.move.tokens, &pace_, lane_->beside());
    };
    if (!flight.facts && !hashed()) return;
    if (!flight.facts && !BeginSpill(&flight, &stored)) {
      news->done.push_back({.id = flight.move.id, .ok = stored});
      if (!stored) ++stats_.stores_failed;
      spills_.pop_front();
      continue;
    }
    if (!lane_->Reached(flight.mark)) return;
    if (flight.next < flight.hops.size()) {
      lane_->Follow();
      if (!Ask(&flight, &bytes_left) || !lane_->Reached(flight.mark)) return;
    }
    EndSpill(&flight, news);
    spills_.pop_front();
  }
}

// Whether it has begun. If not, it may be there already.
bool HostTier::BeginSpill(Flight* flight, bool* stored) {
  const Move& move = flight->move;
  const RecordHead& head = move.records.front();
  const PromptPath& path = *flight->path;
  const auto deepest = catalog_.Find(path, head.position);
  *stored = deepest && deepest->position == head.position;
  if (*stored) {
    known_.Know(head.id, *deepest);
    catalog_.Touch(deepest->record, ++uses_);
    return false;
  }
  std::optional<RecordPlan> plan = PlanRecord(catalog_, path,
                                              {.position = head.position,
                                               .shape = shape_,
                                               .model = PathId(),
                                               .reason = static_cast<uint32_t>(head.reason),
                                               .first_block = move.first_block,
                                               .alone = !head.parent.valid(),
                                               .passed = move.passed});
  if (!plan) return false;
  if (plan->parent.valid()) catalog_.Hold(plan->parent);
  const size_t count = SlotsOf(plan->facts);
  if (!MakeRoom(count, path.grid(0))) {
    if (plan->parent.valid()) catalog_.Release(plan->parent);
    return false;
  }
  flight->held = plan->parent;
  flight->slots.assign(free_.end() - static_cast<ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  size_t offset = 0;
  for (uint32_t i = 0; i < plan->facts.block_count; ++i, offset += shape_.block_bytes) {
    const size_t at = plan->facts.first_block + i - static_cast<size_t>(move.first_block);
    AddHops(flight->slots, offset, memory_.block(move.blocks[at]), shape_.block_bytes,
            &flight->hops);
  }
  if (move.state.valid()) {
    AddHops(flight->slots, offset, memory_.state(move.state), shape_.state_bytes, &flight->hops);
  }
  flight->facts = std::move(plan->facts);
  flight->replaced = std::move(plan->replaced);
  return true;
}

void HostTier::EndSpill(Flight* flight, News* news) {
  const int32_t position = flight->facts->end;
  const uint64_t takes = flight->slots.size() * slot_bytes_;
  const RecordId id = catalog_.Add("", std::move(*flight->facts), takes, ++uses_);
  if (id.valid()) {
    slots_.emplace(id, std::exchange(flight->slots, {}));
    known_.Know(flight->move.records.front().id, {id, position});
    stats_.bytes_written += flight->bytes;
  }
  ++(id.valid() ? stats_.stores : stats_.stores_failed);
  Release(flight);
  for (const RecordId old : id.valid() ? flight->replaced : std::vector<RecordId>()) {
    if (!catalog_.Has(old) || catalog_[old].children > 0 || catalog_[old].holds > 0) break;
    Drop(old);
    ++stats_.replaced;
  }
  news->done.push_back({.id = flight->move.id,
                        .ok = id.valid(),
                        .bytes = flight->bytes,
                        .ns = clock_.NowNs() - flight->begun_ns});
}

void HostTier::AddTo(CacheStats* stats) const {
  TierStats own = stats_;
  own.kind = name();
  own.bytes_max = slot_count_ * slot_bytes_;
  own.bytes = (slot_count_ - free_.size()) * slot_bytes_;
  own.records = catalog_.size();
  stats->Add(own);
}

}  // namespace reprise
