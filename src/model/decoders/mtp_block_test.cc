// SPDX-License-Identifier: Apache-2.0
// Proves that the block that predicts further tokens says what the reference says, from folders and
// from GGUF files; that its guesses are a function of the tokens before them alone, however those
// came into steps and whatever was guessed there before; and that a block that is not whole is said
// by name. The bundled model's block is right, and with no other pairs.
#include "model/decoders/mtp_block.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "model/model_fixture.h"
#include "model/model_text.h"

namespace reprise {
namespace {

constexpr double kTolerance = 2e-3;  // as of other goldens

template <typename T>
T Take(Result<T> made) {
  CHECK(made.ok());
  return std::move(*made);
}

struct MtpGolden {
  std::vector<TokenId> tokens, drafts;
  std::vector<float> logits;  // [tokens, vocabulary]
};

MtpGolden ReadMtpGolden(const std::string& name) {
  const auto file = MappedFile::Open("tests/golden/" + name + "/mtp.safetensors");
  CHECK(file.ok());
  const auto tensors = SafetensorsFile::Parse(file->bytes());
  CHECK(tensors.ok());
  const StoredTensor* logits = tensors->Find("logits");
  MtpGolden golden{*tensors->ReadIds("tokens"), *tensors->ReadIds("drafts"),
                   std::vector<float>(size_t(logits->shape.elements()))};
  std::memcpy(golden.logits.data(), logits->bytes.data(), logits->bytes.size());
  return golden;
}

std::unique_ptr<Model> Load(const Checkpoint& checkpoint, TestMachine* machine, DType kv) {
  LoadOptions options;
  options.kv = kv;
  options.mtp = true;
  auto model = LoadModel(checkpoint, machine->context(), options);
  CHECK(model.ok());
  return std::move(*model);
}

// One sequence beside others that are never looked at: steps of it, and guesses behind its end.
class Speaker {
 public:
  Speaker(const Model& model, OpContext context, int64_t tokens_max)
      : model_(model),
        context_(context),
        state_(Take(
            LiveState::Create(model.state_spec(), 1, tokens_max, model.StateMemoryOf(context)))),
        hidden_(size_t(model.card().dim)) {}

  void Run(std::span<const TokenId> tokens) {
    const SequenceSlice slice = state_.Next(0, 0, uint32_t(tokens.size()));
    CHECK(model_.Forward(context_, {tokens, std::span(&slice, 1), {}}, state_.memory(), nullptr)
              .ok());
    state_.Advance(0, int64_t(tokens.size()));
  }

  // Behind `token`, and `index` guesses that were made since the last Run.
  std::vector<float> Guess(TokenId token, int index = 0) {
    SequenceSlice slice = state_.Next(0, 0, 1);
    slice.past = slice.past + index;
    const uint32_t row = 0;
    uint8_t finite = 0;
    std::vector<float> logits(size_t(model_.vocab_size()));
    const BatchView batch = {std::span(&token, 1), std::span(&slice, 1), std::span(&row, 1),
                             std::span(&finite, 1)};
    const Status said =
        model_.Predict(context_, batch, state_.memory(), index == 0, hidden_, logits);
    CHECK(said.ok() && finite == 1);
    return logits;
  }

  std::vector<TokenId> Chain(TokenId token, size_t count) {
    std::vector<TokenId> drafts;
    while (drafts.size() < count) {
      token = TokenId(ArgMax(Guess(token, int(drafts.size()))));
      drafts.push_back(token);
    }
    return drafts;
  }

 private:
  const Model& model_;
  const OpContext context_;
  LiveState state_;
  std::vector<float> hidden_;
};

void ExpectGolden(const Checkpoint& checkpoint, const std::string& name) {
  const MtpGolden golden = ReadMtpGolden(name);
  TestMachine machine;
  const auto model = Load(checkpoint, &machine, DType::kF32);
  ASSERT_TRUE(model->card().mtp_state) << model->card().mtp_absent;
  const size_t vocab = size_t(model->vocab_size());
  Speaker speaker(*model, machine.context(), int64_t(golden.tokens.size() + golden.drafts.size()));
  double sum = 0, squares = 0, worst = 0;
  std::vector<TokenId> drafts;
  for (size_t p = 0; p < golden.tokens.size(); ++p) {
    const std::vector<float> logits = speaker.Guess(golden.tokens[p]);
    for (size_t i = 0; i < vocab; ++i) {
      const double expected = golden.logits[p * vocab + i];
      worst = std::max(worst, std::abs(double(logits[i]) - expected));
      sum += expected;
      squares += expected * expected;
    }
    if (p + 1 == golden.tokens.size()) {
      drafts = speaker.Chain(golden.tokens[p], golden.drafts.size());
    } else {
      speaker.Run(std::span(golden.tokens).subspan(p, 1));
    }
  }
  const double count = double(golden.logits.size());
  EXPECT_LE(worst, kTolerance * std::sqrt(squares / count - sum / count * sum / count));
  EXPECT_EQ(drafts, golden.drafts);
}

class MtpTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("tests/golden/") + GetParam(); }
  Checkpoint Open() const {
    auto checkpoint = OpenCheckpoint(folder());
    CHECK(checkpoint.ok());
    return std::move(*checkpoint);
  }
};

TEST_P(MtpTest, SaysWhatTheReferenceSays) { ExpectGolden(Open(), GetParam()); }

TEST_P(MtpTest, SaysTheSameFromGguf) {
  for (const char* type : {"f32", "bf16"}) {
    const std::string path = ::testing::TempDir() + "mtp_" + std::to_string(::getpid()) + ".gguf";
    ConvertToGguf(Open(), type, path);
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    ExpectGolden(*checkpoint, GetParam());
    std::remove(path.c_str());
  }
}

// Without the block the model is the same, and its digest another: its state is.
TEST_P(MtpTest, ChangesNoLogit) {
  const Checkpoint checkpoint = Open();
  TestMachine machine;
  const auto with = Load(checkpoint, &machine, DType::kF16);
  const auto without = LoadModel(checkpoint, machine.context(), {});
  ASSERT_TRUE(without.ok());
  const std::vector<TokenId> tokens = ReadMtpGolden(GetParam()).tokens;
  EXPECT_EQ(RunWhole(*with, machine.context(), tokens),
            RunWhole(**without, machine.context(), tokens));
  EXPECT_NE(with->card().digest, (*without)->card().digest);
  EXPECT_EQ(with->state_spec().layers.size(), (*without)->state_spec().layers.size() + 2);
}

// The law: splits, company, threads, instruction sets, and guesses that came to nothing.
TEST_P(MtpTest, GuessesAreAFunctionOfTheTokens) {
  const Checkpoint checkpoint = Open();
  const std::vector<TokenId> tokens = ReadMtpGolden(GetParam()).tokens;
  const size_t count = tokens.size() - 1;
  TestMachine one(1);
  const auto model = Load(checkpoint, &one, DType::kF16);
  Speaker whole(*model, one.context(), 256);
  whole.Run(std::span(tokens).first(count));
  const std::vector<TokenId> chain = whole.Chain(tokens[count], 5);
  const std::vector<float> expected = whole.Guess(tokens[count]);
  Rng rng(3);
  for (int round = 0; round < 6; ++round) {
    TestMachine machine(1 + round % 3, round == 5 ? "scalar" : "all");
    const auto again = Load(checkpoint, &machine, DType::kF16);
    Speaker speaker(*again, machine.context(), 256);
    for (size_t done = 0; done < count;) {
      const size_t piece = std::min<size_t>(1 + rng.Below(round % 2 == 0 ? 7 : 40), count - done);
      speaker.Run(std::span(tokens).subspan(done, piece));
      done += piece;
      // K/V of guesses lies where the next step writes.
      if (rng.Below(2) == 0) (void)speaker.Chain(TokenId(rng.Below(300)), 1 + rng.Below(9));
    }
    EXPECT_EQ(speaker.Guess(tokens[count]), expected) << "round " << round;
    EXPECT_EQ(speaker.Chain(tokens[count], 5), chain) << "round " << round;
  }
}

// Guesses for several sequences at once are those for each alone.
TEST_P(MtpTest, CompanyChangesNoGuess) {
  const Checkpoint checkpoint = Open();
  TestMachine machine;
  const auto model = Load(checkpoint, &machine, DType::kF16);
  const size_t vocab = size_t(model->vocab_size()), dim = size_t(model->card().dim);
  constexpr int kCount = 5;
  auto state =
      LiveState::Create(model->state_spec(), kCount, 128, model->StateMemoryOf(machine.context()));
  ASSERT_TRUE(state.ok());
  const std::vector<TokenId> tokens = ReadMtpGolden(GetParam()).tokens;
  std::vector<SequenceSlice> slices;
  std::vector<TokenId> last;
  std::vector<uint32_t> rows;
  std::vector<float> expected;
  for (int i = 0; i < kCount; ++i) {
    const size_t length = size_t(11 + 9 * i);
    const auto text = std::span(tokens).subspan(size_t(i), length);
    const SequenceSlice slice = state->Next(i, 0, uint32_t(length));
    ASSERT_TRUE(
        model
            ->Forward(machine.context(), {text, std::span(&slice, 1), {}}, state->memory(), nullptr)
            .ok());
    state->Advance(i, int64_t(length));
    last.push_back(tokens[size_t(i) + length]);
    rows.push_back(uint32_t(i));
    slices.push_back(state->Next(i, uint32_t(i), 1));
    Speaker alone(*model, machine.context(), 128);
    alone.Run(text);
    const std::vector<float> logits = alone.Guess(last.back());
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  std::vector<float> logits(kCount * vocab), hidden(kCount * dim);
  std::vector<uint8_t> finite(kCount);
  ASSERT_TRUE(model
                  ->Predict(machine.context(), {last, slices, rows, finite}, state->memory(), true,
                            hidden, logits)
                  .ok());
  EXPECT_EQ(logits, expected);
}

INSTANTIATE_TEST_SUITE_P(Families, MtpTest,
                         ::testing::Values("qwen3_5", "qwen3_5_moe", "qwen3_next", "glm4_moe",
                                           "deepseek_v3"));

// The golden with its tensors and its configuration edited.
class PartOfMtp : public ::testing::Test {
 protected:
  PartOfMtp() {
    folder_ = ::testing::TempDir() + "part_of_mtp_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  ~PartOfMtp() override { std::filesystem::remove_all(folder_); }

  // `rename` says what a tensor is called; "": it is left out. `more`: one that is added.
  Result<std::unique_ptr<Model>> Load(const std::function<std::string(std::string)>& rename,
                                      const std::string& from = "", const std::string& to = "",
                                      const std::string& more = "") {
    std::ifstream in(kFolder + "/config.json");
    std::string config{std::istreambuf_iterator<char>(in), {}};
    if (!from.empty()) config.replace(config.find(from), from.size(), to);
    std::ofstream(folder_ + "/config.json") << config;
    const auto golden = OpenCheckpoint(kFolder);
    CHECK(golden.ok());
    SafetensorsWriter writer;
    for (const StoredTensor& tensor : golden->tensors()) {
      if (!rename(std::string(tensor.name)).empty())
        writer.AddTensor(rename(std::string(tensor.name)), tensor.dtype, tensor.shape);
    }
    const StoredTensor& any = golden->tensors()[0];
    if (!more.empty()) writer.AddTensor(more, any.dtype, any.shape);
    CHECK(writer.Open(folder_ + "/model.safetensors").ok());
    for (const StoredTensor& tensor : golden->tensors()) {
      if (!rename(std::string(tensor.name)).empty()) CHECK(writer.Append(tensor.bytes).ok());
    }
    if (!more.empty()) CHECK(writer.Append(any.bytes).ok());
    CHECK(writer.Finish().ok());
    const auto checkpoint = OpenCheckpoint(folder_);
    CHECK(checkpoint.ok());
    LoadOptions options;
    options.mtp = true;
    return LoadModel(*checkpoint, machine_.context(), options);
  }
  std::string AbsenceWithout(const std::string& part) {
    const auto model = Load([&](const std::string& name) {
      return name.find(part) != std::string::npos ? std::string() : name;
    });
    CHECK(model.ok());
    EXPECT_FALSE((*model)->card().mtp_state);
    EXPECT_EQ((*model)->state_spec().layers.size(), 8u);
    return (*model)->card().mtp_absent;
  }

  const std::string kFolder = "tests/golden/qwen3_5";
  std::string folder_;
  TestMachine machine_{1};
};

TEST_F(PartOfMtp, IsSaidByName) {
  for (const char* part : {"mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "mtp.norm.weight"}) {
    const std::string absent = AbsenceWithout(part);
    EXPECT_NE(absent.find("not whole"), std::string::npos) << absent;
    EXPECT_NE(absent.find(part), std::string::npos) << absent;
  }
  // Fine-tunes lose all of it, and go on saying that they have it.
  EXPECT_NE(AbsenceWithout("mtp.").find("not whole"), std::string::npos);
}

TEST_F(PartOfMtp, OfAnotherShapeIsRefused) {
  const std::string a = "mtp.norm.weight", b = "mtp.layers.0.self_attn.q_norm.weight";
  const auto model = Load([&](const std::string& name) {
    return name == a ? b : name == b ? a : name;
  });
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("norm"), std::string::npos) << model.status().message();
}

// A file without the block, which it may declare, and one with nothing but the block.
TEST_F(PartOfMtp, IsFoundInAFileBeside) {
  const auto source = OpenCheckpoint(kFolder);
  ASSERT_TRUE(source.ok());
  const std::string whole = folder_ + "/whole.gguf";
  ConvertToGguf(*source, "f32", whole);
  const auto write = [&](const std::string& path, bool block, bool declared) {
    const auto file = MappedFile::Open(whole);
    const auto gguf = GgufFile::Parse(file->bytes());
    GgufWriter writer;
    for (const GgufFile::Entry& entry : gguf->entries()) {
      if (!declared && entry.key == "qwen35.nextn_predict_layers") continue;
      if (!declared && entry.key == "qwen35.block_count") {
        writer.Put<uint32_t>(entry.key, 8);
      } else {
        writer.PutValue(entry.key, entry.value);
      }
    }
    const auto belongs = [&](const StoredTensor& tensor) {
      return tensor.name.starts_with("blk.8.") == block || !tensor.name.starts_with("blk.");
    };
    for (const StoredTensor& tensor : gguf->tensors()) {
      if (belongs(tensor)) CHECK(writer.AddTensor(tensor.name, tensor.dtype, tensor.shape).ok());
    }
    CHECK(writer.Open(path).ok());
    for (const StoredTensor& tensor : gguf->tensors()) {
      if (belongs(tensor)) CHECK(writer.Append(tensor.bytes).ok());
    }
    CHECK(writer.Finish().ok());
    return Take(OpenCheckpoint(path));
  };
  const Checkpoint block = write(folder_ + "/mtp-trunk.gguf", true, true);
  const Checkpoint all = Take(OpenCheckpoint(whole));
  const auto expected = reprise::Load(all, &machine_, DType::kF16);
  for (const bool declared : {false, true}) {
    const Checkpoint trunk = write(folder_ + "/trunk.gguf", false, declared);
    LoadOptions options;
    options.mtp = true;
    const auto without = LoadModel(trunk, machine_.context(), options);
    ASSERT_TRUE(without.ok()) << without.status().message();
    EXPECT_FALSE((*without)->card().mtp_state);
    EXPECT_EQ((*without)->card().mtp_declared, declared);
    options.mtp_file = &block;
    const auto with = LoadModel(trunk, machine_.context(), options);
    ASSERT_TRUE(with.ok()) << with.status().message();
    ASSERT_TRUE((*with)->card().mtp_state) << (*with)->card().mtp_absent;
    const std::vector<TokenId> tokens = ReadMtpGolden("qwen3_5").tokens;
    Speaker a(*expected, machine_.context(), 128), b(**with, machine_.context(), 128);
    a.Run(std::span(tokens).first(20));
    b.Run(std::span(tokens).first(20));
    EXPECT_EQ(a.Guess(tokens[20]), b.Guess(tokens[20]));
  }
}

// Qwen3-Next's configuration does not speak of it; some checkpoints have another prefix.
TEST_F(PartOfMtp, IsFoundByItsTensors) {
  const std::string said = "\"mtp_num_hidden_layers\": 1,";
  const auto silent = Load([](std::string name) { return name; }, said, "");
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_TRUE((*silent)->card().mtp_state);
  const auto prefixed = Load(
      [](const std::string& name) { return name.starts_with("mtp.") ? "model." + name : name; });
  ASSERT_TRUE(prefixed.ok()) << prefixed.status().message();
  EXPECT_TRUE((*prefixed)->card().mtp_state);
  const auto none =
      Load([](std::string name) { return name; }, said, "\"mtp_num_hidden_layers\": 0,");
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_FALSE((*none)->card().mtp_state);
  EXPECT_NE((*none)->card().mtp_absent.find("has no block"), std::string::npos);
}

// Guesses of such a block are rows of another head: nobody may take the model's for it.
TEST_F(PartOfMtp, WithAVocabularyOfItsOwnIsNotTaken) {
  for (const std::string prefix : {"", "model."}) {
    const auto rename = [&](const std::string& name) {
      return name.starts_with("mtp.") ? prefix + name : name;
    };
    const auto model = Load(rename, "", "", prefix + "mtp.embed_tokens.weight");
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_FALSE((*model)->card().mtp_state);
    const std::string absent = (*model)->card().mtp_absent;
    EXPECT_NE(absent.find("vocabulary of its own"), std::string::npos) << absent;
  }
}

// The bundled model's block, on the model's own stories: which of several pairs it was trained for
// shows in nothing but how often it is right.
class BundledMtp : public ::testing::Test {
 protected:
  using Before = std::function<std::vector<float>(size_t p)>;  // what comes with token p

  BundledMtp()
      : checkpoint_(Take(OpenCheckpoint("models/reprise-tiny-q8_0.gguf"))),
        block_(Take(OpenCheckpoint("models/mtp-reprise-tiny-q8_0.gguf"))),
        model_(Take(LoadModel(checkpoint_, machine_.context(), WithBlock()))),
        text_(Take(ReadModelText(checkpoint_))),
        dim_(size_t(model_->card().dim)) {}

  LoadOptions WithBlock() const {
    LoadOptions options;
    options.mtp = true;
    options.mtp_file = &block_;
    return options;
  }

  // A prompt and what the model says, and h of each of these tokens.
  void Tell(const std::string& about, size_t count) {
    const std::string prompt =
        "<|im_start|>user\nTell me a story about " + about + ".<|im_end|>\n<|im_start|>assistant\n";
    tokens_.clear();
    CHECK(text_.tokenizer->Encode(prompt, {.parse_special = true}, &tokens_).ok());
    prompt_ = tokens_.size();
    auto said = Continue(*model_, machine_.context(), tokens_, count);
    tokens_.insert(tokens_.end(), said.begin(), said.end());
    auto state = LiveState::Create(model_->state_spec(), 1, int64_t(tokens_.size()),
                                   model_->StateMemoryOf(machine_.context()));
    hidden_.assign(tokens_.size() * dim_, 0);
    const SequenceSlice slice = state->Next(0, 0, uint32_t(tokens_.size()));
    CHECK(model_
              ->Forward(machine_.context(), {tokens_, std::span(&slice, 1), {}, {}, hidden_},
                        state->memory(), nullptr)
              .ok());
  }
  std::vector<float> HiddenOf(size_t p) const {
    return {hidden_.begin() + ptrdiff_t(p * dim_), hidden_.begin() + ptrdiff_t((p + 1) * dim_)};
  }

  // Of the tokens of a few replies, the share that is guessed with each of `before`, of the first
  // `among` tokens of the vocabulary.
  std::vector<double> Shares(std::span<const Before> before, int64_t among) {
    std::vector<double> right(before.size());
    double all = 0;
    for (const char* about : {"a dog", "a princess and a dragon", "a robot", "the moon", "a fox"}) {
      Tell(about, 100);
      auto state = Take(LiveState::Create(model_->state_spec(), 1, int64_t(tokens_.size()),
                                          model_->StateMemoryOf(machine_.context())));
      std::vector<float> logits(static_cast<size_t>(among));
      const auto run = [&](size_t begin, size_t count) {
        const SequenceSlice slice = state.Next(0, 0, uint32_t(count));
        const auto tokens = std::span(tokens_).subspan(begin, count);
        CHECK(model_
                  ->Forward(machine_.context(), {tokens, std::span(&slice, 1), {}}, state.memory(),
                            nullptr)
                  .ok());
        state.Advance(0, int64_t(count));
      };
      run(0, prompt_);
      for (size_t p = prompt_; p + 1 < tokens_.size(); ++p, ++all) {
        for (size_t i = 0; i < before.size(); ++i) {
          const SequenceSlice slice = state.Next(0, 0, 1);
          std::vector<float> hidden = before[i](p);
          const uint32_t row = 0;
          uint8_t finite = 0;
          CHECK(model_
                    ->Predict(machine_.context(),
                              {std::span(tokens_).subspan(p, 1), std::span(&slice, 1),
                               std::span(&row, 1), std::span(&finite, 1)},
                              state.memory(), /*first=*/false, hidden, logits)
                    .ok());
          right[i] += TokenId(ArgMax(logits)) == tokens_[p + 1] ? 1 : 0;
        }
        run(p, 1);
      }
    }
    for (double& count : right) count /= all;
    return right;
  }

  TestMachine machine_;
  const Checkpoint checkpoint_, block_;
  const std::unique_ptr<Model> model_;
  const ModelText text_;
  const size_t dim_;
  std::vector<TokenId> tokens_;
  size_t prompt_ = 0;
  std::vector<float> hidden_;
};

TEST_F(BundledMtp, KnowsItsPairs) {
  ASSERT_TRUE(model_->card().mtp_state) << model_->card().mtp_absent;
  const StoredTensor* norm = checkpoint_.Find("output_norm.weight");
  ASSERT_TRUE(norm != nullptr && norm->dtype == DType::kF32);
  std::vector<float> weights(dim_);
  std::memcpy(weights.data(), norm->bytes.data(), norm->bytes.size());
  const Before before[] = {
      [&](size_t p) { return HiddenOf(p - 1); },
      [&](size_t p) { return HiddenOf(p); },      // of the token itself
      [&](size_t p) { return HiddenOf(p - 2); },  // of the one before the last
      [&](size_t p) {  // before the final norm; how large it is does not matter
        std::vector<float> hidden = HiddenOf(p - 1);
        for (size_t i = 0; i < dim_; ++i) hidden[i] /= weights[i];
        return hidden;
      }};
  const std::vector<double> shares = Shares(before, model_->vocab_size());
  const std::string all = ::testing::PrintToString(shares);
  RecordProperty("shares", all);
  EXPECT_GE(shares[0], 0.6) << all;
  EXPECT_LT(shares[1], shares[0] - 0.02) << all;
  EXPECT_LT(shares[2], shares[0] - 0.05) << all;
  EXPECT_LT(shares[3], shares[0]) << all;
}

// Guesses among common tokens have the logits that these have among all, and are nearly as often
// right.
TEST_F(BundledMtp, CommonTokensAreEnough) {
  const int64_t common = model_->card().common_tokens;
  ASSERT_GT(common, 0);
  ASSERT_LT(common, model_->vocab_size());
  const Before before[] = {[&](size_t p) { return HiddenOf(p - 1); }};
  const double among_all = Shares(before, model_->vocab_size())[0];
  const double among_common = Shares(before, common)[0];
  RecordProperty("shares", std::to_string(among_all) + " " + std::to_string(among_common));
  EXPECT_GE(among_common, among_all - 0.03);
  const auto state = Take(
      LiveState::Create(model_->state_spec(), 1, 8, model_->StateMemoryOf(machine_.context())));
  const SequenceSlice slice = state.Next(0, 0, 1);
  const TokenId token = 5;
  const uint32_t row = 0;
  uint8_t finite = 0;
  const BatchView batch = {std::span(&token, 1), std::span(&slice, 1), std::span(&row, 1),
                           std::span(&finite, 1)};
  std::vector<float> hidden(dim_), all(size_t(model_->vocab_size())),
      some(static_cast<size_t>(common));
  const OpContext context = machine_.context();
  ASSERT_TRUE(model_->Predict(context, batch, state.memory(), true, hidden, all).ok());
  ASSERT_TRUE(model_->Predict(context, batch, state.memory(), true, hidden, some).ok());
  all.resize(some.size());
  EXPECT_EQ(all, some);
}

}  // namespace
}  // namespace reprise
