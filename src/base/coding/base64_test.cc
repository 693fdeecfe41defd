// SPDX-License-Identifier: Apache-2.0
// Proves that texts are those of RFC 4648, that every byte string comes back, and that of all other
// texts none is read as bytes: two texts never mean the same, but for their padding.
#include "base/coding/base64.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace reprise {
namespace {

// Section 10 of the RFC, with and without padding.
TEST(Base64Test, VectorsOfTheRfc) {
  constexpr std::string_view kBytes = "foobar";
  const char* const texts[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t size = 0; size <= kBytes.size(); ++size) {
    const std::string text = texts[size];
    const std::string bytes(kBytes.substr(0, size));
    EXPECT_EQ(ToBase64(bytes), text);
    EXPECT_EQ(FromBase64(text), bytes);
    EXPECT_EQ(FromBase64(text.substr(0, text.find('='))), bytes);
  }
  EXPECT_EQ(FromBase64("/+8A"), std::string("\xFF\xEF\0", 3));
  EXPECT_EQ(ToBase64(std::string_view("\xFF\xEF\0", 3)), "/+8A");
}

TEST(Base64Test, WhatIsNone) {
  for (const char* text :
       {"Z",        "Zm9vY", "Zh==",     "Zm9=",         "=",          "==",
        "====",     "Z===",  "Zg=",      "Zm8==",        "Zm9v=",      "Zm9v==",
        "Zm9v====", "Zm 9",  " Zm9v",    "Zm9v\n",       "Zm9v\r\n",   "Zm-_",
        "Zg=v",     "=Zg=",  "Zg==Zg==", "Zm9v\xC3\xA4", "Zm\xFF\xFF", "data:Zm9v"}) {
    EXPECT_FALSE(FromBase64(text).has_value()) << text;
  }
  EXPECT_FALSE(FromBase64(std::string_view("Zm9\0", 4)).has_value());
}

// What is read spells itself again: no second text of the same bytes is accepted.
TEST(Base64Test, WhatIsReadIsTheTextOfItsBytes) {
  constexpr std::string_view kLetters = "AQgwBZz09+/=-_ \n";
  Rng rng(1);
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text(rng.Below(9), ' ');
    for (char& c : text) c = kLetters[rng.Below(kLetters.size())];
    const auto bytes = FromBase64(text);
    if (!bytes) continue;
    ++read;
    while (text.size() % 4 != 0) text += '=';
    EXPECT_EQ(ToBase64(*bytes), text);
  }
  EXPECT_GT(read, 1000);
}

TEST(Base64Test, BytesComeBack) {
  Rng rng(2);
  for (size_t size = 0; size < 600; ++size) {
    std::string bytes(size, ' ');
    for (char& c : bytes) c = static_cast<char>(rng.Below(256));
    const std::string text = ToBase64(bytes);
    EXPECT_EQ(text.size(), (size + 2) / 3 * 4);
    EXPECT_EQ(FromBase64(text), bytes);
  }
}

}  // namespace
}  // namespace reprise
