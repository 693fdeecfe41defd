// SPDX-License-Identifier: Apache-2.0
// Names of models, listings of hubs, and which files a name means.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hub/names/choice.h"
#include "hub/names/listing.h"
#include "hub/names/model_name.h"

namespace reprise::hub {
namespace {

TEST(ModelName, HasFourParts) {
  const auto name = ModelName::Parse("hf:org/repo-GGUF@refs/pr/1:UD/model file.gguf");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->repo, "org/repo-GGUF");
  EXPECT_EQ(name->revision, "refs/pr/1");
  EXPECT_EQ(name->wanted, "UD/model file.gguf");
  EXPECT_EQ(ModelName::Parse("hf://org/repo")->revision, "main");
  EXPECT_EQ(ModelName::Parse("gpt2")->repo, "gpt2");
}

TEST(ModelName, NothingLeavesTheCache) {
  for (const char* text : {"",      "hf:",  "../x",   "a/../b",   "a/b/c",       "/etc/passwd",
                           "a/",    "/b",   "a b/c",  "a/b@../x", "a/b@/x",      "a/b@x//y",
                           "a/b@",  "a/b:", "a--b/c", "-a/b",     "a/b@.hidden", "a/b@x/.hidden",
                           "a/b\n", "a/.b"}) {
    EXPECT_FALSE(ModelName::Parse(text).ok()) << text;
  }
}

constexpr char kCommit[] = "1111111111111111111111111111111111111111";
const std::string kSha(64, 'a');
const std::string kGit(40, 'b');

TEST(Listing, TakesSizesAndDigests) {
  const auto listing = Listing::Parse(
      R"({"sha":")" + std::string(kCommit) + R"(","siblings":[)" +
      R"({"rfilename":"m.gguf","size":5,"blobId":")" + kGit + R"(","lfs":{"sha256":")" + kSha +
      R"(","size":5}},{"rfilename":"a/config.json","size":7,"blobId":")" + kGit +
      R"("},{"rfilename":"bare"}]})");
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->Find("m.gguf")->digest, kSha);
  EXPECT_EQ(listing->Find("a/config.json")->digest, kGit);
  EXPECT_EQ(listing->Find("a/config.json")->bytes, 7u);
  EXPECT_EQ(listing->Find("bare")->digest, "");
}

TEST(Listing, PathsStayInsideAndOccurOnce) {
  for (const char* path :
       {"../x", "/x", "a/../b", "a//b", "a/", ".", "..", "", "a\\\\b", "a\\nb"}) {
    const auto listing = Listing::Parse(R"({"sha":")" + std::string(kCommit) +
                                        R"(","siblings":[{"rfilename":")" + path + R"("}]})");
    ASSERT_TRUE(listing.ok()) << path;
    EXPECT_TRUE(listing->files.empty()) << path;
  }
  const auto twice =
      Listing::Parse(R"({"sha":")" + std::string(kCommit) +
                     R"(","siblings":[{"rfilename":"a"},{"rfilename":"a"},7,null]})");
  EXPECT_EQ(twice->files.size(), 1u);
}

TEST(Listing, WithoutACommitThereIsNone) {
  for (const char* json : {"", "<html>", "[]", "{}", R"({"sha":"main","siblings":[]})",
                           R"({"sha":"1111111111111111111111111111111111111111"})"}) {
    EXPECT_FALSE(Listing::Parse(json).ok()) << json;
  }
}

TEST(Quantisation, IsFoundInNames) {
  EXPECT_EQ(FindQuantisation("Qwen3-8B-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(FindQuantisation("qwen3-8b.q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(FindQuantisation("x/Qwen3-UD-IQ2_XXS-00001-of-00003.gguf"), "UD-IQ2_XXS");
  EXPECT_EQ(FindQuantisation("model-f16.gguf"), "F16");
  EXPECT_EQ(FindQuantisation("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(FindQuantisation("Qwen3-8B.gguf"), "");
}

std::vector<HubFile> Files(const std::vector<std::string>& paths) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({path, 10 + files.size(), kSha});
  return files;
}

std::string Chosen(const std::vector<std::string>& paths, const std::string& wanted) {
  const auto model = Choose(FindModels(Files(paths)), wanted);
  if (!model.ok()) return "! " + model.status().message();
  std::string text;
  for (const HubFile& file : model->files) text += (text.empty() ? "" : " ") + file.path;
  return text;
}

TEST(Choice, AQuantisationInAnyCaseOrAFile) {
  const std::vector<std::string> paths = {"README.md",   "m-Q4_K_M.gguf",   "m-UD-Q4_K_M.gguf",
                                          "m-Q8_0.gguf", "mmproj-F16.gguf", "mtp-m.gguf"};
  EXPECT_EQ(Chosen(paths, "q4_k_m"), "m-Q4_K_M.gguf");
  EXPECT_EQ(Chosen(paths, "UD-Q4_K_M"), "m-UD-Q4_K_M.gguf");
  EXPECT_EQ(Chosen(paths, "m-Q8_0.gguf"), "m-Q8_0.gguf");
  EXPECT_EQ(Chosen(paths, "M-Q8_0"), "m-Q8_0.gguf");
  EXPECT_EQ(Chosen(paths, "mmproj-f16.gguf"), "mmproj-F16.gguf");
}

TEST(Choice, AnAmbiguousOrMissingOneNamesTheChoices) {
  const std::vector<std::string> paths = {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf"};
  EXPECT_EQ(Chosen(paths, ""), "! say which one, as in ':Q8_0'; there is Q4_K_M, Q8_0");
  EXPECT_EQ(Chosen(paths, "Q6_K"), "! there is no 'Q6_K'; there is Q4_K_M, Q8_0");
  EXPECT_EQ(Chosen({"a-Q8_0.gguf", "b-Q8_0.gguf"}, "Q8_0"),
            "! there is no 'Q8_0'; there is a-Q8_0.gguf, b-Q8_0.gguf");
  EXPECT_EQ(Chosen({"x/m.gguf", "y/m.gguf"}, "m.gguf"),
            "! 'm.gguf' is the name of several files: x/m.gguf, y/m.gguf");
  EXPECT_NE(Chosen({"README.md"}, "").find("no GGUF file"), std::string::npos);
  EXPECT_NE(Chosen({"pytorch_model.bin", "config.json"}, "").find("format"), std::string::npos);
}

TEST(Choice, PartsBelongTogetherAndAllMustBeThere) {
  EXPECT_EQ(Chosen({"b/m-BF16-00002-of-00002.gguf", "b/m-BF16-00001-of-00002.gguf"}, "bf16"),
            "b/m-BF16-00001-of-00002.gguf b/m-BF16-00002-of-00002.gguf");
  EXPECT_EQ(Chosen({"m-BF16-00001-of-00002.gguf", "m-Q8_0.gguf"}, "BF16"),
            "! parts of BF16 are missing on the hub; there is Q8_0");
}

TEST(Choice, AFolderHasItsTextsAndItsShards) {
  EXPECT_EQ(Chosen({"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                    "pytorch_model.bin.index.json", "tokenizer.json", "chat_template.jinja",
                    "onnx/model.onnx", "1_Pooling/config.json", "merges.txt", "README.md"},
                   ""),
            "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json tokenizer.json chat_template.jinja "
            "1_Pooling/config.json merges.txt");
  EXPECT_EQ(Chosen({"config.json", "model.safetensors", "m-Q8_0.gguf"}, ""),
            "config.json model.safetensors");
}

}  // namespace
}  // namespace reprise::hub
