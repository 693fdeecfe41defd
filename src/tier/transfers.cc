// SPDX-License-Identifier: Apache-2.0
#include "tier/transfers.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

// Processor time of this thread.
int64_t ThreadNs() {
  timespec time = {};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t SteadyMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// Pauses between tries double up to so many times the first, or up to a minute.
constexpr int64_t kTryPauseGrows = 32, kTryPauseMaxMs = 60'000;
constexpr size_t kLooksAtOnce = 64;
constexpr size_t kLookTokensAtOnce = size_t{1} << 18;  // of those behind the first
int64_t PauseMax(int64_t first_ms) {
  const int64_t grown = std::min(kTryPauseMaxMs, kTryPauseGrows * std::max<int64_t>(1, first_ms));
  return std::max(first_ms, grown);
}

// That wait to be written: when a record was used is not worth more.
constexpr size_t kTouchesMax = 10'000;

}  // namespace

Transfers::Transfers(RecordHome& home, int reader_count, std::function<void()> notify,
                     std::function<int64_t()> now_ms)
    : home_(home), notify_(std::move(notify)), now_ms_(now_ms ? std::move(now_ms) : SteadyMs) {
  threads_.emplace_back([this] { WriteLoop(); });
  if (home.shared()) threads_.emplace_back([this] { LookLoop(); });
  for (int i = 0; i < reader_count; ++i) threads_.emplace_back([this] { ReadLoop(); });
}

Transfers::~Transfers() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  write_work_.notify_all();
  read_work_.notify_all();
  look_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Transfers::Push(WriteOp op) {
  {
    std::lock_guard lock(mutex_);
    queued_bytes_ += op.part.bytes.size();
    writes_.push_back(std::move(op));
  }
  write_work_.notify_one();
}

void Transfers::BeginWrite(std::string name, RecordFacts facts) {
  Push({.verb = WriteOp::Verb::kBegin, .name = std::move(name), .facts = std::move(facts)});
}
void Transfers::AddPart(PartBytes part) {
  Push({.verb = WriteOp::Verb::kPart, .part = std::move(part)});
}
void Transfers::AbortWrite() { Push({.verb = WriteOp::Verb::kAbort}); }
void Transfers::Remove(std::string name) {
  Push({.verb = WriteOp::Verb::kRemove, .name = std::move(name)});
}
void Transfers::Touch(std::string name) {
  {
    std::lock_guard lock(mutex_);
    if (writes_.size() >= kTouchesMax) return;
  }
  Push({.verb = WriteOp::Verb::kTouch, .name = std::move(name)});
}

void Transfers::RememberDay(const WrittenDay& day) {
  Push({.verb = WriteOp::Verb::kDay, .day = day});
}

void Transfers::Forget(const PathId& space) {
  Push({.verb = WriteOp::Verb::kForget, .space = space});
}

void Transfers::Look(LookJob job) {
  {
    std::lock_guard lock(mutex_);
    looks_.push_back(std::move(job));
  }
  look_work_.notify_one();
}

void Transfers::Read(ReadJob job) {
  {
    std::lock_guard lock(mutex_);
    reads_.push_back(std::move(job));
  }
  read_work_.notify_one();
}

void Transfers::Ask(Try* one, int64_t pause_ms) {
  one->wanted = true;
  one->pause_ms = pause_ms;
  one->due = std::chrono::steady_clock::now() + std::chrono::milliseconds(pause_ms);
}

void Transfers::TryReads(std::vector<std::string> names, int64_t pause_ms) {
  {
    std::lock_guard lock(mutex_);
    read_try_.names = std::move(names);
    read_try_.pause_max_ms = PauseMax(pause_ms);
    Ask(&read_try_, pause_ms);
  }
  read_work_.notify_all();
}

void Transfers::TryWrites(size_t bytes, int64_t pause_ms) {
  {
    std::lock_guard lock(mutex_);
    write_try_.bytes = bytes;
    write_try_.pause_max_ms = PauseMax(pause_ms);
    Ask(&write_try_, pause_ms);
  }
  write_work_.notify_all();
}

// REQUIRES: it is due.
void Transfers::RunTry(Try* one, bool* done, std::unique_lock<std::mutex>* lock) {
  one->running = true;
  const std::vector<std::string> names = one->names;
  const size_t bytes = one->bytes;
  lock->unlock();
  Status status;
  if (one == &write_try_) status = home_.TryWrite(bytes);
  for (const std::string& name : names) {
    status = home_.TryRead(name);
    if (status.ok()) break;
  }
  lock->lock();
  one->running = false;
  if (!status.ok()) {
    Ask(one, std::min(one->pause_max_ms, std::max<int64_t>(1, one->pause_ms * 2)));
    return read_work_.notify_all();  // others wait longer than that
  }
  one->wanted = false;
  *done = true;
  lock->unlock();
  notify_();
  lock->lock();
}

// Until there is work, or a try is due.
template <typename Ready>
void Transfers::Wait(std::condition_variable* work, std::unique_lock<std::mutex>* lock,
                     const Try& also, const Ready& ready) {
  const auto any = [&] { return ready() || also.IsDue(); };
  while (!any()) {
    if (also.wanted && !also.running) {
      work->wait_until(*lock, also.due);
    } else {
      work->wait(*lock);
    }
  }
}

size_t Transfers::queued_bytes() const {
  std::lock_guard lock(mutex_);
  return queued_bytes_;
}

std::vector<Transfers::ReadDone> Transfers::TakeReads() {
  std::lock_guard lock(mutex_);
  return std::exchange(reads_done_, {});
}

std::vector<Transfers::WriteDone> Transfers::TakeWrites() {
  std::lock_guard lock(mutex_);
  return std::exchange(writes_done_, {});
}

std::vector<Transfers::LookDone> Transfers::TakeLooks() {
  std::lock_guard lock(mutex_);
  return std::exchange(looks_done_, {});
}

std::vector<Transfers::ForgetDone> Transfers::TakeForgets() {
  std::lock_guard lock(mutex_);
  return std::exchange(forgets_done_, {});
}

Transfers::TriesDone Transfers::TakeTries() {
  std::lock_guard lock(mutex_);
  return std::exchange(tries_done_, {});
}

// Nobody waits for what is written, but somebody does for what is computed: where both want a core,
// the writer gets about a quarter of it, which is enough for a disk.
void Transfers::StepBack() {
#ifdef __linux__
  constexpr int kNice = 5;
  (void)::setpriority(PRIO_PROCESS, 0, kNice);  // of this thread alone
#endif
}

// At the end only removals are still carried out: the folder keeps its bound.
void Transfers::WriteLoop() {
  StepBack();
  std::optional<Writing> writing;
  std::unique_lock lock(mutex_);
  for (;;) {
    Wait(&write_work_, &lock, write_try_, [this] { return stop_ || !writes_.empty(); });
    if (stop_ && writes_.empty()) return;
    if (writes_.empty()) {
      writes_since_ms_ = now_ms_();
      RunTry(&write_try_, &tries_done_.writes, &lock);
      writes_since_ms_ = 0;
      continue;
    }
    WriteOp op = std::move(writes_.front());
    writes_.pop_front();
    // What is small and would be missed is done at the end, too: removals, and the day's account.
    const bool missed = op.verb == WriteOp::Verb::kRemove || op.verb == WriteOp::Verb::kForget ||
                        op.verb == WriteOp::Verb::kDay;
    const bool skip = stop_ && !missed;
    lock.unlock();
    writes_since_ms_ = now_ms_();
    if (!skip) Carry(op, &writing);
    writes_since_ms_ = 0;
    const size_t bytes = op.part.bytes.size();
    op.part = {};
    writer_ns_ = ThreadNs();
    lock.lock();
    queued_bytes_ -= bytes;
  }
}

void Transfers::FinishWrite(std::optional<Writing>* writing, Status status) {
  {
    std::lock_guard lock(mutex_);
    const uint64_t bytes = status.ok() ? (*writing)->draft->bytes() : 0;
    writes_done_.push_back({(*writing)->name, std::move(status), bytes});
  }
  (*writing)->draft.reset();
  notify_();
}

void Transfers::Carry(WriteOp& op, std::optional<Writing>* writing) {
  switch (op.verb) {
    case WriteOp::Verb::kBegin: {
      auto draft = home_.Create(op.name, op.facts);
      const size_t parts = RecordLayout(op.facts).parts().size();
      writing->emplace(Writing{std::move(op.name), nullptr, parts});
      if (!draft.ok()) return FinishWrite(writing, draft.status());
      (*writing)->draft = std::move(*draft);
      return;
    }
    case WriteOp::Verb::kPart: {
      if (!writing->has_value() || !(*writing)->draft) return;  // it failed before
      Status status = (*writing)->draft->Append(op.part.bytes);
      if (status.ok() && --(*writing)->parts_left > 0) return notify_();  // there is room
      if (status.ok()) status = (*writing)->draft->Commit();
      return FinishWrite(writing, std::move(status));
    }
    case WriteOp::Verb::kAbort:
      writing->reset();
      return;
    case WriteOp::Verb::kRemove:
      home_.Remove(op.name);
      return;
    case WriteOp::Verb::kTouch:
      home_.Touch(op.name);
      return;
    case WriteOp::Verb::kDay:
      home_.RememberDay(op.day);
      return;
    case WriteOp::Verb::kForget:
      return ForgetSome(op);
  }
}

// What is left of it comes behind the other writes that wait.
void Transfers::ForgetSome(WriteOp& op) {
  Status status = home_.Forget(op.space, &op.cursor);
  {
    std::lock_guard lock(mutex_);
    if (status.ok() && !op.cursor.empty()) return writes_.push_back(std::move(op));
    forgets_done_.push_back({op.space, std::move(status)});
  }
  notify_();
}

// All that wait are asked at once: a burst takes about as long as one question does.
void Transfers::LookLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    look_work_.wait(lock, [this] { return stop_ || !looks_.empty(); });
    if (stop_) return;
    std::vector<LookJob> jobs;
    size_t tokens = 0;
    while (!looks_.empty() && jobs.size() < kLooksAtOnce) {
      tokens += looks_.front().tokens.size();
      if (!jobs.empty() && tokens > kLookTokensAtOnce) break;
      jobs.push_back(std::move(looks_.front()));
      looks_.pop_front();
    }
    Carry(std::move(jobs), &lock);
  }
}

void Transfers::Carry(std::vector<LookJob> jobs, std::unique_lock<std::mutex>* lock) {
  lock->unlock();
  looks_since_ms_ = now_ms_();
  std::vector<LookDone> done(jobs.size());
  std::vector<const PromptPath*> paths;
  for (size_t i = 0; i < jobs.size(); ++i) {
    done[i].ticket = jobs[i].ticket;
    done[i].tokens = std::move(jobs[i].tokens);
    paths.push_back(&done[i].path.emplace(jobs[i].root, done[i].tokens));
  }
  auto seen = home_.Look(paths);
  for (size_t i = 0; i < jobs.size(); ++i) {
    done[i].status = seen.status();
    if (seen.ok()) done[i].seen = std::move((*seen)[i]);
  }
  looks_since_ms_ = 0;
  lock->lock();
  for (LookDone& one : done) looks_done_.push_back(std::move(one));
  lock->unlock();
  notify_();
  lock->lock();
}

Transfers::Split* Transfers::FindSplit() {
  const auto at = std::find_if(splits_.begin(), splits_.end(),
                               [](const Split* split) { return split->HasPiece(); });
  return at == splits_.end() ? nullptr : *at;
}

void Transfers::ReadLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Wait(&read_work_, &lock, read_try_,
         [this] { return stop_ || !reads_.empty() || FindSplit() != nullptr; });
    if (stop_) return;
    if (read_try_.IsDue()) {
      RunTry(&read_try_, &tries_done_.reads, &lock);
      continue;
    }
    // Who waits for a record of his own comes before pieces of another's.
    if (reads_.empty()) {
      Help(FindSplit(), nullptr, &lock);
      continue;
    }
    const ReadJob job = std::move(reads_.front());
    reads_.pop_front();
    lock.unlock();
    ReadDone done = Carry(job);
    lock.lock();
    reads_done_.push_back(std::move(done));
    lock.unlock();
    notify_();
    lock.lock();
  }
}

Transfers::ReadDone Transfers::Carry(const ReadJob& job) {
  const auto begin = std::chrono::steady_clock::now();
  job.progress->begun = true;
  ReadDone done;
  done.ticket = job.ticket;
  auto buffer = Buffer::Allocate(job.bytes());
  done.status = buffer.status();
  if (buffer.ok()) {
    done.bytes = std::move(*buffer);
    for (const ReadStep& step : job.steps) {
      done.status = ReadStepOf(job, step, done.bytes.bytes());
      if (done.status.ok()) continue;
      done.failed = step.name;
      break;
    }
  }
  if (!done.status.ok()) done.bytes = Buffer();
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  done.ns = std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
  return done;
}

namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;  // that one reader takes at a time

bool Fits(const RecordFacts& facts, const Transfers::ReadJob& job,
          const Transfers::ReadStep& step) {
  if (facts.path != step.path) return false;
  if (step.state && facts.state_bytes != job.state_bytes) return false;
  if (step.block_count == 0) return true;
  return facts.block_bytes == job.block_bytes && step.first_block >= facts.first_block &&
         step.first_block + step.block_count <= facts.first_block + facts.block_count;
}

// The parts that the step needs, in pieces of about kPieceBytes.
std::vector<std::vector<size_t>> PiecesOf(const RecordLayout& layout,
                                          const Transfers::ReadStep& step) {
  const uint32_t end = step.first_block + step.block_count;
  std::vector<std::vector<size_t>> pieces;
  size_t bytes = kPieceBytes;
  for (size_t i = 0; i < layout.parts().size(); ++i) {
    const RecordLayout::Part& part = layout.parts()[i];
    const bool wanted =
        part.block_count == 0
            ? step.state
            : part.first_block < end && part.first_block + part.block_count > step.first_block;
    if (!wanted) continue;
    if (bytes >= kPieceBytes) {
      pieces.emplace_back();
      bytes = 0;
    }
    pieces.back().push_back(i);
    bytes += part.bytes;
  }
  return pieces;
}

// Parts into their places in `out`, each checked.
Status ReadParts(RecordSource& source, const Transfers::ReadJob& job,
                 const Transfers::ReadStep& step, std::span<const size_t> indexes,
                 std::span<std::byte> out) {
  const uint32_t end = step.first_block + step.block_count;
  const RecordLayout& layout = source.layout();
  source.Want(indexes);
  std::vector<std::byte> scratch;
  for (const size_t i : indexes) {
    const RecordLayout::Part& part = layout.parts()[i];
    if (part.block_count == 0) {
      const size_t at = job.block_count * job.block_bytes + part.state_offset;
      REPRISE_TRY(source.ReadPart(i, out.subspan(at, part.bytes)));
      ++job.progress->parts;
      continue;
    }
    const uint32_t from = std::max(part.first_block, step.first_block);
    const uint32_t upto = std::min(part.first_block + part.block_count, end);
    const auto to =
        out.subspan((from - job.first_block) * job.block_bytes, (upto - from) * job.block_bytes);
    if (to.size() == part.bytes) {
      REPRISE_TRY(source.ReadPart(i, to));
      ++job.progress->parts;
      continue;
    }
    scratch.resize(part.bytes);
    REPRISE_TRY(source.ReadPart(i, scratch));
    ++job.progress->parts;
    std::memcpy(to.data(), scratch.data() + (from - part.first_block) * job.block_bytes, to.size());
  }
  return OkStatus();
}

}  // namespace

// One piece of a split. A source that is there already is used for it. REQUIRES: HasPiece().
void Transfers::Help(Split* split, std::unique_ptr<RecordSource> source,
                     std::unique_lock<std::mutex>* lock) {
  const std::vector<size_t>& piece = split->pieces[split->next++];
  ++split->running;
  lock->unlock();
  Status status;
  if (source == nullptr) {
    auto opened = home_.Open(split->step->name);
    status = opened.status();
    if (opened.ok()) source = std::move(*opened);
    // Another one may lie there by now.
    if (opened.ok() && !Fits(source->facts(), *split->job, *split->step)) {
      status = DataLoss("the record is not the one that lay there");
    }
  }
  if (status.ok()) status = ReadParts(*source, *split->job, *split->step, piece, split->out);
  source.reset();
  lock->lock();
  if (!status.ok() && split->status.ok()) split->status = std::move(status);
  if (--split->running == 0) pieces_done_.notify_all();
}

Status Transfers::ReadStepOf(const ReadJob& job, const ReadStep& step, std::span<std::byte> out) {
  REPRISE_ASSIGN(std::unique_ptr<RecordSource> source, home_.Open(step.name));
  if (!Fits(source->facts(), job, step)) {
    return DataLoss("the record is not the one that lay there");
  }
  Split split;
  split.job = &job;
  split.step = &step;
  split.out = out;
  split.pieces = PiecesOf(source->layout(), step);
  std::unique_lock lock(mutex_);
  splits_.push_back(&split);
  if (split.pieces.size() > 1) read_work_.notify_all();
  while (split.HasPiece() && !stop_) Help(&split, std::exchange(source, nullptr), &lock);
  std::erase(splits_, &split);
  pieces_done_.wait(lock, [&] { return split.running == 0; });
  if (stop_ && split.HasPiece()) return Cancelled("this process ends");
  return split.status;
}

}  // namespace reprise
