// SPDX-License-Identifier: Apache-2.0
// Proves that quantised folders give the weights of their formats' own code, bit for bit
// (tests/data/recipes, made by tools/make_recipe_fixtures.py), and that what does not fit together,
// or is not known, is refused.
#include "weights/recipe/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "weights/checkpoint.h"
#include "weights/convert.h"

namespace reprise {
namespace {

// The number of matrices of a folder, each compared with what it stands for.
int Compare(const std::string& path) {
  const auto checkpoint = OpenCheckpoint("tests/data/" + path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  int count = 0;
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    if (tensor.recipe == nullptr) continue;
    SCOPED_TRACE(tensor.name);
    const std::string stem(tensor.name.substr(0, tensor.name.size() - std::strlen(".weight")));
    const StoredTensor* expected = checkpoint->Find(stem + ".expected");
    EXPECT_NE(expected, nullptr);
    EXPECT_EQ(expected->dtype, tensor.dtype);
    EXPECT_EQ(expected->shape, tensor.shape);
    std::vector<std::byte> rows(expected->bytes.size());
    ConvertRows(tensor, tensor.dtype, 0, tensor.shape.rows(), rows.data());
    EXPECT_EQ(std::memcmp(rows.data(), expected->bytes.data(), rows.size()), 0);
    ++count;
  }
  return count;
}

TEST(Recipe, Fp8InBlocksAndWhole) { EXPECT_EQ(Compare("recipes/fp8"), 3); }
TEST(Recipe, CompressedTensors) { EXPECT_EQ(Compare("recipes/compressed-tensors"), 16); }
// Blocks alone, slices with a scale each, and one scale; scales are no tensors of their own.
TEST(Recipe, Nvfp4OfGguf) {
  EXPECT_EQ(Compare("nvfp4.gguf"), 3);
  const auto checkpoint = OpenCheckpoint("tests/data/nvfp4.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors().size(), 6u);
  EXPECT_EQ(checkpoint->Find("b.scale"), nullptr);
  EXPECT_EQ(checkpoint->Find("b.weight")->shape, (Shape{2, 3, 64}));
}

TEST(Recipe, ScalesThatDoNotFitNvfp4) {
  const std::vector<std::byte> bytes(size_t{6} * 36);
  StoredTensor blocks{"x.weight", DType::kBF16, {2, 3, 64}, bytes};
  const auto fits = [&](DType dtype, int64_t count) {
    const StoredTensor scale{"x.scale", dtype, {count}, bytes};
    return MakeNvfp4Recipe(blocks, &scale) != nullptr;
  };
  EXPECT_TRUE(fits(DType::kF32, 1));
  EXPECT_TRUE(fits(DType::kF32, 2));
  EXPECT_FALSE(fits(DType::kF32, 3));
  EXPECT_FALSE(fits(DType::kBF16, 1));
  blocks.shape = {6, 64};
  EXPECT_FALSE(fits(DType::kF32, 2));
}

// Named in config.json, or in a file of ModelOpt's own.
TEST(Recipe, ModelOpt) {
  EXPECT_EQ(Compare("recipes/modelopt"), 2);
  EXPECT_EQ(Compare("recipes/modelopt_file"), 2);
}
TEST(Recipe, Awq) { EXPECT_EQ(Compare("recipes/awq"), 1); }
TEST(Recipe, GptqInAnyOrder) {
  EXPECT_EQ(Compare("recipes/gptq"), 1);
  EXPECT_EQ(Compare("recipes/gptq8"), 1);
  EXPECT_EQ(Compare("recipes/gptq2"), 1);
}

// Parts whose bytes the test owns.
struct Folder {
  std::map<std::string, std::vector<std::byte>> bytes;
  std::map<std::string, StoredPart> parts;

  void Add(const std::string& name, std::string_view type, const Shape& shape, size_t element) {
    const auto at = bytes.emplace(name, size_t(shape.elements()) * element).first;
    parts[name] = {at->first, type, shape, at->second, 0};
  }
  std::vector<std::unique_ptr<Recipe>> Find(std::string_view config) const {
    const auto document = JsonDocument::Parse(config);
    EXPECT_TRUE(document.ok());
    std::vector<StoredPart> all;
    for (const auto& [name, part] : parts) all.push_back(part);
    return FindRecipes(document->root(), all);
  }
};

constexpr char kGptq[] = R"({"quant_method": "gptq", "bits": 4})";

Folder Gptq() {
  Folder folder;
  folder.Add("x.qweight", "I32", {4, 16}, 4);
  folder.Add("x.qzeros", "I32", {2, 2}, 4);
  folder.Add("x.scales", "F16", {2, 16}, 2);
  folder.Add("x.g_idx", "I32", {32}, 4);
  return folder;
}

TEST(Recipe, PartsThatDoNotFitAreNone) {
  EXPECT_EQ(Gptq().Find(kGptq).size(), 1u);
  for (const char* name : {"x.qzeros", "x.scales"}) {
    Folder folder = Gptq();
    folder.parts.erase(name);
    EXPECT_TRUE(folder.Find(kGptq).empty()) << name;
  }
  for (const char* name : {"x.qzeros", "x.scales", "x.g_idx"}) {
    Folder folder = Gptq();
    folder.Add(name + std::string("2"), "I32", {3, 3}, 4);
    folder.parts[name] = folder.parts[name + std::string("2")];
    folder.parts[name].name = name;
    folder.parts.erase(name + std::string("2"));
    EXPECT_TRUE(folder.Find(kGptq).empty()) << name;
  }
  Folder twice = Gptq();
  twice.Add("x.weight", "F16", {16, 32}, 2);
  EXPECT_TRUE(twice.Find(kGptq).empty());
}

// ModelOpt's weights whose activations are scaled first are none that we compute.
TEST(Recipe, WeightsBehindScaledActivationsAreNone) {
  constexpr char kConfig[] = R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})";
  Folder folder;
  folder.Add("x.weight", "U8", {4, 16}, 1);
  folder.Add("x.weight_scale", "F8_E4M3", {4, 2}, 1);
  EXPECT_TRUE(folder.Find(kConfig).empty());
  folder.Add("x.weight_scale_2", "F32", {}, 4);
  EXPECT_EQ(folder.Find(kConfig).size(), 1u);
  EXPECT_TRUE(folder.Find(R"({"quant_method": "fp8"})").empty());
  folder.Add("x.pre_quant_scale", "BF16", {32}, 2);
  EXPECT_TRUE(folder.Find(kConfig).empty());
}

// The values are those of a group that exists, or a NaN that the logits show.
TEST(Recipe, GroupsOutsideMakeNaN) {
  Folder folder = Gptq();
  const int32_t groups[] = {2, -1, 1};
  std::memcpy(folder.bytes["x.g_idx"].data(), groups, sizeof groups);
  const auto recipes = folder.Find(kGptq);
  ASSERT_EQ(recipes.size(), 1u);
  float row[32];
  MakeRow(*recipes[0], 15, row);
  EXPECT_TRUE(std::isnan(row[0]) && std::isnan(row[1]));
  for (int c = 2; c < 32; ++c) EXPECT_EQ(std::fabs(row[c]), 0.0f);
}

TEST(Recipe, OtherMethodsAreRefusedByName) {
  const auto told = [](std::string_view config) {
    const auto document = JsonDocument::Parse(config);
    const Status status = CheckQuantisation(document->root());
    return status.ok() ? std::string() : status.message();
  };
  EXPECT_EQ(told(kGptq), "");
  EXPECT_NE(told(R"({"quant_method": "bitsandbytes"})").find("\"bitsandbytes\""),
            std::string::npos);
  EXPECT_NE(told(R"({"quant_method": "awq", "version": "gemv"})").find("\"gemv\""),
            std::string::npos);
  EXPECT_NE(told(R"({"quant_method": "gptq", "bits": 3})").find("3 bits"), std::string::npos);
  EXPECT_NE(told("{}").find("an unnamed method"), std::string::npos);
  EXPECT_EQ(told(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"), "");
  EXPECT_EQ(told(FromModelOptFile(R"({"quantization": {"quant_algo": "FP8"}})")), "");
  EXPECT_NE(told(R"({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"})").find("W4A16_AWQ"),
            std::string::npos);
  for (const char* nothing :
       {"", "[]", "{}", R"({"quantization": 1})", R"({"quantization": {}})"}) {
    EXPECT_EQ(FromModelOptFile(nothing), "");
  }
}

}  // namespace
}  // namespace reprise
