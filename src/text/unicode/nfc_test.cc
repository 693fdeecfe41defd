// SPDX-License-Identifier: Apache-2.0
// Proves: canonical composition of the cases that matter (order of marks, composition exclusions,
// Hangul, blocked marks), that invalid bytes survive, and that the quick check never says yes where
// text changes.
#include "text/unicode/nfc.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"

namespace reprise::unicode {
namespace {

std::string FromCodes(std::initializer_list<uint32_t> codes) {
  std::string text;
  for (const uint32_t code : codes) AppendUtf8(code, &text);
  return text;
}

std::string Nfc(std::string_view text) {
  std::string out;
  AppendNfc(text, &out);
  return out;
}

TEST(NfcTest, Composes) {
  EXPECT_EQ(Nfc("plain ASCII"), "plain ASCII");
  EXPECT_EQ(Nfc(FromCodes({'e', 0x301})), FromCodes({0xE9}));
  EXPECT_EQ(Nfc(FromCodes({'x', 'e', 0x301, 'y'})), FromCodes({'x', 0xE9, 'y'}));
  EXPECT_EQ(Nfc(FromCodes({'o', 0x308, 0x304})), FromCodes({0x22B}));
  EXPECT_EQ(Nfc(FromCodes({'a', 0x302, 0x323})), FromCodes({0x1EAD}));  // reordered, then composed
  EXPECT_EQ(Nfc(FromCodes({'q', 0x307, 0x323})), FromCodes({'q', 0x323, 0x307}));
  EXPECT_EQ(Nfc(FromCodes({'a', 0x315, 0x300, 0x5AE, 0x62})), FromCodes({0xE0, 0x5AE, 0x315, 'b'}));
}

TEST(NfcTest, SingletonsAndExclusions) {
  EXPECT_EQ(Nfc(FromCodes({0x212B})), FromCodes({0xC5}));         // Angstrom sign
  EXPECT_EQ(Nfc(FromCodes({0x2126})), FromCodes({0x3A9}));        // Ohm sign
  EXPECT_EQ(Nfc(FromCodes({0x344})), FromCodes({0x308, 0x301}));  // never recomposed
  EXPECT_EQ(Nfc(FromCodes({0x958})), FromCodes({0x915, 0x93C}));  // excluded
  EXPECT_EQ(Nfc(FromCodes({0x2ADC})), FromCodes({0x2ADD, 0x338}));
  EXPECT_EQ(Nfc(FromCodes({0xF900})), FromCodes({0x8C48}));
  EXPECT_EQ(Nfc(FromCodes({0x1D15E})), FromCodes({0x1D157, 0x1D165}));
}

TEST(NfcTest, Hangul) {
  EXPECT_EQ(Nfc(FromCodes({0x1100, 0x1161})), FromCodes({0xAC00}));
  EXPECT_EQ(Nfc(FromCodes({0x1100, 0x1161, 0x11A8})), FromCodes({0xAC01}));
  EXPECT_EQ(Nfc(FromCodes({0xAC00, 0x11A8})), FromCodes({0xAC01}));
  EXPECT_EQ(Nfc(FromCodes({0xAC01, 0x11A8})), FromCodes({0xAC01, 0x11A8}));
  EXPECT_EQ(Nfc(FromCodes({0x1100, 0x300, 0x1161})), FromCodes({0x1100, 0x300, 0x1161}));
}

TEST(NfcTest, BlockedMarksStay) {
  EXPECT_EQ(Nfc(FromCodes({'e', 0x300, 0x301})), FromCodes({0xE8, 0x301}));
  EXPECT_EQ(Nfc(FromCodes({'a', 0x5AE, 0x5AE, 0x300})), FromCodes({0xE0, 0x5AE, 0x5AE}));
  EXPECT_EQ(Nfc(FromCodes({0x9C7, 0x334, 0x9BE})), FromCodes({0x9C7, 0x334, 0x9BE}));
}

TEST(NfcTest, FollowsUnicode9) {
  // U+16D63 U+16D67 compose since Unicode 16, which the reference library does not know.
  const std::string text = FromCodes({0x16D63, 0x16D67});
  EXPECT_EQ(Nfc(text), text);
}

TEST(NfcTest, InvalidBytesSurvive) {
  for (const std::string_view text : {"\xFF", "e\xCC", "\xCC\x81\x80", "a\xED\xA0\x80\xCC\x81"}) {
    EXPECT_EQ(Nfc(text), text);
  }
  EXPECT_EQ(Nfc("\xFF"
                "e\xCC\x81\xFF"),
            "\xFF\xC3\xA9\xFF");
}

TEST(NfcTest, QuickCheckIsSafeAndNfcIsStable) {
  static constexpr uint32_t kCodes[] = {
      'a',    'e',    0xE9,   0x300,  0x301, 0x323, 0x334, 0x345, 0x3B1, 0x1100,  0x1161,
      0x11A8, 0xAC00, 0x212B, 0x4E2D, 0x344, 0x958, 0x93C, 0x9C7, 0x9BE, 0x1F600, 0xF900};
  Rng rng(11);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t n = rng.Below(8); n > 0; --n)
      AppendUtf8(kCodes[rng.Below(std::size(kCodes))], &text);
    const std::string normal = Nfc(text);
    if (IsSurelyNfc(text)) {
      EXPECT_EQ(normal, text);
    }
    EXPECT_EQ(Nfc(normal), normal);
  }
}

}  // namespace
}  // namespace reprise::unicode
