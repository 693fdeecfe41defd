// SPDX-License-Identifier: Apache-2.0
// What looks at pictures, on the device of the law: vectors and logits are those of Transformers,
// and the same bits however the prompt is cut, with whatever threads and instruction set.
#include <cstring>
#include <string>
#include <vector>

#include "model/vision/tower_fixture.h"

namespace reprise {
namespace {

bool OnCpu() { return LawDevice() == "cpu"; }

// How far values may be from those of Transformers in F32, as a part of how much they differ. A GPU
// rounds activations to the 16 bits of the weights.
double Bound() { return OnCpu() ? 1e-4 : 0.1; }

// On a GPU, K/V as they are by default there.
DType Kv() { return OnCpu() ? DType::kF32 : DType::kF16; }

class TowerLawTest : public SeeingModel, public ::testing::TestWithParam<SeeingGolden> {
 protected:
  TowerLawTest() : SeeingModel(GetParam(), Kv()) {}
};
class LargePictureTest : public SeeingModel, public ::testing::Test {
 protected:
  LargePictureTest() : SeeingModel(kSeeingQwen, Kv()) {}
};

TEST_P(TowerLawTest, VectorsAndLogitsAreThoseOfTransformers) {
  const SafetensorsFile golden = Wanted();
  for (int i = 0; i < 2; ++i) {
    const double worst =
        WorstOf(vectors_[size_t(i)], ReadFloats(golden, "vectors_" + std::to_string(i)));
    EXPECT_LE(worst, Bound()) << i;
    RecordProperty("worst_of_vectors_" + std::to_string(i), std::to_string(worst));
  }
  const Seeing prompt = Prompt(golden);
  ASSERT_EQ(prompt.pictures.size(), 2u);
  const std::vector<float> logits = RunSeeing(*model_, machine_.context(), prompt, 0);
  const size_t vocab = size_t(model_->vocab_size());
  const double worst = WorstOf(EveryRow(golden, logits, vocab), ReadFloats(golden, "logits"));
  EXPECT_LE(worst, Bound());
  RecordProperty("worst_of_logits", std::to_string(worst));
  if (!OnCpu()) return;
  const std::span<const float> last = std::span(logits).last(vocab);
  EXPECT_EQ(ArgMax(last), (*golden.ReadIds("greedy"))[0]);
}

// Anywhere, or, where rows of a picture see all of it, anywhere else.
TEST_P(TowerLawTest, CutsChangeNoBit) {
  const SafetensorsFile golden = Wanted();
  const Seeing prompt = Prompt(golden);
  const std::vector<float> whole = RunSeeing(*model_, machine_.context(), prompt, 0);
  for (size_t cut = 1; cut < prompt.tokens.size(); ++cut) {
    if (model_->card().whole_pictures && prompt.InPicture(cut)) continue;
    EXPECT_EQ(RunSeeing(*model_, machine_.context(), prompt, cut), whole) << cut;
  }
}

// Rows behind the pictures one by one, twice: a device may keep what such steps were.
TEST_P(TowerLawTest, SingleRowsChangeNoBit) {
  const SafetensorsFile golden = Wanted();
  const Seeing prompt = Prompt(golden);
  const std::vector<float> whole = RunSeeing(*model_, machine_.context(), prompt, 0);
  const PictureRows& last = prompt.pictures.back();
  for (int run = 0; run < 2; ++run) {
    Reading reading(*model_, machine_.context(), prompt);
    size_t at = last.row_begin + last.row_count;
    reading.Compute(0, at);
    for (; at < prompt.tokens.size(); ++at) reading.Compute(at, at + 1);
    EXPECT_EQ(reading.logits(), whole);
  }
}

// What is found in the cache may end anywhere, inside a picture as well: its rows were computed
// with all of it.
TEST_P(TowerLawTest, StateThatIsFoundGoesOnAnywhere) {
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

// Alone, again, with another number of threads, and with the specification's own kernels.
TEST_P(TowerLawTest, VectorsDependOnPixelsAlone) {
  EXPECT_EQ(Look(*model_->tower(), machine_.context(), seen_[0]->pixels), vectors_[0]);
  const auto expect_same = [&](const OpContext& context) {
    const auto other = LoadSeeing(context, golden_, Kv());
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(Look(*other->tower(), context, seen_[i]->pixels), vectors_[i]) << i;
    }
    EXPECT_EQ(other->tower()->card().digest, model_->tower()->card().digest);
    const SafetensorsFile golden = Wanted();
    const Seeing prompt = Prompt(golden);
    EXPECT_EQ(RunSeeing(*other, context, prompt, 0),
              RunSeeing(*model_, machine_.context(), prompt, 0));
  };
  if (OnCpu()) {
    TestMachine scalar(1, "scalar");
    expect_same(scalar.context());
  } else {
    LawMachine other(1);
    expect_same(other.context());
  }
}

// More patches than a part has: every part of the picture reaches every token, and the vectors are
// those of the specification's own kernels, near which a GPU's are.
TEST_F(LargePictureTest, IsLookedAtInParts) {
  const int width = OnCpu() ? 192 : 640, height = OnCpu() ? 192 : 512;
  const size_t tokens = size_t(width / 16) * size_t(height / 16);
  Pixels large{width, height, {}};
  for (int i = 0; i < width * height * 3; ++i) {
    large.rgb.push_back(static_cast<uint8_t>((i * 2654435761u) >> 24));
  }
  const std::vector<float> vectors = Look(*model_->tower(), machine_.context(), large);
  const size_t dim = size_t(model_->tower()->card().dim);
  EXPECT_EQ(vectors.size(), tokens * dim);
  TestMachine other(OnCpu() ? 1 : 4, OnCpu() ? "scalar" : "all");
  const auto specified = LoadSeeing(other.context(), golden_);
  const std::vector<float> expected = Look(*specified->tower(), other.context(), large);
  if (OnCpu()) {
    EXPECT_EQ(vectors, expected);
  } else {
    EXPECT_LE(WorstOf(vectors, expected), Bound());
  }
  for (size_t i = large.rgb.size() - size_t(width) * 3; i < large.rgb.size(); ++i) {
    large.rgb[i] ^= 0x80;  // its last row
  }
  const std::vector<float> changed = Look(*model_->tower(), machine_.context(), large);
  size_t same = 0;
  for (size_t token = 0; token < tokens; ++token) {
    same += std::memcmp(&changed[token * dim], &vectors[token * dim], dim * sizeof(float)) == 0;
  }
  EXPECT_EQ(same, 0u);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TowerLawTest, ::testing::ValuesIn(kSeeingGoldens),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace reprise
