// SPDX-License-Identifier: Apache-2.0
// What looks at pictures: tokens of pictures, towers in GGUF files, and towers that are refused.
// (What they compute: tower_law_test.cc.)
#include "model/vision/tower.h"

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "model/vision/load_tower.h"
#include "model/vision/tower_fixture.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

class TowerTest : public SeeingModel, public ::testing::TestWithParam<SeeingGolden> {
 protected:
  TowerTest() : SeeingModel(GetParam()) {}
};

// The same pixels from another file are the same tokens; anything else is others.
TEST_P(TowerTest, TokensAreThoseOfThePixels) {
  const TowerCard& card = model_->tower()->card();
  const std::string corpus = "tests/corpus/picture_fuzz/";
  const auto first_of = [](const TowerCard& tower, const std::string& path) {
    const auto seen = SeePicture(tower, ReadFile(path));
    CHECK(seen.ok());
    return (*seen)->first;
  };
  const TokenId png = first_of(card, corpus + "rgb.png");
  EXPECT_LT(png, 0);
  EXPECT_EQ(first_of(card, corpus + "rgb.png"), png);
  EXPECT_EQ(first_of(card, corpus + "lossless.webp"), png);
  EXPECT_NE(first_of(card, corpus + "turned.png"), png);
  EXPECT_NE(first_of(card, corpus + "rgb_444.jpg"), first_of(card, corpus + "rgb_420.jpg"));
  TowerCard other = card;
  other.digest.back() = other.digest.back() == '0' ? '1' : '0';
  EXPECT_NE(first_of(other, corpus + "rgb.png"), png);
  other = card;
  other.rules.mean[2] = 0.25f;
  EXPECT_NE(first_of(other, corpus + "rgb.png"), png);
}

// From llama.cpp's file of the tower (mmproj) beside a GGUF model: the folder's vectors, bit for
// bit, and Transformers' logits.
TEST_P(TowerTest, GgufFilesSeeAsTheFolderDoes) {
  const std::string path = ::testing::TempDir() + "seeing.gguf";
  const auto folder = OpenCheckpoint(golden_.folder());
  ASSERT_TRUE(folder.ok());
  ConvertToGguf(*folder, "bf16", path);
  const auto text = OpenCheckpoint(path);
  const auto mmproj = OpenCheckpoint(golden_.mmproj());
  ASSERT_TRUE(text.ok() && mmproj.ok());
  const auto model = LoadSeeing(machine_.context(), *text, &*mmproj);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->tower()->card().rules.Describe(), model_->tower()->card().rules.Describe());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Look(*model->tower(), machine_.context(), seen_[i]->pixels), vectors_[i]) << i;
  }
  const SafetensorsFile golden = Wanted();
  const Seeing prompt = Prompt(golden);
  const std::vector<float> logits = RunSeeing(*model, machine_.context(), prompt, 0);
  const std::vector<float> some = EveryRow(golden, logits, size_t(model->vocab_size()));
  EXPECT_LE(WorstOf(some, ReadFloats(golden, "logits")), 1e-4);
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Goldens, TowerTest, ::testing::ValuesIn(kSeeingFiles),
                         [](const auto& one) { return std::string(one.param.name); });

// The file of a tower with one value changed: `put` writes it under `key`, or leaves it out; and
// with two words swapped in the names of tensors.
using Words = std::array<std::string, 2>;
std::string WithValue(const std::string& key, const std::function<void(GgufWriter*)>& put,
                      const std::string& source = kSeeingQwen.mmproj(), const Words& swapped = {}) {
  const auto map = MappedFile::Open(source);
  CHECK(map.ok());
  const auto file = GgufFile::Parse(map->bytes());
  CHECK(file.ok());
  GgufWriter writer;
  put(&writer);
  for (const GgufFile::Entry& entry : file->entries()) {
    if (entry.key != key) writer.PutValue(entry.key, entry.value);
  }
  for (const StoredTensor& tensor : file->tensors()) {
    std::string name(tensor.name);
    for (size_t i = 0; i < 2 && !swapped[0].empty(); ++i) {
      const size_t at = tensor.name.find(swapped[i]);
      if (at != tensor.name.npos) name.replace(at, swapped[i].size(), swapped[1 - i]);
    }
    CHECK(writer.AddTensor(name, tensor.dtype, tensor.shape).ok());
  }
  const std::string path = ::testing::TempDir() + "changed_mmproj.gguf";
  CHECK(writer.Open(path).ok());
  for (const StoredTensor& tensor : file->tensors()) CHECK(writer.Append(tensor.bytes).ok());
  CHECK(writer.Finish().ok());
  return path;
}

TEST(LoadTowerTest, WrongGgufFilesAreRefused) {
  TestMachine machine;
  const auto refusal = [&](const std::string& path) {
    const auto checkpoint = OpenCheckpoint(path);
    CHECK(checkpoint.ok());
    const auto tower = LoadTower(*checkpoint, machine.context());
    return tower.ok() ? std::string() : tower.status().message();
  };
  const auto expect = [&](const std::string& key, const std::string& sentence,
                          const std::function<void(GgufWriter*)>& put) {
    const std::string said = refusal(WithValue(key, put));
    EXPECT_NE(said.find(sentence), std::string::npos) << key << ": " << said;
  };
  EXPECT_EQ(refusal(WithValue("", [](GgufWriter*) {})), "");
  const std::string vision = "clip.vision.";
  const auto number = [&](const std::string& key, uint32_t value, const std::string& sentence) {
    expect(vision + key, sentence,
           [&](GgufWriter* out) { out->Put<uint32_t>(vision + key, value); });
  };
  expect("clip.projector_type", "the projector 'qwen2.5vl_merger' is not supported",
         [](GgufWriter* out) { out->PutString("clip.projector_type", "qwen2.5vl_merger"); });
  expect("clip.projector_type", "the projector '' is not supported", [](GgufWriter*) {});
  expect("clip.use_gelu", "the tower must use GELU",
         [](GgufWriter* out) { out->Put<bool>("clip.use_gelu", false); });
  expect(vision + "attention.layer_norm_epsilon", "must add 1e-6",
         [&](GgufWriter* out) { out->Put<float>(vision + "attention.layer_norm_epsilon", 1e-5f); });
  expect(vision + "is_deepstack_layers", "must ascend and be there", [&](GgufWriter* out) {
    out->PutArray<int32_t>(vision + "is_deepstack_layers", std::array<int32_t, 3>{0, 0, 1});
  });
  expect(vision + "is_deepstack_layers", "\"v.deepstack.1.norm.weight\" is missing",
         [&](GgufWriter* out) {
           out->PutArray<int32_t>(vision + "is_deepstack_layers", std::array<int32_t, 2>{0, 1});
         });
  number("block_count", 3, "\"v.blk.2.ln1.weight\" is missing");
  number("block_count", 1, "is not known for this family");
  number("embedding_length", 56, "has shape");
  number("image_size", 64, "\"v.position_embd.weight\" has shape");
  number("image_size", 1 << 24, "a table of 2097152 x 2097152 positions");
  number("image_size", 7, "a table of 0 x 0 positions");
  number("patch_size", 65, "patch_size");
  number("spatial_merge_size", 3, "merges 3 x 3 patches");
  number("image_min_pixels", 1 << 20, "the least size of pictures is above the greatest");
  expect(vision + "image_std", "image_std must be three numbers", [&](GgufWriter* out) {
    out->PutArray<float>(vision + "image_std", std::array<float, 2>{0.5f, 0.5f});
  });
}

// llama.cpp's converter had ffn_up and ffn_down the other way round once.
TEST(LoadTowerTest, OldGgufFilesSeeAsNewOnes) {
  TestMachine machine;
  const std::string path =
      WithValue("", [](GgufWriter*) {}, kSeeingGemma3.mmproj(), {"ffn_up", "ffn_down"});
  std::vector<std::vector<float>> vectors;
  for (const std::string& file : {kSeeingGemma3.mmproj(), path}) {
    const auto checkpoint = OpenCheckpoint(file);
    ASSERT_TRUE(checkpoint.ok());
    const auto tower = LoadTower(*checkpoint, machine.context());
    ASSERT_TRUE(tower.ok()) << tower.status().message();
    const auto seen =
        SeePicture((*tower)->card(), ReadFile(kSeeingGemma3.folder() + "/picture_0.png"));
    ASSERT_TRUE(seen.ok());
    vectors.push_back(Look(**tower, machine.context(), (*seen)->pixels));
  }
  EXPECT_EQ(vectors[0], vectors[1]);
}

// What lies beside a model and is not its tower stops the model only where it was asked for.
TEST(LoadTowerTest, TheTowerOfAnotherModelIsRefused) {
  TestMachine machine;
  const std::string path = ::testing::TempDir() + "other_model.gguf";
  const auto refusal = [&](const char* folder, const std::string& tower, bool needed) {
    const auto source = OpenCheckpoint(folder);
    CHECK(source.ok());
    ConvertToGguf(*source, "f32", path);
    const auto text = OpenCheckpoint(path);
    const auto mmproj = OpenCheckpoint(tower);
    CHECK(text.ok() && mmproj.ok());
    LoadOptions options;
    options.tower = true;
    options.mmproj = &*mmproj;
    options.mmproj_needed = needed;
    const auto model = LoadModel(*text, machine.context(), options);
    if (!model.ok()) return model.status().message();
    EXPECT_EQ((*model)->tower(), nullptr);
    return std::string();
  };
  EXPECT_NE(
      refusal("tests/golden/qwen3", kSeeingQwen.mmproj(), true).find("the family qwen3 do not see"),
      std::string::npos);
  EXPECT_NE(
      refusal("tests/golden/qwen3_5", kSeeingQwen.mmproj(), true).find("vectors of another width"),
      std::string::npos);
  EXPECT_NE(refusal("tests/golden/qwen3_5", "tests/data/tiny.gguf", true)
                .find("it is a model of the architecture \"qwen3\", not the tower of one"),
            std::string::npos);
  EXPECT_EQ(refusal("tests/golden/qwen3", kSeeingQwen.mmproj(), false), "");
  EXPECT_EQ(refusal("tests/golden/qwen3_5", kSeeingQwen.mmproj(), false), "");
  std::remove(path.c_str());
}

TEST(LoadTowerTest, OnlyWhereItIsAskedForAndThere) {
  TestMachine machine;
  const auto checkpoint = OpenCheckpoint(kSeeingQwen.folder());
  ASSERT_TRUE(checkpoint.ok());
  const auto blind = LoadModel(*checkpoint, machine.context(), LoadOptions());
  ASSERT_TRUE(blind.ok());
  EXPECT_EQ((*blind)->tower(), nullptr);
  const auto text = OpenCheckpoint("tests/golden/qwen3_5");
  ASSERT_TRUE(text.ok());
  const auto none = LoadTower(*text, machine.context());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  const auto rules = ReadPatchRules(*checkpoint);
  ASSERT_TRUE(rules.ok());
  EXPECT_EQ(rules->patch, 8);
  EXPECT_EQ(rules->pixels_min, 256);
  EXPECT_EQ(rules->deviation[2], 0.6f);
}

}  // namespace
}  // namespace reprise
