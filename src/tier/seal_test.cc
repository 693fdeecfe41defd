// SPDX-License-Identifier: Apache-2.0
// Proves that what is sealed opens only as it was: unchanged, whole, in its place, by its key.
#include "tier/seal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "base/rng.h"

namespace reprise {
namespace {

std::vector<std::byte> SomeBytes(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(Mix64(i));
  return bytes;
}

StateKey SomeKey(uint8_t first) {
  StateKey::Bytes secret{};
  secret[0] = first;
  return StateKey::Of(secret);
}

class SealTest : public testing::TestWithParam<bool> {
 protected:
  StateKey key() const { return GetParam() ? SomeKey(1) : StateKey(); }
};

TEST_P(SealTest, OpensWhatWasClosed) {
  const Seal::Salt salt = RandomSalt();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16}, size_t{1000}, size_t{1} << 20}) {
    const auto plain = SomeBytes(size);
    auto data = plain;
    const Seal::Tag tag = Seal(key(), salt).Close(7, data, plain);
    if (GetParam() && size >= 16) {
      EXPECT_NE(std::memcmp(data.data(), plain.data(), size), 0);
    }
    EXPECT_TRUE(Seal(key(), salt).Open(7, data, tag, plain));
    EXPECT_EQ(data, plain);
  }
}

TEST_P(SealTest, RefusesEverythingElse) {
  const Seal::Salt salt = RandomSalt();
  const auto plain = SomeBytes(100);
  auto closed = plain;
  Seal seal(key(), salt);
  const Seal::Tag tag = seal.Close(3, closed, plain);
  const auto opens = [&](Seal& by, uint32_t part, std::vector<std::byte> data, Seal::Tag with,
                         std::span<const std::byte> also) {
    return by.Open(part, data, with, also);
  };
  ASSERT_TRUE(opens(seal, 3, closed, tag, plain));
  EXPECT_FALSE(opens(seal, 4, closed, tag, plain)) << "another part";
  EXPECT_FALSE(opens(seal, 3, closed, tag, std::span(plain).first(99))) << "another head";
  EXPECT_FALSE(opens(seal, 3, {closed.begin(), closed.end() - 1}, tag, plain)) << "cut";
  Seal other(key(), RandomSalt());
  EXPECT_FALSE(opens(other, 3, closed, tag, plain)) << "another record";
  for (size_t bit = 0; bit < 8 * closed.size(); ++bit) {
    auto changed = closed;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(opens(seal, 3, changed, tag, plain));
  }
  for (size_t bit = 0; bit < 8 * tag.size(); ++bit) {
    Seal::Tag changed = tag;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(opens(seal, 3, closed, changed, plain));
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutSecret, SealTest, testing::Bool());

TEST(Seal, AnotherKeyOpensNothing) {
  const Seal::Salt salt = RandomSalt();
  auto data = SomeBytes(64);
  const Seal::Tag tag = Seal(SomeKey(1), salt).Close(1, data);
  EXPECT_FALSE(Seal(SomeKey(2), salt).Open(1, data, tag));
}

TEST(StateKey, NamespacesAreKeyedAndUnambiguous) {
  const StateKey none, a = SomeKey(1), b = SomeKey(2);
  EXPECT_EQ(a.NamespaceOf("model", "tenant"), a.NamespaceOf("model", "tenant"));
  EXPECT_NE(a.NamespaceOf("model", "tenant"), b.NamespaceOf("model", "tenant"));
  EXPECT_NE(a.NamespaceOf("model", "tenant"), none.NamespaceOf("model", "tenant"));
  EXPECT_NE(a.NamespaceOf("model", "tenant"), a.NamespaceOf("modelt", "enant"));
  EXPECT_NE(a.NamespaceOf("model", ""), a.NamespaceOf("", "model"));
}

TEST(StateKey, ReadsBytesAndDigitsThatOnlyTheOwnerMayRead) {
  const std::string path = testing::TempDir() + "state.key";
  const auto write = [&](const std::string& text, mode_t mode) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  };
  write(std::string(32, '\x11'), 0600);
  const auto raw = StateKey::Read(path);
  std::string digits;
  for (int i = 0; i < 32; ++i) digits += "11";
  write(digits + "\n", 0400);
  const auto hex = StateKey::Read(path);
  ASSERT_TRUE(raw.ok() && hex.ok());
  EXPECT_TRUE(raw->secret());
  EXPECT_EQ(raw->NamespaceOf("a", "b"), hex->NamespaceOf("a", "b"));
  write(digits, 0640);
  EXPECT_NE(StateKey::Read(path).status().message().find("chmod"), std::string::npos);
  write("too short", 0600);
  EXPECT_EQ(StateKey::Read(path).status().code(), StatusCode::kInvalidArgument);
  write(digits.substr(1) + "x", 0600);
  EXPECT_EQ(StateKey::Read(path).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StateKey::Read(path + ".none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(StateKey::Read(testing::TempDir()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reprise
