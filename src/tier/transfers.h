// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/buffer.h"
#include "tier/home.h"
#include "tier/record.h"

namespace reprise {

// The bytes of a part, and who has lent them: given back when they are written. May be overwritten.
struct PartBytes {
  PartBytes() = default;
  PartBytes(std::span<std::byte> lent, std::shared_ptr<void> from)
      : bytes(lent), lender(std::move(from)) {}
  PartBytes(std::vector<std::byte> own) {
    auto kept = std::make_shared<std::vector<std::byte>>(std::move(own));
    bytes = *kept;
    lender = std::move(kept);
  }

  std::span<std::byte> bytes;
  std::shared_ptr<void> lender;
};

// Transfers are the threads that wait for a home of records, so that nobody else has to: one
// writes, one record at a time and in order; some read; where the home is shared, one asks what is
// there. They know records and bytes, no catalog and no cache.
//
// Thread safety: calls from one thread; `notify` is called from others and must be quick.
class Transfers {
 public:
  // What to take out of one record.
  struct ReadStep {
    std::string name;
    PathId path;               // the record must be this one
    uint32_t first_block = 0;  // blocks wanted of it
    uint32_t block_count = 0;
    bool state = false;
  };
  // How far a read has come; the one who waits for it may look at any time.
  struct ReadProgress {
    std::atomic<bool> begun = false;
    std::atomic<uint64_t> parts = 0;
  };
  // Blocks [first_block, first_block + block_count) and a snapshot (if state_bytes > 0), from
  // several records.
  struct ReadJob {
    uint64_t ticket = 0;
    std::vector<ReadStep> steps;
    uint32_t first_block = 0;
    uint32_t block_count = 0;
    size_t block_bytes = 0;
    size_t state_bytes = 0;
    std::shared_ptr<ReadProgress> progress = std::make_shared<ReadProgress>();
    size_t bytes() const { return block_count * block_bytes + state_bytes; }
  };
  struct ReadDone {
    uint64_t ticket = 0;
    Status status;
    std::string failed;  // the record that did
    Buffer bytes;        // the blocks, then the snapshot; all of it was checked
    int64_t ns = 0;
  };
  struct WriteDone {
    std::string name;
    Status status;
    uint64_t bytes = 0;  // RecordSink::bytes
  };
  // What there is along a path.
  struct LookJob {
    uint64_t ticket = 0;
    PathId root;
    std::vector<TokenId> tokens;
  };
  struct LookDone {
    uint64_t ticket = 0;
    Status status;
    std::vector<RecordHome::Seen> seen;
    std::vector<TokenId> tokens;  // as they were given; those of the path
    std::optional<PromptPath> path;
  };
  struct ForgetDone {
    PathId space;
    Status status;
  };
  // Directions that were found to work.
  struct TriesDone {
    bool reads = false;
    bool writes = false;
  };

  // The home must outlive it. `now_ms`: what since_ms() means; null: a steady clock.
  Transfers(RecordHome& home, int reader_count, std::function<void()> notify,
            std::function<int64_t()> now_ms = nullptr);
  ~Transfers();  // an unfinished record is dropped

  void Read(ReadJob job);
  void Look(LookJob job);
  // The record is complete with the last of its parts; they come in the order of its layout.
  void BeginWrite(std::string name, RecordFacts facts);
  void AddPart(PartBytes part);
  void AbortWrite();  // no WriteDone follows
  void Remove(std::string name);
  void Touch(std::string name);
  void RememberDay(const WrittenDay& day);
  void Forget(const PathId& space);  // RecordHome::Forget, a slice at a time, between other writes
  // Asks the home whether it reads (one of these records) or writes (so many bytes), after a pause
  // and then again and again, less and less often, until it does.
  void TryReads(std::vector<std::string> names, int64_t pause_ms);
  void TryWrites(size_t bytes, int64_t pause_ms);

  size_t queued_bytes() const;                      // of parts
  int64_t writer_ns() const { return writer_ns_; }  // processor time of the thread that writes
  std::vector<ReadDone> TakeReads();
  std::vector<WriteDone> TakeWrites();
  std::vector<LookDone> TakeLooks();
  std::vector<ForgetDone> TakeForgets();
  TriesDone TakeTries();
  // Since when the thread that writes, or the one that looks, is at what it does now; 0: it is not.
  int64_t writes_since_ms() const { return writes_since_ms_; }
  int64_t looks_since_ms() const { return looks_since_ms_; }

 private:
  struct WriteOp {
    enum class Verb { kBegin, kPart, kAbort, kRemove, kTouch, kDay, kForget } verb;
    std::string name = {};
    RecordFacts facts = {};
    PartBytes part = {};
    PathId space = {};
    std::string cursor = {};
    WrittenDay day = {};
  };
  using Instant = std::chrono::steady_clock::time_point;
  // A question whether the home works.
  struct Try {
    bool wanted = false;
    bool running = false;
    std::vector<std::string> names;
    size_t bytes = 0;
    int64_t pause_ms = 0;
    int64_t pause_max_ms = 0;
    Instant due;
    bool IsDue() const { return wanted && !running && std::chrono::steady_clock::now() >= due; }
  };
  // What the writer has in hand.
  struct Writing {
    std::string name;
    std::unique_ptr<RecordSink> draft;  // none: it failed
    size_t parts_left = 0;
  };

  void Push(WriteOp op);
  static void Ask(Try* one, int64_t pause_ms);
  void RunTry(Try* one, bool* done, std::unique_lock<std::mutex>* lock);
  template <typename Ready>
  static void Wait(std::condition_variable* work, std::unique_lock<std::mutex>* lock,
                   const Try& also, const Ready& ready);
  void Carry(std::vector<LookJob> jobs, std::unique_lock<std::mutex>* lock);
  void ForgetSome(WriteOp& op);
  static void StepBack();
  void WriteLoop();
  void ReadLoop();
  void LookLoop();
  void Carry(WriteOp& op, std::optional<Writing>* writing);
  void FinishWrite(std::optional<Writing>* writing, Status status);
  ReadDone Carry(const ReadJob& job);
  Status ReadStepOf(const ReadJob& job, const ReadStep& step, std::span<std::byte> out);

  // The parts of one record that a job needs, in pieces: readers that have nothing else to do help
  // the one whose job it is, each with a source of its own.
  struct Split {
    const ReadJob* job = nullptr;
    const ReadStep* step = nullptr;
    std::span<std::byte> out;
    std::vector<std::vector<size_t>> pieces;  // indexes of parts, ascending
    size_t next = 0;                          // piece to take; guarded by mutex_, as are these:
    size_t running = 0;
    Status status;  // of the first that failed; no other one is begun then
    bool HasPiece() const { return next < pieces.size() && status.ok(); }
  };
  Split* FindSplit();
  void Help(Split* split, std::unique_ptr<RecordSource> source, std::unique_lock<std::mutex>* lock);

  RecordHome& home_;
  const std::function<void()> notify_;
  const std::function<int64_t()> now_ms_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable write_work_;
  std::condition_variable read_work_;
  std::condition_variable look_work_;
  std::deque<WriteOp> writes_;
  std::deque<ReadJob> reads_;
  std::vector<Split*> splits_;  // those of jobs under way; on their readers' stacks
  std::condition_variable pieces_done_;
  std::deque<LookJob> looks_;
  size_t queued_bytes_ = 0;
  std::vector<ReadDone> reads_done_;
  std::vector<WriteDone> writes_done_;
  std::vector<LookDone> looks_done_;
  std::vector<ForgetDone> forgets_done_;
  Try read_try_, write_try_;
  TriesDone tries_done_;
  bool stop_ = false;
  std::atomic<int64_t> writes_since_ms_ = 0;
  std::atomic<int64_t> looks_since_ms_ = 0;
  std::atomic<int64_t> writer_ns_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace reprise
