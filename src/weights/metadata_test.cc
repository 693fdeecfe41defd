// SPDX-License-Identifier: Apache-2.0
// Proves that hyper-parameters of both formats come back with the type and range that was asked
// for, or as one sentence with the key.
#include "weights/metadata.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_file.h"

namespace reprise {
namespace {

constexpr IntRange kAny{INT64_MIN, INT64_MAX};

std::string Sentence(const Status& status) { return status.message(); }

class GgufMetadata : public testing::Test {
 protected:
  GgufMetadata()
      : map_(MappedFile::Open("tests/data/tiny.gguf").value()),
        file_(GgufFile::Parse(map_.bytes()).value()) {}
  MappedFile map_;
  GgufFile file_;
  const Metadata metadata_{&file_};
};

TEST_F(GgufMetadata, Scalars) {
  EXPECT_EQ(*metadata_.Text("general.architecture"), "qwen3");
  EXPECT_EQ(*metadata_.Int("t.u8", kAny), 200);
  EXPECT_EQ(*metadata_.Number("t.f32"), 0.5);
  EXPECT_EQ(*metadata_.Number("t.u8"), 200.0);
  EXPECT_EQ(*metadata_.Bool("t.bool"), true);
  EXPECT_TRUE(metadata_.Has("t.u8"));
  EXPECT_FALSE(metadata_.Has("t.none"));
}

TEST_F(GgufMetadata, SectionsArePrefixes) {
  const Metadata qwen = metadata_.Section("qwen3");
  EXPECT_EQ(*qwen.Int("block_count", {1, 1024}), 28);
  EXPECT_EQ(*metadata_.Section("qwen3").Section("x").IntOr("y", 4, kAny), 4);
}

// llama.cpp #25821: a block_count beyond the reader's fixed arrays.
TEST_F(GgufMetadata, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(Sentence(metadata_.Section("qwen3").Int("block_count", {1, 27}).status()),
            "metadata \"qwen3.block_count\" is 28; expected 1 to 27");
  EXPECT_EQ(Sentence(metadata_.IntOr("qwen3.block_count", 1, {29, 30}).status()),
            "metadata \"qwen3.block_count\" is 28; expected 29 to 30");
  EXPECT_EQ(Sentence(metadata_.Number("t.f32", {1, 2}).status()),
            "metadata \"t.f32\" is 0.5; expected 1 to 2");
  EXPECT_FALSE(metadata_.Ints("t.ints", 3, {0, 9}).ok());
}

TEST_F(GgufMetadata, MissingAndMistyped) {
  EXPECT_EQ(metadata_.Int("t.none", kAny).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Sentence(metadata_.Text("t.none").status()), "metadata \"t.none\" is missing");
  EXPECT_EQ(Sentence(metadata_.Int("t.string", kAny).status()),
            "metadata \"t.string\" is not an integer");
  EXPECT_FALSE(metadata_.Int("t.ints", kAny).ok());
  EXPECT_FALSE(metadata_.Int("t.u64", kAny).ok());  // does not fit
  EXPECT_FALSE(metadata_.Int("t.f32", kAny).ok());
  EXPECT_FALSE(metadata_.Number("t.bool").ok());
  EXPECT_FALSE(metadata_.Number("t.floats").ok());
  EXPECT_FALSE(metadata_.Bool("t.u8").ok());
  EXPECT_FALSE(metadata_.Bool("t.bools").ok());
  EXPECT_FALSE(metadata_.Text("t.strings").ok());
  EXPECT_FALSE(metadata_.TextOr("t.u8", "").ok());
  EXPECT_FALSE(metadata_.Texts("t.string", 9).ok());
  EXPECT_FALSE(metadata_.Texts("t.ints", 9).ok());
  EXPECT_FALSE(metadata_.Ints("t.u8", 9, kAny).ok());
  EXPECT_FALSE(metadata_.Numbers("t.strings", 9).ok());
}

TEST_F(GgufMetadata, Arrays) {
  EXPECT_EQ(*metadata_.Ints("t.ints", 3, kAny), (std::vector<int64_t>{3, -1, 2}));
  EXPECT_EQ(*metadata_.Ints("t.bools", 3, kAny), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(*metadata_.Numbers("t.floats", 2), (std::vector<double>{0.25, -2}));
  EXPECT_EQ(*metadata_.Texts("t.strings", 4),
            (std::vector<std::string_view>{"a", "", "Ġthe", "漢字"}));
  EXPECT_EQ(Sentence(metadata_.Texts("t.strings", 3).status()),
            "metadata \"t.strings\" has 4 elements; expected at most 3");
  EXPECT_FALSE(metadata_.Ints("t.ints", 2, kAny).ok());
}

TEST_F(GgufMetadata, PerLayer) {
  EXPECT_EQ(*metadata_.IntPerLayer("t.ints", 3, kAny), (std::vector<int64_t>{3, -1, 2}));
  EXPECT_EQ(*metadata_.IntPerLayer("t.u8", 2, kAny), (std::vector<int64_t>{200, 200}));
  EXPECT_EQ(*metadata_.IntPerLayer("t.bool", 2, kAny), (std::vector<int64_t>{1, 1}));
  EXPECT_FALSE(metadata_.IntPerLayer("t.ints", 2, kAny).ok());
  EXPECT_FALSE(metadata_.IntPerLayer("t.ints", 4, kAny).ok());
  EXPECT_FALSE(metadata_.IntPerLayer("t.none", 4, kAny).ok());
}

class ConfigMetadata : public testing::Test {
 protected:
  const JsonDocument document_ = ParseConfigJson(R"({
      "model_type": "qwen3_5", "hidden_size": 64, "big": 1e6, "half": 0.5, "null": null,
      "tied": true, "architectures": ["A", "B"], "limits": [0.0, Infinity],
      "new": {"__float__": "-Infinity"}, "nan": NaN, "quoted": "Infinity \" NaN",
      "text_config": {"hidden_size": 32, "rope": {"theta": 1e7}}, "mixed": [1, "a"]})")
                                     .value();
  const Metadata metadata_{document_.root()};
};

TEST_F(ConfigMetadata, Values) {
  EXPECT_EQ(*metadata_.Text("model_type"), "qwen3_5");
  EXPECT_EQ(*metadata_.Int("hidden_size", kAny), 64);
  EXPECT_EQ(*metadata_.Int("big", kAny), 1000000);
  EXPECT_FALSE(metadata_.Int("half", kAny).ok());
  EXPECT_EQ(*metadata_.Number("half"), 0.5);
  EXPECT_EQ(*metadata_.Bool("tied"), true);
  EXPECT_FALSE(metadata_.Has("null"));
  EXPECT_EQ(*metadata_.IntOr("null", 7, kAny), 7);
  EXPECT_EQ(*metadata_.Texts("architectures", 9), (std::vector<std::string_view>{"A", "B"}));
  EXPECT_EQ(*metadata_.Text("quoted"), "Infinity \" NaN");
  EXPECT_FALSE(metadata_.Texts("mixed", 9).ok());
  EXPECT_FALSE(metadata_.Ints("mixed", 9, kAny).ok());
  EXPECT_EQ(Sentence(metadata_.Int("none", kAny).status()), "config.json: \"none\" is missing");
}

TEST_F(ConfigMetadata, SectionsAreObjects) {
  const Metadata text = metadata_.Section("text_config");
  EXPECT_EQ(*text.Int("hidden_size", kAny), 32);
  EXPECT_EQ(*text.Section("rope").Number("theta"), 1e7);
  EXPECT_EQ(Sentence(text.Section("rope").Number("none").status()),
            "config.json: \"text_config.rope.none\" is missing");
  EXPECT_FALSE(metadata_.Section("hidden_size").Has("x"));
  EXPECT_FALSE(metadata_.Section("none").Section("none").Has("x"));
}

// Python writes infinities into JSON in two ways, neither of them JSON.
TEST_F(ConfigMetadata, Infinities) {
  const std::vector<double> limits = *metadata_.Numbers("limits", 2);
  EXPECT_EQ(limits[1], INFINITY);
  EXPECT_FALSE(metadata_.Number("new").ok());  // not finite, and nobody asked for more
  EXPECT_EQ(*metadata_.Number("new", {-INFINITY, 0}), -INFINITY);
  EXPECT_FALSE(metadata_.Number("nan", {-INFINITY, INFINITY}).ok());
  EXPECT_FALSE(ParseConfigJson("{\"a\": Infinit}").ok());
  EXPECT_FALSE(ParseConfigJson("{Infinity: 1}").ok());
  EXPECT_FALSE(ParseConfigJson("{\"a\": \"\\").ok());
}

TEST(Metadata, EmptyHasNothing) {
  EXPECT_FALSE(Metadata().Has("x"));
  EXPECT_FALSE(Metadata().Section("x").Has("y"));
  EXPECT_FALSE(Metadata().Int("x", kAny).ok());
}

}  // namespace
}  // namespace reprise
