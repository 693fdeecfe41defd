// SPDX-License-Identifier: Apache-2.0
// Proves that the rows behind the final norm, pooled, are what Transformers makes of a text, for
// every family; that they do not depend on how the text came into steps; and that what a file says
// about vectors is understood, or refused.
#include "model/config/text_vectors.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/model_fixture.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

constexpr char kVectors[] = "tests/golden/vectors.safetensors";
constexpr int kYes = 7;
constexpr int kNo = 11;

// The rows behind the final norm, when the tokens come in pieces: [tokens, dim].
std::vector<float> HiddenInPieces(const Model& model, const OpContext& context,
                                  std::span<const TokenId> tokens, std::span<const size_t> pieces) {
  auto state =
      LiveState::Create(model.state_spec(), 1, int64_t(tokens.size()), context.backend->memory());
  CHECK(state.ok());
  const size_t dim = size_t(model.card().dim);
  std::vector<float> hidden(tokens.size() * dim);
  size_t done = 0;
  for (const size_t piece : pieces) {
    const SequenceSlice slice = state->Next(0, 0, uint32_t(piece));
    BatchView batch{tokens.subspan(done, piece), std::span(&slice, 1), {}};
    batch.hidden = std::span(hidden).subspan(done * dim, piece * dim);
    CHECK(model.Forward(context, batch, state->memory(), nullptr).ok());
    state->Advance(0, int64_t(piece));
    done += piece;
  }
  return hidden;
}

std::vector<float> Read(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  if (tensor == nullptr) return {};
  std::vector<float> values(size_t(tensor->shape.elements()));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(double(got[i]) - double(want[i])));
    squares += double(want[i]) * double(want[i]);
  }
  EXPECT_LE(worst, 2e-3 * std::sqrt(squares / double(want.size())));
}

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class VectorsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(VectorsTest, AreThoseOfTransformers) {
  const std::string folder = "tests/golden/" + GetParam();
  const Golden golden = ReadGolden(folder + "/golden.safetensors");
  const auto checkpoint = OpenCheckpoint(folder);
  ASSERT_TRUE(checkpoint.ok());
  TestMachine machine;
  LoadOptions options;
  options.kv = DType::kF32;
  options.context_tokens = int64_t(golden.tokens.size() + golden.greedy.size());
  const auto model = LoadModel(*checkpoint, machine.context(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const size_t dim = size_t((*model)->card().dim);
  const size_t count = golden.tokens.size();
  const size_t whole[] = {count};
  const size_t pieces[] = {1, 30, count - 31};
  const auto hidden = HiddenInPieces(**model, machine.context(), golden.tokens, whole);
  EXPECT_EQ(hidden, HiddenInPieces(**model, machine.context(), golden.tokens, pieces));

  const auto file = MappedFile::Open(kVectors);
  ASSERT_TRUE(file.ok());
  const auto vectors = SafetensorsFile::Parse(file->bytes());
  ASSERT_TRUE(vectors.ok());
  const std::vector<float> last_wanted = Read(*vectors, GetParam() + ".last");
  if (last_wanted.empty()) GTEST_SKIP() << "Transformers computes nothing like it";
  const std::vector<float> last(hidden.end() - std::ptrdiff_t(dim), hidden.end());
  ExpectClose(last, last_wanted);
  std::vector<double> sums(dim);
  for (size_t i = 0; i < hidden.size(); ++i) sums[i % dim] += double(hidden[i]);
  std::vector<float> mean;
  for (const double sum : sums) mean.push_back(float(sum / double(count)));
  ExpectClose(mean, Read(*vectors, GetParam() + ".mean"));
}

INSTANTIATE_TEST_SUITE_P(Families, VectorsTest, ::testing::ValuesIn(Families()),
                         [](const auto& param) { return param.param; });

// A GGUF file of the tiny Qwen3 with what `add` says.
std::string WriteGguf(const std::function<void(GgufWriter*)>& add) {
  const std::string path = ::testing::TempDir() + "vectors.gguf";
  const auto source = OpenCheckpoint("tests/golden/qwen3");
  CHECK(source.ok());
  ConvertToGguf(*source, "f32", path, add);
  return path;
}

TextVectors ReadGguf(const std::function<void(GgufWriter*)>& add) {
  const auto checkpoint = OpenCheckpoint(WriteGguf(add));
  CHECK(checkpoint.ok());
  auto vectors = ReadTextVectors(*checkpoint, 64);
  CHECK(vectors.ok());
  return std::move(*vectors);
}

TEST(TextVectors, GgufFilesSayHowTheyPool) {
  const auto type = [](uint32_t number) {
    return ReadGguf([=](GgufWriter* out) { out->Put<uint32_t>("qwen3.pooling_type", number); });
  };
  EXPECT_EQ(ReadGguf(nullptr).pooling, Pooling::kNone);
  EXPECT_EQ(ReadGguf(nullptr).why_not, "");
  EXPECT_EQ(type(0).pooling, Pooling::kNone);
  EXPECT_EQ(type(1).pooling, Pooling::kMean);
  EXPECT_EQ(type(3).pooling, Pooling::kLast);
  EXPECT_EQ(type(2).pooling, Pooling::kNone);
  EXPECT_NE(type(2).why_not, "");
  EXPECT_NE(type(4).why_not, "") << "ranks, but has no head";
  EXPECT_NE(type(77).why_not, "");
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    EXPECT_EQ(ReadGguf([&](GgufWriter* out) { PutPooling(pooling, "qwen3", out); }).pooling,
              pooling);
  }
}

// The GGUF file at `from`, with one more tensor.
void AddTensor(const std::string& from, const std::string& to, const std::string& name,
               const Shape& shape, std::span<const float> values) {
  const auto file = MappedFile::Open(from);
  CHECK(file.ok());
  const auto gguf = GgufFile::Parse(file->bytes());
  CHECK(gguf.ok());
  GgufWriter writer;
  for (const auto& entry : gguf->entries()) writer.PutValue(entry.key, entry.value);
  for (const StoredTensor& tensor : gguf->tensors()) {
    CHECK(writer.AddTensor(tensor.name, tensor.dtype, tensor.shape).ok());
  }
  CHECK(writer.AddTensor(name, DType::kF32, shape).ok());
  CHECK(writer.Open(to).ok());
  for (const StoredTensor& tensor : gguf->tensors()) CHECK(writer.Append(tensor.bytes).ok());
  CHECK(writer.Append(std::as_bytes(values)).ok());
  CHECK(writer.Finish().ok());
}

// A file as llama.cpp's converter makes it of a model that ranks: two rows of the head, and the
// prompt.
TEST(TextVectors, AHeadThatRanksScoresAsTransformersDoes) {
  const auto source = OpenCheckpoint("tests/golden/qwen3");
  ASSERT_TRUE(source.ok());
  const StoredTensor* head = source->Find("lm_head.weight");
  if (head == nullptr) head = source->Find("model.embed_tokens.weight");
  ASSERT_NE(head, nullptr);
  const int64_t dim = head->shape.cols();
  std::vector<float> rows(size_t(2 * dim));
  const size_t row_bytes = head->bytes.size() / size_t(head->shape.rows());
  DequantiseRow(head->dtype, head->bytes.data() + kYes * row_bytes, rows.data(), dim);
  DequantiseRow(head->dtype, head->bytes.data() + kNo * row_bytes, rows.data() + dim, dim);
  const auto ranks = [](const char* prompt) {
    return [=](GgufWriter* out) {
      out->Put<uint32_t>("qwen3.pooling_type", 4);
      out->PutString("tokenizer.chat_template.rerank", prompt);
    };
  };
  const std::string path = ::testing::TempDir() + "ranks.gguf";
  AddTensor(WriteGguf(ranks("{query} and {document}?")), path, "cls.output.weight", Shape({2, dim}),
            rows);
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok());
  const auto vectors = ReadTextVectors(*checkpoint, dim);
  ASSERT_TRUE(vectors.ok()) << vectors.status().message();
  EXPECT_EQ(vectors->pooling, Pooling::kNone) << "its vectors are no embeddings";
  EXPECT_EQ(vectors->rank_rows, rows);
  EXPECT_EQ(vectors->rank_prompt, "{query} and {document}?");

  TestMachine machine;
  LoadOptions options;
  options.kv = DType::kF32;
  const auto model = LoadModel(*checkpoint, machine.context(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Golden golden = ReadGolden("tests/golden/qwen3/golden.safetensors");
  const size_t whole[] = {golden.tokens.size()};
  const auto hidden = HiddenInPieces(**model, machine.context(), golden.tokens, whole);
  double products[2] = {0, 0};
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t at = hidden.size() - size_t(dim) + i % size_t(dim);
    products[i / size_t(dim)] += double(rows[i]) * double(hidden[at]);
  }
  const auto file = MappedFile::Open(kVectors);
  ASSERT_TRUE(file.ok());
  const auto goldens = SafetensorsFile::Parse(file->bytes());
  ASSERT_TRUE(goldens.ok());
  EXPECT_NEAR(1 / (1 + std::exp(products[1] - products[0])), Read(*goldens, "qwen3.rank")[0], 1e-4);

  EXPECT_FALSE(ReadTextVectors(*OpenCheckpoint(path), dim / 2).ok()) << "of another width";
  AddTensor(WriteGguf(ranks("{query}?")), path, "cls.output.weight", Shape({2, dim}), rows);
  EXPECT_FALSE(ReadTextVectors(*OpenCheckpoint(path), dim).ok()) << "no place for the document";
}

// A Hugging Face folder with only these files beside the configuration.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "vectors_folder";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/1_Pooling");
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(std::string("tests/golden/qwen3/") + name, folder_ + "/" + name);
    }
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  Result<TextVectors> Read() {
    const auto checkpoint = OpenCheckpoint(folder_);
    CHECK(checkpoint.ok());
    return ReadTextVectors(*checkpoint, 64);
  }
  Pooling PoolingOf(const std::string& config) {
    Write("1_Pooling/config.json", config);
    const auto read = Read();
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() ? read->pooling : Pooling::kNone;
  }
  static std::string Modules(const std::string& more, const std::string& path = "1_Pooling") {
    return R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "path": ")" +
           path + R"(", "type": "sentence_transformers.models.Pooling"})" + more + "]";
  }
  std::string folder_;
};

TEST_F(FolderTest, FoldersSayHowTheyPool) {
  EXPECT_EQ(Read()->pooling, Pooling::kNone);
  Write("modules.json", Modules(R"(, {"path": "2_Normalize", "type": "x.models.Normalize"})"));
  EXPECT_EQ(PoolingOf(R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})"),
            Pooling::kMean);
  EXPECT_EQ(PoolingOf(R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})"),
            Pooling::kLast);
  EXPECT_EQ(PoolingOf(R"({"pooling_mode": "lasttoken"})"), Pooling::kLast);
  EXPECT_EQ(PoolingOf(R"({"pooling_mode": "max"})"), Pooling::kNone);
  EXPECT_EQ(PoolingOf(R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})"),
            Pooling::kNone);
  EXPECT_EQ(PoolingOf(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})"),
            Pooling::kNone);
  EXPECT_NE(Read()->why_not, "");
}

TEST_F(FolderTest, WhatIsNotComputedIsNotLeftOut) {
  Write("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  Write("modules.json", Modules(R"(, {"path": "2_Dense", "type": "x.models.Dense"})"));
  const auto dense = Read();
  ASSERT_TRUE(dense.ok());
  EXPECT_EQ(dense->pooling, Pooling::kNone);
  EXPECT_NE(dense->why_not.find("Dense"), std::string::npos) << dense->why_not;
  for (const std::string path : {"..", "../1_Pooling", "/etc", "1_Pooling/x", "missing"}) {
    Write("modules.json", Modules("", path));
    EXPECT_FALSE(Read().ok()) << path;
  }
  for (const char* broken : {"", "{}", "[1]", R"([{"type": "Pooling"}])"}) {
    Write("modules.json", broken);
    EXPECT_FALSE(Read().ok()) << broken;
  }
}

}  // namespace
}  // namespace reprise
