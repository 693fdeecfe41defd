// SPDX-License-Identifier: Apache-2.0
#include "tier/record_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <ranges>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "tier/folder/folder_home.h"

namespace reprise {
namespace {

constexpr int64_t kDayMs = 24 * 3600 * 1000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

template <typename Clock>
int64_t MsOf() {
  const auto now = Clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

Result<std::unique_ptr<RecordStore>> RecordStore::Open(const DiskOptions& options,
                                                       const StateKey& key) {
  REPRISE_ASSIGN(
      std::unique_ptr<FolderHome> home,
      FolderHome::Open({options.path, options.sync, options.fault, options.compress}, key));
  return Open(std::move(home), options, key);
}

Result<std::unique_ptr<RecordStore>> RecordStore::Open(std::unique_ptr<RecordHome> home,
                                                       const StoreLimits& limits,
                                                       const StateKey& key) {
  std::unique_ptr<RecordStore> tier(new RecordStore(std::move(home), limits, key));
  REPRISE_TRY(tier->ReadHeads());
  tier->transfers_ = std::make_unique<Transfers>(*tier->home_, limits.reader_count,
                                                 [raw = tier.get()] { raw->Notify(); });
  (void)tier->MakeRoom(0);
  return tier;
}

RecordStore::~RecordStore() {
  if (storing_ && storing_->parent.valid()) catalog_.Release(storing_->parent);
  while (transfers_ != nullptr && catalog_.NextLost()) (void)DropLost(kDropsPerPoll);
  transfers_.reset();
  if (home_->shared() || !listed_) return;
  std::vector<RecordHome::Listed> records;
  catalog_.ForEach([&](RecordId, const Catalog::Record& one) {
    records.push_back({one.name, one.bytes, one.used_ms, true, one.facts});
  });
  home_->Remember(records);
}

void RecordStore::SetNotify(std::function<void()> notify) {
  std::lock_guard lock(notify_mutex_);
  notify_ = std::move(notify);
}

void RecordStore::Notify() {
  std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

int64_t RecordStore::WallMs() const {
  const int64_t now = limits_.wall_ms ? limits_.wall_ms() : MsOf<std::chrono::system_clock>();
  return now_ms_ = std::max(now_ms_ + 1, now);
}

int64_t RecordStore::SteadyMs() const {
  return limits_.steady_ms ? limits_.steady_ms() : MsOf<std::chrono::steady_clock>();
}

// Fills the catalog. What cannot be used now takes room until others need it: it may be another
// model's, or its key may come back.
Status RecordStore::ReadHeads() {
  REPRISE_ASSIGN(std::vector<RecordHome::Listed> found, home_->List());
  const int64_t today_ms = WallMs() - kDayMs;
  day_left_ = static_cast<double>(limits_.bytes_day_max);
  for (RecordHome::Listed& one : found) {
    if (!one.readable) {
      unreadable_bytes_ += one.bytes;
      unreadable_.push_back({std::move(one.name), one.bytes});
    } else if (one.facts.created_ms > today_ms) {
      day_left_ -= static_cast<double>(one.bytes);
    }
  }
  listed_ = true;
  day_at_ms_ = SteadyMs();
  stats_.unreadable = unreadable_.size();
  std::erase_if(found, [](const RecordHome::Listed& one) { return !one.readable; });
  // Those that others continue come first.
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.facts.begin < b.facts.begin; });
  for (RecordHome::Listed& one : found) {
    now_ms_ = std::max(now_ms_, std::min(one.used_ms, WallMs()));
    if (!catalog_.Add(one.name, std::move(one.facts), one.bytes, one.used_ms).valid()) {
      home_->Remove(one.name);  // its beginning is gone, or it is there twice
    }
  }
  return OkStatus();
}

// When a transfer of so many bytes has taken too long.
int64_t RecordStore::UntilMs(size_t bytes) const {
  if (limits_.timeout_ms == 0) return kNever;
  const auto more = static_cast<int64_t>(bytes / kTimeoutBytes);
  return SteadyMs() + limits_.timeout_ms / 2 + limits_.timeout_ms * more;
}

uint64_t RecordStore::Look(const PathId& root, std::span<const TokenId> tokens) {
  const bool may = home_->shared() && SteadyMs() >= reads_off_until_ms_ && !tokens.empty();
  if (!may || looking_.size() >= kLooksMax) return 0;
  Looking& look = looking_[++tickets_];
  look = {root, {tokens.begin(), tokens.end()}, UntilMs(0)};
  ++stats_.looks;
  transfers_->Look({tickets_, root, look.tokens, 0});
  return tickets_;
}

std::optional<Catalog::Place> RecordStore::Deepest(const PromptPath& path, int32_t limit) const {
  return catalog_.Find(path, limit);
}

std::optional<ReadPlan> RecordStore::Find(const PromptPath& path, int32_t have,
                                          int32_t limit) const {
  const auto place = catalog_.Find(path, limit);
  if (!place || place->position <= have) return std::nullopt;
  return Plan(*place, static_cast<uint32_t>(have / kBlockTokens));
}

std::optional<ReadPlan> RecordStore::Plan(const Catalog::Place& place, uint32_t first_block) const {
  if (SteadyMs() < reads_off_until_ms_) return std::nullopt;
  return PlanRead(catalog_, place, first_block);
}

bool RecordStore::Holds(const PromptPath& path, int32_t position) const {
  const auto place = catalog_.Find(path, position);
  return place && place->position == position;
}

uint64_t RecordStore::Fetch(const ReadPlan& found, const StateShape& shape) {
  const size_t bytes = found.block_count * shape.block_bytes + shape.state_bytes;
  const RecordFacts& facts = catalog_[found.record].facts;
  const bool fits = (found.block_count == 0 || facts.block_bytes == shape.block_bytes) &&
                    facts.state_bytes == shape.state_bytes;
  const bool crowded = !fetching_.empty() && fetching_bytes_ + bytes > kFetchBytesMax;
  if (!fits || crowded || SteadyMs() < reads_off_until_ms_) return 0;
  Transfers::ReadJob job;
  job.ticket = ++tickets_;
  for (const ReadPlan::Step& step : found.steps) {
    const Catalog::Record& record = catalog_[step.record];
    job.steps.push_back(
        {record.name, record.facts.path, step.first_block, step.block_count, step.state});
  }
  job.first_block = found.first_block;
  job.block_count = found.block_count;
  job.block_bytes = shape.block_bytes;
  job.state_bytes = shape.state_bytes;
  fetching_[job.ticket] = {found, bytes, UntilMs(bytes)};
  fetching_bytes_ += bytes;
  NoteUsed(found.record);
  transfers_->Read(std::move(job));
  return tickets_;
}

void RecordStore::NoteUsed(RecordId record) {
  catalog_.Touch(record, WallMs());
  for (RecordId id = record; id.valid(); id = catalog_[id].parent) {
    transfers_->Touch(catalog_[id].name);
  }
}

RecordStore::News RecordStore::Poll() {
  News news;
  for (const Transfers::WriteDone& done : transfers_->TakeWrites()) {
    if (!storing_ || storing_->name != done.name) continue;
    const RecordId stored = EndStore(done);
    news.store_ended = true;
    if (stored.valid()) news.stored = stored;
  }
  if (home_->shared()) HearLooks(&news);
  HearReads(&news);
  news.more = !DropLost(kDropsPerPoll);
  news.gone = std::exchange(gone_, {});
  return news;
}

// An answer that comes too late is none: the caller has gone on without it.
void RecordStore::HearLooks(News* news) {
  for (Transfers::LookDone& done : transfers_->TakeLooks()) {
    if (done.ticket == probe_) {
      Log(LogLevel::kInfo, fmt::format("{} for state works again", home_->where()));
      reads_off_until_ms_ = writes_off_until_ms_ = 0;
      stats_.failing = false;
      probe_ = 0;
      continue;
    }
    const auto look = looking_.find(done.ticket);
    if (look == looking_.end()) continue;
    if (done.status.ok()) {
      Learn(look->second, std::move(done.seen));
    } else {
      ++stats_.looks_failed;
      NoteFailure(done.status, &reads_off_until_ms_);
    }
    news->looked.push_back(done.ticket);
    looking_.erase(look);
  }
  if (looking_.empty() || limits_.timeout_ms == 0) return;
  const int64_t now = SteadyMs();
  for (auto look = looking_.begin(); look != looking_.end();) {
    if (now < look->second.until_ms) {
      ++look;
      continue;
    }
    ++stats_.looks_failed;
    NoteFailure(Internal("it does not answer in time"), &reads_off_until_ms_);
    news->looked.push_back(look->first);
    look = looking_.erase(look);
  }
}

// What the home has along the path is in the catalog now, and what it has no more is not. Another
// server may have stored what was here already: then its record is used from now on, and what
// continues the old one continues it.
void RecordStore::Learn(const Looking& look, std::vector<RecordHome::Seen> seen) {
  std::unordered_map<PathId, RecordHome::Seen*> by_path;
  for (RecordHome::Seen& one : seen) by_path[one.facts.path] = &one;
  const PromptPath path(look.root, look.tokens);
  const auto place = catalog_.Find(path, path.size());
  std::vector<RecordId> chain;
  for (RecordId id = place ? place->record : RecordId(); id.valid(); id = catalog_[id].parent) {
    chain.push_back(id);
  }
  for (const RecordId id : std::views::reverse(chain)) {
    const auto at = by_path.find(catalog_[id].facts.path);
    if (at == by_path.end()) {
      catalog_.Lose(id);
      break;
    }
    RecordHome::Seen& one = *at->second;
    if (one.name == catalog_[id].name) continue;
    (void)catalog_.Replace(id, one.name, one.facts, RecordBytes(one.facts));
  }
  std::sort(seen.begin(), seen.end(),
            [](const auto& a, const auto& b) { return a.facts.begin < b.facts.begin; });
  for (RecordHome::Seen& one : seen) {
    const uint64_t bytes = RecordBytes(one.facts);
    (void)catalog_.Add(std::move(one.name), std::move(one.facts), bytes, WallMs());
  }
  (void)DropLost(kDropsPerPoll);
  (void)MakeRoom(0);
}

void RecordStore::HearReads(News* news) {
  for (Transfers::ReadDone& done : transfers_->TakeReads()) {
    const auto it = fetching_.find(done.ticket);
    if (it == fetching_.end()) continue;  // it took too long
    const Fetching one = std::move(it->second);
    fetching_.erase(it);
    EndRead(one, done, news);
  }
  if (fetching_.empty() || limits_.timeout_ms == 0) return;
  const int64_t now = SteadyMs();
  for (auto it = fetching_.begin(); it != fetching_.end();) {
    if (now < it->second.until_ms) {
      ++it;
      continue;
    }
    Transfers::ReadDone late;
    late.ticket = it->first;
    late.status = Internal("it does not answer in time");
    const Fetching one = std::move(it->second);
    it = fetching_.erase(it);
    EndRead(one, late, news);
  }
}

void RecordStore::EndRead(const Fetching& one, Transfers::ReadDone& done, News* news) {
  fetching_bytes_ -= one.bytes;
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
  news->fetched.push_back({done.ticket, std::move(done.status), one.found.first_block,
                           one.found.block_count, one.found.position, std::move(done.bytes),
                           done.ns});
}

// A record that is not what it was goes, with all that cannot be used without it.
void RecordStore::DropDamaged(RecordId id) {
  ++stats_.damaged;
  Log(LogLevel::kWarning, "a record of state in " + home_->where() +
                              " is damaged or gone; it is not used, and removed");
  if (home_->shared()) transfers_->Remove(catalog_[id].name);
  catalog_.Lose(id);
  (void)DropLost(kDropsPerPoll);
}

// So many of those that are lost, at most. False: there are more.
bool RecordStore::DropLost(size_t count) {
  for (; count > 0; --count) {
    const auto id = catalog_.NextLost();
    if (!id) break;
    DropRecord(*id);
  }
  return !catalog_.losing();
}

// What a shared home has is only forgotten.
void RecordStore::DropRecord(RecordId id) {
  if (!home_->shared()) transfers_->Remove(catalog_[id].name);
  catalog_.Remove(id);
  gone_.push_back(id);
}

void RecordStore::NoteFailure(const Status& status, int64_t* off_until_ms) {
  if (!stats_.failing) {
    Log(LogLevel::kWarning, fmt::format("the {} for state ({}) fails and is tried again later: {}",
                                        home_->kind(), home_->where(), status.message()));
  }
  stats_.failing = true;
  if (!home_->shared()) {
    *off_until_ms = SteadyMs() + limits_.retry_ms;
    return;
  }
  // All of it is left alone until a thread has found that it works.
  reads_off_until_ms_ = writes_off_until_ms_ = kNever;
  if (probe_ != 0) return;
  probe_ = ++tickets_;
  transfers_->Look({probe_, {}, {}, std::max<int64_t>(1, limits_.retry_ms)});
}

// Lets the oldest go until so many more bytes fit.
bool RecordStore::MakeRoom(uint64_t bytes) {
  const auto over = [&] {
    if (home_->shared()) return catalog_.size() > limits_.records_max;
    return catalog_.bytes() + unreadable_bytes_ + bytes > limits_.bytes_max;
  };
  while (over()) {
    if (!unreadable_.empty()) {
      transfers_->Remove(unreadable_.back().name);
      unreadable_bytes_ -= unreadable_.back().bytes;
      unreadable_.pop_back();
      continue;
    }
    if (const auto lost = catalog_.NextLost()) {
      DropRecord(*lost);
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
bool RecordStore::MayWrite(uint64_t bytes) {
  if (limits_.bytes_day_max == 0) return true;
  const auto day = static_cast<double>(limits_.bytes_day_max);
  const int64_t now = SteadyMs();
  const double passed = static_cast<double>(std::max<int64_t>(0, now - day_at_ms_));
  day_left_ = std::min(day, day_left_ + day * passed / static_cast<double>(kDayMs));
  day_at_ms_ = now;
  if (static_cast<double>(bytes) > day_left_) return false;
  day_left_ -= static_cast<double>(bytes);
  return true;
}

bool RecordStore::MayStore() const { return !storing_ && SteadyMs() >= writes_off_until_ms_; }

std::optional<RecordStore::Draft> RecordStore::BeginStore(const PromptPath& path, StoreWish wish) {
  if (!MayStore()) return std::nullopt;
  wish.now_ms = WallMs();
  std::optional<RecordPlan> plan = PlanRecord(catalog_, path, wish);
  if (!plan) return std::nullopt;
  const uint64_t bytes = home_->Takes(RecordBytesMax(plan->facts));
  if (plan->parent.valid()) catalog_.Hold(plan->parent);
  const bool fits = home_->shared() || bytes <= limits_.bytes_max;
  if (!fits || !MayWrite(bytes) || !MakeRoom(bytes)) {
    if (plan->parent.valid()) catalog_.Release(plan->parent);
    return std::nullopt;
  }
  Draft draft{plan->facts, RecordLayout(plan->facts)};
  storing_ = {home_->NameFor(plan->facts), plan->facts, bytes, plan->parent,
              draft.layout.parts().size()};
  transfers_->BeginWrite(storing_->name, std::move(plan->facts));
  return draft;
}

bool RecordStore::HasRoom(size_t part_bytes) const {
  const size_t queued = transfers_->queued_bytes();
  return queued == 0 || queued + part_bytes <= kQueueBytes;
}

void RecordStore::AddPart(PartBytes part) {
  CHECK(storing());
  --storing_->parts_left;
  transfers_->AddPart(std::move(part));
}

void RecordStore::AbortStore() {
  CHECK(storing());
  transfers_->AbortWrite();
  ++stats_.stores_aborted;
  if (storing_->parent.valid()) catalog_.Release(storing_->parent);
  storing_.reset();
}

RecordId RecordStore::EndStore(const Transfers::WriteDone& written) {
  Storing done = std::move(*storing_);
  storing_.reset();
  if (done.parent.valid()) catalog_.Release(done.parent);
  if (!written.status.ok()) {
    ++stats_.stores_failed;
    NoteFailure(written.status, &writes_off_until_ms_);
    return RecordId();
  }
  // What it was taken for is the most that it could be.
  const uint64_t bytes = home_->Takes(written.bytes);
  day_left_ += static_cast<double>(done.bytes) - static_cast<double>(bytes);
  done.bytes = bytes;
  if (!home_->shared()) stats_.failing = false;
  if (done.forget) {
    transfers_->Remove(done.name);
    return RecordId();
  }
  ++stats_.stores;
  stats_.bytes_written += done.bytes;
  const RecordId id = catalog_.Add(done.name, done.facts, done.bytes, WallMs());
  if (!id.valid() && !home_->shared()) transfers_->Remove(done.name);
  return id;
}

// Nothing of it is found from now on; the records go one by one.
void RecordStore::Forget(const PathId* space) {
  const bool storing_it = storing_ && (space == nullptr || storing_->facts.space == *space);
  if (storing_it && storing()) {
    AbortStore();
  } else if (storing_it) {
    storing_->forget = true;
    if (storing_->parent.valid()) catalog_.Release(std::exchange(storing_->parent, RecordId()));
  }
  space != nullptr ? catalog_.LoseSpace(*space) : catalog_.LoseAll();
  (void)DropLost(kDropsPerPoll);
  if (home_->shared()) transfers_->Forget(space != nullptr ? *space : PathId());
}

TierStats RecordStore::stats() const {
  TierStats stats = stats_;
  stats.kind = home_->kind();
  stats.bytes_max = limits_.bytes_max;
  stats.bytes = catalog_.bytes() + unreadable_bytes_ + (storing_ ? storing_->bytes : 0);
  stats.records = catalog_.size();
  stats.bytes_queued = transfers_->queued_bytes();
  return stats;
}

}  // namespace reprise
