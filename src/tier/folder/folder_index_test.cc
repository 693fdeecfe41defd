// SPDX-License-Identifier: Apache-2.0
// Proves that a start with an index opens no record that the index knows, and that no index can
// make it take a record for what it is not: old ones, damaged ones, foreign ones, none.
#include "tier/folder/folder_index.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/rng.h"
#include "tier/folder/folder_home.h"
#include "tier/plan.h"
#include "tier/record_store.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRecords = 1100;  // with fewer than a thousand there is no index
constexpr StateShape kShape{64, 64};

std::vector<TokenId> Tokens(uint64_t seed) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 70; ++i) tokens.push_back(static_cast<TokenId>(RandomAt(seed, i) % 1000));
  return tokens;
}

class FolderIndexTest : public testing::Test {
 protected:
  FolderIndexTest() {
    options_.path = testing::TempDir() + "folder_index";
    options_.bytes_max = 1 << 30;
    options_.sync = false;
    fs::remove_all(options_.path);
  }

  // Until the next call.
  PromptPath PathOf(uint64_t seed) {
    tokens_ = Tokens(seed);
    return PromptPath(key_.NamespaceOf("model", ""), tokens_);
  }
  void Write(uint64_t first, uint64_t count) {
    auto home = FolderHome::Open({.path = options_.path, .sync = false, .fault = nullptr}, key_);
    ASSERT_TRUE(home.ok());
    for (uint64_t i = first; i < first + count; ++i) {
      const auto plan = PlanRecord(Catalog(), PathOf(i), {70, kShape, {}});
      auto sink = (*home)->Create((*home)->NameFor(plan->facts), plan->facts);
      ASSERT_TRUE(sink.ok());
      const RecordLayout layout(plan->facts);
      for (const RecordLayout::Part& part : layout.parts()) {
        std::vector<std::byte> bytes(part.bytes, static_cast<std::byte>(i));
        ASSERT_TRUE((*sink)->Append(bytes).ok());
      }
      ASSERT_TRUE((*sink)->Commit().ok());
    }
  }
  std::unique_ptr<RecordStore> Open() {
    auto store = RecordStore::Open(options_, key_);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }
  // Whether the record is there with its bytes.
  bool Reads(RecordStore& store, uint64_t i) {
    const auto plan = store.Find(PathOf(i), 0, 70);
    if (!plan || store.Fetch(*plan, kShape) == 0) return false;
    for (;;) {
      const auto fetched = store.Poll().fetched;
      if (fetched.empty()) continue;
      if (!fetched[0].status.ok()) return false;
      for (const std::byte byte : fetched[0].bytes.bytes()) {
        EXPECT_EQ(byte, static_cast<std::byte>(i));
      }
      return true;
    }
  }
  std::string index() const { return options_.path + "/index"; }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& one : fs::directory_iterator(options_.path)) {
      if (one.path().extension() == ".state") files.push_back(one.path());
    }
    return files;
  }
  std::string Bytes() const {
    std::ifstream in(index(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Put(const std::string& bytes) const {
    std::ofstream(index(), std::ios::binary | std::ios::trunc) << bytes;
  }

  DiskOptions options_;
  StateKey key_;
  std::vector<TokenId> tokens_;
};

TEST_F(FolderIndexTest, HeadsThatItKnowsAreNotRead) {
  for (const bool secret : {false, true}) {
    key_ = secret ? StateKey::Of({7}) : StateKey();
    fs::remove_all(options_.path);
    Write(0, kRecords);
    EXPECT_EQ(Open()->stats().records, kRecords);  // and writes it
    struct stat facts = {};
    ASSERT_EQ(::stat(index().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    for (int life = 0; life < 2; ++life) {
      auto store = Open();
      EXPECT_EQ(store->stats().records, kRecords);
      for (uint64_t i = 0; i < kRecords; i += 100) EXPECT_TRUE(Reads(*store, i)) << i;
    }
    // Without a byte in them the records are still known; that they are damaged is seen when they
    // are read.
    for (const std::string& file : Files()) fs::resize_file(file, 0);
    auto store = Open();
    EXPECT_EQ(store->stats().records, kRecords);
    EXPECT_EQ(store->stats().unreadable, 0u);
    EXPECT_FALSE(Reads(*store, 5));
    EXPECT_EQ(store->stats().records, kRecords - 1);
    store.reset();
    fs::remove(index());
    EXPECT_EQ(Open()->stats().unreadable, kRecords - 1);
  }
}

TEST_F(FolderIndexTest, AnOldOneKnowsNeitherWhatCameNorThatSomeWent) {
  Write(0, kRecords);
  (void)Open();
  const std::string old = Bytes();
  Write(kRecords, 50);
  const auto files = Files();
  for (size_t i = 0; i < 300; ++i) fs::remove(files[i]);
  Put(old);
  auto store = Open();
  EXPECT_EQ(store->stats().records, kRecords + 50 - 300);
  size_t found = 0;
  for (uint64_t i = 0; i < kRecords + 50; ++i) found += Reads(*store, i);
  EXPECT_EQ(found, kRecords + 50 - 300);
  EXPECT_EQ(store->stats().fetches_failed, 0u);
}

// The oldest go first in the next life, too: when they were used is in the index.
TEST_F(FolderIndexTest, UseIsRemembered) {
  Write(0, kRecords);
  {
    auto store = Open();
    for (uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(Reads(*store, i));
  }
  const uint64_t each = 4096 + IndexShare(0);
  options_.bytes_max = 20 * each;
  auto store = Open();
  EXPECT_LE(store->stats().records, 20u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(Reads(*store, i)) << i;
}

TEST_F(FolderIndexTest, ItFitsIntoTheBound) {
  Write(0, kRecords);
  options_.bytes_max = 1050 * (4096 + IndexShare(0));
  (void)Open();
  uint64_t bytes = 0;
  for (const auto& one : fs::directory_iterator(options_.path)) {
    bytes += (one.file_size() + 4095) / 4096 * 4096;
  }
  EXPECT_TRUE(fs::exists(index()));
  EXPECT_LE(bytes, options_.bytes_max);
}

TEST_F(FolderIndexTest, FewRecordsHaveNone) {
  Write(0, 100);
  (void)Open();
  EXPECT_FALSE(fs::exists(index()));
  Put("old");
  (void)Open();
  EXPECT_FALSE(fs::exists(index()));
}

TEST_F(FolderIndexTest, NothingButTheIndexIsTaken) {
  for (const bool secret : {false, true}) {
    key_ = secret ? StateKey::Of({7}) : StateKey();
    std::vector<RecordHome::Listed> records;
    for (uint64_t i = 0; i < 5; ++i) {
      const auto plan = PlanRecord(Catalog(), PathOf(i), {70, kShape, {}});
      records.push_back({StateFolder::RandomName(), RoomOf(RecordBytes(plan->facts)) - i,
                         int64_t(i) * 1000, true, plan->facts});
    }
    auto lie = records;
    lie[1].bytes = RoomOf(RecordBytesMax(lie[1].facts)) + 1;
    std::vector<std::byte> lying = EncodeIndex(lie, key_, RandomSalt());
    EXPECT_FALSE(DecodeIndex(lying, key_).ok()) << "no record is so large";
    records[3].readable = false;
    const std::vector<std::byte> right = EncodeIndex(records, key_, RandomSalt());
    std::vector<std::byte> bytes = right;
    const auto decoded = DecodeIndex(bytes, key_);
    ASSERT_TRUE(decoded.ok());
    records.erase(records.begin() + 3);
    ASSERT_EQ(decoded->size(), records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ((*decoded)[i].name, records[i].name);
      EXPECT_EQ((*decoded)[i].used_ms, records[i].used_ms);
      EXPECT_EQ((*decoded)[i].bytes, records[i].bytes);
      EXPECT_TRUE((*decoded)[i].facts == records[i].facts);
    }
    for (size_t i = 0; i < right.size(); ++i) {
      for (const int change : {1, 0x80}) {
        bytes = right;
        bytes[i] ^= static_cast<std::byte>(change);
        EXPECT_FALSE(DecodeIndex(bytes, key_).ok()) << i;
      }
      bytes.assign(right.begin(), right.begin() + static_cast<ptrdiff_t>(i));
      EXPECT_FALSE(DecodeIndex(bytes, key_).ok()) << i;
    }
    bytes = right;
    bytes.push_back({});
    EXPECT_FALSE(DecodeIndex(bytes, key_).ok());
    for (const StateKey& other : {StateKey(), StateKey::Of({8})}) {
      bytes = right;
      EXPECT_EQ(DecodeIndex(bytes, other).ok(), !secret && !other.secret());
    }
  }
}

TEST_F(FolderIndexTest, ADamagedOneCostsTimeAlone) {
  Write(0, kRecords);
  (void)Open();
  const std::string right = Bytes();
  Rng rng(3);
  for (int i = 0; i < 12; ++i) {
    std::string bytes = right;
    if (i % 3 == 0) bytes.resize(rng.Below(bytes.size()));
    if (i % 3 == 1) bytes[rng.Below(bytes.size())] ^= char(1 + rng.Below(255));
    if (i % 3 == 2) bytes.append("more");
    Put(bytes);
    EXPECT_EQ(Open()->stats().records, kRecords);
  }
  fs::remove(index());
  fs::create_directory(index());
  EXPECT_EQ(Open()->stats().records, kRecords);
  fs::remove(index());
  // Nor does a disk that is full.
  options_.fault = [](const char* call) { return std::string_view(call) == "write" ? ENOSPC : 0; };
  (void)Open();
  EXPECT_FALSE(fs::exists(index()));
  EXPECT_FALSE(fs::exists(options_.path + "/index.new"));
}

}  // namespace
}  // namespace reprise
