// SPDX-License-Identifier: Apache-2.0
#include "picture/decode.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "picture/orientation.h"

namespace reprise {
namespace {

constexpr char kFiles[] = "tests/corpus/picture_fuzz/";

std::string ReadFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  CHECK(file.ok());
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

std::string DigestOf(const Pixels& pixels) {
  return Sha256Hex({reinterpret_cast<const char*>(pixels.rgb.data()), pixels.rgb.size()});
}

// Every format and kind: the pixels are Pillow's.
TEST(DecodeTest, PixelsAreThoseOfPillow) {
  const std::string text = ReadFile("tests/data/pictures/decoded.json");
  const auto expected = JsonDocument::Parse(text);
  ASSERT_TRUE(expected.ok());
  size_t count = 0;
  for (const auto& [name, facts] : expected->root().members()) {
    SCOPED_TRACE(std::string(name));
    const auto pixels = DecodePicture(ReadFile(kFiles + std::string(name)));
    ASSERT_TRUE(pixels.ok()) << pixels.status().message();
    EXPECT_EQ(pixels->width, facts.items()[0].as_int());
    EXPECT_EQ(pixels->height, facts.items()[1].as_int());
    EXPECT_EQ(DigestOf(*pixels), facts.items()[2].as_string());
    ++count;
  }
  EXPECT_GE(count, 32u);
}

TEST(DecodeTest, WhatCannotBeReadIsSaid) {
  const auto why = [](const std::string& file, const PictureLimits& limits = {}) {
    const auto pixels = DecodePicture(file, limits);
    return pixels.ok() ? std::string() : pixels.status().message();
  };
  for (const char* name : {"cut.png", "cut.jpg", "cut.webp", "cut.gif"}) {
    EXPECT_NE(why(ReadFile(std::string(kFiles) + name)).find("cannot be read"), std::string::npos)
        << name;
  }
  EXPECT_NE(why(ReadFile(std::string(kFiles) + "bomb.png")).find("32000 x 32000"),
            std::string::npos);
  EXPECT_NE(why(ReadFile(std::string(kFiles) + "cmyk.jpg")).find("CMYK"), std::string::npos);
  EXPECT_NE(why(ReadFile(std::string(kFiles) + "bomb.gif")).find("65535 x 65535"),
            std::string::npos);
  EXPECT_NE(why("GIF89a").find("the GIF picture cannot be read"), std::string::npos);
  EXPECT_NE(why("GIF89b").find("no picture"), std::string::npos);
  EXPECT_NE(why("").find("no picture"), std::string::npos);
  EXPECT_NE(why("hello").find("no picture"), std::string::npos);
  const std::string small = ReadFile(std::string(kFiles) + "rgb.png");
  EXPECT_EQ(why(small, {.side_max = 19, .pixels_max = 19 * 13}), "");
  EXPECT_NE(why(small, {.side_max = 18, .pixels_max = 1000}), "");
  EXPECT_NE(why(small, {.side_max = 100, .pixels_max = 19 * 13 - 1}), "");
}

// Cut anywhere, and with any byte changed: pixels of the right number, or a sentence.
TEST(DecodeTest, DamagedFiles) {
  for (const char* name : {"rgba.png", "turned.png", "rgb_420.jpg", "progressive.jpg", "lossy.webp",
                           "lossless.webp", "interlaced.gif", "apart.gif", "moving.gif"}) {
    const std::string file = ReadFile(std::string(kFiles) + name);
    const PictureLimits limits{.side_max = 2000, .pixels_max = 1 << 20};
    const auto look = [&](const std::string& changed) {
      const auto pixels = DecodePicture(changed, limits);
      if (pixels.ok()) {
        EXPECT_EQ(pixels->rgb.size(), size_t(pixels->width) * size_t(pixels->height) * 3);
      } else {
        EXPECT_FALSE(pixels.status().message().empty());
      }
    };
    for (size_t size = 0; size < file.size(); ++size) look(file.substr(0, size));
    for (size_t at = 0; at < file.size(); ++at) {
      for (const int change : {1, 0x80, 0xFF}) {
        std::string changed = file;
        changed[at] = static_cast<char>(changed[at] ^ change);
        look(changed);
      }
    }
  }
}

TEST(DecodeTest, OrientationOfDamagedData) {
  EXPECT_EQ(ExifOrientation(""), 1);
  EXPECT_EQ(ExifOrientation("II*"), 1);
  const std::string sound("II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0", 22);
  EXPECT_EQ(ExifOrientation(sound), 6);
  for (size_t size = 0; size < sound.size() - 2; ++size) {
    EXPECT_EQ(ExifOrientation(sound.substr(0, size)), 1) << size;
  }
  std::string far = sound;
  far.replace(4, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(ExifOrientation(far), 1);
}

}  // namespace
}  // namespace reprise
