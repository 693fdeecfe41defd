// SPDX-License-Identifier: Apache-2.0
// Proves, over random schedules of requests and faults (delays, errors, cut records, calls that
// hang, refusals), that every question and every read is answered in bounded time, that what is
// read is right, that no call takes more than bounded work, and that when the faults end the store
// works again by itself. REPRISE_FAULT_SCHEDULES: how many; `make faults` runs 10,000.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "tier/fault/memory_home.h"
#include "tier/record_store.h"

namespace reprise {
namespace {

constexpr size_t kBlock = 50, kState = 30;
constexpr int64_t kTimeoutMs = 1000;
constexpr int kTalks = 6;
constexpr int32_t kTalkTokens = 500;

std::byte ByteOf(const PathId& id, size_t i) {
  uint64_t word = 0;
  std::memcpy(&word, id.bytes.data(), 8);
  return static_cast<std::byte>(Mix64(word + i));
}

// Decides what becomes of each call on the home.
class Injector {
 public:
  Injector(uint64_t seed, uint64_t one_in) : rng_(seed), one_in_(one_in) {}

  Status Call(const std::string& call) {
    std::unique_lock lock(mutex_);
    ++calls_;
    if (ended_ || rng_.Below(one_in_) != 0) return OkStatus();
    ++faults_;
    switch (rng_.Below(6)) {
      case 0: {
        const auto pause = std::chrono::microseconds(rng_.Below(300));
        lock.unlock();
        std::this_thread::sleep_for(pause);
        return OkStatus();
      }
      case 1:  // cut, or changed
        return call == "open" || call == "read" ? DataLoss("the record is cut off")
                                                : Internal("an error");
      case 2:
        return call == "open" ? NotFound("it is gone") : Internal("an error");
      case 3: {  // hangs until somebody lets it go on; then it works, or not
        const bool fails = rng_.Below(2) == 0;
        const uint64_t round = round_;
        changed_.wait(lock, [&] { return round_ != round || ended_; });
        return fails ? Internal("after a long time") : OkStatus();
      }
      case 4:
        return ResourceExhausted("Redis says: OOM");
      default:
        return Internal("an error");
    }
  }
  void LetGo() {
    std::lock_guard lock(mutex_);
    ++round_;
    changed_.notify_all();
  }
  void End() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  uint64_t faults() const { return faults_; }
  uint64_t calls() const { return calls_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Rng rng_;
  const uint64_t one_in_;
  uint64_t round_ = 0;
  bool ended_ = false;
  std::atomic<uint64_t> faults_ = 0, calls_ = 0;
};

class Schedule {
 public:
  Schedule(uint64_t seed, bool shared) : rng_(seed), injector_(seed + 1, 2 + rng_.Below(12)) {
    StoreLimits limits;
    limits.steady_ms = [this] { return steady_.load(); };
    limits.timeout_ms = kTimeoutMs;
    limits.retry_ms = 0;
    limits.reader_count = 2;
    limits.records_max = 20;
    limits.bytes_max = shared ? 0 : 20'000;
    const StateKey key = StateKey::Of({5});
    auto home = std::make_unique<MemoryHome>(
        server_,
        [this](const std::string& call, const std::string&) { return injector_.Call(call); },
        shared);
    auto store = RecordStore::Open(std::move(home), limits, key);
    CHECK(store.ok());
    store_ = std::move(*store);
    for (uint64_t i = 0; i < kTalks; ++i) {
      // Every other one begins as the one before it.
      std::vector<TokenId> tokens(kTalkTokens);
      for (size_t t = 0; t < tokens.size(); ++t) {
        tokens[t] = static_cast<TokenId>(RandomAt(t < 150 ? i / 2 : 100 + i, t) % 1000);
      }
      talks_.push_back(std::move(tokens));
      roots_.push_back(key.NamespaceOf("model", i < kTalks / 2 ? "one" : "other"));
    }
    for (size_t i = 0; i < talks_.size(); ++i) paths_.emplace_back(roots_[i], talks_[i]);
  }
  ~Schedule() { injector_.End(); }

  // So many steps, and more where the home's threads were slow to do anything.
  void Run(int steps) {
    const auto enough = [&](int i) {
      return i >= steps && (injector_.calls() >= 60 || i >= 50 * steps);
    };
    for (int i = 0; !enough(i) && !testing::Test::HasFatalFailure(); ++i) {
      Act();
      if (rng_.Below(4) == 0) steady_ += static_cast<int64_t>(rng_.Below(400));
      std::this_thread::sleep_for(std::chrono::microseconds(rng_.Below(100)));
      if (rng_.Below(8) == 0) injector_.LetGo();
      Poll();
    }
  }
  // When the faults are over, all ends well, and what is stored then is found.
  void Recover() {
    injector_.End();
    const size_t talk = rng_.Below(kTalks);
    for (int i = 0; i < 20'000; ++i) {
      if (store_->storing()) Store(talk, kTalkTokens);
      Poll();
      const bool at_rest = looks_.empty() && reads_.empty() && store_->settled();
      if (at_rest && !store_->stats().failing) break;
      Pass();
    }
    ASSERT_FALSE(store_->stats().failing);
    ASSERT_TRUE(looks_.empty() && reads_.empty() && store_->settled());
    // Set aside for a while, or of a namespace that is being reset: that passes, too. What was held
    // already may turn out to be gone, as a client's next turn would see it: it is stored again.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    const uint64_t before = right_;
    while (right_ == before && std::chrono::steady_clock::now() < end) {
      if (!store_->Holds(paths_[talk], kTalkTokens)) {
        Store(talk, kTalkTokens);
      } else if (reads_.empty()) {
        Read(talk);
      }
      Poll();
      Pass();
    }
    ASSERT_GT(right_, before);
    std::lock_guard lock(server_->mutex);
    EXPECT_TRUE(server_->unfinished.empty());
  }

  uint64_t right() const { return right_; }
  uint64_t faults() const { return injector_.faults(); }

 private:
  // Time goes on.
  void Pass() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    steady_ += 10;
  }
  void Act() {
    const size_t talk = rng_.Below(kTalks);
    switch (rng_.Below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return Store(talk, static_cast<int32_t>(1 + rng_.Below(kTalkTokens)));
      case 5:
        if (store_->storing()) store_->AbortStore();
        return;
      case 6:
        return store_->Forget(rng_.Below(4) == 0 ? nullptr : &roots_[talk]);
      case 7:
      case 8:
      case 9:
      case 10:
        if (const uint64_t ticket = store_->Look(roots_[talk], talks_[talk]); ticket != 0) {
          looks_[ticket] = steady_;
        }
        return;
      default:
        return Read(talk);
    }
  }
  void Store(size_t talk, int32_t position) {
    const PromptPath& path = paths_[talk];
    if (!store_->storing()) {
      draft_ = store_->BeginStore(path, {position, {kBlock, kState}, PathId{{7}}});
      drafted_ = talk;
      next_ = 0;
    }
    // Some of its parts; the others with a later turn.
    while (store_->storing() && draft_ && next_ < draft_->layout.parts().size()) {
      const RecordLayout::Part& part = draft_->layout.parts()[next_++];
      std::vector<std::byte> bytes(part.bytes);
      const PromptPath& of = paths_[drafted_];
      const int32_t end = draft_->facts.end;
      for (size_t i = 0; i < bytes.size(); ++i) {
        const int32_t block = static_cast<int32_t>(part.first_block + i / kBlock);
        const int32_t upto = std::min(end, (block + 1) * kBlockTokens);
        bytes[i] = part.block_count > 0 ? ByteOf(of.At(upto), i % kBlock)
                                        : ByteOf(of.At(end), 1000 + part.state_offset + i);
      }
      store_->AddPart(std::move(bytes));
      if (rng_.Below(4) == 0) return;
    }
  }
  void Read(size_t talk) {
    const auto limit = static_cast<int32_t>(1 + rng_.Below(kTalkTokens));
    const auto plan = store_->Find(paths_[talk], 0, limit);
    if (!plan) return;
    const uint64_t ticket = store_->Fetch(*plan, {kBlock, kState});
    if (ticket != 0) reads_[ticket] = {talk, steady_};
  }
  void Poll() {
    const uint64_t steps = store_->catalog().steps();
    const RecordStore::News news = store_->Poll();
    EXPECT_LE(store_->catalog().steps() - steps, 4000u);
    for (const uint64_t ticket : news.looked) EXPECT_EQ(looks_.erase(ticket), 1u);
    for (const RecordStore::Fetched& one : news.fetched) {
      const auto read = reads_.find(one.ticket);
      ASSERT_NE(read, reads_.end());
      if (one.status.ok()) Check(read->second.talk, one);
      reads_.erase(read);
    }
    // Half a time-out to know what is there, and half to get it.
    for (const auto& [ticket, since] : looks_) ASSERT_LT(steady_ - since, kTimeoutMs / 2);
    for (const auto& [ticket, read] : reads_) ASSERT_LT(steady_ - read.since, kTimeoutMs / 2);
  }
  void Check(size_t talk, const RecordStore::Fetched& one) {
    const PromptPath& path = paths_[talk];
    const auto bytes = one.bytes.bytes();
    ASSERT_EQ(bytes.size(), one.block_count * kBlock + kState);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t blocks = one.block_count * kBlock;
      const int32_t block = static_cast<int32_t>(one.first_block + i / kBlock);
      const int32_t upto = std::min(one.position, (block + 1) * kBlockTokens);
      const std::byte want = i < blocks ? ByteOf(path.At(upto), i % kBlock)
                                        : ByteOf(path.At(one.position), 1000 + i - blocks);
      ASSERT_EQ(bytes[i], want) << i;
    }
    ++right_;
  }

  struct Reading {
    size_t talk = 0;
    int64_t since = 0;
  };

  Rng rng_;
  Injector injector_;
  std::atomic<int64_t> steady_ = 1000;
  const std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>();
  std::vector<std::vector<TokenId>> talks_;
  std::vector<PathId> roots_;
  std::vector<PromptPath> paths_;
  std::optional<RecordStore::Draft> draft_;
  size_t drafted_ = 0, next_ = 0;
  std::map<uint64_t, int64_t> looks_;
  std::map<uint64_t, Reading> reads_;
  uint64_t right_ = 0;
  std::unique_ptr<RecordStore> store_;
};

TEST(FaultSchedules, EveryRequestIsAnsweredRightInBoundedTimeAndFaultsPass) {
  const char* wanted = std::getenv("REPRISE_FAULT_SCHEDULES");
  const uint64_t count = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 200;
  SetLogLevel(LogLevel::kError);
  std::atomic<uint64_t> next = 0, right = 0, faults = 0;
  const auto run = [&] {
    for (uint64_t seed = next++; seed < count && !testing::Test::HasFailure(); seed = next++) {
      SCOPED_TRACE(seed);
      Schedule schedule(seed, seed % 2 == 0);
      schedule.Run(60);
      if (!testing::Test::HasFatalFailure()) schedule.Recover();
      right += schedule.right();
      faults += schedule.faults();
    }
  };
  // They mostly wait.
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_GE(right, count);
  EXPECT_GT(faults, 2 * count);
  std::printf("%llu schedules: %llu faults, %llu reads, all right\n",
              static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(faults.load()),
              static_cast<unsigned long long>(right.load()));
}

}  // namespace
}  // namespace reprise
