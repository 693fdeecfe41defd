// SPDX-License-Identifier: Apache-2.0
// Large records are read by several threads: whole or not at all, and nobody else waits for them.
#include "tier/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace reprise {
namespace {

constexpr size_t kParts = 12;  // of a large record: three pieces of four
constexpr auto kLong = std::chrono::seconds(20);

std::byte ByteOf(size_t part) { return static_cast<std::byte>(part * 7 + 1); }

// Records that are snapshots: "large" has kParts parts, any other one. Parts of the large one can
// be held back, or be damaged.
class HeldHome : public RecordHome {
 public:
  const char* kind() const override { return "held"; }
  std::string where() const override { return "here"; }
  bool shared() const override { return false; }
  std::string NameFor(const RecordFacts&) override { return {}; }
  Result<std::unique_ptr<RecordSink>> Create(const std::string&, const RecordFacts&) override {
    return Unimplemented("nothing is written");
  }
  void Remove(const std::string&) override {}
  void Touch(const std::string&) override {}

  static RecordFacts FactsOf(const std::string& name) {
    RecordFacts facts;
    facts.path.bytes[0] = name == "large" ? 1 : 2;
    facts.end = 1;
    facts.state_bytes = name == "large" ? kParts * kPartBytes : kPartBytes;
    return facts;
  }

  Result<std::unique_ptr<RecordSource>> Open(const std::string& name) override {
    return std::unique_ptr<RecordSource>(new Source(*this, name));
  }

  void Hold(std::set<size_t> parts) { held_ = std::move(parts); }
  void Damage(size_t part) { damaged_ = part; }
  void LetGo(const std::set<size_t>& parts) {
    std::lock_guard lock(mutex_);
    for (const size_t part : parts) held_.erase(part);
    changed_.notify_all();
  }
  // Waits until somebody reads each of them.
  bool AreRead(const std::set<size_t>& parts) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] {
      return std::includes(begun_.begin(), begun_.end(), parts.begin(), parts.end());
    });
  }

 private:
  class Source : public RecordSource {
   public:
    Source(HeldHome& home, const std::string& name)
        : home_(home), large_(name == "large"), facts_(FactsOf(name)), layout_(facts_) {}
    const RecordFacts& facts() const override { return facts_; }
    const RecordLayout& layout() const override { return layout_; }
    Status ReadPart(size_t index, std::span<std::byte> out) override {
      std::fill(out.begin(), out.end(), ByteOf(index));
      return large_ ? home_.Pass(index) : OkStatus();
    }

   private:
    HeldHome& home_;
    const bool large_;
    const RecordFacts facts_;
    const RecordLayout layout_;
  };

  Status Pass(size_t part) {
    std::unique_lock lock(mutex_);
    begun_.insert(part);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_.contains(part); });
    return part == damaged_ ? DataLoss("damaged") : OkStatus();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<size_t> begun_;
  std::set<size_t> held_;
  size_t damaged_ = kParts;
};

class TransfersTest : public ::testing::Test {
 protected:
  static Transfers::ReadJob JobFor(uint64_t ticket, const std::string& name) {
    const RecordFacts facts = HeldHome::FactsOf(name);
    Transfers::ReadJob job;
    job.ticket = ticket;
    job.steps = {{name, facts.path, 0, 0, true}};
    job.state_bytes = facts.state_bytes;
    return job;
  }

  void Begin(int readers) {
    transfers_ = std::make_unique<Transfers>(home_, readers, [this] {
      std::lock_guard lock(mutex_);
      ++told_;
      told_more_.notify_all();
    });
  }
  // The next read that ends; ticket 0 if none does.
  Transfers::ReadDone Next() {
    std::unique_lock lock(mutex_);
    if (!told_more_.wait_for(lock, kLong, [&] { return told_ > 0; })) return {};
    --told_;
    lock.unlock();
    std::vector<Transfers::ReadDone> done = transfers_->TakeReads();
    return done.empty() ? Transfers::ReadDone{} : std::move(done.front());
  }
  void TearDown() override {
    std::set<size_t> all;
    for (size_t part = 0; part < kParts; ++part) all.insert(part);
    home_.LetGo(all);
  }

  HeldHome home_;
  std::mutex mutex_;
  std::condition_variable told_more_;
  int told_ = 0;
  std::unique_ptr<Transfers> transfers_;
};

TEST_F(TransfersTest, SeveralReadersShareALargeRecord) {
  home_.Hold({0, 4, 8});
  Begin(3);
  transfers_->Read(JobFor(1, "large"));
  EXPECT_TRUE(home_.AreRead({0, 4, 8})) << "each piece has its reader";
  home_.LetGo({0, 4, 8});
  const Transfers::ReadDone done = Next();
  ASSERT_EQ(done.ticket, 1u);
  ASSERT_TRUE(done.status.ok()) << done.status.message();
  const auto bytes = done.bytes.bytes();
  ASSERT_EQ(bytes.size(), kParts * kPartBytes);
  for (size_t part = 0; part < kParts; ++part) {
    const auto piece = bytes.subspan(part * kPartBytes, kPartBytes);
    EXPECT_EQ(std::count(piece.begin(), piece.end(), ByteOf(part)), ptrdiff_t(kPartBytes)) << part;
  }
}

TEST_F(TransfersTest, OneBadPieceIsABadRecord) {
  home_.Damage(kParts - 1);
  Begin(3);
  transfers_->Read(JobFor(1, "large"));
  const Transfers::ReadDone done = Next();
  ASSERT_EQ(done.ticket, 1u);
  EXPECT_EQ(done.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(done.failed, "large");
  EXPECT_TRUE(done.bytes.bytes().empty());
}

// Readers help with a large record when nothing else is there to be read, not before.
TEST_F(TransfersTest, ASmallRecordDoesNotWaitForPiecesOfALargeOne) {
  home_.Hold({0, 4, 8});
  Begin(2);
  transfers_->Read(JobFor(1, "large"));
  ASSERT_TRUE(home_.AreRead({0, 4}));  // both readers have a piece, one is left
  transfers_->Read(JobFor(2, "small"));
  home_.LetGo({4});
  EXPECT_EQ(Next().ticket, 2u);
  home_.LetGo({0, 8});
  EXPECT_EQ(Next().ticket, 1u);
}

TEST_F(TransfersTest, AnEndDoesNotWaitForPiecesThatNobodyHas) {
  home_.Hold({0});
  Begin(1);
  transfers_->Read(JobFor(1, "large"));
  ASSERT_TRUE(home_.AreRead({0}));
  std::thread ends([&] { transfers_.reset(); });
  home_.LetGo({0});
  ends.join();
}

}  // namespace
}  // namespace reprise
