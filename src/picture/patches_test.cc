// SPDX-License-Identifier: Apache-2.0
#include "picture/patches.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "picture/resize.h"

namespace reprise {
namespace {

// As tools/make_picture_fixtures.py makes it.
Pixels Generated(int width, int height, int seed, int kind) {
  Pixels pixels{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        uint64_t value = 0;
        if (kind == 0) {
          value = (uint64_t((y * width + x) * 3 + c + seed) * 0x9E3779B97F4A7C15ull) >> 56;
        } else if (kind == 1) {
          value = uint64_t(x * 255 / width + y * (c + 1) + seed) % 256;
        } else {
          value = ((x / (3 + seed % 7)) + (y / (2 + c))) % 2 == 0 ? 0 : 255;
        }
        pixels.rgb.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return pixels;
}

template <typename T>
std::string DigestOf(const std::vector<T>& values) {
  return Sha256Hex({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// 200 pictures: sizes, bytes after resizing and values of patches are those of Transformers.
TEST(PatchesTest, AsTransformersMakesThem) {
  const auto file = MappedFile::Open("tests/data/pictures/patched.json");
  ASSERT_TRUE(file.ok());
  const std::string text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  const auto cases = JsonDocument::Parse(text);
  ASSERT_TRUE(cases.ok());
  ASSERT_EQ(cases->root().items().size(), 200u);
  for (const JsonValue& one : cases->root().items()) {
    const auto number = [&](const char* name) {
      return static_cast<int>(one.Find(name)->as_int());
    };
    PatchRules rules;
    rules.patch = number("patch");
    rules.merge = number("merge");
    rules.pixels_min = number("least");
    rules.pixels_max = number("most");
    if (one.Find("clip")->as_bool()) {
      rules.mean = {0.48145466f, 0.4578275f, 0.40821073f};
      rules.deviation = {0.26862954f, 0.26130258f, 0.27577711f};
    }
    const int width = number("width"), height = number("height");
    SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height) + " seed " +
                 std::to_string(number("seed")) + " kind " + std::to_string(number("kind")));
    const auto size = PatchedSize({width, height}, rules);
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(size->width, number("to_width"));
    EXPECT_EQ(size->height, number("to_height"));
    const Pixels resized =
        Resize(Generated(width, height, number("seed"), number("kind")), size->width, size->height);
    EXPECT_EQ(DigestOf(resized.rgb), one.Find("rgb")->as_string());
    const int64_t patches = int64_t{size->width / rules.patch} * (size->height / rules.patch),
                  half = patches / 2;
    std::vector<float> values = MakePatches(resized, rules, 0, half);
    const std::vector<float> rest = MakePatches(resized, rules, half, patches);
    values.insert(values.end(), rest.begin(), rest.end());
    EXPECT_EQ(DigestOf(values), one.Find("values")->as_string());
  }
}

// 120 more, as Gemma 3 and Gemma 4 have them made to fit.
TEST(PatchesTest, FitAsTransformersFitsThem) {
  const auto file = MappedFile::Open("tests/data/pictures/fitted.json");
  ASSERT_TRUE(file.ok());
  const std::string text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  const auto cases = JsonDocument::Parse(text);
  ASSERT_TRUE(cases.ok());
  ASSERT_EQ(cases->root().items().size(), 120u);
  for (const JsonValue& one : cases->root().items()) {
    const auto number = [&](const char* name) {
      return static_cast<int>(one.Find(name)->as_int());
    };
    PatchRules rules;
    rules.frames = 1;
    const bool square = one.Find("square")->as_bool();
    rules.fit = square ? PictureFit::kSquare : PictureFit::kTokens;
    rules.filter = square ? ResizeFilter::kBilinear : ResizeFilter::kBicubic;
    rules.merge = square ? 1 : 3;
    (square ? rules.side : rules.tokens_max) = number("limit");
    const int width = number("width"), height = number("height");
    SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height) + " seed " +
                 std::to_string(number("seed")) + " kind " + std::to_string(number("kind")));
    const auto size = PatchedSize({width, height}, rules);
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(size->width, number("to_width"));
    EXPECT_EQ(size->height, number("to_height"));
    const Pixels resized = Resize(Generated(width, height, number("seed"), number("kind")),
                                  size->width, size->height, rules.filter);
    EXPECT_EQ(DigestOf(resized.rgb), one.Find("rgb")->as_string());
  }
}

TEST(PatchesTest, LongPicturesAreRefused) {
  EXPECT_TRUE(PatchedSize({2000, 10}, {}).ok());
  EXPECT_FALSE(PatchedSize({2001, 10}, {}).ok());
  EXPECT_FALSE(PatchedSize({1, 201}, {}).ok());
  // 1080p: 60 x 34 tokens.
  EXPECT_EQ(PatchedSize({1920, 1080}, {})->width, 1920);
  EXPECT_EQ(PatchedSize({1920, 1080}, {})->height, 1088);
}

}  // namespace
}  // namespace reprise
