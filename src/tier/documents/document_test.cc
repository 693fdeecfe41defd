// SPDX-License-Identifier: Apache-2.0
// Proves that a document comes back as it was, to its owner alone, also to another process; that
// the folder keeps its bounds; that whatever is wrong with a file or the disk is only an absence.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "tier/documents/document_store.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

class DocumentStoreTest : public testing::Test {
 protected:
  DocumentStoreTest() {
    options_.path = testing::TempDir() + "documents";
    options_.bytes_max = 100'000;
    options_.owner_bytes_max = 50'000;
    options_.owner_count_max = 20;
    options_.retry_ms = 0;
    fs::remove_all(options_.path);
  }
  void Open(const StateKeys& keys = StateKeys()) {
    store_.reset();
    auto store = DocumentStore::Open(options_, keys);
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(*store);
  }
  void Put(const std::string& owner, const std::string& name, const std::string& content) {
    store_->Put(owner, name, content);
    ASSERT_TRUE(store_->Settle(std::chrono::minutes(1)));
  }
  void Recover() {
    for (int i = 0; i < 20'000 && store_->stats().failing; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(store_->stats().failing);
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(options_.path)) {
      if (file.path().filename() != "day") files.push_back(file.path());
    }
    return files;
  }

  DocumentOptions options_;
  std::unique_ptr<DocumentStore> store_;
};

TEST_F(DocumentStoreTest, OutlivesTheProcessForItsOwnerAlone) {
  for (const StateKey& key : {StateKey(), StateKey::Of({1})}) {
    Open(key);
    Put("a", "x", "content of x");
    Put("a", "empty", "");
    Open(key);
    EXPECT_EQ(store_->stats().count, 2u);
    EXPECT_EQ(store_->Get("a", "x"), "content of x");
    EXPECT_EQ(store_->Get("a", "empty"), "");
    EXPECT_EQ(store_->Get("b", "x"), std::nullopt);
    EXPECT_FALSE(store_->Remove("b", "x"));
    EXPECT_TRUE(store_->Remove("a", "x"));
    EXPECT_EQ(store_->Get("a", "x"), std::nullopt);
    Open(key);
    EXPECT_EQ(store_->Get("a", "x"), std::nullopt);
    EXPECT_TRUE(store_->Remove("a", "empty"));
    EXPECT_EQ(store_->stats().bytes, 0u);
  }
}

TEST_F(DocumentStoreTest, AKeyHidesContentAndOwners) {
  Open(StateKey::Of({1}));
  Put("somebody", "x", "a secret that nobody reads");
  const fs::path path = Files().at(0);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes.find("secret"), std::string::npos);
  EXPECT_EQ(bytes.find("somebody"), std::string::npos);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  Open(StateKey::Of({2}));
  EXPECT_EQ(store_->Get("somebody", "x"), std::nullopt);
  Open(StateKey::Of({1}));
  EXPECT_EQ(store_->Get("somebody", "x"), "a secret that nobody reads");
}

// With both keys everything is found, changed and removed; the bounds of an owner hold for all that
// it has, by whichever key.
TEST_F(DocumentStoreTest, AKeyIsChanged) {
  const StateKey old_key = StateKey::Of({1}), new_key = StateKey::Of({2});
  options_.owner_count_max = 3;
  Open(old_key);
  Put("a", "x", "old x");
  Put("a", "y", "old y");
  Put("a", "z", "old z");
  Put("b", "x", "of another");
  Open(StateKeys(new_key, old_key));
  EXPECT_EQ(store_->Get("a", "y"), "old y");
  EXPECT_EQ(store_->Get("b", "x"), "of another");
  EXPECT_EQ(store_->Get("b", "y"), std::nullopt);
  EXPECT_TRUE(store_->Remove("a", "z"));
  EXPECT_EQ(store_->Get("a", "z"), std::nullopt);
  Put("a", "y", "new y");
  EXPECT_EQ(store_->Get("a", "y"), "new y");
  Put("a", "w", "new w");
  EXPECT_EQ(store_->Get("a", "x"), "old x");
  Put("a", "v", "new v");
  EXPECT_EQ(store_->Get("a", "x"), std::nullopt) << "the oldest of four";
  EXPECT_EQ(store_->stats().count, 4u);
  Open(old_key);
  EXPECT_EQ(store_->Get("a", "y"), std::nullopt) << "the old one was replaced";
  EXPECT_EQ(store_->Get("a", "x"), std::nullopt);
  Open(new_key);
  EXPECT_EQ(store_->Get("a", "y"), "new y");
  EXPECT_EQ(store_->Get("a", "w"), "new w");
  EXPECT_EQ(store_->stats().damaged, 0u);
}

TEST_F(DocumentStoreTest, WhatWasChangedOrMovedIsNotThere) {
  for (const StateKey& key : {StateKey(), StateKey::Of({1})}) {
    Open(key);
    Put("a", "x", std::string(100, 'x'));
    const fs::path path = Files().at(0);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    for (size_t i = 0; i < bytes.size(); ++i) {
      store_.reset();
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      std::ofstream(path, std::ios::binary) << changed;
      Open(key);
      EXPECT_EQ(store_->Get("a", "x"), std::nullopt) << "byte " << i;
      EXPECT_TRUE(store_->Settle(std::chrono::minutes(1)));
      EXPECT_FALSE(fs::exists(path)) << "byte " << i;
    }
    // Under the name of another document.
    Put("a", "y", "y");
    const fs::path other = Files().at(0);
    store_.reset();
    fs::remove(other);
    std::ofstream(other, std::ios::binary) << bytes;
    Open(key);
    EXPECT_EQ(store_->stats().count, 1u);
    EXPECT_EQ(store_->Get("a", "y"), std::nullopt);
    EXPECT_EQ(store_->stats().count, 0u);
  }
}

// The clock stands: order does not come from it alone.
TEST_F(DocumentStoreTest, TheYoungestOfAMillisecondStays) {
  options_.wall_ms = [] { return int64_t{1'000'000'000'000}; };
  Open();
  for (int i = 0; i < 16; ++i) Put("owner", std::to_string(i), std::string(2'000, 'x'));
  options_.owner_count_max = 3;
  Open();
  EXPECT_EQ(store_->stats().count, 3u);
  for (int i = 13; i < 16; ++i) {
    EXPECT_TRUE(store_->Get("owner", std::to_string(i)).has_value()) << i;
  }
}

TEST_F(DocumentStoreTest, TheOldestGoFirst) {
  Open();
  for (int i = 0; i < 30; ++i) Put("many", std::to_string(i), "x");
  EXPECT_EQ(store_->stats().count, 20u);
  EXPECT_EQ(store_->Get("many", "9"), std::nullopt);
  EXPECT_TRUE(store_->Get("many", "10").has_value());
  for (int i = 0; i < 8; ++i) Put("large", std::to_string(i), std::string(10'000, 'x'));
  EXPECT_EQ(store_->Get("large", "3"), std::nullopt);
  EXPECT_TRUE(store_->Get("large", "4").has_value());
  EXPECT_TRUE(store_->Get("many", "10").has_value()) << "others keep theirs";
  Put("large", "too large", std::string(60'000, 'x'));
  EXPECT_EQ(store_->Get("large", "too large"), std::nullopt);
  EXPECT_TRUE(store_->Get("large", "7").has_value());
  Put("fourth", "0", std::string(20'000, 'x'));
  for (int i = 0; i < 8; ++i) Put("third", std::to_string(i), std::string(12'000, 'x'));
  EXPECT_LE(store_->stats().bytes, options_.bytes_max);
  EXPECT_EQ(store_->Get("many", "29"), std::nullopt) << "the oldest of all";
  // Smaller bounds hold from the start.
  options_.bytes_max = 30'000;
  Open();
  EXPECT_LE(store_->stats().bytes, 30'000u);
  EXPECT_TRUE(store_->Get("third", "7").has_value());
  uint64_t bytes = 0;
  for (const fs::path& file : Files()) bytes += fs::file_size(file);
  EXPECT_EQ(bytes, store_->stats().bytes);
}

TEST_F(DocumentStoreTest, SoMuchADayAndARestartIsNoNewDay) {
  int64_t now = 1'000'000'000'000;
  options_.wall_ms = [&] { return now; };
  options_.bytes_day_max = 25'000;
  Open();
  for (int i = 0; i < 4; ++i) Put("a", std::to_string(i), std::string(10'000, 'x'));
  EXPECT_EQ(store_->stats().count, 2u);
  EXPECT_EQ(store_->stats().left_out, 2u);
  Open();
  Put("a", "more", std::string(10'000, 'x'));
  EXPECT_EQ(store_->stats().left_out, 1u);
  now += 24 * 3600 * 1000;
  Put("a", "more", std::string(10'000, 'x'));
  EXPECT_TRUE(store_->Get("a", "more").has_value());
}

TEST_F(DocumentStoreTest, ARestartIsNoNewDayThoughWhatWasWrittenIsGone) {
  options_.wall_ms = [] { return int64_t{1'000'000'000'000}; };
  options_.bytes_day_max = 25'000;
  Open();
  for (int i = 0; i < 2; ++i) Put("a", std::to_string(i), std::string(10'000, 'x'));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(store_->Remove("a", std::to_string(i)));
  Open();
  EXPECT_EQ(store_->stats().count, 0u);
  Put("a", "more", std::string(10'000, 'x'));
  EXPECT_EQ(store_->stats().left_out, 1u);
}

TEST_F(DocumentStoreTest, NoFaultOfTheDiskIsMoreThanAnAbsence) {
  for (const std::string call : {"open", "write", "fdatasync", "rename"}) {
    bool failing = true;
    options_.fault = [&](const char* asked) { return failing && asked == call ? ENOSPC : 0; };
    Open();
    Put("a", "x", "content");
    EXPECT_EQ(store_->Get("a", "x"), std::nullopt) << call;
    failing = false;
    Recover();
    EXPECT_TRUE(Files().empty()) << call;
    Put("a", "x", "content");
    EXPECT_EQ(store_->Get("a", "x"), "content") << call;
    options_.fault = [](const char* asked) { return asked == std::string("read") ? EIO : 0; };
    Open();
    EXPECT_EQ(store_->Get("a", "x"), std::nullopt);
    EXPECT_EQ(store_->stats().count, 1u) << "it may be readable again";
    EXPECT_TRUE(store_->Remove("a", "x"));
  }
}

// A start at which the files cannot be opened (their owner is another, there are too many open
// files, the disk stumbles) removes nothing.
TEST_F(DocumentStoreTest, WhatCannotBeReadAtTheStartStays) {
  for (const int error : {EACCES, EMFILE, EIO}) {
    fs::remove_all(options_.path);
    Open();
    for (int i = 0; i < 5; ++i) Put("a", std::to_string(i), "content " + std::to_string(i));
    std::atomic<bool> bad = true;
    options_.fault = [&](const char* call) {
      return bad && call == std::string("read") ? error : 0;
    };
    Open();
    EXPECT_EQ(Files().size(), 5u);
    EXPECT_EQ(store_->stats().count, 5u);
    EXPECT_EQ(store_->stats().damaged, 0u);
    EXPECT_EQ(store_->Get("a", "1"), std::nullopt);
    bad = false;
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(store_->Get("a", std::to_string(i)), "content " + std::to_string(i));
    }
    EXPECT_EQ(store_->Get("b", "1"), std::nullopt);
    EXPECT_TRUE(store_->Remove("a", "1"));
    EXPECT_EQ(store_->stats().count, 4u);
    options_.fault = nullptr;
    Open();
    EXPECT_EQ(store_->stats().count, 4u);
  }
}

TEST_F(DocumentStoreTest, WhatIsNotStoredMakesNothingGo) {
  options_.bytes_max = options_.owner_bytes_max = 101'000;
  options_.owner_count_max = 100;
  options_.bytes_day_max = 101'000;
  options_.wall_ms = [] { return int64_t{1'000'000'000'000}; };
  Open();
  for (int i = 0; i < 20; ++i) Put("a", std::to_string(i), std::string(10'000, 'x'));
  EXPECT_EQ(store_->stats().count, 10u);
  EXPECT_EQ(store_->stats().left_out, 10u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(store_->Get("a", std::to_string(i)).has_value()) << i;
}

// Reads, writes and removals that do not return: everybody is answered in time, and all goes on
// when they do.
TEST_F(DocumentStoreTest, NobodyWaitsForADiskThatHangs) {
  std::mutex mutex;
  std::condition_variable changed;
  std::string hangs;
  options_.timeout_ms = 20;
  options_.fault = [&](const char* call) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return hangs != call; });
    return 0;
  };
  const auto hang = [&](const std::string& call) {
    std::lock_guard lock(mutex);
    hangs = call;
    changed.notify_all();
  };
  Open();
  Put("a", "x", "content");
  hang("read");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(store_->Get("a", "x"), std::nullopt);
  Put("a", "y", "others are written");
  hang("");
  for (int i = 0; i < 1000 && !store_->Get("a", "x"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(store_->Get("a", "x"), "content");
  hang("fdatasync");
  store_->Put("a", "z", "on its way");
  EXPECT_EQ(store_->Get("a", "z"), "on its way");
  EXPECT_EQ(store_->Get("a", "y"), "others are written");
  EXPECT_TRUE(store_->Remove("a", "z"));
  EXPECT_EQ(store_->Get("a", "z"), std::nullopt);
  hang("");
  ASSERT_TRUE(store_->Settle(std::chrono::minutes(1)));
  EXPECT_EQ(store_->Get("a", "z"), std::nullopt);
  Open();
  EXPECT_EQ(store_->stats().count, 2u);
}

TEST_F(DocumentStoreTest, WhatIsNoDocumentIsRemovedOnlyIfItIsNamedAsOne) {
  Open();
  store_.reset();
  const fs::path folder = options_.path;
  const std::string digits(32, 'a');
  std::ofstream(folder / (digits + ".doc")) << "nothing";
  std::ofstream(folder / (digits + ".tmp")) << "half of one";
  std::ofstream(folder / "mine.doc") << "nothing";
  fs::create_directory(folder / (std::string(32, 'b') + ".doc"));
  fs::create_symlink("/etc/passwd", folder / (std::string(32, 'c') + ".doc"));
  Open();
  EXPECT_EQ(store_->stats().count, 0u);
  EXPECT_FALSE(fs::exists(folder / (digits + ".doc")));
  EXPECT_FALSE(fs::exists(folder / (digits + ".tmp")));
  EXPECT_TRUE(fs::exists(folder / "mine.doc"));
  EXPECT_TRUE(fs::exists("/etc/passwd"));
}

}  // namespace
}  // namespace reprise
