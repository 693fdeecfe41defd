// SPDX-License-Identifier: Apache-2.0
#include "tier/record_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ranges>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "tier/folder/folder_home.h"

namespace reprise {
namespace {

template <typename Clock>
int64_t MsOf() {
  const auto now = Clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// Whether one of them ends there, or has a mark there.
bool HasPlace(std::span<const RecordHome::Seen> seen, const PathId& place) {
  return std::any_of(seen.begin(), seen.end(), [&](const RecordHome::Seen& one) {
    const std::vector<PathId>& marks = one.facts.marks;
    return one.facts.path == place || std::find(marks.begin(), marks.end(), place) != marks.end();
  });
}

}  // namespace

Result<std::unique_ptr<RecordStore>> RecordStore::Open(const DiskOptions& options,
                                                       const StateKeys& keys) {
  REPRISE_ASSIGN(
      std::unique_ptr<FolderHome> home,
      FolderHome::Open({options.path, options.sync, options.fault, options.compress}, keys));
  return Open(std::move(home), options, keys);
}

Result<std::unique_ptr<RecordStore>> RecordStore::Open(std::unique_ptr<RecordHome> home,
                                                       const StoreLimits& limits,
                                                       const StateKeys& keys) {
  std::unique_ptr<RecordStore> tier(new RecordStore(std::move(home), limits, keys));
  REPRISE_TRY(tier->ReadHeads());
  tier->transfers_ = std::make_unique<Transfers>(
      *tier->home_, limits.reader_count, [raw = tier.get()] { raw->Notify(); }, limits.steady_ms);
  (void)tier->MakeRoom(0, nullptr);
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
  const int64_t today_ms = WallMs() - DayBudget::kDayMs;
  uint64_t today = 0;
  for (RecordHome::Listed& one : found) {
    if (!one.readable) {
      unreadable_bytes_ += one.bytes;
      unreadable_.push_back({std::move(one.name), one.bytes});
    } else if (one.facts.created_ms > today_ms) {
      today += one.bytes;
    }
  }
  listed_ = true;
  const uint64_t lately = home_->ReadDay().Now(WallMs(), limits_.bytes_day_max);
  day_.Begin(std::max(today, lately), SteadyMs());
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

uint64_t RecordStore::Look(std::span<const PathId> roots, std::span<const TokenId> tokens) {
  const bool may = home_->shared() && !reads_.open() && !tokens.empty() &&
                   std::none_of(roots.begin(), roots.end(),
                                [this](const PathId& root) { return resets_.Covers(root); });
  if (!may || !looking_.HasRoom()) return 0;
  looking_.Add(++tickets_, roots.size(), SteadyMs());
  ++stats_.looks;
  for (const PathId& root : roots) {
    transfers_->Look({tickets_, root, {tokens.begin(), tokens.end()}});
  }
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
  if (reads_.open()) return std::nullopt;
  std::optional<ReadPlan> plan = PlanRead(catalog_, place, first_block);
  if (!plan || quarantine_.empty()) return plan;
  for (const ReadPlan::Step& step : plan->steps) {
    if (quarantine_.Has(step.record, SteadyMs())) return std::nullopt;
  }
  return plan;
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
  if (!fits || !fetching_.HasRoom(bytes) || reads_.open()) return 0;
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
  Reads::Read read;
  read.found = found;
  if (!job.steps.empty()) read.record = job.steps.front().name;
  read.bytes = bytes;
  read.progress = job.progress;
  fetching_.Add(job.ticket, std::move(read), SteadyMs());
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
    if (!storing_ || storing_->name != done.name) {
      if (done.status.ok()) transfers_->Remove(done.name);  // it came after it was given up
      continue;
    }
    const RecordId stored = EndStore(done);
    news.store_ended = true;
    if (stored.valid()) news.stored = stored;
  }
  HearTries();
  if (home_->shared()) HearForgets();
  if (home_->shared()) HearLooks(&news);
  HearReads(&news);
  MindReads(&news);
  MindWrite(&news);
  news.more = !DropLost(kDropsPerPoll);
  news.gone = std::exchange(gone_, {});
  return news;
}

void RecordStore::HearTries() {
  const Transfers::TriesDone tries = transfers_->TakeTries();
  if (tries.reads) {
    reads_.Close();
    quarantine_.Works();
  }
  if (tries.writes) writes_.Close();
}

void RecordStore::HearForgets() {
  for (const Transfers::ForgetDone& done : transfers_->TakeForgets()) {
    if (done.status.ok()) {
      resets_.Succeed(done.space);
    } else if (resets_.Fail(done.space, SteadyMs())) {
      Log(LogLevel::kWarning, fmt::format("state in {} that was reset is not removed yet, and not "
                                          "used; it is tried again later: {}",
                                          home_->where(), done.status.message()));
    }
  }
  for (const PathId& space : resets_.TakeDue(SteadyMs())) transfers_->Forget(space);
}

// Who asked does not wait longer than it may, and is told then that nothing more is known. An
// answer that comes later is of use to others. Waiting for one's turn is no failure of the home.
void RecordStore::HearLooks(News* news) {
  for (Transfers::LookDone& done : transfers_->TakeLooks()) {
    const auto look = looking_.Answer(done.ticket);
    if (!look) continue;
    if (!done.status.ok()) {
      if (!look->given_up) ++stats_.looks_failed;
      FailReads(done.status, "");
    } else if (!resets_.Covers(done.path->grid(0))) {
      reads_.Succeed();
      Learn(*done.path, std::move(done.seen));
    }
    if (!look->given_up && look->left == 0) news->looked.push_back(done.ticket);
  }
  looking_.Mind(SteadyMs(), [&](uint64_t ticket) {
    ++stats_.looks_failed;
    news->looked.push_back(ticket);
  });
  // The home keeps to a time of its own; what takes several times as long hangs.
  if (!looking_.empty() && patience_.Hangs(transfers_->looks_since_ms(), SteadyMs(), 0)) {
    FailReads(Internal("it does not answer in time"), "");
  }
}

// What the home has along the path is in the catalog now, and what it has no more is not. Another
// server may have stored what was here already: then its record is used from now on, and what
// continues the old one continues it. A record that ends elsewhere is led to by its marks, and
// those may lead to another one by now that has the same: then nothing is known of it.
void RecordStore::Learn(const PromptPath& path, std::vector<RecordHome::Seen> seen) {
  std::unordered_map<PathId, RecordHome::Seen*> by_path;
  for (RecordHome::Seen& one : seen) by_path[one.facts.path] = &one;
  const auto place = catalog_.Find(path, path.size());
  std::vector<std::pair<RecordId, PathId>> chain;  // and the place by which it was come to
  PathId through = place ? path.At(place->position) : PathId();
  for (RecordId id = place ? place->record : RecordId(); id.valid(); id = catalog_[id].parent) {
    chain.push_back({id, through});
    through = catalog_[id].facts.parent;
  }
  for (const auto& [id, at_place] : std::views::reverse(chain)) {
    const auto at = by_path.find(catalog_[id].facts.path);
    if (at == by_path.end() && !HasPlace(seen, at_place)) {
      catalog_.Lose(id);
      break;
    }
    catalog_.See(id, SteadyMs());
    if (at == by_path.end()) continue;
    RecordHome::Seen& one = *at->second;
    if (one.name == catalog_[id].name) continue;
    (void)catalog_.Replace(id, one.name, one.facts, RecordBytes(one.facts));
  }
  std::sort(seen.begin(), seen.end(),
            [](const auto& a, const auto& b) { return a.facts.begin < b.facts.begin; });
  for (RecordHome::Seen& one : seen) {
    const uint64_t bytes = RecordBytes(one.facts);
    const RecordId id = catalog_.Add(std::move(one.name), std::move(one.facts), bytes, WallMs());
    if (id.valid()) catalog_.See(id, SteadyMs());
  }
  (void)DropLost(kDropsPerPoll);
  (void)MakeRoom(0, nullptr);
}

void RecordStore::HearReads(News* news) {
  for (Transfers::ReadDone& done : transfers_->TakeReads()) {
    EndRead(fetching_.End(done.ticket), done, news);
  }
}

void RecordStore::MindReads(News* news) {
  const Status late = Internal("it does not answer in time");
  fetching_.Mind(
      SteadyMs(), [&](const Reads::Read& stuck) { FailReads(late, stuck.record); },
      [&](uint64_t ticket, const Reads::Read& read) {
        ++stats_.fetches_failed;
        Answer(read, ticket, late, news);
      });
}

// Nobody waits for a write, but its state is held for it.
void RecordStore::MindWrite(News* news) {
  const uint64_t bytes = storing_ ? storing_->bytes : 0;
  if (!patience_.Hangs(transfers_->writes_since_ms(), SteadyMs(), bytes)) return;
  const Status late = Internal("a write does not end");
  FailWrites(late);
  if (!storing_) return;
  if (storing()) transfers_->AbortWrite();
  (void)EndStore({storing_->name, late, 0});
  news->store_ended = true;
}

void RecordStore::EndRead(const Reads::Read& one, Transfers::ReadDone& done, News* news) {
  if (!done.status.ok()) {
    NoteReadFault(one, done);
    if (one.given_up) return;
    ++stats_.fetches_failed;
    return Answer(one, done.ticket, std::move(done.status), news);
  }
  reads_.Succeed();
  quarantine_.Works();
  for (const ReadPlan::Step& step : one.found.steps) quarantine_.Release(step.record);
  if (one.given_up) return;
  ++stats_.fetches;
  stats_.bytes_read += one.bytes;
  stats_.fetch_ns += static_cast<uint64_t>(done.ns);
  Answer(one, done.ticket, OkStatus(), news);
  news->fetched.back().bytes = std::move(done.bytes);
  news->fetched.back().ns = done.ns;
}

void RecordStore::Answer(const Reads::Read& one, uint64_t ticket, Status status, News* news) {
  news->fetched.push_back({ticket, std::move(status), one.found.first_block, one.found.block_count,
                           one.found.position, Buffer(), 0});
}

// The record of that name, on the way up from another; invalid: it went meanwhile.
RecordId RecordStore::RecordNamed(RecordId from, const std::string& name) const {
  if (!catalog_.Has(from)) return RecordId();
  for (RecordId id = from; id.valid(); id = catalog_[id].parent) {
    if (catalog_[id].name == name) return id;
  }
  return RecordId();
}

// What is wrong with a record alone concerns that record alone. On a disk that is so even if the
// disk says that it fails, as long as others can be read.
void RecordStore::NoteReadFault(const Reads::Read& one, const Transfers::ReadDone& done) {
  const RecordId id = RecordNamed(one.found.record, done.failed);
  const StatusCode code = done.status.code();
  if (code == StatusCode::kCancelled || code == StatusCode::kResourceExhausted)
    return;  // no memory
  const bool lost = code == StatusCode::kDataLoss || code == StatusCode::kNotFound ||
                    code == StatusCode::kFailedPrecondition;
  if (lost && id.valid()) DropDamaged(id);
  if (lost) return;
  if (home_->shared()) return FailReads(done.status, done.failed);
  if (quarantine_.Fault(done.failed)) FailReads(done.status, done.failed);
  if (!id.valid()) return;
  if (!quarantine_.SetAside(id, SteadyMs()) && !reads_.open()) return DropDamaged(id);
  if (quarantine_.IsFirst(id)) {
    Log(LogLevel::kWarning, "a record of state is set aside for a while: " + done.status.message());
  }
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
  quarantine_.Release(id);
  gone_.push_back(id);
}

// What has failed is tried; of a disk others, too, as it may be that record alone.
void RecordStore::FailReads(const Status& why, const std::string& record) {
  if (!reads_.Fail(why)) return;
  std::vector<std::string> names = {record};
  for (const bool oldest : {true, false}) {
    const auto leaf = home_->shared() ? std::nullopt : catalog_.EndLeaf(oldest);
    if (leaf) names.push_back(catalog_[*leaf].name);
  }
  transfers_->TryReads(std::move(names), reads_.pause_ms());
}

// What was too much is what has to work again: up to a part of a record.
void RecordStore::FailWrites(const Status& why) {
  if (!writes_.Fail(why)) return;
  const uint64_t bytes = storing_ ? storing_->bytes : 0;
  transfers_->TryWrites(std::clamp<uint64_t>(bytes, 1, kPartBytes), writes_.pause_ms());
}

// Lets records go until so many more bytes of the namespace fit: the oldest of the namespaces that
// have more than their share.
bool RecordStore::MakeRoom(uint64_t bytes, const PathId* space) {
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
    const bool shared_out = space != nullptr && !home_->shared();
    const auto next =
        shared_out ? catalog_.NextToGo(*space, bytes, limits_.bytes_max) : catalog_.OldestLeaf();
    if (!next) return false;
    DropRecord(*next);
    ++stats_.evicted;
  }
  return true;
}

bool RecordStore::IsFresh(const PromptPath& path, int32_t limit) const {
  if (home_->keeps_ms() == 0) return true;
  const auto place = catalog_.Find(path, limit);
  const int64_t since_ms = SteadyMs() - home_->keeps_ms() / kFreshPart;
  for (RecordId id = place ? place->record : RecordId(); id.valid(); id = catalog_[id].parent) {
    if (catalog_[id].seen_ms < since_ms) return false;
  }
  return true;
}

// Once for a path: if the answer does not come, or says nothing, nothing is stored.
bool RecordStore::Confirms(const PromptPath& path, std::span<const TokenId> tokens) {
  const PathId end = path.At(path.size());
  if (confirming_ != 0 && looking_.IsWaitedFor(confirming_)) return true;
  if (std::exchange(confirming_, 0) != 0 && confirmed_ == end) return false;
  if (IsFresh(path, path.size()) || !looking_.HasRoom()) return false;
  confirming_ = Look(path.grid(0), tokens);
  confirmed_ = end;
  return confirming_ != 0;
}

bool RecordStore::MayStore() const { return !storing_ && !writes_.open(); }

std::optional<RecordStore::Draft> RecordStore::BeginStore(const PromptPath& path, StoreWish wish) {
  if (!MayStore() || resets_.Covers(path.grid(0))) return std::nullopt;
  if (!IsFresh(path, wish.position)) return std::nullopt;
  wish.now_ms = WallMs();
  wish.passed = wish.passed && !home_->shared();  // others may have continued it
  std::optional<RecordPlan> plan = PlanRecord(catalog_, path, wish);
  if (!plan) return std::nullopt;
  const uint64_t bytes = home_->Takes(RecordBytesMax(plan->facts));
  if (plan->parent.valid()) catalog_.Hold(plan->parent);
  const bool fits = home_->shared() || bytes <= limits_.bytes_max;
  const PathId space = path.grid(0);
  const bool may = fits && day_.Take(space, bytes, SteadyMs());
  if (!may || !MakeRoom(bytes, &space)) {
    if (may) day_.GiveBack(space, bytes);
    if (plan->parent.valid()) catalog_.Release(plan->parent);
    return std::nullopt;
  }
  Draft draft{plan->facts, RecordLayout(plan->facts)};
  storing_ = {
      home_->NameFor(plan->facts), plan->facts, bytes, plan->parent, std::move(plan->replaced),
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
  storing_->handed += part.bytes.size();
  transfers_->AddPart(std::move(part));
}

void RecordStore::AbortStore() {
  CHECK(storing());
  transfers_->AbortWrite();
  ++stats_.stores_aborted;
  day_.GiveBack(storing_->facts.space,
                storing_->bytes - std::min(storing_->bytes, storing_->handed));
  if (storing_->parent.valid()) catalog_.Release(storing_->parent);
  storing_.reset();
}

// Those that nobody has continued or reads meanwhile.
void RecordStore::DropReplaced(const std::vector<RecordId>& replaced) {
  for (const RecordId id : replaced) {
    if (!catalog_.Has(id) || catalog_[id].children > 0 || catalog_[id].holds > 0) return;
    DropRecord(id);
    ++stats_.replaced;
  }
}

RecordId RecordStore::EndStore(const Transfers::WriteDone& written) {
  if (!written.status.ok()) FailWrites(written.status);
  Storing done = std::move(*storing_);
  storing_.reset();
  if (done.parent.valid()) catalog_.Release(done.parent);
  if (!written.status.ok()) {
    ++stats_.stores_failed;
    day_.GiveBack(done.facts.space, done.bytes - std::min(done.bytes, done.handed));
    return RecordId();
  }
  writes_.Succeed();
  // What it was taken for is the most that it could be.
  const uint64_t bytes = home_->Takes(written.bytes);
  day_.GiveBack(done.facts.space, done.bytes - std::min(done.bytes, bytes));
  done.bytes = bytes;
  if (day_.bounded()) {
    transfers_->RememberDay({day_.Written(SteadyMs()), WallMs()});
  }
  if (done.forget) {
    transfers_->Remove(done.name);
    return RecordId();
  }
  ++stats_.stores;
  stats_.bytes_written += done.bytes;
  const RecordId id = catalog_.Add(done.name, done.facts, done.bytes, WallMs());
  if (!id.valid() && !home_->shared()) transfers_->Remove(done.name);
  if (id.valid()) catalog_.See(id, SteadyMs());
  if (id.valid()) DropReplaced(done.replaced);
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
  if (!home_->shared()) return;
  const PathId forgotten = space != nullptr ? *space : PathId();
  resets_.Begin(forgotten);
  transfers_->Forget(forgotten);
}

TierStats RecordStore::stats() const {
  TierStats stats = stats_;
  stats.kind = home_->kind();
  stats.failing = reads_.open() || writes_.open();
  stats.bytes_max = limits_.bytes_max;
  stats.bytes = catalog_.bytes() + unreadable_bytes_ + (storing_ ? storing_->bytes : 0);
  stats.records = catalog_.size();
  stats.bytes_queued = transfers_->queued_bytes();
  return stats;
}

}  // namespace reprise
