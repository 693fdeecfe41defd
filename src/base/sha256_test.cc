// SPDX-License-Identifier: Apache-2.0
// SHA-256 against the vectors of FIPS 180-4, at every length around a block's end.
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(Sha256Test, PublishedVectors) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, LengthsAroundABlock) {
  // The hash of the concatenated hashes of 0..130 letters, from Python's hashlib.
  std::string all;
  for (size_t length = 0; length <= 130; ++length) all += Sha256Hex(std::string(length, 'x'));
  EXPECT_EQ(Sha256Hex(all), "87aca1c44bc7ba8897768170211f0a02063de70801131ff86c7edb9ce32c6a50");
}

}  // namespace
}  // namespace reprise
