// SPDX-License-Identifier: Apache-2.0
// Proves that every family computes what its reference implementation computes: logits of tiny
// random models at every position within 2e-3 of their spread, and the same greedy continuation.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "model/model_fixture.h"

namespace reprise {
namespace {

constexpr double kTolerance = 2e-3;

double Deviation(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (const float v : values) sum += v;
  const double mean = sum / double(values.size());
  for (const float v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / double(values.size()));
}

void ExpectGolden(const Model& model, const OpContext& context, const Golden& golden) {
  const std::vector<float> logits = RunWhole(model, context, golden.tokens);
  ASSERT_EQ(logits.size(), golden.logits.size());
  double worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::max(worst, std::abs(double(logits[i]) - double(golden.logits[i])));
  }
  const double deviation = Deviation(golden.logits);
  EXPECT_LE(worst, kTolerance * deviation);
  ::testing::Test::RecordProperty("worst_of_tolerance", std::to_string(worst / deviation));
  EXPECT_EQ(Continue(model, context, golden.tokens, golden.greedy.size()), golden.greedy);
}

// golden.safetensors of every folder, and further ones (golden_<regime>.safetensors) where a model
// computes something else for sequences of another length.
std::vector<std::filesystem::path> Goldens() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests/golden")) {
    if (entry.path().filename().string().starts_with("golden")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The folder's name, and what follows "golden" in that of the file.
std::string NameOfGolden(const std::filesystem::path& file) {
  return file.parent_path().filename().string() + file.stem().string().substr(6);
}

// The reference chooses the rotary regime by the length of the sequence; here the context does.
void ExpectGolden(const Checkpoint& checkpoint, const std::filesystem::path& file) {
  const Golden golden = ReadGolden(file);
  TestMachine machine;
  LoadOptions options;
  options.kv = DType::kF32;
  options.context_tokens = int64_t(golden.tokens.size() + golden.greedy.size());
  const auto model = LoadModel(checkpoint, machine.context(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ExpectGolden(**model, machine.context(), golden);
}

class GoldenTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenTest, HuggingFaceFolder) {
  const auto checkpoint = OpenCheckpoint(GetParam().parent_path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ExpectGolden(*checkpoint, GetParam());
}

// The same through GGUF files that the project writes itself.
void ExpectGoldenThroughGguf(const std::filesystem::path& file, const char* type) {
  const std::string path = ::testing::TempDir() + "golden_" + std::to_string(::getpid()) + "_" +
                           NameOfGolden(file) + "_" + type + ".gguf";
  const auto source = OpenCheckpoint(file.parent_path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  ConvertToGguf(*source, type, path);
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ExpectGolden(*checkpoint, file);
  std::remove(path.c_str());
}

TEST_P(GoldenTest, GgufF32) { ExpectGoldenThroughGguf(GetParam(), "f32"); }
TEST_P(GoldenTest, GgufBf16) { ExpectGoldenThroughGguf(GetParam(), "bf16"); }

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, ::testing::ValuesIn(Goldens()),
                         [](const auto& param) { return NameOfGolden(param.param); });

}  // namespace
}  // namespace reprise
