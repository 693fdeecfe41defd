// SPDX-License-Identifier: Apache-2.0
// Proves that what was stored comes back with the same bytes, also by another process and in
// pieces; that the folder keeps its bounds; and that no fault of the disk is more than a miss.
#include "tier/record_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/folder/folder_index.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 1000, kState = 700;

std::vector<TokenId> Tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(Mix64(seed + i) % 1000));
  return tokens;
}

// What a block of the path holds when it reaches up to `end`, and the snapshot there.
std::byte ByteAt(const PromptPath& path, int32_t end, size_t i) {
  const PathId id = path.At(end);
  uint64_t word = 0;
  std::memcpy(&word, id.bytes.data(), 8);
  return i % 4 == 3 ? std::byte{0x3f} : static_cast<std::byte>(Mix64(word + i));
}

class DiskStoreTest : public testing::Test {
 protected:
  DiskStoreTest() {
    options_.path = testing::TempDir() + "disk";
    options_.bytes_max = 1 << 20;
    options_.retry_ms = 0;
    fs::remove_all(options_.path);
  }
  void Open(const StateKey& key = StateKey()) {
    tier_.reset();
    auto tier = RecordStore::Open(options_, key);
    ASSERT_TRUE(tier.ok()) << tier.status().message();
    tier_ = std::move(*tier);
    root_ = tier_->NamespaceOf("model", "tenant");
  }
  PromptPath Path(const std::vector<TokenId>& tokens) const { return {root_, tokens}; }

  // Returns whether it was stored.
  bool Store(const std::vector<TokenId>& tokens, int32_t position, size_t state_bytes = kState) {
    const PromptPath path = Path(tokens);
    const auto draft = tier_->BeginStore(path, {position, {kBlock, state_bytes}, PathId{{7}}});
    if (!draft) return false;
    for (const RecordLayout::Part& part : draft->layout.parts()) {
      std::vector<std::byte> bytes(part.bytes);
      for (size_t i = 0; i < bytes.size(); ++i) {
        const int32_t block = static_cast<int32_t>(part.first_block + i / kBlock);
        bytes[i] = part.block_count > 0
                       ? ByteAt(path, std::min(position, (block + 1) * kBlockTokens), i % kBlock)
                       : ByteAt(path, position, part.state_offset + i);
      }
      tier_->AddPart(std::move(bytes));
    }
    const uint64_t before = tier_->stats().stores;
    while (!tier_->settled()) {
      (void)tier_->Poll();
      std::this_thread::yield();
    }
    return tier_->stats().stores > before;
  }

  // The position that was read and found right; 0: nothing; -1: it was not right.
  int32_t Load(const std::vector<TokenId>& tokens, int32_t have, int32_t limit,
               size_t state_bytes = kState) {
    const PromptPath path = Path(tokens);
    const auto found = tier_->Find(path, have, limit);
    if (!found) return 0;
    const uint64_t ticket = tier_->Fetch(*found, {kBlock, state_bytes});
    if (ticket == 0) return 0;
    for (;;) {
      auto done = std::move(tier_->Poll().fetched);
      if (done.empty()) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(done[0].ticket, ticket);
      last_ = done[0].status;
      if (!last_.ok()) return 0;
      return Right(path, done[0], have, state_bytes) ? done[0].position : -1;
    }
  }
  static bool Right(const PromptPath& path, const RecordStore::Fetched& got, int32_t have,
                    size_t state_bytes) {
    const auto bytes = got.bytes.bytes();
    if (bytes.size() != got.block_count * kBlock + state_bytes) return false;
    if (got.first_block != static_cast<uint32_t>(have / kBlockTokens)) return false;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int32_t block = static_cast<int32_t>(got.first_block + i / kBlock);
      const bool state = i >= got.block_count * kBlock;
      // Models without recurrent state may be cut inside a block that was stored further.
      const int32_t end = state ? got.position : std::min(got.position, (block + 1) * kBlockTokens);
      const size_t at = state ? i - got.block_count * kBlock : i % kBlock;
      if (bytes[i] != ByteAt(path, end, at)) return false;
    }
    return true;
  }
  // Polls until a thread has found that the disk works again.
  bool Recovers() {
    for (int i = 0; i < 20'000 && tier_->stats().failing; ++i) {
      (void)tier_->Poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return !tier_->stats().failing;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& one : fs::directory_iterator(options_.path)) {
      if (one.path().extension() == ".state") files.push_back(one.path().string());
    }
    return files;
  }
  uint64_t FolderBytes() const {
    uint64_t bytes = 0;
    for (const std::string& file : Files()) bytes += fs::file_size(file);
    return bytes;
  }

  DiskOptions options_;
  std::unique_ptr<RecordStore> tier_;
  PathId root_;
  Status last_;
};

TEST_F(DiskStoreTest, WhatWasStoredComesBackAlsoToTheNextProcess) {
  for (const bool secret : {false, true, false, true}) {
    fs::remove_all(options_.path);
    const StateKey key = secret ? StateKey::Of({5}) : StateKey();
    Open(key);
    const auto tokens = Tokens(1, 500);
    EXPECT_TRUE(Store(tokens, 100));
    options_.compress = !options_.compress;  // both kinds lie in one folder
    Open(key);
    EXPECT_TRUE(Store(tokens, 300));
    EXPECT_TRUE(Store(tokens, 333));
    EXPECT_FALSE(Store(tokens, 300)) << "it is there";
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(Load(tokens, 0, 499), 333);
      EXPECT_EQ(Load(tokens, 0, 332), 300);
      EXPECT_EQ(Load(tokens, 0, 299), 100);
      EXPECT_EQ(Load(tokens, 100, 499), 333) << "what memory has is not read";
      EXPECT_EQ(Load(tokens, 333, 499), 0);
      EXPECT_EQ(Load(Tokens(2, 500), 0, 499), 0);
      root_ = tier_->NamespaceOf("model", "another tenant");
      EXPECT_EQ(Load(tokens, 0, 499), 0);
      Open(key);
    }
    EXPECT_EQ(tier_->stats().records, 3u);
    EXPECT_EQ(tier_->stats().damaged, 0u);
  }
}

TEST_F(DiskStoreTest, WithoutRecurrentStateAnyBlockEndServes) {
  Open();
  const auto tokens = Tokens(1, 500);
  EXPECT_TRUE(Store(tokens, 320, 0));
  auto branch = tokens;
  branch[210] ^= 1;
  EXPECT_EQ(Load(branch, 0, 499, 0), 192);
  EXPECT_TRUE(Store(branch, 448, 0));
  EXPECT_EQ(Load(branch, 64, 499, 0), 448);
  EXPECT_EQ(Load(tokens, 0, 499, 0), 320);
  auto shorter = tokens;  // ends before what it continues does
  shorter[200] ^= 1;
  EXPECT_TRUE(Store(shorter, 240, 0));
  Open();
  EXPECT_EQ(Load(branch, 0, 499, 0), 448);
  EXPECT_EQ(Load(shorter, 0, 499, 0), 240);
  tier_->Forget(&root_);
  EXPECT_EQ(tier_->stats().records, 0u);
}

TEST_F(DiskStoreTest, OfOtherShapeIsNotRead) {
  Open();
  const auto tokens = Tokens(1, 200);
  ASSERT_TRUE(Store(tokens, 150));
  EXPECT_EQ(Load(tokens, 0, 199, kState + 1), 0);
}

TEST_F(DiskStoreTest, TheFolderKeepsItsBound) {
  options_.bytes_max = 64 << 10;
  Open();
  for (uint64_t i = 0; i < 100; ++i) {
    const auto tokens = Tokens(1000 * i, 500);
    EXPECT_TRUE(Store(tokens, 100));
    EXPECT_TRUE(Store(tokens, 200));
    EXPECT_LE(tier_->stats().bytes, options_.bytes_max);
    EXPECT_EQ(Load(tokens, 0, 499), 200);
  }
  EXPECT_GT(tier_->stats().evicted, 150u);
  EXPECT_FALSE(Store(Tokens(1, 10000), 9000)) << "more than the whole folder";
  EXPECT_EQ(tier_->stats().records > 0, true);
  tier_.reset();  // removals are carried out
  EXPECT_LE(FolderBytes(), options_.bytes_max);
  options_.bytes_max = 16 << 10;
  Open();
  tier_.reset();
  EXPECT_LE(FolderBytes(), options_.bytes_max) << "a smaller bound holds from the start";
}

TEST_F(DiskStoreTest, NoMoreIsWrittenADayThanAllowed) {
  std::atomic<int64_t> steady = 1000;
  options_.steady_ms = [&] { return steady.load(); };
  options_.bytes_day_max = 6 * (4096 + 512);
  Open();
  int stored = 0;
  for (uint64_t i = 0; i < 20; ++i) stored += Store(Tokens(1000 * i, 500), 100);
  EXPECT_EQ(stored, 6) << "a page and a share of the index each";
  Open();
  EXPECT_FALSE(Store(Tokens(99, 500), 100)) << "a restart is no new day";
  steady += 24 * 3600 * 1000 / 6;
  EXPECT_TRUE(Store(Tokens(99, 500), 100));
  EXPECT_FALSE(Store(Tokens(98, 500), 100));
  steady += int64_t{10} * 24 * 3600 * 1000;
  stored = 0;
  for (uint64_t i = 100; i < 120; ++i) stored += Store(Tokens(1000 * i, 500), 100);
  EXPECT_EQ(stored, 6) << "at most a day's worth is saved up";
}

// What was written and is gone by now was written all the same.
TEST_F(DiskStoreTest, ARestartIsNoNewDayThoughWhatWasWrittenIsGone) {
  int64_t wall = 1'000'000'000'000;
  options_.wall_ms = [&] { return wall; };
  options_.steady_ms = [] { return 1000; };
  options_.bytes_day_max = 6 * (4096 + 512);
  Open();
  for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(Store(Tokens(1000 * i, 500), 100));
  tier_->Forget(nullptr);
  Open();
  EXPECT_EQ(tier_->stats().records, 0u);
  EXPECT_FALSE(Store(Tokens(99, 500), 100));
  wall += DayBudget::kDayMs / 3;
  Open();
  EXPECT_TRUE(Store(Tokens(99, 500), 100));
  std::ofstream(options_.path + "/day", std::ios::trunc) << "nonsense";
  Open();
  EXPECT_EQ(tier_->stats().records, 1u) << "it only helps";
}

TEST_F(DiskStoreTest, CompressedRecordsCountAsWhatTheyTake) {
  for (const bool secret : {false, true}) {
    fs::remove_all(options_.path);
    const StateKey key = secret ? StateKey::Of({5}) : StateKey();
    const auto one = Tokens(1, 9000), two = Tokens(20'000, 9000);
    options_.compress = false;
    Open(key);
    ASSERT_TRUE(Store(one, 9000));
    const uint64_t plain = tier_->stats().bytes_written;
    options_.compress = true;
    Open(key);
    ASSERT_TRUE(Store(two, 9000));
    const uint64_t packed = tier_->stats().bytes_written;
    EXPECT_LT(packed, plain * 85 / 100);
    EXPECT_EQ(tier_->stats().bytes, plain + packed);
    uint64_t room = 0;
    for (const std::string& file : Files()) room += RoomOf(fs::file_size(file));
    EXPECT_EQ(tier_->stats().bytes, room);
    for (int life = 0; life < 2; ++life) {
      EXPECT_EQ(Load(one, 0, 9000), 9000);
      EXPECT_EQ(Load(two, 0, 9000), 9000);
      options_.compress = !options_.compress;
      Open(key);
      EXPECT_EQ(tier_->stats().bytes, plain + packed) << "of the next life, too";
    }
  }
  // More of them may be written a day.
  options_.bytes_max = 64 << 20;
  options_.steady_ms = [] { return 1000; };
  int stored[2] = {};
  for (const bool compress : {false, true}) {
    fs::remove_all(options_.path);
    options_.compress = compress;
    options_.bytes_day_max = 1 << 20;
    Open();
    for (uint64_t i = 0; i < 20; ++i) stored[compress] += Store(Tokens(20'000 * i, 8000), 8000);
    EXPECT_LE(tier_->stats().bytes_written, options_.bytes_day_max);
  }
  EXPECT_GT(stored[0], 0);
  EXPECT_GT(stored[1], stored[0]);
  EXPECT_LT(stored[1], 20);
}

TEST_F(DiskStoreTest, AFolderHasOneOwner) {
  Open();
  const auto second = RecordStore::Open(options_, StateKey());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("in use by another process"), std::string::npos);
  options_.path = "/proc/no/such/folder";
  EXPECT_FALSE(RecordStore::Open(options_, StateKey()).ok());
}

TEST_F(DiskStoreTest, UnfinishedAndForeignFilesDoNoHarm) {
  Open();
  const auto tokens = Tokens(1, 500);
  ASSERT_TRUE(Store(tokens, 100));
  tier_.reset();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(options_.path + "/" + name, std::ios::binary) << text;
  };
  write("0123456789abcdef.tmp", "half a record");
  write("0123456789abcdef.state", "no record");
  write("fedcba9876543210.state", "");
  write("notes.txt", "mine");
  fs::create_directory(options_.path + "/00000000000000aa.state");
  fs::create_symlink("/dev/zero", options_.path + "/00000000000000bb.state");
  Open();
  EXPECT_EQ(tier_->stats().unreadable, 2u);
  EXPECT_EQ(Load(tokens, 0, 499), 100);
  EXPECT_FALSE(fs::exists(options_.path + "/0123456789abcdef.tmp"));
  EXPECT_TRUE(fs::exists(options_.path + "/notes.txt"));
  EXPECT_TRUE(fs::exists(options_.path + "/0123456789abcdef.state")) << "its key may come back";
}

TEST_F(DiskStoreTest, ARecordWithoutItsBeginningIsRemoved) {
  Open();
  const auto tokens = Tokens(1, 500);
  ASSERT_TRUE(Store(tokens, 100));
  const auto first = Files();
  ASSERT_TRUE(Store(tokens, 200));
  tier_.reset();
  fs::remove(first[0]);
  Open();
  EXPECT_EQ(tier_->stats().records, 0u);
  EXPECT_EQ(Load(tokens, 0, 499), 0);
  EXPECT_TRUE(Files().empty());
}

// Whatever happens to the files while the tier runs: nothing wrong comes out.
TEST_F(DiskStoreTest, DamagedSwappedAndLostRecordsAreMisses) {
  const auto a = Tokens(1, 500), b = Tokens(7777, 500);
  for (int what = 0; what < 5; ++what) {
    fs::remove_all(options_.path);
    Open();
    ASSERT_TRUE(Store(a, 100));
    const std::string first = Files()[0];
    ASSERT_TRUE(Store(a, 200));
    ASSERT_TRUE(Store(b, 100));
    std::string other;
    for (const std::string& file : Files()) {
      if (file != first && fs::file_size(file) == fs::file_size(first)) other = file;
    }
    switch (what) {
      case 0:
        fs::remove(first);
        break;
      case 1:
        fs::resize_file(first, fs::file_size(first) - 1);
        break;
      case 2: {
        std::fstream file(first, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(fs::file_size(first)) - 800);
        file.put('\x55').put('\x56');
        break;
      }
      case 3:
        fs::rename(other, first);
        break;  // whole, sealed, and another one
      case 4:
        std::ofstream(first, std::ios::trunc);
        break;
    }
    EXPECT_EQ(Load(a, 0, 499), 0) << what;
    EXPECT_FALSE(last_.ok());
    EXPECT_EQ(tier_->stats().damaged, 1u);
    EXPECT_EQ(Load(a, 0, 499), 0) << "what continued it is gone as well";
    EXPECT_EQ(tier_->stats().records, 1u);
    if (what != 3) {
      EXPECT_EQ(Load(b, 0, 499), 100);
    }
    EXPECT_TRUE(Store(a, 200)) << "and it can be stored again";
    EXPECT_EQ(Load(a, 0, 499), 200);
  }
}

TEST_F(DiskStoreTest, EveryFaultOfTheDiskIsAMissAndPasses) {
  std::string failing;
  std::mutex mutex;
  int error = 0;
  options_.fault = [&](const char* call) {
    std::lock_guard lock(mutex);
    return failing == call ? error : 0;
  };
  Open();
  const auto fail = [&](const std::string& call, int with) {
    std::lock_guard lock(mutex);
    failing = call;
    error = with;
  };
  const auto kept = Tokens(1, 500);
  ASSERT_TRUE(Store(kept, 100));
  uint64_t seed = 1000;
  for (const char* call : {"open", "write", "fdatasync", "rename", "fsync"}) {
    for (const int with : {ENOSPC, EIO, EACCES, EROFS}) {
      const auto tokens = Tokens(seed += 1000, 500);
      fail(call, with);
      EXPECT_FALSE(Store(tokens, 100)) << call;
      EXPECT_TRUE(tier_->stats().failing);
      EXPECT_EQ(Load(tokens, 0, 499), 0);
      EXPECT_EQ(Load(kept, 0, 499), std::string_view(call) == "open" ? 0 : 100) << "others read";
      fail("", 0);
      EXPECT_TRUE(Recovers()) << call;
      EXPECT_TRUE(Store(tokens, 100)) << "it recovers by itself";
      EXPECT_EQ(Load(kept, 0, 499), 100);
    }
  }
  for (const char* call : {"open", "read"}) {
    fail(call, EIO);
    EXPECT_EQ(Load(kept, 0, 499), 0);
    fail("", 0);
    EXPECT_EQ(Load(kept, 0, 499), 100) << "an error of the disk is no damage of the record";
  }
  fail("unlink", EACCES);
  tier_.reset();
  fail("", 0);
  Open();
  EXPECT_EQ(tier_->stats().records, 21u);
  for (const auto& one : fs::directory_iterator(options_.path)) {
    EXPECT_NE(one.path().extension(), ".tmp");
  }
}

// After a failure the disk is left alone, and then asked by a thread, not by a request.
TEST_F(DiskStoreTest, AfterAFailureNothingIsTriedForAWhile) {
  std::atomic<int> calls = 0;
  std::atomic<bool> bad = true;
  options_.fault = [&](const char* call) {
    calls += std::strcmp(call, "open") == 0;
    return bad && std::strcmp(call, "open") == 0 ? EIO : 0;
  };
  options_.retry_ms = 3'600'000;
  Open();
  EXPECT_FALSE(Store(Tokens(1, 500), 100));
  EXPECT_FALSE(Store(Tokens(1, 500), 100));
  EXPECT_EQ(calls, 1);
  options_.retry_ms = 0;
  Open();
  EXPECT_FALSE(Store(Tokens(1, 500), 100));
  while (calls < 5) std::this_thread::yield();  // tries, which nobody waits for
  EXPECT_TRUE(tier_->stats().failing);
  bad = false;
  EXPECT_TRUE(Recovers());
  EXPECT_TRUE(Store(Tokens(1, 500), 100));
}

// One record cannot be read: it is set aside, longer each time, and goes in the end. All others are
// read meanwhile.
TEST_F(DiskStoreTest, ARecordThatCannotBeReadIsSetAsideAndTheDiskGoesOn) {
  std::atomic<int64_t> steady = 1000;
  std::atomic<bool> bad = false;
  std::atomic<int> reads = 0;
  options_.steady_ms = [&] { return steady.load(); };
  options_.retry_ms = 1000;
  options_.fault = [&](const char* call) {
    reads += std::strcmp(call, "read") == 0;
    return bad && std::strcmp(call, "read") == 0 ? EIO : 0;
  };
  Open();
  const auto broken = Tokens(1, 500), fine = Tokens(7777, 500);
  ASSERT_TRUE(Store(broken, 100));
  ASSERT_TRUE(Store(fine, 100));
  const auto fails = [&] {
    bad = true;
    EXPECT_EQ(Load(broken, 0, 499), 0);
    bad = false;
  };
  for (int round = 0; round < Quarantine::kTimesMax; ++round) {
    fails();
    EXPECT_FALSE(tier_->stats().failing) << "the disk goes on";
    EXPECT_EQ(Load(fine, 0, 499), 100);
    const int before = reads;
    steady += (1000 << round) - 1;
    EXPECT_EQ(Load(broken, 0, 499), 0);
    EXPECT_EQ(reads, before) << "it is not asked for";
    steady += 1;
  }
  EXPECT_EQ(tier_->stats().records, 2u);
  fails();
  EXPECT_EQ(tier_->stats().records, 1u);
  EXPECT_EQ(Load(fine, 0, 499), 100);
  EXPECT_TRUE(Store(broken, 100));
  EXPECT_EQ(Load(broken, 0, 499), 100);
}

// No record can be read: then it is the disk, and it is left alone until one can.
TEST_F(DiskStoreTest, WhenManyRecordsCannotBeReadTheDiskIsLeftAlone) {
  std::atomic<bool> bad = false;
  std::atomic<int> reads = 0;
  options_.fault = [&](const char* call) {
    reads += std::strcmp(call, "read") == 0;
    return bad && std::strcmp(call, "read") == 0 ? EIO : 0;
  };
  options_.retry_ms = 50;
  Open();
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(Store(Tokens(1000 * i, 500), 100));
  bad = true;
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Load(Tokens(1000 * i, 500), 0, 499), 0);
  EXPECT_TRUE(tier_->stats().failing);
  EXPECT_EQ(tier_->stats().fetches_failed, uint64_t{Quarantine::kFaultsMax});
  EXPECT_EQ(tier_->stats().records, 10u);
  EXPECT_TRUE(Store(Tokens(99'999, 500), 100)) << "writing is another matter";
  bad = false;
  EXPECT_TRUE(Recovers());
  EXPECT_EQ(Load(Tokens(9000, 500), 0, 499), 100);
}

// A call on the disk does not return. Who waits for it is told in time, and nobody waits after
// that; when it returns, all goes on.
class HungDiskTest : public DiskStoreTest {
 protected:
  HungDiskTest() {
    options_.steady_ms = [this] { return steady_.load(); };
    options_.timeout_ms = 1000;
    options_.reader_count = 2;
    options_.fault = [this](const char* call) {
      std::unique_lock lock(mutex_);
      while (hangs_ == call) {
        ++hung_;
        changed_.notify_all();
        changed_.wait(lock);
      }
      return 0;
    };
  }
  ~HungDiskTest() override { Hang(""); }
  void Hang(const std::string& call) {
    std::lock_guard lock(mutex_);
    hangs_ = call;
    hung_ = 0;
    changed_.notify_all();
  }
  void AwaitHung() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return hung_ > 0; });
  }

  std::atomic<int64_t> steady_ = 1000;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string hangs_;
  int hung_ = 0;
};

TEST_F(HungDiskTest, AReadThatHangsIsAMissInTimeAndTheNextOnesAtOnce) {
  Open();
  const auto tokens = Tokens(1, 500), other = Tokens(7777, 500);
  ASSERT_TRUE(Store(tokens, 100));
  ASSERT_TRUE(Store(other, 100));
  Hang("read");
  const auto plan = tier_->Find(Path(tokens), 0, 499);
  ASSERT_NE(tier_->Fetch(*plan, {kBlock, kState}), 0u);
  AwaitHung();
  EXPECT_TRUE(tier_->Poll().fetched.empty());
  steady_ += 500;
  const RecordStore::News news = tier_->Poll();
  ASSERT_EQ(news.fetched.size(), 1u);
  EXPECT_FALSE(news.fetched[0].status.ok());
  EXPECT_FALSE(tier_->stats().failing) << "it is slow";
  steady_ += 500;
  EXPECT_TRUE(tier_->Poll().fetched.empty()) << "once";
  EXPECT_TRUE(tier_->stats().failing) << "it hangs";
  EXPECT_EQ(Load(other, 0, 499), 0) << "nobody waits";
  EXPECT_EQ(tier_->stats().fetches_failed, 1u);
  Hang("");
  EXPECT_TRUE(Recovers());
  EXPECT_EQ(Load(other, 0, 499), 100);
  EXPECT_EQ(Load(tokens, 0, 499), 100);
}

TEST_F(HungDiskTest, AWriteThatHangsLetsGoOfItsStateAndReadsGoOn) {
  for (const char* call : {"open", "write", "fdatasync", "rename", "fsync"}) {
    fs::remove_all(options_.path);
    Open();
    const auto kept = Tokens(1, 500), tokens = Tokens(7777, 500);
    ASSERT_TRUE(Store(kept, 100));
    Hang(call);
    const auto draft = tier_->BeginStore(Path(tokens), {100, {kBlock, kState}, {}});
    ASSERT_TRUE(draft);
    for (const RecordLayout::Part& part : draft->layout.parts()) {
      tier_->AddPart(std::vector<std::byte>(part.bytes));
    }
    AwaitHung();
    steady_ += 3999;
    EXPECT_FALSE(tier_->Poll().store_ended);
    steady_ += 1;
    const RecordStore::News news = tier_->Poll();
    EXPECT_TRUE(news.store_ended && !news.stored) << call;
    EXPECT_TRUE(tier_->settled());
    EXPECT_FALSE(tier_->MayStore());
    if (std::string_view(call) != "open") {
      EXPECT_EQ(Load(kept, 0, 499), 100) << call;
    }
    Hang("");
    EXPECT_TRUE(Recovers()) << call;
    EXPECT_EQ(Load(tokens, 0, 499), 0) << "what came too late is removed";
    EXPECT_TRUE(Store(tokens, 100));
    tier_.reset();
    EXPECT_EQ(Files().size(), 2u) << call;
  }
}

// What was not written does not count.
TEST_F(DiskStoreTest, ADayIsNotSpentOnWhatWasNotWritten) {
  options_.steady_ms = [] { return 1000; };
  options_.bytes_day_max = 8 * (4096 + 512);
  std::atomic<bool> bad = false;
  options_.fault = [&](const char* call) {
    return bad && std::strcmp(call, "open") == 0 ? ENOSPC : 0;
  };
  Open();
  for (uint64_t i = 0; i < 100; ++i) {
    const auto tokens = Tokens(1000 * i, 500);
    ASSERT_TRUE(tier_->BeginStore(Path(tokens), {100, {kBlock, kState}, {}})) << i;
    tier_->AbortStore();
  }
  bad = true;
  EXPECT_FALSE(Store(Tokens(1, 500), 100));
  bad = false;
  ASSERT_TRUE(Recovers());
  int stored = 0;
  for (uint64_t i = 0; i < 20; ++i) stored += Store(Tokens(1000 * i, 500), 100);
  EXPECT_GE(stored, 7);
}

TEST_F(DiskStoreTest, ClocksMayJump) {
  std::atomic<int64_t> wall = 1'000'000'000'000;
  options_.wall_ms = [&] { return wall.load(); };
  options_.bytes_max = 20 << 10;
  Open();
  for (const int64_t jump : {int64_t{0}, int64_t{-900'000'000'000}, int64_t{3'000'000'000'000}}) {
    wall += jump;
    for (uint64_t i = 0; i < 10; ++i) {
      const auto tokens = Tokens(static_cast<uint64_t>(jump) + 1000 * i, 500);
      ASSERT_TRUE(Store(tokens, 100));
      ASSERT_EQ(Load(tokens, 0, 499), 100);  // the newest never makes room for itself
    }
  }
  wall = 5;
  Open();
  EXPECT_GT(tier_->stats().records, 0u);
  EXPECT_TRUE(Store(Tokens(1, 500), 100));
}

TEST_F(DiskStoreTest, AStoreCanBeAbandoned) {
  Open();
  const auto tokens = Tokens(1, 500);
  ASSERT_TRUE(Store(tokens, 100));
  const auto draft = tier_->BeginStore(Path(tokens), {300, {kBlock, kState}, {}});
  ASSERT_TRUE(draft);
  EXPECT_FALSE(tier_->MayStore());
  tier_->AbortStore();
  EXPECT_TRUE(tier_->MayStore());
  EXPECT_EQ(Load(tokens, 0, 499), 100);
  EXPECT_TRUE(Store(tokens, 300));
  EXPECT_EQ(Load(tokens, 0, 499), 300);
}

TEST_F(DiskStoreTest, ForgetsOneNamespaceOrAll) {
  Open();
  const auto tokens = Tokens(1, 500);
  ASSERT_TRUE(Store(tokens, 100));
  ASSERT_TRUE(Store(tokens, 200));
  const PathId first = std::exchange(root_, tier_->NamespaceOf("model", "another"));
  ASSERT_TRUE(Store(tokens, 150));
  const auto draft = tier_->BeginStore(PromptPath(first, tokens), {300, {kBlock, kState}, {}});
  ASSERT_TRUE(draft);
  tier_->Forget(&first);
  EXPECT_EQ(tier_->stats().records, 1u);
  EXPECT_EQ(Load(tokens, 0, 499), 150);
  tier_->Forget(nullptr);
  EXPECT_EQ(Load(tokens, 0, 499), 0);
  tier_.reset();
  EXPECT_TRUE(Files().empty());
}

// A record that is on its way when everything is forgotten does not come back.
TEST_F(DiskStoreTest, ForgetsWhatIsBeingWritten) {
  Open();
  const auto tokens = Tokens(1, 500);
  ASSERT_TRUE(Store(tokens, 100));
  const auto draft = tier_->BeginStore(Path(tokens), {200, {kBlock, kState}, {}});
  ASSERT_TRUE(draft);
  for (const RecordLayout::Part& part : draft->layout.parts()) {
    tier_->AddPart(std::vector<std::byte>(part.bytes));
  }
  tier_->Forget(nullptr);
  while (!tier_->settled()) tier_->Poll();
  EXPECT_EQ(Load(tokens, 0, 499), 0);
  EXPECT_TRUE(Store(tokens, 100));
}

TEST_F(DiskStoreTest, WithAKeyNothingIsInTheClear) {
  Open(StateKey::Of({5}));
  const auto tokens = Tokens(1, 500);
  ASSERT_TRUE(Store(tokens, 300));
  tier_.reset();
  std::ifstream file(Files()[0], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const PromptPath path = Path(tokens);
  const auto has = [&](std::span<const uint8_t> part) {
    return bytes.find(std::string(part.begin(), part.end())) != std::string::npos;
  };
  EXPECT_FALSE(has(path.At(300).bytes));
  EXPECT_FALSE(has(path.grid(4).bytes));
  std::vector<uint8_t> state;
  for (size_t i = 0; i < 8; ++i) state.push_back(static_cast<uint8_t>(ByteAt(path, 300, i)));
  EXPECT_FALSE(has(state));
  Open();  // without the key
  EXPECT_EQ(tier_->stats().unreadable, 1u);
  EXPECT_EQ(tier_->stats().records, 0u);
}

}  // namespace
}  // namespace reprise
