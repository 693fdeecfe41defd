// SPDX-License-Identifier: Apache-2.0
// What looks at pictures: vectors and logits are those of Transformers, and the same bits on any
// instruction set and number of threads.
#include "model/vision/tower.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "model/model_fixture.h"
#include "model/vision/load_tower.h"
#include "model/vision/seen_picture.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

// A tiny model that sees (tools/golden/make_vision.py).
struct Golden {
  const char* name;
  TokenId picture_token;

  std::string folder() const { return std::string("tests/vision/") + name; }
  std::string mmproj() const { return folder() + "/mmproj.gguf"; }
};
constexpr Golden kQwen = {"qwen3_5", 258};
constexpr Golden kGemma3 = {"gemma3", 260};
constexpr Golden kGoldens[] = {kQwen, kGemma3, {"gemma4", 260}, {"gemma4_small", 260}};

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

std::unique_ptr<Model> LoadSeeing(const OpContext& context, const Checkpoint& checkpoint,
                                  const Checkpoint* mmproj) {
  LoadOptions options;
  options.kv = DType::kF32;
  options.tower = true;
  options.mmproj = mmproj;
  auto model = LoadModel(checkpoint, context, options);
  if (!model.ok()) ADD_FAILURE() << model.status().message();
  CHECK(model.ok() && (*model)->tower() != nullptr);
  return std::move(*model);
}

std::unique_ptr<Model> LoadSeeing(const OpContext& context, const Golden& golden) {
  const auto checkpoint = OpenCheckpoint(golden.folder());
  CHECK(checkpoint.ok());
  return LoadSeeing(context, *checkpoint, nullptr);
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

// Rows that the file has of all logits.
std::vector<float> EveryRow(const SafetensorsFile& file, const std::vector<float>& logits,
                            size_t vocab) {
  if (file.Find("stride") == nullptr) return logits;
  const auto stride = size_t((*file.ReadIds("stride"))[0]);
  const size_t rows = logits.size() / vocab;
  std::vector<float> some;
  for (size_t row = (rows - 1) % stride; row < rows; row += stride) {
    some.insert(some.end(), logits.begin() + ptrdiff_t(row * vocab),
                logits.begin() + ptrdiff_t((row + 1) * vocab));
  }
  return some;
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

  // Whether a place lies inside a picture.
  bool InPicture(size_t at) const {
    return std::any_of(pictures.begin(), pictures.end(), [&](const PictureRows& one) {
      return one.row_begin < at && at < one.row_begin + one.row_count;
    });
  }
};

// A sequence under way, with the logits of all rows that were computed.
class Reading {
 public:
  Reading(const Model& model, const OpContext& context, const Seeing& prompt)
      : model_(model),
        context_(context),
        prompt_(prompt),
        state_(MakeState(model, int64_t(prompt.tokens.size()))),
        logits_(prompt.tokens.size() * size_t(model.vocab_size())) {}

  // Rows [begin, end), where the state of those before them is there.
  void Compute(size_t begin, size_t end) {
    std::vector<uint32_t> rows;
    for (size_t i = begin; i < end; ++i) rows.push_back(uint32_t(i - begin));
    std::vector<PictureRows> pictures;
    for (const PictureRows& one : prompt_.pictures) {
      const size_t from = std::max<size_t>(one.row_begin, begin);
      const size_t to = std::min<size_t>(one.row_begin + one.row_count, end);
      if (from >= to) continue;
      pictures.push_back({uint32_t(from - begin), uint32_t(to - from),
                          one.vectors + int64_t(from - one.row_begin) * model_.card().dim});
    }
    SequenceSlice slice = state_.Next(0, 0, uint32_t(end - begin));
    slice.past = {int32_t(begin), int32_t(begin)};
    BatchView batch = {std::span(prompt_.tokens).subspan(begin, end - begin), {&slice, 1}, rows};
    batch.pictures = pictures;
    batch.places = std::span(prompt_.places).subspan(begin, end - begin);
    float* logits = logits_.data() + begin * size_t(model_.vocab_size());
    std::fill(logits, logits_.data() + logits_.size(), 0.0f);
    CHECK(model_.Forward(context_, batch, state_.memory(), logits).ok());
  }

  const std::vector<float>& logits() const { return logits_; }

 private:
  static LiveState MakeState(const Model& model, int64_t tokens) {
    auto state = LiveState::Create(model.state_spec(), 1, tokens);
    CHECK(state.ok());
    return std::move(*state);
  }

  const Model& model_;
  const OpContext context_;
  const Seeing& prompt_;
  LiveState state_;
  std::vector<float> logits_;
};

// Logits of a prompt with two pictures, cut into two steps at `cut`.
std::vector<float> RunSeeing(const Model& model, const OpContext& context, const Seeing& prompt,
                             size_t cut) {
  Reading run(model, context, prompt);
  if (cut > 0) run.Compute(0, cut);
  run.Compute(cut, prompt.tokens.size());
  return run.logits();
}

class Tower {
 protected:
  explicit Tower(const Golden& golden)
      : golden_(golden), model_(LoadSeeing(machine_.context(), golden)) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = "/picture_" + std::to_string(i) + ".png";
      seen_.push_back(See(*model_, golden.folder() + name));
      vectors_.push_back(Look(*model_->tower(), machine_.context(), seen_.back()->pixels));
    }
  }

  // What Transformers computed. Valid as long as this.
  SafetensorsFile Wanted() {
    auto file = MappedFile::Open(golden_.folder() + "/vision.safetensors");
    CHECK(file.ok());
    wanted_.emplace(std::move(*file));
    auto parsed = SafetensorsFile::Parse(wanted_->bytes());
    CHECK(parsed.ok());
    return std::move(*parsed);
  }

  // The golden's prompt; places as Transformers' get_rope_index, or as its rows are counted.
  Seeing Prompt(const SafetensorsFile& golden) const {
    Seeing prompt;
    prompt.tokens = *golden.ReadIds("tokens");
    int32_t place = 0;
    size_t next = 0;
    for (size_t i = 0; i < prompt.tokens.size();) {
      if (prompt.tokens[i] != golden_.picture_token) {
        prompt.places.push_back({place, place, place});
        ++place, ++i;
        continue;
      }
      const SeenPicture& picture = *seen_[next];
      prompt.pictures.push_back(
          {uint32_t(i), uint32_t(picture.tokens()), HostPlace(vectors_[next].data())});
      for (int32_t index = 0; index < picture.tokens(); ++index, ++i) {
        if (picture.in_line) {
          prompt.places.push_back({place + index, place + index, place + index});
        } else {
          prompt.places.push_back(
              {place, place + index / picture.columns, place + index % picture.columns});
        }
      }
      place += picture.positions();
      ++next;
    }
    // As the engine does it.
    std::replace(prompt.tokens.begin(), prompt.tokens.end(), golden_.picture_token, 0);
    return prompt;
  }

  static DevicePtr<const float> HostPlace(const float* values) {
    return HostMemory().Reach(const_cast<float*>(values)).As<const float>();
  }

  const Golden golden_;
  std::optional<MappedFile> wanted_;
  TestMachine machine_;
  std::unique_ptr<Model> model_;
  std::vector<std::shared_ptr<const SeenPicture>> seen_;
  std::vector<std::vector<float>> vectors_;
};

class TowerTest : public Tower, public ::testing::TestWithParam<Golden> {
 protected:
  TowerTest() : Tower(GetParam()) {}
};
class QwenTowerTest : public Tower, public ::testing::Test {
 protected:
  QwenTowerTest() : Tower(kQwen) {}
};

TEST_P(TowerTest, VectorsAndLogitsAreThoseOfTransformers) {
  const SafetensorsFile golden = Wanted();
  for (int i = 0; i < 2; ++i) {
    const double worst =
        WorstOf(vectors_[size_t(i)], ReadFloats(golden, "vectors_" + std::to_string(i)));
    EXPECT_LE(worst, 1e-4) << i;
    RecordProperty("worst_of_vectors_" + std::to_string(i), std::to_string(worst));
  }
  const Seeing prompt = Prompt(golden);
  ASSERT_EQ(prompt.pictures.size(), 2u);
  const std::vector<float> logits = RunSeeing(*model_, machine_.context(), prompt, 0);
  const size_t vocab = size_t(model_->vocab_size());
  const double worst = WorstOf(EveryRow(golden, logits, vocab), ReadFloats(golden, "logits"));
  EXPECT_LE(worst, 1e-4);
  RecordProperty("worst_of_logits", std::to_string(worst));
  const std::span<const float> last = std::span(logits).last(vocab);
  EXPECT_EQ(ArgMax(last), (*golden.ReadIds("greedy"))[0]);
}

// Anywhere, or, where rows of a picture see all of it, anywhere else.
TEST_P(TowerTest, CutsChangeNoBit) {
  const SafetensorsFile golden = Wanted();
  const Seeing prompt = Prompt(golden);
  const std::vector<float> whole = RunSeeing(*model_, machine_.context(), prompt, 0);
  for (size_t cut = 1; cut < prompt.tokens.size(); ++cut) {
    if (model_->card().whole_pictures && prompt.InPicture(cut)) continue;
    EXPECT_EQ(RunSeeing(*model_, machine_.context(), prompt, cut), whole) << cut;
  }
}

// What is found in the cache may end anywhere, inside a picture as well: its rows were computed
// with all of it.
TEST_P(TowerTest, StateThatIsFoundGoesOnAnywhere) {
  const SafetensorsFile golden = Wanted();
  const Seeing prompt = Prompt(golden);
  const size_t size = prompt.tokens.size();
  const std::vector<float> whole = RunSeeing(*model_, machine_.context(), prompt, 0);
  if (model_->state_spec().state_bytes() > 0) return;  // it would be found at cuts only
  Reading run(*model_, machine_.context(), prompt);
  run.Compute(0, size);
  for (size_t begin = size - 1; begin > 0; --begin) {
    run.Compute(begin, size);
    EXPECT_EQ(run.logits(), whole) << begin;
  }
}

// Alone, again, on one thread, and with the specification's own kernels.
TEST_P(TowerTest, VectorsDependOnPixelsAlone) {
  EXPECT_EQ(Look(*model_->tower(), machine_.context(), seen_[0]->pixels), vectors_[0]);
  TestMachine scalar(1, "scalar");
  const auto other = LoadSeeing(scalar.context(), golden_);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Look(*other->tower(), scalar.context(), seen_[i]->pixels), vectors_[i]) << i;
  }
  EXPECT_EQ(other->tower()->card().digest, model_->tower()->card().digest);
  const SafetensorsFile golden = Wanted();
  const Seeing prompt = Prompt(golden);
  EXPECT_EQ(RunSeeing(*other, scalar.context(), prompt, 0),
            RunSeeing(*model_, machine_.context(), prompt, 0));
}

// More patches than a part has, and with borders inside: the same vectors as those of one part
// would be, which rows of another size show.
TEST_F(QwenTowerTest, LargePicturesAreLookedAtInParts) {
  Pixels large{192, 192, {}};  // 576 patches of 8
  for (int i = 0; i < large.width * large.height * 3; ++i) {
    large.rgb.push_back(static_cast<uint8_t>((i * 2654435761u) >> 24));
  }
  const std::vector<float> vectors = Look(*model_->tower(), machine_.context(), large);
  EXPECT_EQ(vectors.size(), 576u / 4 * size_t(model_->tower()->card().dim));
  TestMachine scalar(1, "scalar");
  const auto other = LoadSeeing(scalar.context(), golden_);
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

INSTANTIATE_TEST_SUITE_P(Goldens, TowerTest, ::testing::ValuesIn(kGoldens),
                         [](const auto& one) { return std::string(one.param.name); });

// The file of a tower with one value changed: `put` writes it under `key`, or leaves it out; and
// with two words swapped in the names of tensors.
using Words = std::array<std::string, 2>;
std::string WithValue(const std::string& key, const std::function<void(GgufWriter*)>& put,
                      const std::string& source = kQwen.mmproj(), const Words& swapped = {}) {
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
  expect(vision + "is_deepstack_layers", "deepstack", [&](GgufWriter* out) {
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
      WithValue("", [](GgufWriter*) {}, kGemma3.mmproj(), {"ffn_up", "ffn_down"});
  std::vector<std::vector<float>> vectors;
  for (const std::string& file : {kGemma3.mmproj(), path}) {
    const auto checkpoint = OpenCheckpoint(file);
    ASSERT_TRUE(checkpoint.ok());
    const auto tower = LoadTower(*checkpoint, machine.context());
    ASSERT_TRUE(tower.ok()) << tower.status().message();
    const auto seen = SeePicture((*tower)->card(), ReadFile(kGemma3.folder() + "/picture_0.png"));
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
  EXPECT_NE(refusal("tests/golden/qwen3", kQwen.mmproj(), true).find("the family qwen3 do not see"),
            std::string::npos);
  EXPECT_NE(refusal("tests/golden/qwen3_5", kQwen.mmproj(), true).find("vectors of another width"),
            std::string::npos);
  EXPECT_NE(refusal("tests/golden/qwen3_5", "tests/data/tiny.gguf", true)
                .find("it is a model of the architecture \"qwen3\", not the tower of one"),
            std::string::npos);
  EXPECT_EQ(refusal("tests/golden/qwen3", kQwen.mmproj(), false), "");
  EXPECT_EQ(refusal("tests/golden/qwen3_5", kQwen.mmproj(), false), "");
  std::remove(path.c_str());
}

TEST(LoadTowerTest, OnlyWhereItIsAskedForAndThere) {
  TestMachine machine;
  const auto checkpoint = OpenCheckpoint(kQwen.folder());
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
