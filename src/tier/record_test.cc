// SPDX-License-Identifier: Apache-2.0
// Proves that a record is read back as it was written, or not at all: mutated, cut, lengthened,
// swapped and stale ones are refused. REPRISE_RECORD_CASES=1000000 for the long form.
#include "tier/record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "tier/folder/record_file.h"
#include "tier/pack/pack.h"

namespace reprise {
namespace {

PathId IdOf(uint64_t number) {
  PathId id;
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t word = Mix64(number * 4 + i);
    std::memcpy(id.bytes.data() + 8 * i, &word, 8);
  }
  return id;
}

RecordFacts SomeFacts(uint64_t seed, uint64_t block_bytes, uint64_t state_bytes) {
  RecordFacts facts;
  facts.space = IdOf(0);
  facts.model = IdOf(1);
  facts.parent = IdOf(seed + 2);
  facts.base = IdOf(seed + 3);
  facts.path = IdOf(seed + 4);
  facts.begin = 100;
  facts.end = 300;
  facts.block_bytes = block_bytes;
  facts.state_bytes = state_bytes;
  if (block_bytes > 0) {
    facts.first_block = 1;
    facts.block_count = 4;
  }
  if (state_bytes == 0) {
    for (uint64_t i = 0; i < 3; ++i) facts.marks.push_back(IdOf(seed + 10 + i));
  }
  facts.created_ms = 1234567890123;
  facts.reason = 5;
  return facts;
}

std::vector<std::byte> PartOf(uint64_t seed, size_t index, size_t bytes) {
  std::vector<std::byte> part(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    part[i] = i % 4 == 3 ? std::byte{0x3f} : static_cast<std::byte>(Mix64(seed + index * 77 + i));
  }
  return part;
}

struct Kind {
  bool secret = false;
  bool pack = false;
};

class RecordTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    // In memory where there is such a folder: the cases are many.
    const bool shm = std::filesystem::is_directory("/dev/shm");
    path_ = (shm ? "/dev/shm/reprise_records." + std::to_string(::getpid())
                 : testing::TempDir() + "records");
    std::filesystem::remove_all(path_);
    auto folder = StateFolder::Open(path_, StateFolder::Use::kOwn);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    folder_ = std::move(*folder);
    if (GetParam().secret) key_ = StateKey::Of({1, 2, 3});
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const RecordFacts& facts, uint64_t seed) {
    auto draft = RecordDraft::Create(*folder_, key_, name, facts, GetParam().pack);
    ASSERT_TRUE(draft.ok()) << draft.status().message();
    const RecordLayout layout(facts);
    for (size_t i = 0; i < layout.parts().size(); ++i) {
      auto part = PartOf(seed, i, layout.parts()[i].bytes);
      ASSERT_TRUE(draft->Append(part).ok());
    }
    ASSERT_TRUE(draft->Commit().ok());
    EXPECT_EQ(draft->bytes(), Bytes(name).size());
  }
  std::string FileOf(const std::string& name) const { return path_ + "/" + name + ".state"; }
  std::string Bytes(const std::string& name) const {
    std::ifstream file(FileOf(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Overwrite(const std::string& name, const std::string& bytes) const {
    std::ofstream(FileOf(name), std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string path_;
  std::unique_ptr<StateFolder> folder_;
  StateKey key_;
};

TEST_P(RecordTest, IsReadAsItWasWritten) {
  const RecordFacts shapes[] = {SomeFacts(1, 1000, 500), SomeFacts(2, 0, 9 << 20),
                                SomeFacts(3, 1500, 0), SomeFacts(4, 3 << 20, 5 << 20)};
  for (size_t n = 0; n < std::size(shapes); ++n) {
    const std::string name = StateFolder::RandomName();
    Write(name, shapes[n], n);
    auto file = RecordFile::Open(*folder_, key_, name);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->facts(), shapes[n]);
    const RecordLayout& layout = file->layout();
    EXPECT_EQ(file->bytes(), layout.file_bytes());
    EXPECT_EQ(file->packed(), GetParam().pack);
    if (GetParam().pack) {
      EXPECT_LT(file->bytes(), RecordBytes(shapes[n]));
    } else {
      EXPECT_EQ(file->bytes(), RecordBytes(shapes[n]));
    }
    for (size_t i = 0; i < layout.parts().size(); ++i) {
      std::vector<std::byte> part(layout.parts()[i].bytes);
      ASSERT_TRUE(file->ReadPart(i, part).ok());
      EXPECT_EQ(part, PartOf(n, i, part.size()));
    }
    struct stat facts = {};
    ASSERT_EQ(::stat(FileOf(name).c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
  }
}

TEST_P(RecordTest, ADraftThatEndsLeavesNothing) {
  const RecordFacts facts = SomeFacts(1, 1000, 0);
  {
    auto draft =
        RecordDraft::Create(*folder_, key_, StateFolder::RandomName(), facts, GetParam().pack);
    ASSERT_TRUE(draft.ok());
    auto part = PartOf(1, 0, RecordLayout(facts).parts()[0].bytes);
    ASSERT_TRUE(draft->Append(part).ok());
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_), {}), 1) << "the lock alone";
}

// Every byte is on the disk before the file has its name, and the name is when it is said to be.
TEST_P(RecordTest, IsSyncedAfterItsLastByteAndBeforeItHasItsName) {
  std::string calls;
  folder_->fault = [&](const char* call) {
    if (calls.empty() || calls.substr(calls.rfind(' ') + 1) != call)
      calls += " " + std::string(call);
    return 0;
  };
  struct stat synced = {};
  folder_->fdatasync = [&](int fd) {
    calls += " (file)";
    return ::fstat(fd, &synced);
  };
  folder_->fsync = [&](int fd) {
    EXPECT_EQ(fd, folder_->fd());
    calls += " (folder)";
    return 0;
  };
  const RecordFacts facts = SomeFacts(1, 600, 300);
  Write("0123456789abcdef", facts, 1);
  EXPECT_EQ(calls, " open write fdatasync (file) rename fsync (folder)");
  EXPECT_EQ(static_cast<size_t>(synced.st_size), Bytes("0123456789abcdef").size());
  // What a disk says that fails is heard.
  for (const bool folder : {false, true}) {
    folder_->fdatasync = [&](int) { return folder ? 0 : (errno = EIO, -1); };
    folder_->fsync = [&](int) { return folder ? (errno = EIO, -1) : 0; };
    auto draft = RecordDraft::Create(*folder_, key_, "fedcba9876543210", facts, false);
    ASSERT_TRUE(draft.ok());
    const RecordLayout layout(facts);
    for (size_t i = 0; i < layout.parts().size(); ++i) {
      auto part = PartOf(1, i, layout.parts()[i].bytes);
      ASSERT_TRUE(draft->Append(part).ok());
    }
    EXPECT_FALSE(draft->Commit().ok());
    EXPECT_FALSE(std::filesystem::exists(FileOf("fedcba9876543210")));
    EXPECT_FALSE(TryToWrite(*folder_, 1000).ok());
  }
  folder_->fdatasync = ::fdatasync;
  folder_->fsync = ::fsync;
  EXPECT_TRUE(TryToWrite(*folder_, 1000).ok());
}

TEST_P(RecordTest, NothingButTheRecordItselfIsAccepted) {
  const char* wanted = std::getenv("REPRISE_RECORD_CASES");
  const uint64_t cases = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 4000;
  const std::string a = StateFolder::RandomName(), b = StateFolder::RandomName();
  const std::string victim = StateFolder::RandomName();
  Write(a, SomeFacts(1, 600, 300), 1);
  Write(b, SomeFacts(2, 600, 300), 2);
  const std::string one = Bytes(a), two = Bytes(b);
  const size_t common = std::min(one.size(), two.size());
  Rng rng(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng.Next() % n); };
  for (uint64_t i = 0; i < cases; ++i) {
    std::string bytes = one;
    switch (i % 6) {
      case 0:  // a bit
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
        break;
      case 1:  // some bytes
        for (size_t n = 1 + below(16); n > 0; --n) {
          bytes[below(bytes.size())] = static_cast<char>(rng.Next());
        }
        break;
      case 2:  // cut
        bytes.resize(below(bytes.size()));
        break;
      case 3:  // longer
        bytes.append(1 + below(100), '\0');
        break;
      case 4: {  // a piece of the other record, at the same place
        const size_t from = below(common), size = 1 + below(common - from);
        bytes.replace(from, size, two, from, size);
        break;
      }
      case 5: {  // a piece of its own, elsewhere
        const size_t from = below(bytes.size()), size = 1 + below(bytes.size() - from);
        bytes.replace(below(bytes.size() - size + 1), size, one, from, size);
        break;
      }
    }
    if (bytes == one) continue;
    // The other record, whole, is in order: but not the one that was asked for (Transfers checks
    // its path).
    if (bytes == two) continue;
    Overwrite(victim, bytes);
    ASSERT_FALSE(VerifyRecord(*folder_, key_, victim).ok()) << "case " << i;
  }
  Overwrite(victim, one);
  EXPECT_TRUE(VerifyRecord(*folder_, key_, victim).ok());
}

TEST_P(RecordTest, OfAnotherKeyIsRefused) {
  const std::string name = StateFolder::RandomName();
  Write(name, SomeFacts(1, 600, 300), 1);
  EXPECT_FALSE(VerifyRecord(*folder_, StateKey::Of({9}), name).ok());
  EXPECT_EQ(VerifyRecord(*folder_, StateKey(), name).ok(), !GetParam().secret);
}

// What packing does not make shorter lies there as it is.
TEST_P(RecordTest, NoiseIsNotPacked) {
  const std::string name = StateFolder::RandomName();
  const RecordFacts facts = SomeFacts(1, 600, 300);
  auto draft = RecordDraft::Create(*folder_, key_, name, facts, GetParam().pack);
  ASSERT_TRUE(draft.ok());
  const RecordLayout layout(facts);
  for (size_t i = 0; i < layout.parts().size(); ++i) {
    std::vector<std::byte> part(layout.parts()[i].bytes);
    for (size_t j = 0; j < part.size(); ++j) part[j] = static_cast<std::byte>(Mix64(i + 9 * j));
    ASSERT_TRUE(draft->Append(part).ok());
  }
  ASSERT_TRUE(draft->Commit().ok());
  EXPECT_TRUE(VerifyRecord(*folder_, key_, name).ok());
  EXPECT_EQ(Bytes(name).size(), GetParam().pack ? RecordBytesMax(facts) : RecordBytes(facts));
}

INSTANTIATE_TEST_SUITE_P(PlainPackedAndSecret, RecordTest,
                         testing::Values(Kind{false, false}, Kind{true, false}, Kind{false, true},
                                         Kind{true, true}));

// A packed record as anyone could write it who has the key: what its head says of the parts, and
// the parts.
class ForgedRecord : public testing::Test {
 protected:
  ForgedRecord() {
    std::filesystem::remove_all(path_);
    auto folder = StateFolder::Open(path_, StateFolder::Use::kOwn);
    CHECK(folder.ok());
    folder_ = std::move(*folder);
    const RecordLayout layout(facts_);
    for (const RecordLayout::Part& part : layout.parts()) {
      Packed packed = PackAny(PartOf(1, parts_.size(), part.bytes));
      list_.push_back({packed.width, packed.bytes.size()});
      parts_.push_back(std::move(packed.bytes));
    }
  }
  // With a head of its own, or that of the list.
  Status Verify(std::vector<PackedPart> list, std::vector<std::vector<std::byte>> parts,
                std::vector<std::byte> head = {}) {
    const Seal::Salt salt{7};
    if (head.empty()) head = EncodeHead(facts_, StateKey(), salt, list);
    std::vector<std::byte> file = head;
    Seal seal(StateKey(), salt);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Seal::Tag tag = seal.Close(static_cast<uint32_t>(i + 1), parts[i]);
      const auto tagged = std::as_bytes(std::span(tag));
      file.insert(file.end(), parts[i].begin(), parts[i].end());
      file.insert(file.end(), tagged.begin(), tagged.end());
    }
    std::ofstream(path_ + "/0123456789abcdef.state", std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
    return VerifyRecord(*folder_, StateKey(), "0123456789abcdef");
  }
  // The head of the list as it is, with other bytes behind the facts, or of another version.
  std::vector<std::byte> Head(std::span<const std::byte> list, uint8_t version) const {
    std::vector<std::byte> head = EncodeHead(facts_, StateKey(), Seal::Salt{7});
    head.resize(head.size() - Seal::kTagBytes);
    head.insert(head.end(), list.begin(), list.end());
    head[8] = std::byte{version};
    const auto sealed = static_cast<uint32_t>(head.size() - kRecordFixedBytes);
    std::memcpy(head.data() + 12, &sealed, sizeof(sealed));
    const Seal::Tag tag = Seal(StateKey(), Seal::Salt{7})
                              .Close(0, std::span(head).subspan(kRecordFixedBytes),
                                     std::span(head).first(kRecordFixedBytes));
    const auto tagged = std::as_bytes(std::span(tag));
    head.insert(head.end(), tagged.begin(), tagged.end());
    return head;
  }

  const std::string path_ = testing::TempDir() + "forged";
  std::unique_ptr<StateFolder> folder_;
  RecordFacts facts_ = SomeFacts(1, 600, 300);
  std::vector<PackedPart> list_;
  std::vector<std::vector<std::byte>> parts_;
};

TEST_F(ForgedRecord, ListsThatLieAreRefused) {
  ASSERT_EQ(list_.size(), 2u);
  ASSERT_NE(list_[0].width, 0);
  ASSERT_NE(list_[1].width, 0);
  EXPECT_TRUE(Verify(list_, parts_).ok());
  const uint64_t lies[] = {0,
                           1,
                           list_[0].bytes - 1,
                           list_[0].bytes + 1,
                           2400,
                           2401,
                           uint64_t{1} << 32,
                           uint64_t(-1),
                           uint64_t(-1) - list_[1].bytes};
  for (const uint64_t bytes : lies) {
    for (const int width : {0, 1, 2, 3, 4, 255}) {
      auto list = list_;
      list[0] = {static_cast<uint8_t>(width), bytes};
      EXPECT_FALSE(Verify(list, parts_).ok()) << width << " " << bytes;
      auto parts = parts_;
      if (bytes < 10'000) parts[0].resize(bytes);
      const bool as_it_is = width == 0 && bytes == 2400;  // right, by accident
      EXPECT_EQ(Verify(list, parts).ok(), as_it_is) << width << " " << bytes;
    }
  }
  for (const int width : {0, 1, 3, 6, 255}) {
    auto list = list_;
    list[1].width = static_cast<uint8_t>(width);
    EXPECT_FALSE(Verify(list, parts_).ok()) << width;
  }
  auto parts = parts_;
  std::swap(parts[0], parts[1]);
  EXPECT_FALSE(Verify(list_, parts).ok());
  EXPECT_FALSE(Verify({list_[1], list_[0]}, parts).ok());
}

TEST_F(ForgedRecord, ListsOfAnotherLengthAreRefused) {
  std::vector<std::byte> bytes;
  for (const PackedPart& part : list_) {
    bytes.push_back(std::byte{part.width});
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(part.bytes >> 8 * i));
  }
  EXPECT_TRUE(Verify({}, parts_, Head(bytes, 2)).ok());
  EXPECT_FALSE(Verify({}, parts_, Head(bytes, 1)).ok());
  EXPECT_FALSE(Verify({}, parts_, Head(bytes, 3)).ok());
  for (size_t size = 0; size < 3 * bytes.size(); ++size) {
    auto other = bytes;
    other.resize(size);
    EXPECT_EQ(Verify({}, parts_, Head(other, 2)).ok(), size == bytes.size()) << size;
  }
  EXPECT_FALSE(DecodeHead(Head(bytes, 2), StateKey()).ok()) << "nobody wants to know of parts";
}

TEST_F(ForgedRecord, PartsThatUnpackToSomethingElseAreRefused) {
  const auto with = [&](std::vector<std::byte> bytes) {
    auto list = list_;
    auto parts = parts_;
    list[0] = {4, bytes.size()};
    parts[0] = std::move(bytes);
    return Verify(list, parts);
  };
  for (const size_t size : {size_t{1}, size_t{2399}, size_t{2401}, size_t{64} << 20}) {
    EXPECT_FALSE(with(Pack(std::vector<std::byte>(size, std::byte{1}), 4)).ok()) << size;
  }
  EXPECT_TRUE(with(Pack(std::vector<std::byte>(2400, std::byte{1}), 4)).ok());
  auto cut = parts_[0];
  cut.resize(cut.size() - 1);
  EXPECT_FALSE(with(cut).ok());
  auto longer = parts_[0];
  longer.push_back({});
  EXPECT_FALSE(with(longer).ok());
  // A few bytes that claim to be many: nothing is allocated for them.
  facts_.block_bytes = kBlockBytesMax;
  list_.assign(RecordLayout(facts_).parts().size(), {4, 20});
  parts_.assign(list_.size(), std::vector<std::byte>(20));
  EXPECT_FALSE(Verify(list_, parts_).ok());
}

// Without a secret anyone can write a record whose checksums fit: sizes that cannot be are refused
// before anything is allocated for them.
TEST(Record, FactsThatCannotBeAreRefused) {
  const auto head_of = [](RecordFacts facts) {
    // Encodes what it is given only if that can be: so change the bytes, then seal them again.
    return EncodeHead(facts, StateKey(), RandomSalt());
  };
  const auto good = head_of(SomeFacts(1, 600, 300));
  ASSERT_TRUE(DecodeHead(good, StateKey()).ok());
  constexpr size_t kNumbers = kRecordFixedBytes + 5 * sizeof(PathId);
  const auto forge = [&](size_t at, uint64_t value, size_t bytes) {
    auto head = good;
    std::memcpy(head.data() + kNumbers + at, &value, bytes);
    const auto preamble = DecodePreamble(head);
    const auto facts = std::span(head).subspan(kRecordFixedBytes, preamble->sealed_bytes);
    const Seal::Tag tag =
        Seal(StateKey(), preamble->salt).Close(0, facts, std::span(head).first(kRecordFixedBytes));
    std::memcpy(head.data() + head.size() - tag.size(), tag.data(), tag.size());
    return DecodeHead(head, StateKey()).status();
  };
  EXPECT_TRUE(forge(4, 300, 4).ok()) << "the same end";
  EXPECT_FALSE(forge(0, uint32_t(-1), 4).ok()) << "begin";
  EXPECT_FALSE(forge(0, 0, 4).ok()) << "a parent, and nothing to continue";
  EXPECT_FALSE(forge(4, 100, 4).ok()) << "end";
  EXPECT_FALSE(forge(4, uint32_t(INT32_MAX), 4).ok()) << "end";
  EXPECT_FALSE(forge(8, 2, 4).ok()) << "first block";
  EXPECT_FALSE(forge(12, uint32_t(-1), 4).ok()) << "block count";
  EXPECT_FALSE(forge(16, uint64_t(-1), 8).ok()) << "bytes of a block";
  EXPECT_FALSE(forge(16, 0, 8).ok()) << "blocks of nothing";
  // A file of holes is as long as it says, and whoever reads it takes memory for a part.
  EXPECT_TRUE(forge(16, kBlockBytesMax, 8).ok());
  for (const uint64_t bytes :
       {uint64_t{kBlockBytesMax} + 1, uint64_t{3} << 30, uint64_t{60} << 30}) {
    EXPECT_EQ(forge(16, bytes, 8).code(), StatusCode::kDataLoss) << bytes;
  }
  EXPECT_FALSE(forge(24, uint64_t(-1), 8).ok()) << "bytes of a snapshot";
  EXPECT_FALSE(forge(44, uint32_t(-1), 4).ok()) << "marks";
  EXPECT_FALSE(forge(44, 1, 4).ok()) << "marks that are not there";
}

}  // namespace
}  // namespace reprise
