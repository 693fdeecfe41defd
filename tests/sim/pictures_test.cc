// SPDX-License-Identifier: Apache-2.0
// The law with pictures, on a real model: reuse equals recompute, bit for bit, wherever a prompt
// with pictures is taken up again; and pictures are never taken for each other.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "device/scratch.h"
#include "engine_fixture.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "model/executor.h"
#include "model/load.h"
#include "model/vision/tower.h"
#include "state/virtual_tokens.h"
#include "weights/format/safetensors.h"

namespace reprise {
namespace {

class PicturesTest : public ::testing::Test {
 protected:
  explicit PicturesTest(const std::string& folder = "tests/vision/qwen3_5") {
    auto checkpoint = OpenCheckpoint(folder);
    CHECK(checkpoint.ok());
    LoadOptions options;
    options.kv = DType::kF32;
    options.tower = true;
    options.mtp = true;
    auto model = LoadModel(*checkpoint, context(), options);
    CHECK(model.ok());
    model_ = std::move(*model);
    executor_ = std::make_unique<Counted>(*model_, context());
  }

  // Counts how often the tower begins, and notes where steps of a sequence end.
  struct Counted : ModelExecutor {
    using ModelExecutor::ModelExecutor;
    Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override {
      for (const SequenceSlice& slice : batch.sequences) {
        ends.push_back(slice.past.logical + int32_t(slice.row_count));
      }
      return ModelExecutor::Forward(batch, memory, logits);
    }
    Result<std::unique_ptr<VisionTower::Look>> BeginLook(const Pixels& pixels) override {
      ++looks;
      return ModelExecutor::BeginLook(pixels);
    }
    Status Predict(const BatchView& batch, const StateMemory& memory, bool first,
                   std::span<float> hidden, std::span<float> logits) override {
      for (size_t i = 0; i < batch.places.size(); ++i) {
        guesses.emplace_back(batch.sequences[i].past.logical, batch.places[i]);
      }
      return ModelExecutor::Predict(batch, memory, first, hidden, logits);
    }
    int looks = 0;
    std::vector<int32_t> ends;
    std::vector<std::pair<int32_t, std::array<int32_t, 3>>> guesses;  // where they stand
  };

  OpContext context() { return {&backend_, &scratch_}; }

  // A picture of 48 x 32 pixels, 3 x 2 tokens, as a file would have become one.
  static std::shared_ptr<const SeenPicture> Picture(uint8_t seed, int change = -1) {
    auto seen = std::make_shared<SeenPicture>();
    seen->pixels = {48, 32, {}};
    for (int i = 0; i < 48 * 32 * 3; ++i) {
      seen->pixels.rgb.push_back(static_cast<uint8_t>(i * (seed + 3) / 7 + seed));
    }
    if (change >= 0) seen->pixels.rgb[size_t(change)] ^= 1;
    seen->rows = 2;
    seen->columns = 3;
    const std::string text(seen->pixels.rgb.begin(), seen->pixels.rgb.end());
    seen->first = *VirtualTokens::Get().Take(Sha256(text), 6);
    return seen;
  }

  struct Prompt {
    std::vector<TokenId> tokens;
    std::vector<PlacedPicture> pictures;
    std::vector<Boundary> boundaries;

    Prompt& Say(uint64_t seed, int count) {
      Rng rng(seed);
      for (int i = 0; i < count; ++i) tokens.push_back(TokenId(rng.Below(150)));
      boundaries.push_back({int32_t(tokens.size()), BoundaryKind::kMessage});
      return *this;
    }
    Prompt& Show(std::shared_ptr<const SeenPicture> picture) {
      pictures.push_back({int32_t(tokens.size()), picture});
      for (int32_t i = 0; i < picture->tokens(); ++i) tokens.push_back(picture->first + i);
      return *this;
    }
    Prompt Cut(size_t size) const {
      Prompt cut = *this;
      cut.tokens.resize(size);
      std::erase_if(cut.pictures, [&](const PlacedPicture& one) {
        return size_t(one.begin + one.picture->tokens()) > size;
      });
      std::erase_if(cut.boundaries, [&](const Boundary& b) { return size_t(b.position) > size; });
      return cut;
    }
  };

  using Logits = std::map<int32_t, std::vector<float>>;
  static GenerateRequest RequestOf(const Prompt& prompt, int32_t max_tokens, Logits* logits) {
    GenerateRequest request;
    request.prompt = prompt.tokens;
    request.pictures = prompt.pictures;
    request.boundaries = prompt.boundaries;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    if (logits != nullptr) {
      request.on_logits = [logits](int32_t position, std::span<const float> row) {
        (*logits)[position].assign(row.begin(), row.end());
      };
    }
    return request;
  }

  static CacheOptions Dense() {
    CacheOptions options;
    options.snapshot_gap = 1;
    return options;
  }

  // Logits and reply with nothing to reuse.
  EngineFixture::Answer Cold(const Prompt& prompt, int32_t max_tokens, Logits* logits) {
    EngineFixture fixture(*executor_);
    return fixture.Ask(RequestOf(prompt, max_tokens, logits));
  }

  static void ExpectSame(const Logits& some, const Logits& all) {
    EXPECT_FALSE(some.empty());
    for (const auto& [position, row] : some) {
      ASSERT_TRUE(all.contains(position));
      EXPECT_EQ(row, all.at(position)) << "position " << position;
    }
  }

  ThreadPool pool_{2};
  cpu::KernelTable table_ = *cpu::BuildTable("all");
  cpu::CpuBackend backend_{&pool_, &table_};
  ScratchArena scratch_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Counted> executor_;
};

// The golden's prompt, through the engine: where rows stand, also those of the reply, is what
// Transformers says.
TEST_F(PicturesTest, LogitsAndReplyAreThoseOfTransformers) {
  constexpr TokenId kPictureToken = 258;
  const std::string folder = "tests/vision/qwen3_5/";
  const auto file = MappedFile::Open(folder + "vision.safetensors");
  ASSERT_TRUE(file.ok());
  const auto golden = SafetensorsFile::Parse(file->bytes());
  ASSERT_TRUE(golden.ok());
  Prompt prompt;
  const std::vector<TokenId> tokens = *golden->ReadIds("tokens");
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i] != kPictureToken) {
      prompt.tokens.push_back(tokens[i++]);
      continue;
    }
    const std::string name = "picture_" + std::to_string(prompt.pictures.size()) + ".png";
    const auto png = MappedFile::Open(folder + name);
    ASSERT_TRUE(png.ok());
    const auto seen =
        SeePicture(model_->tower()->card(),
                   {reinterpret_cast<const char*>(png->bytes().data()), png->bytes().size()});
    ASSERT_TRUE(seen.ok());
    prompt.Show(*seen);
    i += size_t((*seen)->tokens());
  }
  ASSERT_EQ(prompt.tokens.size(), tokens.size());
  ASSERT_EQ(prompt.pictures.size(), 2u);
  const std::vector<TokenId> greedy = *golden->ReadIds("greedy");
  Logits logits;
  const auto answer = Cold(prompt, int32_t(greedy.size()), &logits);
  EXPECT_EQ(answer.tokens, greedy);
  const StoredTensor* wanted = golden->Find("logits");
  const auto* values = reinterpret_cast<const float*>(wanted->bytes.data());
  const size_t vocab = size_t(model_->vocab_size());
  float worst = 0;
  for (size_t at = 0; at < tokens.size(); ++at) {
    const std::vector<float>& row = logits.at(int32_t(at));
    for (size_t i = 0; i < vocab; ++i) {
      worst = std::max(worst, std::abs(row[i] - values[at * vocab + i]));
    }
  }
  EXPECT_LE(worst, 1e-3f);  // logits differ by 2.4
}

// A prompt with two pictures is taken up at every position between and behind them.
TEST_F(PicturesTest, HitAndColdAreEqualInEveryPosition) {
  Prompt prompt;
  prompt.Say(1, 7).Show(Picture(1)).Say(2, 5).Show(Picture(2)).Say(3, 70);
  Logits cold;
  const auto reference = Cold(prompt, 8, &cold);
  ASSERT_EQ(reference.completion.report.used_tokens, 0);
  ASSERT_EQ(reference.tokens.size(), 8u);
  for (size_t size = 1; size < prompt.tokens.size(); ++size) {
    const Prompt begun = prompt.Cut(size);
    if (std::count_if(begun.tokens.begin(), begun.tokens.end(), IsVirtual) % 6 != 0) continue;
    EngineFixture fixture(*executor_, Dense());
    fixture.Ask(RequestOf(begun, 0, nullptr));
    Logits warm;
    const auto answer = fixture.Ask(RequestOf(prompt, 8, &warm));
    EXPECT_EQ(answer.completion.report.used_tokens, int32_t(size));
    EXPECT_EQ(answer.tokens, reference.tokens) << size;
    ExpectSame(warm, cold);
  }
}

// Steps of few rows end inside of pictures.
class StepsTest : public PicturesTest, public ::testing::WithParamInterface<std::string> {
 protected:
  StepsTest() : PicturesTest("tests/vision/" + GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Models, StepsTest,
                         ::testing::Values("qwen3_5", "qwen3_vl", "qwen3_vl_moe"),
                         [](const auto& one) { return one.param; });

TEST_P(StepsTest, OfAnySizeGiveTheSameBits) {
  Prompt prompt;
  prompt.Say(1, 3).Show(Picture(1)).Show(Picture(2)).Say(3, 9);
  Logits cold;
  const auto reference = Cold(prompt, 5, &cold);
  for (const int32_t rows : {1, 2, 3, 4, 5, 7}) {
    EngineOptions options;
    options.scheduler.rows_max = rows;
    EngineFixture fixture(*executor_, Dense(), options);
    Logits logits;
    const auto answer = fixture.Ask(RequestOf(prompt, 5, &logits));
    EXPECT_EQ(answer.tokens, reference.tokens) << rows;
    ExpectSame(logits, cold);
  }
}

// A model in which the rows of a picture see one another: they are rows of one step, however few
// rows a step should have.
class WholePicturesTest : public PicturesTest {
 protected:
  WholePicturesTest() : PicturesTest("tests/vision/gemma3") {}

  std::shared_ptr<const SeenPicture> FromFile(const std::string& name) {
    const auto file = MappedFile::Open("tests/vision/gemma3/" + name);
    CHECK(file.ok());
    const auto bytes = file->bytes();
    auto seen = SeePicture(model_->tower()->card(),
                           {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    CHECK(seen.ok());
    return *seen;
  }
};

TEST_F(WholePicturesTest, NoStepEndsInsideOfAPicture) {
  Prompt prompt;
  prompt.Say(1, 3).Show(FromFile("picture_0.png")).Say(2, 2);
  prompt.Show(FromFile("picture_1.png")).Show(FromFile("picture_0.png")).Say(3, 9);
  Logits cold;
  const auto reference = Cold(prompt, 5, &cold);
  ASSERT_EQ(reference.tokens.size(), 5u);
  for (const int32_t rows : {1, 2, 3, 4, 7, 19}) {
    EngineOptions options;
    options.scheduler.rows_max = rows;
    EngineFixture fixture(*executor_, Dense(), options);
    executor_->ends.clear();
    Logits logits;
    const auto answer = fixture.Ask(RequestOf(prompt, 5, &logits));
    EXPECT_EQ(answer.tokens, reference.tokens) << rows;
    ExpectSame(logits, cold);
    EXPECT_GT(executor_->ends.size(), 5u) << "steps of " << rows;
    for (const int32_t end : executor_->ends) {
      for (const PlacedPicture& one : prompt.pictures) {
        EXPECT_FALSE(end > one.begin && end < one.begin + one.picture->tokens())
            << "steps of " << rows << ", one ends at " << end;
      }
    }
  }
}

// Beside others with pictures and without, who share beginnings.
TEST_F(PicturesTest, CompanyChangesNoBit) {
  std::vector<Prompt> prompts(5);
  prompts[0].Say(1, 7).Show(Picture(1)).Say(2, 20);
  prompts[1].Say(1, 7).Show(Picture(2)).Say(2, 20);
  prompts[2].Say(1, 7).Say(2, 20);
  prompts[3].Say(1, 7).Show(Picture(1)).Say(4, 30).Show(Picture(3)).Say(5, 2);
  prompts[4].Show(Picture(2)).Show(Picture(1)).Say(6, 4);
  std::vector<Logits> cold(prompts.size()), beside(prompts.size());
  std::vector<EngineFixture::Answer> alone;
  for (size_t i = 0; i < prompts.size(); ++i) alone.push_back(Cold(prompts[i], 6, &cold[i]));
  EngineOptions options;
  options.scheduler.rows_max = 16;
  EngineFixture fixture(*executor_, Dense(), options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (size_t i = 0; i < prompts.size(); ++i) {
    streams.push_back(fixture.Submit(RequestOf(prompts[i], 6, &beside[i])));
  }
  fixture.RunAll();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(fixture.Read(*streams[i]).tokens, alone[i].tokens) << i;
    ExpectSame(beside[i], cold[i]);
  }
}

// The second turn of a conversation about two pictures computes neither, and the tower rests.
TEST_F(PicturesTest, TheSecondTurnLooksAtNothing) {
  Prompt first;
  first.Say(1, 7).Show(Picture(1)).Show(Picture(2)).Say(2, 5);
  EngineFixture fixture(*executor_, Dense());
  const auto answer = fixture.Ask(RequestOf(first, 6, nullptr));
  EXPECT_EQ(executor_->looks, 2);
  Prompt second = first;
  second.tokens.insert(second.tokens.end(), answer.tokens.begin(), answer.tokens.end());
  second.Say(3, 4);
  Logits warm, cold;
  const auto next = fixture.Ask(RequestOf(second, 4, &warm));
  EXPECT_EQ(executor_->looks, 2);
  EXPECT_GE(next.completion.report.used_tokens, int32_t(first.tokens.size()));
  EXPECT_EQ(Cold(second, 4, &cold).tokens, next.tokens);
  ExpectSame(warm, cold);
}

// Swapped pictures, or one bit of one pixel: nothing behind the place where they differ is reused.
TEST_F(PicturesTest, OtherPicturesAreOthers) {
  const auto a = Picture(1), b = Picture(2);
  Prompt shown, swapped, changed;
  shown.Say(1, 7).Show(a).Show(b).Say(2, 9);
  swapped.Say(1, 7).Show(b).Show(a).Say(2, 9);
  changed.Say(1, 7).Show(a).Show(Picture(2, 48 * 32 * 3 - 1)).Say(2, 9);
  EngineFixture fixture(*executor_, Dense());
  fixture.Ask(RequestOf(shown, 0, nullptr));
  Logits warm, cold;
  const auto other = fixture.Ask(RequestOf(swapped, 4, &warm));
  EXPECT_EQ(other.completion.report.used_tokens, 7);
  EXPECT_EQ(Cold(swapped, 4, &cold).tokens, other.tokens);
  ExpectSame(warm, cold);
  warm.clear(), cold.clear();
  const auto close = fixture.Ask(RequestOf(changed, 4, &warm));
  EXPECT_LE(close.completion.report.used_tokens, 7 + 6);
  EXPECT_EQ(Cold(changed, 4, &cold).tokens, close.tokens);
  ExpectSame(warm, cold);
  const auto same = fixture.Ask(RequestOf(shown, 0, nullptr));
  EXPECT_GE(same.completion.report.used_tokens, int32_t(shown.tokens.size()) - 1);
}

// Others go on while the tower looks at a picture: it takes its parts between their steps.
TEST_F(PicturesTest, OthersGoOnMeanwhile) {
  auto large = std::make_shared<SeenPicture>();
  large->pixels = {256, 192, std::vector<uint8_t>(size_t{256} * 192 * 3, 7)};
  large->rows = 12;
  large->columns = 16;
  large->first = *VirtualTokens::Get().Take(Sha256("large"), 192);
  Prompt seeing, text;
  seeing.Say(1, 3).Show(large).Say(2, 3);
  text.Say(3, 5);
  EngineFixture fixture(*executor_);
  const auto reader = fixture.Submit(RequestOf(text, 100, nullptr));
  fixture.engine().Step();
  const auto seer = fixture.Submit(RequestOf(seeing, 2, nullptr));
  size_t said = 0;
  for (int step = 0; step < 8; ++step) {
    fixture.engine().Step();
    said += reader->Poll().tokens.size();
  }
  EXPECT_GE(said, 8u);
  EXPECT_EQ(executor_->looks, 1);
  EXPECT_EQ(seer->Poll().tokens.size(), 0u) << "the picture needs more parts than that";
  fixture.RunAll();
}

// Guesses of the model's own block stand where the rows will that they are for, and change nothing.
TEST_F(PicturesTest, DraftsChangeNoToken) {
  Prompt prompt;
  prompt.Say(1, 7).Show(Picture(1)).Show(Picture(2)).Say(2, 9);
  Logits cold;
  const auto reference = Cold(prompt, 30, &cold);
  EngineOptions options;
  options.speculation = {Speculate::kMtp, 3, {}};
  EngineFixture fixture(*executor_, {}, options);
  const auto answer = fixture.Ask(RequestOf(prompt, 30, nullptr));
  EXPECT_EQ(answer.tokens, reference.tokens);
  EXPECT_GT(answer.completion.speculation.drafts[size_t(Drafts::kMtp)].run, 0u);
  EXPECT_FALSE(executor_->guesses.empty());
  // A picture of 2 x 3 tokens is 3 places long.
  for (const auto& [position, place] : executor_->guesses) {
    const int32_t at = position - 2 * 3;
    EXPECT_EQ(place, (std::array{at, at, at}));
  }
  Logits warm;
  Prompt next = prompt;
  next.tokens.insert(next.tokens.end(), answer.tokens.begin(), answer.tokens.end());
  next.Say(3, 4);
  const auto later = fixture.Ask(RequestOf(next, 4, &warm));
  Logits again;
  EXPECT_EQ(Cold(next, 4, &again).tokens, later.tokens);
  ExpectSame(warm, again);
}

// What the sampler is told of a prompt has no pictures in it; what asks for their words is refused.
TEST_F(PicturesTest, PicturesAreNoWords) {
  Prompt prompt;
  prompt.Say(1, 7).Show(Picture(1)).Show(Picture(1)).Say(2, 5);
  GenerateRequest request = RequestOf(prompt, 8, nullptr);
  request.sampling.repetition_penalty = 1.5f;
  request.sampling.presence_penalty = 1;
  request.sampling.dry.multiplier = 1;
  request.sampling.dry.allowed_length = 1;
  EngineFixture fixture(*executor_);
  EXPECT_EQ(fixture.Ask(request).tokens.size(), 8u);
  request.prompt_logprobs = 0;
  EXPECT_FALSE(fixture.engine().Check(request).ok());
  request = RequestOf(prompt, 1, nullptr);
  request.pictures.pop_back();
  EXPECT_FALSE(fixture.engine().Check(request).ok());
  request = RequestOf(prompt, 1, nullptr);
  request.pictures[0].begin += 1;
  EXPECT_FALSE(fixture.engine().Check(request).ok());
}

// Each picture comes into the place that a template wrote for it, and boundaries move along.
TEST(PlacePictures, EachInItsPlaceOrNone) {
  constexpr TokenId kPlace = 7;
  std::vector<std::shared_ptr<const SeenPicture>> pictures;
  for (const TokenId first : {-100, -50}) {
    auto one = std::make_shared<SeenPicture>();
    one->rows = 1, one->columns = 3, one->first = first;
    pictures.push_back(one);
  }
  const std::vector<TokenId> written = {1, kPlace, 2, kPlace, 3};
  const std::vector<Boundary> before = {{0}, {1}, {2}, {4}, {5}};
  std::vector<TokenId> prompt = written;
  std::vector<Boundary> boundaries = before;
  std::vector<PlacedPicture> placed;
  ASSERT_TRUE(PlacePictures(pictures, kPlace, &prompt, &boundaries, &placed).ok());
  EXPECT_EQ(prompt, (std::vector<TokenId>{1, -100, -99, -98, 2, -50, -49, -48, 3}));
  EXPECT_TRUE(CheckPictures(prompt, placed).ok());
  std::vector<int32_t> positions;
  for (const Boundary& one : boundaries) positions.push_back(one.position);
  EXPECT_EQ(positions, (std::vector<int32_t>{0, 1, 4, 8, 9}));
  // Too few of them, or too many: nothing is done, and nothing of the prompt is lost.
  pictures.push_back(pictures[0]);
  for (const size_t count : {size_t{3}, size_t{1}}) {
    std::vector<TokenId> same = written;
    boundaries = before, placed.clear();
    const auto some = std::span(pictures).first(count);
    const Status refused = PlacePictures(some, kPlace, &same, &boundaries, &placed);
    EXPECT_NE(refused.message().find("no place for pictures"), std::string::npos) << count;
    EXPECT_EQ(same, written);
    EXPECT_TRUE(placed.empty());
  }
}

}  // namespace
}  // namespace reprise
