// SPDX-License-Identifier: Apache-2.0
// Proves that adapters compute what PEFT computes, and that the law holds with them: the logits of
// a row are a function of the model, its adapter and its tokens, of nobody else's.
#include "model/adapter/adapter.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "model/model_fixture.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

constexpr double kTolerance = 2e-3;

using AdapterPtr = std::shared_ptr<const Adapter>;

// "qwen3_moe__experts" -> "qwen3_moe".
std::string FamilyOf(const std::string& name) { return name.substr(0, name.find("__")); }

Checkpoint OpenGolden(const std::string& family) {
  auto checkpoint = OpenCheckpoint("tests/golden/" + family);
  CHECK(checkpoint.ok());
  return std::move(*checkpoint);
}

struct Loaded {
  explicit Loaded(const std::string& name, const std::string& weights = "")
      : checkpoint(OpenGolden(FamilyOf(name))) {
    LoadOptions options;
    options.kv = DType::kF32;  // as PEFT computes: what is compared is the adapter
    if (!weights.empty()) options.weights = *FindWeightMix(weights);
    auto made = LoadModel(checkpoint, machine.context(), options);
    CHECK(made.ok());
    model = std::move(*made);
  }
  Result<AdapterPtr> Load(const std::string& path, double scale = 1) {
    REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
    return Adapter::Load(file, scale, *model->adaptable(), machine.context());
  }

  TestMachine machine;
  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
};

std::string PathOf(const std::string& name) { return "tests/adapters/" + name; }

// Tokens, and what they are run with.
struct Text {
  std::vector<TokenId> tokens;
  const Adapter* adapter = nullptr;
};

// Logits of every token of every text, in steps that take `piece` tokens of each.
std::vector<std::vector<float>> RunTexts(const Model& model, const OpContext& context,
                                         std::span<const Text> texts, size_t piece) {
  size_t longest = 0;
  for (const Text& text : texts) longest = std::max(longest, text.tokens.size());
  auto state = LiveState::Create(model.state_spec(), int(texts.size()), int64_t(longest));
  CHECK(state.ok());
  std::vector<std::vector<float>> logits(texts.size());
  for (size_t done = 0; done < longest; done += piece) {
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<size_t> who;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<TokenId>& all = texts[i].tokens;
      if (done >= all.size()) continue;
      const size_t count = std::min(piece, all.size() - done);
      slices.push_back(state->Next(int(i), uint32_t(tokens.size()), uint32_t(count)));
      if (texts[i].adapter != nullptr) {
        const auto from = texts[i].adapter->CountsFrom(all);
        if (from) slices.back().adapter = texts[i].adapter;
        slices.back().adapted_from = uint32_t(std::max(0, from.value_or(0) - int32_t(done)));
      }
      tokens.insert(tokens.end(), all.begin() + ptrdiff_t(done),
                    all.begin() + ptrdiff_t(done + count));
      who.push_back(i);
    }
    std::vector<uint32_t> rows(tokens.size());
    for (uint32_t r = 0; r < rows.size(); ++r) rows[r] = r;
    std::vector<float> out(tokens.size() * size_t(model.vocab_size()));
    CHECK(model.Forward(context, {tokens, slices, rows}, state->memory(), out.data()).ok());
    const float* at = out.data();
    for (size_t s = 0; s < slices.size(); ++s) {
      const size_t count = slices[s].row_count * size_t(model.vocab_size());
      logits[who[s]].insert(logits[who[s]].end(), at, at + count);
      at += count;
      state->Advance(int(who[s]), slices[s].row_count);
    }
  }
  return logits;
}

std::vector<float> RunAlone(const Model& model, const OpContext& context, const Text& text) {
  return RunTexts(model, context, {&text, 1}, text.tokens.size()).front();
}

double RootMeanSquare(const std::vector<float>& actual, const std::vector<float>& expected) {
  double squares = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    squares += (double(actual[i]) - expected[i]) * (double(actual[i]) - expected[i]);
  }
  return std::sqrt(squares / double(actual.size()));
}

// The largest difference, as a part of the spread of what is expected.
double Difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  CHECK(actual.size() == expected.size());
  double sum = 0, squares = 0, worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    sum += expected[i];
    squares += double(expected[i]) * expected[i];
    worst = std::max(worst, std::abs(double(actual[i]) - expected[i]));
  }
  const double count = double(actual.size()), mean = sum / count;
  return worst / std::sqrt(squares / count - mean * mean);
}

struct Expected {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

Expected ReadExpected(const std::string& family) {
  const auto file = MappedFile::Open(PathOf(family) + "/logits.safetensors");
  CHECK(file.ok());
  const auto tensors = SafetensorsFile::Parse(file->bytes());
  CHECK(tensors.ok());
  const StoredTensor& logits = *tensors->Find("logits");
  Expected expected{*tensors->ReadIds("tokens"),
                    std::vector<float>(size_t(logits.shape.elements()))};
  std::memcpy(expected.logits.data(), logits.bytes.data(), logits.bytes.size());
  return expected;
}

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/adapters")) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class AdapterGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(AdapterGoldenTest, ComputesWhatPeftComputes) {
  Loaded loaded(GetParam());
  const auto adapter = loaded.Load(PathOf(GetParam()));
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const Expected expected = ReadExpected(GetParam());
  const Text text = {expected.tokens, adapter->get()};
  const auto logits = RunAlone(*loaded.model, loaded.machine.context(), text);
  EXPECT_LE(Difference(logits, expected.logits), kTolerance);
  const auto plain = RunAlone(*loaded.model, loaded.machine.context(), {expected.tokens});
  EXPECT_GT(Difference(plain, expected.logits), 100 * kTolerance);
}

TEST_P(AdapterGoldenTest, ScaleZeroIsTheBaseToTheBit) {
  Loaded loaded(GetParam());
  const auto adapter = loaded.Load(PathOf(GetParam()), 0);
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_EQ((*adapter)->digest(), loaded.model->card().digest);
  const Expected expected = ReadExpected(GetParam());
  const OpContext context = loaded.machine.context();
  EXPECT_EQ(RunAlone(*loaded.model, context, {expected.tokens, adapter->get()}),
            RunAlone(*loaded.model, context, {expected.tokens}));
}

TEST_P(AdapterGoldenTest, QuantisedBasesTakeTheSameAdapter) {
  Loaded loaded(GetParam(), "q8_0");
  const auto adapter = loaded.Load(PathOf(GetParam()));
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const Expected expected = ReadExpected(GetParam());
  const OpContext context = loaded.machine.context();
  const auto logits = RunAlone(*loaded.model, context, {expected.tokens, adapter->get()});
  const auto plain = RunAlone(*loaded.model, context, {expected.tokens});
  // Tiny models feel the rounding of their weights, but far less than the adapter.
  EXPECT_LE(RootMeanSquare(logits, expected.logits), 0.3 * RootMeanSquare(plain, expected.logits));
  RecordProperty("rms", std::to_string(RootMeanSquare(logits, expected.logits) /
                                       RootMeanSquare(plain, expected.logits)));
}

// The rows of a GGUF base may lie in another order than those of the adapter's file.
TEST_P(AdapterGoldenTest, GgufBasesTakeTheSameAdapter) {
  Loaded loaded(GetParam());
  const std::string path =
      testing::TempDir() + "/adapter_base_" + std::to_string(::getpid()) + GetParam() + ".gguf";
  ConvertToGguf(loaded.checkpoint, "bf16", path);
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  LoadOptions options;
  options.kv = DType::kF32;
  const auto model = LoadModel(*checkpoint, loaded.machine.context(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto file = AdapterFile::Open(PathOf(GetParam()));
  ASSERT_TRUE(file.ok());
  const auto adapter = Adapter::Load(*file, 1, *(*model)->adaptable(), loaded.machine.context());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const Expected expected = ReadExpected(GetParam());
  const auto logits =
      RunAlone(**model, loaded.machine.context(), {expected.tokens, adapter->get()});
  EXPECT_LE(Difference(logits, expected.logits), kTolerance);
  std::filesystem::remove(path);
}

// Texts with several adapters and with none, in any company, cut into any steps, on any number of
// threads and any instruction set: each has the bits that it has alone.
TEST_P(AdapterGoldenTest, MixedBatchesKeepTheLaw) {
  Loaded loaded(GetParam());
  const auto whole = loaded.Load(PathOf(GetParam()));
  const auto half = loaded.Load(PathOf(GetParam()), 0.4);
  ASSERT_TRUE(whole.ok() && half.ok());
  Rng rng(5);
  // Neighbours with one adapter, with two, and with one and a text without in between.
  const Adapter* const adapters[] = {half->get(), half->get(),  whole->get(), nullptr,
                                     nullptr,     whole->get(), nullptr,      whole->get()};
  std::vector<Text> texts;
  for (const Adapter* adapter : adapters) {
    Text text{std::vector<TokenId>(3 + rng.Below(30)), adapter};
    for (TokenId& token : text.tokens) {
      token = TokenId(rng.Below(uint64_t(loaded.model->vocab_size())));
    }
    const std::vector<TokenId>& invocation = whole->get()->invocation();
    if (invocation.size() <= text.tokens.size()) {
      const size_t at = rng.Below(text.tokens.size() - invocation.size() + 1);
      std::copy(invocation.begin(), invocation.end(), text.tokens.begin() + ptrdiff_t(at));
    }
    texts.push_back(std::move(text));
  }
  TestMachine scalar(1, "scalar");
  LoadOptions options;
  options.kv = DType::kF32;
  auto model = LoadModel(loaded.checkpoint, scalar.context(), options);
  ASSERT_TRUE(model.ok());
  const auto file = AdapterFile::Open(PathOf(GetParam()));
  std::vector<std::vector<float>> alone;
  for (const Text& text : texts) {
    Text same = text;
    AdapterPtr packed;  // for these kernels
    if (text.adapter != nullptr) {
      const double scale = text.adapter == whole->get() ? 1 : 0.4;
      packed = *Adapter::Load(*file, scale, *(*model)->adaptable(), scalar.context());
      EXPECT_EQ(packed->digest(), text.adapter->digest());
      same.adapter = packed.get();
    }
    alone.push_back(RunAlone(**model, scalar.context(), same));
  }
  EXPECT_NE(alone[0], RunAlone(*loaded.model, loaded.machine.context(), {texts[0].tokens}));
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{33}}) {
    EXPECT_EQ(RunTexts(*loaded.model, loaded.machine.context(), texts, piece), alone) << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterGoldenTest, testing::ValuesIn(Families()),
                         [](const auto& family) { return family.param; });

// An adapter in a GGUF file, made of one in a folder: names and order of rows are those of GGUF.
std::string WriteGgufAdapter(const AdapterFile& file, const AdaptableModel& model, float alpha,
                             const std::string& family) {
  const std::string path = testing::TempDir() + "/adapter_" + std::to_string(::getpid()) + ".gguf";
  GgufWriter writer;
  writer.PutString("general.architecture", family);
  writer.PutString("general.type", "adapter");
  writer.PutString("adapter.type", "lora");
  writer.Put<float>("adapter.lora.alpha", alpha);
  std::vector<std::vector<std::byte>> data;
  for (const StoredLowRank& stored : file.products()) {
    const auto tensor =
        std::find_if(model.tensors.begin(), model.tensors.end(),
                     [&](const PlannedTensor& one) { return one.hf == stored.weight; });
    CHECK(tensor != model.tensors.end());
    const auto moved = [&](const StoredTensor& from, bool rows) {
      std::vector<std::byte> out(from.bytes.begin(), from.bytes.end());
      const size_t bytes = RowBytes(from.dtype, from.shape.cols());
      if (!rows || tensor->head_rows.columns) return out;
      for (int64_t row = 0; row < from.shape[0]; ++row) {
        const size_t of = size_t(HfRowOfGgufRow(tensor->head_rows, row));
        std::memcpy(out.data() + size_t(row) * bytes, from.bytes.data() + of * bytes, bytes);
      }
      return out;
    };
    CHECK(writer.AddTensor(tensor->gguf + ".lora_a", stored.down.dtype, stored.down.shape).ok());
    CHECK(writer.AddTensor(tensor->gguf + ".lora_b", stored.up.dtype, stored.up.shape).ok());
    data.push_back(moved(stored.down, false));
    data.push_back(moved(stored.up, true));
  }
  CHECK(writer.Open(path).ok());
  for (const auto& bytes : data) CHECK(writer.Append(bytes).ok());
  CHECK(writer.Finish().ok());
  return path;
}

TEST(AdapterTest, AGgufFileOfTheSameContentIsTheSameAdapter) {
  Loaded loaded("llama");
  const auto folder = AdapterFile::Open(PathOf("llama"));
  ASSERT_TRUE(folder.ok());
  // rsLoRA: alpha / sqrt(r), where GGUF has alpha / r.
  const float alpha = float(folder->products().front().scale * 4);
  const std::string path = WriteGgufAdapter(*folder, *loaded.model->adaptable(), alpha, "llama");
  const auto one = loaded.Load(PathOf("llama"));
  const auto other = loaded.Load(path);
  ASSERT_TRUE(one.ok() && other.ok()) << other.status().message();
  EXPECT_EQ((*one)->digest(), (*other)->digest());
  const std::string wrong = WriteGgufAdapter(*folder, *loaded.model->adaptable(), alpha, "qwen3");
  const auto refused = loaded.Load(wrong);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("qwen3"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(AdapterTest, TheDigestIsOfContentAndScale) {
  Loaded loaded("llama");
  const std::string copy = testing::TempDir() + "/adapter_copy_" + std::to_string(::getpid());
  std::filesystem::remove_all(copy);
  std::filesystem::copy(PathOf("llama"), copy);
  const auto one = loaded.Load(PathOf("llama"));
  const auto same = loaded.Load(copy);
  const auto scaled = loaded.Load(copy, 0.5);
  ASSERT_TRUE(one.ok() && same.ok() && scaled.ok());
  EXPECT_EQ((*one)->digest(), (*same)->digest());
  EXPECT_NE((*one)->digest(), (*scaled)->digest());
  EXPECT_NE((*one)->digest(), loaded.model->card().digest);
  // One bit of one value.
  const std::string values = copy + "/adapter_model.safetensors";
  auto bytes = ReadFile(values, 1 << 20);
  ASSERT_TRUE(bytes.ok());
  bytes->back() = char(bytes->back() ^ 1);
  ASSERT_TRUE(WriteFileAtomically(values, std::as_bytes(std::span(*bytes))).ok());
  const auto other = loaded.Load(copy);
  ASSERT_TRUE(other.ok());
  EXPECT_NE((*one)->digest(), (*other)->digest());
  std::filesystem::remove_all(copy);
  Loaded quantised("llama", "q8_0");  // another model, so another state
  EXPECT_NE((*quantised.Load(PathOf("llama")))->digest(), (*one)->digest());
}

// What invokes an adapter is part of what its state is.
TEST(AdapterTest, ActivatedAdaptersCountFromTheLastInvocation) {
  Loaded loaded("llama");
  const auto config = ReadFile(PathOf("llama") + "/adapter_config.json", 1 << 20);
  const auto tensors = MappedFile::Open(PathOf("llama") + "/adapter_model.safetensors");
  ASSERT_TRUE(config.ok() && tensors.ok());
  const auto with = [&](const std::string& tokens) {
    std::string activated = *config;
    const std::string plain = "\"alora_invocation_tokens\": null";
    CHECK(activated.find(plain) != std::string::npos);
    activated.replace(activated.find(plain), plain.size(),
                      "\"alora_invocation_tokens\": " + tokens);
    const auto file = AdapterFile::ParsePeft(activated, tensors->bytes());
    CHECK(file.ok());
    auto adapter = Adapter::Load(*file, 1, *loaded.model->adaptable(), loaded.machine.context());
    CHECK(adapter.ok());
    return std::move(*adapter);
  };
  const AdapterPtr one = with("[5, 6]"), other = with("[5, 7]"), plain = with("null");
  EXPECT_NE(one->digest(), other->digest());
  EXPECT_NE(one->digest(), plain->digest());
  EXPECT_NE(one->mark(), other->mark());
  EXPECT_EQ(one->mark(), with("[5, 6]")->mark());
  EXPECT_LT(one->mark(), 0);
  EXPECT_EQ(plain->CountsFrom(std::vector<TokenId>{1, 2}), 0);
  EXPECT_EQ(one->CountsFrom(std::vector<TokenId>{5, 6, 5, 6, 5}), 2);
  EXPECT_EQ(one->CountsFrom(std::vector<TokenId>{6, 5}), std::nullopt);
  // Where its scale is 0, there is nothing to invoke.
  const auto nothing = loaded.Load(PathOf("llama"), 0);
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE((*nothing)->invocation().empty());
}

TEST(AdapterTest, AdaptersOfOtherModelsAreRefused) {
  Loaded loaded("llama");
  for (const std::string& family : Families()) {
    if (family != "llama" && family.find("__") != std::string::npos) continue;  // tables fit others
    const auto adapter = loaded.Load(PathOf(family));
    EXPECT_EQ(adapter.ok(), family == "llama") << family;
    if (!adapter.ok()) {
      EXPECT_FALSE(adapter.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace reprise
