// SPDX-License-Identifier: Apache-2.0
// Proves that nobody has more than a share of the connections, however many addresses they have.
#include "http/shares/places.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace reprise::http {
namespace {

// Places only tells connections apart.
class Guests {
 public:
  Connection* at(size_t i) { return reinterpret_cast<Connection*>(&there_[i]); }

 private:
  std::array<char, 64> there_ = {};
};

TEST(ClientOf, AnIpv6NetworkIsOneClient) {
  EXPECT_EQ(ClientOf("192.0.2.7"), "192.0.2.7");
  EXPECT_NE(ClientOf("192.0.2.7"), ClientOf("192.0.2.8"));
  EXPECT_EQ(ClientOf("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(ClientOf("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientOf("2001:db8:1:2::1"), ClientOf("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(ClientOf("2001:db8:1:2::1"), ClientOf("2001:db8:1:3::1"));
  EXPECT_EQ(ClientOf("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(ClientOf("::1"), "::1");
  EXPECT_EQ(ClientOf(""), "");
}

TEST(Places, AddressesOfOneNetworkHaveOneShare) {
  Places places(/*count_max=*/32, /*address_max=*/4);
  Guests guests;
  Connection* leaves = nullptr;
  const auto enter = [&](size_t i, const std::string& address) {
    return places.Enter(guests.at(i), ClientOf(address), &leaves);
  };
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(enter(i, "2001:db8::" + std::to_string(1 + i)), i < 4) << i;
  }
  EXPECT_EQ(places.size(), 4u);
  EXPECT_TRUE(enter(20, "2001:db8:0:1::1")) << "another network";
  places.SetWaiting(guests.at(2), true);
  EXPECT_TRUE(enter(21, "2001:db8::99"));
  EXPECT_EQ(leaves, guests.at(2)) << "the one that waits gives way";
  EXPECT_EQ(places.size(), 5u);
}

}  // namespace
}  // namespace reprise::http
