// SPDX-License-Identifier: Apache-2.0
#include "tier/disk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace reprise {
namespace {

constexpr uint64_t kPageBytes = 4096;  // what a file takes is counted in these
constexpr int64_t kDayMs = 24 * 3600 * 1000;

uint64_t OnDisk(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

template <typename Clock>
int64_t MsOf() {
  const auto now = Clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

Result<std::unique_ptr<DiskStore>> DiskStore::Open(const DiskOptions& options,
                                                   const StateKey& key) {
  std::unique_ptr<DiskStore> tier(new DiskStore(options, key));
  REPRISE_ASSIGN(tier->folder_, StateFolder::Open(options.path, StateFolder::Use::kOwn));
  REPRISE_TRY(tier->ReadHeads());
  tier->folder_->fault = options.fault;
  tier->folder_->sync = options.sync;
  tier->transfers_ = std::make_unique<Transfers>(*tier->folder_, tier->key_, options.reader_count,
                                                 [raw = tier.get()] { raw->Notify(); });
  (void)tier->MakeRoom(0);
  return tier;
}

DiskStore::~DiskStore() = default;

void DiskStore::SetNotify(std::function<void()> notify) {
  std::lock_guard lock(notify_mutex_);
  notify_ = std::move(notify);
}

void DiskStore::Notify() {
  std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

int64_t DiskStore::WallMs() const {
  const int64_t now = options_.wall_ms ? options_.wall_ms() : MsOf<std::chrono::system_clock>();
  return now_ms_ = std::max(now_ms_ + 1, now);
}

int64_t DiskStore::SteadyMs() const {
  return options_.steady_ms ? options_.steady_ms() : MsOf<std::chrono::steady_clock>();
}

// Fills the catalog. What cannot be used now takes room until others need it: it may be another
// model's, or its key may come back.
Status DiskStore::ReadHeads() {
  struct Head {
    StateFolder::Listed file;
    RecordFacts facts;
  };
  REPRISE_ASSIGN(std::vector<StateFolder::Listed> files, folder_->List());
  std::vector<Head> found;
  found.reserve(files.size());
  const int64_t today_ms = WallMs() - kDayMs;
  day_left_ = static_cast<double>(options_.bytes_day_max);
  for (StateFolder::Listed& file : files) {
    const auto record = RecordFile::Open(*folder_, key_, file.name);
    if (!record.ok()) {
      unreadable_bytes_ += OnDisk(file.bytes);
      unreadable_.push_back({std::move(file.name), OnDisk(file.bytes)});
      continue;
    }
    if (record->facts().created_ms > today_ms) {
      day_left_ -= static_cast<double>(OnDisk(file.bytes));
    }
    found.push_back({std::move(file), record->facts()});
  }
  day_at_ms_ = SteadyMs();
  stats_.unreadable = unreadable_.size();
  // Those that others continue come first.
  std::stable_sort(found.begin(), found.end(),
                   [](const Head& a, const Head& b) { return a.facts.begin < b.facts.begin; });
  for (Head& one : found) {
    now_ms_ = std::max(now_ms_, std::min(one.file.used_ms, WallMs()));
    const uint64_t bytes = OnDisk(one.file.bytes);
    const std::string name = one.file.name;
    if (!catalog_.Add(one.file.name, std::move(one.facts), bytes, one.file.used_ms).valid()) {
      (void)folder_->Remove(name);  // its beginning is gone, or it is there twice
    }
  }
  return OkStatus();
}

std::optional<Catalog::Place> DiskStore::Deepest(const PromptPath& path, int32_t limit) const {
  return catalog_.Find(path, limit);
}

std::optional<DiskStore::Found> DiskStore::Find(const PromptPath& path, int32_t have,
                                                int32_t limit) const {
  const auto place = catalog_.Find(path, limit);
  if (!place || place->position <= have) return std::nullopt;
  return Plan(*place, static_cast<uint32_t>(have / kBlockTokens));
}

std::optional<DiskStore::Found> DiskStore::Plan(const Catalog::Place& place,
                                                uint32_t first_block) const {
  if (SteadyMs() < reads_off_until_ms_ || !catalog_.Has(place.record)) return std::nullopt;
  Found found;
  found.position = place.position;
  found.record = place.record;
  const RecordFacts& last = catalog_[place.record].facts;
  const uint32_t from = first_block;
  auto upto = static_cast<uint32_t>((place.position + kBlockTokens - 1) / kBlockTokens);
  if (last.block_bytes == 0 || upto < from) upto = from;
  found.first_block = from;
  found.block_count = upto - from;
  found.bytes = found.block_count * last.block_bytes + last.state_bytes;
  // Each block from the deepest record that has it: its parents may have less of its rows.
  bool state = last.state_bytes > 0;
  for (RecordId id = place.record; id.valid() && (upto > from || state); id = catalog_[id].parent) {
    const RecordFacts& facts = catalog_[id].facts;
    const uint32_t end = std::min(upto, facts.first_block + facts.block_count);
    const uint32_t begin = std::max(from, facts.first_block);
    const bool blocks = facts.block_count > 0 && begin < upto;
    if (blocks && end != upto) return std::nullopt;  // a gap
    if (blocks || state) {
      found.steps.push_back(
          {catalog_[id].name, facts.path, begin, blocks ? end - begin : 0, state});
    }
    if (blocks) upto = begin;
    state = false;
  }
  if (upto > from) return std::nullopt;
  return found;
}

bool DiskStore::Holds(const PromptPath& path, int32_t position) const {
  const auto place = catalog_.Find(path, position);
  return place && place->position == position;
}

uint64_t DiskStore::Fetch(const Found& found, const Shape& shape) {
  const size_t bytes = found.block_count * shape.block_bytes + shape.state_bytes;
  const RecordFacts& facts = catalog_[found.record].facts;
  const bool fits = (found.block_count == 0 || facts.block_bytes == shape.block_bytes) &&
                    facts.state_bytes == shape.state_bytes;
  const bool crowded = !fetching_.empty() && fetching_bytes_ + bytes > kFetchBytesMax;
  if (!fits || crowded || SteadyMs() < reads_off_until_ms_) return 0;
  Transfers::ReadJob job;
  job.ticket = ++tickets_;
  job.steps = found.steps;
  job.first_block = found.first_block;
  job.block_count = found.block_count;
  job.block_bytes = shape.block_bytes;
  job.state_bytes = shape.state_bytes;
  fetching_[job.ticket] = {found, bytes};
  fetching_bytes_ += bytes;
  NoteUsed(found.record);
  transfers_->Read(std::move(job));
  return tickets_;
}

void DiskStore::NoteUsed(RecordId record) {
  catalog_.Touch(record, WallMs());
  for (RecordId id = record; id.valid(); id = catalog_[id].parent) {
    transfers_->Touch(catalog_[id].name);
  }
}

DiskStore::News DiskStore::Poll() {
  News news;
  for (const Transfers::WriteDone& done : transfers_->TakeWrites()) {
    if (!storing_ || storing_->name != done.name) continue;
    const RecordId stored = EndStore(done.status);
    news.store_ended = true;
    if (stored.valid()) news.stored = stored;
  }
  for (Transfers::ReadDone& done : transfers_->TakeReads()) {
    const auto it = fetching_.find(done.ticket);
    CHECK(it != fetching_.end());
    const Fetching one = std::move(it->second);
    fetching_bytes_ -= one.bytes;
    fetching_.erase(it);
    if (done.status.ok()) {
      ++stats_.fetches;
      stats_.bytes_read += one.bytes;
      stats_.fetch_ns += static_cast<uint64_t>(done.ns);
    } else {
      ++stats_.fetches_failed;
      const bool lost = done.status.code() == StatusCode::kDataLoss ||
                        done.status.code() == StatusCode::kNotFound ||
                        done.status.code() == StatusCode::kFailedPrecondition;
      if (!lost) NoteFailure(done.status, &reads_off_until_ms_);
      for (RecordId id = one.found.record; lost && id.valid();) {
        if (!catalog_.Has(id)) break;  // it went meanwhile
        if (catalog_[id].name == done.failed) {
          DropDamaged(id);
          break;
        }
        id = catalog_[id].parent;
      }
    }
    news.fetched.push_back({done.ticket, std::move(done.status), one.found.first_block,
                            one.found.block_count, one.found.position, std::move(done.bytes),
                            done.ns});
  }
  news.gone = std::exchange(gone_, {});
  return news;
}

// A record that is not what it was goes, with all that cannot be used without it.
void DiskStore::DropDamaged(RecordId id) {
  ++stats_.damaged;
  Log(LogLevel::kWarning,
      "a record of state in " + options_.path + " is damaged or gone; it is not used, and removed");
  for (const RecordId below : catalog_.Below(id)) {
    if (catalog_[below].holds == 0 && catalog_[below].children == 0) DropRecord(below);
  }
}

void DiskStore::DropRecord(RecordId id) {
  transfers_->Remove(catalog_[id].name);
  catalog_.Remove(id);
  gone_.push_back(id);
}

void DiskStore::NoteFailure(const Status& status, int64_t* off_until_ms) {
  if (!stats_.failing) {
    Log(LogLevel::kWarning,
        fmt::format("the disk for state fails and is tried again later: {}", status.message()));
  }
  stats_.failing = true;
  *off_until_ms = SteadyMs() + options_.retry_ms;
}

// Lets the oldest go until so many more bytes fit.
bool DiskStore::MakeRoom(uint64_t bytes) {
  while (catalog_.bytes() + unreadable_bytes_ + bytes > options_.bytes_max) {
    if (!unreadable_.empty()) {
      transfers_->Remove(unreadable_.back().name);
      unreadable_bytes_ -= unreadable_.back().bytes;
      unreadable_.pop_back();
      continue;
    }
    const auto oldest = catalog_.OldestLeaf();
    if (!oldest) return false;
    DropRecord(*oldest);
    ++stats_.evicted;
  }
  return true;
}

// Takes the bytes out of what may be written a day. A full day's worth can be saved up.
bool DiskStore::MayWrite(uint64_t bytes) {
  if (options_.bytes_day_max == 0) return true;
  const auto day = static_cast<double>(options_.bytes_day_max);
  const int64_t now = SteadyMs();
  const double passed = static_cast<double>(std::max<int64_t>(0, now - day_at_ms_));
  day_left_ = std::min(day, day_left_ + day * passed / static_cast<double>(kDayMs));
  day_at_ms_ = now;
  if (static_cast<double>(bytes) > day_left_) return false;
  day_left_ -= static_cast<double>(bytes);
  return true;
}

bool DiskStore::MayStore() const { return !storing_ && SteadyMs() >= writes_off_until_ms_; }

std::optional<DiskStore::Draft> DiskStore::BeginStore(const PromptPath& path,
                                                      const StoreWish& wish) {
  const int32_t position = wish.position;
  const Shape& shape = wish.shape;
  CHECK(position > 0 && position <= path.size());
  if (!MayStore()) return std::nullopt;
  const auto place = catalog_.Find(path, position);
  if (place && place->position == position) return std::nullopt;
  RecordFacts facts;
  facts.space = path.grid(0);
  facts.model = wish.model;
  facts.reason = wish.reason;
  facts.begin = place ? place->position : 0;
  if (place) facts.parent = path.At(facts.begin);
  facts.end = position;
  facts.base = path.grid(position / kBlockTokens);
  facts.path = path.At(position);
  facts.block_bytes = shape.block_bytes;
  facts.state_bytes = shape.state_bytes;
  facts.created_ms = WallMs();
  if (shape.block_bytes > 0) {
    facts.first_block = static_cast<uint32_t>(facts.begin / kBlockTokens);
    if (facts.first_block < static_cast<uint32_t>(wish.first_block)) return std::nullopt;
    facts.block_count =
        static_cast<uint32_t>((position + kBlockTokens - 1) / kBlockTokens) - facts.first_block;
  }
  if (shape.state_bytes == 0) {
    for (int32_t block = facts.begin / kBlockTokens + 1; block <= (position - 1) / kBlockTokens;
         ++block) {
      facts.marks.push_back(path.grid(block));
    }
    if (facts.marks.size() > kMarksMax) return std::nullopt;
  }
  const RecordId parent = place ? place->record : RecordId();
  const uint64_t bytes = OnDisk(RecordBytes(facts));
  if (parent.valid()) catalog_.Hold(parent);
  if (bytes > options_.bytes_max || !MayWrite(bytes) || !MakeRoom(bytes)) {
    if (parent.valid()) catalog_.Release(parent);
    return std::nullopt;
  }
  Draft draft{facts, RecordLayout(facts)};
  storing_ = {StateFolder::RandomName(), facts, bytes, parent, draft.layout.parts().size()};
  transfers_->BeginWrite(storing_->name, std::move(facts));
  return draft;
}

bool DiskStore::HasRoom(size_t part_bytes) const {
  const size_t queued = transfers_->queued_bytes();
  return queued == 0 || queued + part_bytes <= kQueueBytes;
}

void DiskStore::AddPart(std::vector<std::byte> part) {
  CHECK(storing());
  --storing_->parts_left;
  transfers_->AddPart(std::move(part));
}

void DiskStore::AbortStore() {
  CHECK(storing());
  transfers_->AbortWrite();
  ++stats_.stores_aborted;
  if (storing_->parent.valid()) catalog_.Release(storing_->parent);
  storing_.reset();
}

RecordId DiskStore::EndStore(const Status& status) {
  const Storing done = std::move(*storing_);
  storing_.reset();
  if (done.parent.valid()) catalog_.Release(done.parent);
  if (!status.ok()) {
    ++stats_.stores_failed;
    NoteFailure(status, &writes_off_until_ms_);
    return RecordId();
  }
  stats_.failing = false;
  if (done.forget) {
    transfers_->Remove(done.name);
    return RecordId();
  }
  ++stats_.stores;
  stats_.bytes_written += done.bytes;
  const RecordId id = catalog_.Add(done.name, done.facts, done.bytes, WallMs());
  if (!id.valid()) transfers_->Remove(done.name);
  return id;
}

void DiskStore::Forget(const PathId* space) {
  std::vector<RecordId> doomed;
  catalog_.ForEach([&](RecordId id, const Catalog::Record& record) {
    if (space == nullptr || record.facts.space == *space) doomed.push_back(id);
  });
  const bool storing_it = storing_ && (space == nullptr || storing_->facts.space == *space);
  if (storing_it && storing()) {
    AbortStore();
  } else if (storing_it) {
    storing_->forget = true;
    if (storing_->parent.valid()) catalog_.Release(std::exchange(storing_->parent, RecordId()));
  }
  std::sort(doomed.begin(), doomed.end(), [this](RecordId a, RecordId b) {
    return catalog_[a].facts.begin > catalog_[b].facts.begin;  // what continues others goes first
  });
  for (const RecordId id : doomed) DropRecord(id);
}

DiskStats DiskStore::stats() const {
  DiskStats stats = stats_;
  stats.present = true;
  stats.bytes_max = options_.bytes_max;
  stats.bytes = catalog_.bytes() + unreadable_bytes_ + (storing_ ? storing_->bytes : 0);
  stats.records = catalog_.size();
  stats.bytes_queued = transfers_->queued_bytes();
  return stats;
}

}  // namespace reprise
