// SPDX-License-Identifier: Apache-2.0
// What looks at pictures: vectors and logits are those of Transformers, and the same bits on any
// instruction set and number of threads.
#include "model/vision/tower.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "model/model_fixture.h"
#include "model/vision/load_tower.h"
#include "model/vision/seen_picture.h"

namespace reprise {
namespace {

constexpr char kFolder[] = "tests/vision/qwen3_5";
constexpr TokenId kPictureToken = 258;

std::string ReadFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  CHECK(file.ok());
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

std::vector<float> Look(const VisionTower& tower, const OpContext& context, const Pixels& pixels) {
  auto look = tower.Begin(context, pixels);
  CHECK(look.ok());
  for (bool done = false; !done;) {
    const auto advanced = (*look)->Advance(context);
    CHECK(advanced.ok());
    done = *advanced;
  }
  const DeviceBuffer vectors = (*look)->TakeVectors();
  std::vector<float> values(vectors.size() / sizeof(float));
  context.backend->memory().DownloadArray<float>(std::span(values),
                                                 vectors.data().As<const float>());
  return values;
}

std::unique_ptr<Model> LoadSeeing(const OpContext& context) {
  const auto checkpoint = OpenCheckpoint(kFolder);
  CHECK(checkpoint.ok());
  LoadOptions options;
  options.kv = DType::kF32;
  options.tower = true;
  auto model = LoadModel(*checkpoint, context, options);
  if (!model.ok()) ADD_FAILURE() << model.status().message();
  CHECK(model.ok() && (*model)->tower() != nullptr);
  return std::move(*model);
}

std::shared_ptr<const SeenPicture> See(const Model& model, const std::string& path) {
  auto seen = SeePicture(model.tower()->card(), ReadFile(path));
  CHECK(seen.ok());
  return *seen;
}

std::vector<float> ReadFloats(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  CHECK(tensor != nullptr && tensor->dtype == DType::kF32);
  std::vector<float> values(size_t(tensor->shape.elements()));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// The largest error, as a part of how much the wanted values differ.
double WorstOf(const std::vector<float>& values, const std::vector<float>& wanted) {
  CHECK(values.size() == wanted.size());
  double sum = 0, squares = 0, worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += double(wanted[i]);
    squares += double(wanted[i]) * double(wanted[i]);
    worst = std::max(worst, std::abs(double(values[i]) - double(wanted[i])));
  }
  const double mean = sum / double(values.size());
  return worst / std::sqrt(squares / double(values.size()) - mean * mean);
}

struct Seeing {
  std::vector<TokenId> tokens;
  std::vector<PictureRows> pictures;
  std::vector<std::array<int32_t, 3>> places;
};

// Logits of a prompt with two pictures, cut into two steps at `cut`.
std::vector<float> RunSeeing(const Model& model, const OpContext& context, const Seeing& prompt,
                             size_t cut) {
  auto state = LiveState::Create(model.state_spec(), 1, int64_t(prompt.tokens.size()));
  CHECK(state.ok());
  std::vector<float> logits(prompt.tokens.size() * size_t(model.vocab_size()));
  for (size_t begin = 0; begin < prompt.tokens.size();) {
    const size_t end = begin < cut ? cut : prompt.tokens.size();
    std::vector<uint32_t> rows;
    for (size_t i = begin; i < end; ++i) rows.push_back(uint32_t(i - begin));
    std::vector<PictureRows> pictures;
    for (const PictureRows& one : prompt.pictures) {
      const size_t from = std::max<size_t>(one.row_begin, begin);
      const size_t to = std::min<size_t>(one.row_begin + one.row_count, end);
      if (from >= to) continue;
      pictures.push_back({uint32_t(from - begin), uint32_t(to - from),
                          one.vectors + int64_t(from - one.row_begin) * model.card().dim});
    }
    const SequenceSlice slice = state->Next(0, 0, uint32_t(end - begin));
    BatchView batch = {std::span(prompt.tokens).subspan(begin, end - begin), {&slice, 1}, rows};
    batch.pictures = pictures;
    batch.places = std::span(prompt.places).subspan(begin, end - begin);
    CHECK(model
              .Forward(context, batch, state->memory(),
                       logits.data() + begin * size_t(model.vocab_size()))
              .ok());
    state->Advance(0, int64_t(end - begin));
    begin = end;
  }
  return logits;
}

class TowerTest : public ::testing::Test {
 protected:
  TowerTest() : model_(LoadSeeing(machine_.context())) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = "/picture_" + std::to_string(i) + ".png";
      seen_.push_back(See(*model_, kFolder + name));
      vectors_.push_back(Look(*model_->tower(), machine_.context(), seen_.back()->pixels));
    }
  }

  // The golden's prompt; places as Transformers' get_rope_index.
  Seeing Prompt(const SafetensorsFile& golden) const {
    Seeing prompt;
    prompt.tokens = *golden.ReadIds("tokens");
    int32_t place = 0;
    size_t next = 0;
    for (size_t i = 0; i < prompt.tokens.size();) {
      if (prompt.tokens[i] != kPictureToken) {
        prompt.places.push_back({place, place, place});
        ++place, ++i;
        continue;
      }
      const SeenPicture& picture = *seen_[next];
      prompt.pictures.push_back(
          {uint32_t(i), uint32_t(picture.tokens()), HostPlace(vectors_[next].data())});
      for (int32_t index = 0; index < picture.tokens(); ++index, ++i) {
        prompt.places.push_back(
            {place, place + index / picture.columns, place + index % picture.columns});
      }
      place += picture.positions();
      ++next;
    }
    return prompt;
  }

  static DevicePtr<const float> HostPlace(const float* values) {
    return HostMemory().Reach(const_cast<float*>(values)).As<const float>();
  }

  TestMachine machine_;
  std::unique_ptr<Model> model_;
  std::vector<std::shared_ptr<const SeenPicture>> seen_;
  std::vector<std::vector<float>> vectors_;
};

TEST_F(TowerTest, VectorsAndLogitsAreThoseOfTransformers) {
  const auto file = MappedFile::Open(std::string(kFolder) + "/vision.safetensors");
  ASSERT_TRUE(file.ok());
  const auto golden = SafetensorsFile::Parse(file->bytes());
  ASSERT_TRUE(golden.ok());
  for (int i = 0; i < 2; ++i) {
    const double worst =
        WorstOf(vectors_[size_t(i)], ReadFloats(*golden, "vectors_" + std::to_string(i)));
    EXPECT_LE(worst, 1e-4) << i;
    RecordProperty("worst_of_vectors_" + std::to_string(i), std::to_string(worst));
  }
  const Seeing prompt = Prompt(*golden);
  ASSERT_EQ(prompt.pictures.size(), 2u);
  const std::vector<float> logits = RunSeeing(*model_, machine_.context(), prompt, 0);
  const double worst = WorstOf(logits, ReadFloats(*golden, "logits"));
  EXPECT_LE(worst, 1e-4);
  RecordProperty("worst_of_logits", std::to_string(worst));
  const size_t vocab = size_t(model_->vocab_size());
  const std::span<const float> last = std::span(logits).last(vocab);
  EXPECT_EQ(ArgMax(last), (*golden->ReadIds("greedy"))[0]);
}

TEST_F(TowerTest, CutsInsidePicturesChangeNoBit) {
  const auto file = MappedFile::Open(std::string(kFolder) + "/vision.safetensors");
  const auto golden = SafetensorsFile::Parse(file->bytes());
  const Seeing prompt = Prompt(*golden);
  const std::vector<float> whole = RunSeeing(*model_, machine_.context(), prompt, 0);
  for (size_t cut = 1; cut < prompt.tokens.size(); ++cut) {
    EXPECT_EQ(RunSeeing(*model_, machine_.context(), prompt, cut), whole) << cut;
  }
}

// Alone, again, on one thread, and with the specification's own kernels.
TEST_F(TowerTest, VectorsDependOnPixelsAlone) {
  EXPECT_EQ(Look(*model_->tower(), machine_.context(), seen_[0]->pixels), vectors_[0]);
  TestMachine scalar(1, "scalar");
  const auto other = LoadSeeing(scalar.context());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Look(*other->tower(), scalar.context(), seen_[i]->pixels), vectors_[i]) << i;
  }
  EXPECT_EQ(other->tower()->card().digest, model_->tower()->card().digest);
}

// More patches than a part has, and with borders inside: the same vectors as those of one part
// would be, which rows of another size show.
TEST_F(TowerTest, LargePicturesAreLookedAtInParts) {
  Pixels large{192, 192, {}};  // 576 patches of 8
  for (int i = 0; i < large.width * large.height * 3; ++i) {
    large.rgb.push_back(static_cast<uint8_t>((i * 2654435761u) >> 24));
  }
  const std::vector<float> vectors = Look(*model_->tower(), machine_.context(), large);
  EXPECT_EQ(vectors.size(), 576u / 4 * size_t(model_->tower()->card().dim));
  TestMachine scalar(1, "scalar");
  const auto other = LoadSeeing(scalar.context());
  EXPECT_EQ(Look(*other->tower(), scalar.context(), large), vectors);
  // Every part of the picture reaches every token.
  large.rgb.back() ^= 0x80;
  const std::vector<float> changed = Look(*model_->tower(), machine_.context(), large);
  const size_t dim = size_t(model_->tower()->card().dim);
  for (size_t token = 0; token < 576 / 4; ++token) {
    EXPECT_NE(std::memcmp(&changed[token * dim], &vectors[token * dim], dim * sizeof(float)), 0)
        << token;
  }
}

// The same pixels from another file are the same tokens; anything else is others.
TEST_F(TowerTest, TokensAreThoseOfThePixels) {
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

TEST(LoadTowerTest, OnlyWhereItIsAskedForAndThere) {
  TestMachine machine;
  const auto checkpoint = OpenCheckpoint(kFolder);
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
