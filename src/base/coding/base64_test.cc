// SPDX-License-Identifier: Apache-2.0
#include "base/coding/base64.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(Base64Test, Examples) {
  EXPECT_EQ(FromBase64(""), "");
  EXPECT_EQ(FromBase64("Zg=="), "f");
  EXPECT_EQ(FromBase64("Zg"), "f");
  EXPECT_EQ(FromBase64("Zm8="), "fo");
  EXPECT_EQ(FromBase64("Zm9v"), "foo");
  EXPECT_EQ(FromBase64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(FromBase64("/+8A"), std::string("\xFF\xEF\0", 3));
}

TEST(Base64Test, WhatIsNone) {
  for (const char* text :
       {"Z", "Zm9vY", "Zh==", "Zm9=", "====", "Z===", "Zm 9", "Zm9v\n", "Zm-_", "Zg=v", "=Zg="}) {
    EXPECT_FALSE(FromBase64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace reprise
