// SPDX-License-Identifier: Apache-2.0
// Proves that GGUF files, split sets and Hugging Face folders open as one kind of thing; that what
// does not fit together is refused; and, where the shared goldens are present, that they open.
#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/mapped_file.h"
#include "weights/format/gguf_writer.h"
#include "weights/format/safetensors.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : folder_(fs::path(testing::TempDir()) / "checkpoint_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // A file of tensors [2, 2] of ones.
  void WriteShard(const std::string& name, const std::vector<std::string>& tensors) {
    SafetensorsWriter writer;
    for (const std::string& tensor : tensors) writer.AddTensor(tensor, DType::kF32, {2, 2});
    ASSERT_TRUE(writer.Open(folder_ / name).ok());
    const std::vector<float> ones(4 * tensors.size(), 1.0f);
    ASSERT_TRUE(writer.Append(std::as_bytes(std::span(ones))).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  std::string Refusal() {
    const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
    return checkpoint.ok() ? "" : checkpoint.status().message();
  }

  const fs::path folder_;
};

#define EXPECT_SAYS(text, sentence) EXPECT_NE((text).find(sentence), std::string::npos) << (text)

// Levels and scales become one tensor where they fit together, and are left alone where not.
TEST_F(CheckpointTest, Mxfp4OfAFolderIsOneTensor) {
  Write("config.json", R"({"model_type": "gpt_oss"})");
  const auto write = [&](const std::string& scales_shape, int scales) {
    std::string header =
        R"({"x_blocks": {"dtype": "U8", "shape": [2, 3, 2, 16], "data_offsets": [0, 192]}, )"
        R"("x_scales": {"dtype": "U8", "shape": )" +
        scales_shape + R"(, "data_offsets": [192, )" + std::to_string(192 + scales) + "]}}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header.size();
    Write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + header +
                                   std::string(size_t(192 + scales), '\x55'));
  };
  write("[2, 3, 2]", 12);
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const StoredTensor* tensor = checkpoint->Find("x_blocks");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kMXFP4);
  EXPECT_EQ(tensor->shape, (Shape{2, 3, 64}));
  EXPECT_EQ(tensor->bytes.size() + tensor->scales.size(), *TensorBytes(DType::kMXFP4, {2, 3, 64}));
  EXPECT_EQ(checkpoint->tensor_bytes(), 204u);
  checkpoint->Release(*tensor);
  for (const auto& [shape, scales] :
       {std::pair{"[2, 3, 1]", 6}, {"[6, 2]", 12}, {"[2, 3, 3]", 18}}) {
    write(shape, scales);
    const Result<Checkpoint> other = OpenCheckpoint(folder_);
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_EQ(other->Find("x_blocks"), nullptr) << shape;
    EXPECT_SAYS(other->Require("x_blocks", {2, 3, 64}).status().message(), "has type U8");
  }
}

TEST_F(CheckpointTest, OneGgufFile) {
  const Result<Checkpoint> checkpoint = OpenCheckpoint("tests/data/tiny.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->format(), CheckpointFormat::kGguf);
  EXPECT_EQ(checkpoint->architecture(), "qwen3");
  EXPECT_EQ(checkpoint->tensors().size(), size_t{kDTypeCount - 1});
  uint64_t bytes = 0;
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    EXPECT_EQ(checkpoint->Find(tensor.name), &tensor);
    bytes += tensor.bytes.size();
  }
  EXPECT_EQ(checkpoint->tensor_bytes(), bytes);
  EXPECT_EQ(checkpoint->Find("none"), nullptr);
  EXPECT_EQ(checkpoint->ReadText("tokenizer.json").status().code(), StatusCode::kNotFound);
}

TEST_F(CheckpointTest, RequireNamesWhatIsWrong) {
  const Result<Checkpoint> checkpoint = OpenCheckpoint("tests/data/tiny.gguf");
  EXPECT_TRUE(checkpoint->Require("q4_k.weight", {2, 256}).ok());
  EXPECT_EQ(checkpoint->Require("q4_k.weight", {256, 2}).status().message(),
            "tests/data/tiny.gguf: tensor \"q4_k.weight\" has shape [2, 256]; expected [256, 2]");
  EXPECT_EQ(checkpoint->Require("none", {1}).status().message(),
            "tests/data/tiny.gguf: tensor \"none\" is missing");
}

// Released bytes come back from the file when they are touched again.
TEST_F(CheckpointTest, Release) {
  const Result<Checkpoint> checkpoint = OpenCheckpoint("tests/data/tiny.gguf");
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    const std::byte first = tensor.bytes[0];
    checkpoint->Release(tensor);
    EXPECT_EQ(tensor.bytes[0], first);
  }
}

TEST_F(CheckpointTest, ASplitSetFromAnyOfItsParts) {
  for (const char* part : {"1", "2", "3"}) {
    const Result<Checkpoint> checkpoint =
        OpenCheckpoint("tests/data/split-0000" + std::string(part) + "-of-00003.gguf");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(checkpoint->architecture(), "llama");
    EXPECT_EQ(*checkpoint->metadata().Text("general.name"), "parts");
    ASSERT_EQ(checkpoint->tensors().size(), 5u);
    EXPECT_EQ(checkpoint->files().size(), 3u);
    EXPECT_EQ(checkpoint->Find("blk.4.weight")->file, 2);
    EXPECT_EQ(checkpoint->Find("blk.2.weight")->bytes[1], std::byte{(31 * 2 + 7) % 251});
  }
}

TEST_F(CheckpointTest, ASplitSetWithPartsThatDoNotBelong) {
  const auto copy = [&](const std::string& from, const std::string& to) {
    fs::copy_file("tests/data/split-0000" + from + "-of-00003.gguf", folder_ / to,
                  fs::copy_options::overwrite_existing);
  };
  const std::string first = folder_ / "m-00001-of-00003.gguf";
  copy("1", "m-00001-of-00003.gguf");
  copy("2", "m-00002-of-00003.gguf");
  EXPECT_EQ(OpenCheckpoint(first).status().message(),
            std::string(folder_ / "m-00003-of-00003.gguf") + " is missing: " + first +
                " is part 1 of 3 of a model, and all are needed");
  copy("2", "m-00003-of-00003.gguf");
  EXPECT_SAYS(OpenCheckpoint(first).status().message(),
              "m-00003-of-00003.gguf: it says that it is part 2 of 3, and its name says that it is "
              "part 3 of 3");
  copy("3", "m-00003-of-00003.gguf");
  EXPECT_TRUE(OpenCheckpoint(first).ok());
  copy("1", "renamed.gguf");
  EXPECT_SAYS(OpenCheckpoint(folder_ / "renamed.gguf").status().message(),
              "its name must end with -00001-of-00003.gguf");
}

// Parts of one set whose numbers are right and whose content is another model's.
TEST_F(CheckpointTest, ASplitSetOfTwoModels) {
  struct Given {
    std::string architecture;  // of the second part; empty: it says nothing
    int64_t tensors = 2;
    std::string tensor = "b";
  };
  const auto refusal = [&](const Given& given, int64_t promised) {
    const auto write = [&](int number, const std::string& tensor, const std::string& architecture,
                           int64_t tensors) {
      GgufWriter writer;
      if (!architecture.empty()) writer.PutString("general.architecture", architecture);
      writer.Put<uint16_t>("split.no", uint16_t(number - 1));
      writer.Put<uint16_t>("split.count", 2);
      writer.Put<int32_t>("split.tensors.count", int32_t(tensors));
      const std::vector<float> ones(32, 1.0f);
      CHECK(writer.AddTensor(tensor, DType::kF32, {1, 32}).ok());
      CHECK(writer.Open(folder_ / ("n-0000" + std::to_string(number) + "-of-00002.gguf")).ok());
      CHECK(writer.Append(std::as_bytes(std::span(ones))).ok());
      CHECK(writer.Finish().ok());
    };
    write(1, "a", "llama", promised);
    write(2, given.tensor, given.architecture, given.tensors);
    const auto opened = OpenCheckpoint(folder_ / "n-00002-of-00002.gguf");
    return opened.ok() ? std::string() : opened.status().message();
  };
  EXPECT_EQ(refusal({"", 2, "b"}, 2), "");
  EXPECT_EQ(refusal({"llama", 2, "b"}, 2), "");
  EXPECT_SAYS(refusal({"qwen3", 2, "b"}, 2),
              "n-00002-of-00002.gguf: it is part 2 of 2 of another model than the first part: "
              "general.architecture is \"qwen3\" there and \"llama\" here");
  EXPECT_SAYS(refusal({"", 7, "b"}, 2), "the numbers of tensors that they promise differ");
  EXPECT_SAYS(refusal({"", 3, "b"}, 3),
              "its 2 parts hold 2 tensors, and the model has 3: they are not of one model");
  EXPECT_SAYS(refusal({"", 2, "a"}, 2), "tensor \"a\" is in two files");
}

TEST_F(CheckpointTest, AFolderWithOneFile) {
  Write("config.json", R"({"model_type": "llama", "num_hidden_layers": 2})");
  Write("tokenizer.json", "{}");
  WriteShard("model.safetensors", {"b", "a"});
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->format(), CheckpointFormat::kHuggingFace);
  EXPECT_EQ(checkpoint->architecture(), "llama");
  EXPECT_EQ(*checkpoint->metadata().Int("num_hidden_layers", {1, 9}), 2);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
  EXPECT_EQ(checkpoint->tensor_bytes(), 32u);
  EXPECT_EQ(*checkpoint->ReadText("tokenizer.json"), "{}");
  EXPECT_EQ(checkpoint->ReadText("none.json").status().code(), StatusCode::kNotFound);
  checkpoint->Release(checkpoint->tensors()[0]);
  EXPECT_TRUE(checkpoint->Require("a", {2, 2}).ok());
  Checkpoint moved = OpenCheckpoint(folder_).value();  // views survive a move
  EXPECT_EQ(moved.architecture(), "llama");
  EXPECT_EQ(moved.Find("b")->name, "b");
}

TEST_F(CheckpointTest, AFolderWithShards) {
  Write("config.json", "{}");
  WriteShard("model-00001-of-00002.safetensors", {"a", "c"});
  WriteShard("model-00002-of-00002.safetensors", {"b"});
  Write("model.safetensors.index.json", R"({"metadata": {"total_size": 48}, "weight_map": {
      "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
      "c": "model-00001-of-00002.safetensors"}})");
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->architecture(), "");
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(checkpoint->Find("b")->file, 1);
  EXPECT_EQ(checkpoint->Find("c")->file, 0);

  Write("model.safetensors.index.json",
        R"({"weight_map": {"b": "model-00001-of-00002.safetensors"}})");
  EXPECT_SAYS(Refusal(), "tensor \"b\" is not in \"model-00001-of-00002.safetensors\"");
  WriteShard("model-00002-of-00002.safetensors", {"b", "a"});
  Write("model.safetensors.index.json", R"({"weight_map": {
      "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  EXPECT_SAYS(Refusal(), "tensor \"a\" is in two files");
}

// CVE-2024-37032: names from a file that lead out of its folder.
TEST_F(CheckpointTest, AnIndexCannotLeaveItsFolder) {
  Write("config.json", "{}");
  for (const char* name :
       {"../x.safetensors", "/etc/passwd", "a/b", "..", ".", ".hidden", "", "a\\u0000b"}) {
    Write("model.safetensors.index.json", R"({"weight_map": {"a": ")" + std::string(name) + "\"}}");
    EXPECT_SAYS(Refusal(), "tensor \"a\" is not mapped to a file of this folder");
  }
  Write("model.safetensors.index.json", R"({"weight_map": {"a": 1}})");
  EXPECT_SAYS(Refusal(), "is not mapped to a file of this folder");
  Write("model.safetensors.index.json", R"({"weight_map": []})");
  EXPECT_SAYS(Refusal(), "there is no weight_map");
}

TEST_F(CheckpointTest, WhatIsNotAModel) {
  EXPECT_SAYS(Refusal(), "not a model folder (config.json and model.safetensors)");
  Write("config.json", "[]");
  EXPECT_SAYS(Refusal(), "not a JSON object");
  Write("config.json", "{");
  EXPECT_SAYS(Refusal(), "config.json: JSON, byte 1");
  Write("config.json", "{}");
  EXPECT_SAYS(Refusal(), "model.safetensors: No such file");
  Write("model.safetensors", "");
  EXPECT_SAYS(Refusal(), "model.safetensors is empty");
  Write("model.safetensors", "short");
  EXPECT_SAYS(Refusal(), "model.safetensors: not a safetensors file");
  EXPECT_SAYS(OpenCheckpoint(folder_ / "model.safetensors").status().message(), "give the folder");
  EXPECT_EQ(OpenCheckpoint(folder_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_SAYS(OpenCheckpoint(folder_ / "config.json").status().message(), "not a GGUF file");
}

TEST_F(CheckpointTest, ForeignTypesAreNamedWhenAskedFor) {
  Write("config.json", "{}");
  fs::copy_file("tests/data/tiny.safetensors", folder_ / "model.safetensors");
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_SAYS(checkpoint->Require("mask", {3}).status().message(),
              "tensor \"mask\" has type BOOL, which is not supported");
  EXPECT_SAYS(checkpoint->Require("tokens", {3}).status().message(), "holds integers");
  EXPECT_TRUE(checkpoint->Require("scalar", {}).ok());
}

TEST_F(CheckpointTest, PublishedModelsOpen) {
  const char* variable = std::getenv("REPRISE_SHARED");
  const fs::path shared = variable != nullptr ? variable : "../shared";
  if (!fs::exists(shared / "goldens")) GTEST_SKIP() << "no shared goldens here";
  for (const auto& entry : fs::directory_iterator(shared / "goldens")) {
    if (!entry.is_directory()) continue;
    const Result<Checkpoint> checkpoint = OpenCheckpoint(entry.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_FALSE(checkpoint->architecture().empty());
    EXPECT_GT(checkpoint->tensor_bytes(), 0u);
    const MappedFile golden = MappedFile::Open(entry.path() / "golden.safetensors").value();
    EXPECT_TRUE(SafetensorsFile::Parse(golden.bytes())->ReadIds("tokens").ok());
  }
  for (const auto& entry : fs::directory_iterator(shared / "assets/tokenizers/llama.cpp")) {
    if (entry.path().extension() != ".gguf") continue;
    const Result<Checkpoint> checkpoint = OpenCheckpoint(entry.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_GT(checkpoint->metadata().Texts("tokenizer.ggml.tokens", 1 << 20)->size(), 1000u);
  }
}

}  // namespace
}  // namespace reprise
