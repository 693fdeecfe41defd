// SPDX-License-Identifier: Apache-2.0
// Proves that loading refuses what is missing, of another shape or too large, with one sentence and
// before reading weights; that the digest names everything that the state depends on; and that what
// is written to GGUF reads back, text included.
#include "model/load.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "model/config/generation_defaults.h"
#include "model/export/gguf_vocabulary.h"
#include "model/model_fixture.h"
#include "model/model_text.h"
#include "tensor/half.h"
#include "weights/convert.h"
#include "weights/format/gguf_writer.h"
#include "weights/recipe/recipe.h"

namespace reprise {
namespace {

const std::string kFolder = "tests/golden/qwen3";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A copy of the golden qwen3 with its configuration edited.
class LoadTest : public ::testing::Test {
 protected:
  LoadTest() {
    folder_ = ::testing::TempDir() + "load_test_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(kFolder + "/model.safetensors", folder_ + "/model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
  }
  ~LoadTest() override { std::filesystem::remove_all(folder_); }

  Status Load(const std::string& from, const std::string& to, const LoadOptions& options = {}) {
    std::string config = ReadAll(kFolder + "/config.json");
    const size_t at = config.find(from);
    CHECK(from.empty() || at != std::string::npos);
    config.replace(at, from.size(), to);
    std::ofstream(folder_ + "/config.json") << config;
    const auto checkpoint = OpenCheckpoint(folder_);
    if (!checkpoint.ok()) return checkpoint.status();
    return LoadModel(*checkpoint, machine_.context(), options).status();
  }

  std::string folder_;
  TestMachine machine_{1};
};

// The golden has 16-bit weights; those of the gates of its recurrences have 32 in memory.
TEST_F(LoadTest, WhatDecidesIsNotRounded) {
  const auto checkpoint = OpenCheckpoint("tests/golden/qwen3_5");
  ASSERT_TRUE(checkpoint.ok());
  const auto model = LoadModel(*checkpoint, machine_.context(), {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelCard& card = (*model)->card();
  constexpr size_t kGates = 6 * 2 * 4 * 64;  // layers, alpha and beta, heads, width
  EXPECT_EQ(card.step_bytes, 2 * (size_t(card.layer_products + card.head_products) + kGates));
}

// Writes the tensors of the golden into `folder`, each as `write` says.
void WriteFolder(const std::string& folder, const Checkpoint& golden, const std::string& extra,
                 const std::function<bool(const StoredTensor&, SafetensorsWriter*,
                                          std::vector<std::vector<std::byte>>*)>& write) {
  std::filesystem::create_directories(folder);
  std::string config = ReadAll(kFolder + "/config.json");
  config.insert(config.find('{') + 1, extra);
  std::ofstream(folder + "/config.json") << config;
  SafetensorsWriter writer;
  std::vector<std::vector<std::byte>> data;
  for (const StoredTensor& tensor : golden.tensors()) {
    if (write(tensor, &writer, &data)) continue;
    writer.AddTensor(tensor.name, tensor.dtype, tensor.shape);
    data.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
  }
  CHECK(writer.Open(folder + "/model.safetensors").ok());
  for (const auto& bytes : data) CHECK(writer.Append(bytes).ok());
  CHECK(writer.Finish().ok());
}

// A folder of GPTQ in a random order of columns, and one of the weights that it stands for.
TEST_F(LoadTest, AQuantisedFolderIsTheModelOfItsWeights) {
  const auto golden = OpenCheckpoint(kFolder);
  ASSERT_TRUE(golden.ok());
  const auto quantised = [](const StoredTensor& tensor) {
    return tensor.name.ends_with("proj.weight");
  };
  Rng rng(43);
  const auto random = [&](size_t count, const auto& make) {
    using Value = decltype(make(rng));
    std::vector<std::byte> bytes(count * sizeof(Value));
    for (size_t i = 0; i < count; ++i) {
      const Value value = make(rng);
      std::memcpy(bytes.data() + i * sizeof(Value), &value, sizeof value);
    }
    return bytes;
  };
  const auto word = [](Rng& from) { return static_cast<uint32_t>(from.Next()); };
  const std::string gptq = folder_ + "/gptq", plain = folder_ + "/plain";
  WriteFolder(gptq, *golden, R"("quantization_config": {"quant_method": "gptq", "bits": 4},)",
              [&](const StoredTensor& tensor, SafetensorsWriter* writer, auto* data) {
                if (!quantised(tensor)) return false;
                const std::string stem(tensor.name.substr(0, tensor.name.size() - 6));
                const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
                writer->AddTensor(stem + "qweight", DType::kI32, {cols / 8, rows});
                data->push_back(random(size_t(cols / 8 * rows), word));
                writer->AddTensor(stem + "qzeros", DType::kI32, {2, rows / 8});
                data->push_back(random(size_t(2 * rows / 8), word));
                writer->AddTensor(stem + "scales", DType::kF16, {2, rows});
                data->push_back(random(size_t(2 * rows),
                                       [](Rng& from) { return F32ToF16(from.Uniform() * 0.02f); }));
                writer->AddTensor(stem + "g_idx", DType::kI32, {cols});
                data->push_back(random(
                    size_t(cols), [](Rng& from) { return static_cast<int32_t>(from.Below(2)); }));
                return true;
              });
  const auto checkpoint = OpenCheckpoint(gptq);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  WriteFolder(plain, *golden, "",
              [&](const StoredTensor& tensor, SafetensorsWriter* writer, auto* data) {
                if (!quantised(tensor)) return false;
                const StoredTensor* made = checkpoint->Find(tensor.name);
                CHECK(made != nullptr && made->dtype == DType::kF16);
                writer->AddTensor(tensor.name, DType::kF16, tensor.shape);
                data->emplace_back(size_t(tensor.shape.elements()) * 2);
                ConvertRows(*made, DType::kF16, 0, tensor.shape[0], data->back().data());
                return true;
              });
  std::vector<TokenId> tokens(20);
  for (TokenId& token : tokens) token = TokenId(rng.Below(60));
  const auto logits_of = [&](const std::string& folder) {
    const auto source = OpenCheckpoint(folder);
    CHECK(source.ok());
    const auto model = LoadModel(*source, machine_.context(), {});
    CHECK(model.ok());
    const size_t pieces[] = {tokens.size()};
    return RunInPieces(**model, machine_.context(), tokens, pieces);
  };
  const std::vector<float> got = logits_of(gptq);
  EXPECT_EQ(got, logits_of(plain));
  EXPECT_TRUE(std::isfinite(got[0]) && got[0] != got[1]);
}

TEST_F(LoadTest, RefusesAnotherQuantisationByName) {
  const Status status = Load("{", R"({"quantization_config": {"quant_method": "spqr"},)");
  EXPECT_NE(status.message().find("\"spqr\" (quantization_config) are not supported"),
            std::string::npos)
      << status.message();
}

// Rows of 48 values (of two experts a token in three layers) have no type of blocks: F32, as
// routers.
TEST_F(LoadTest, WhatCannotBeQuantisedIsNotRounded) {
  const auto checkpoint = OpenCheckpoint("tests/golden/qwen3_moe");
  ASSERT_TRUE(checkpoint.ok());
  LoadOptions options;
  options.weights = *FindWeightMix("q8_0");
  const auto model = LoadModel(*checkpoint, machine_.context(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelCard& card = (*model)->card();
  constexpr size_t kExact = 3 * 8 * 64 + 3 * 2 * 64 * 48;
  const size_t quantised = size_t(card.layer_products + card.head_products) - kExact;
  EXPECT_EQ(card.step_bytes, quantised / 32 * 34 + 4 * kExact);
}

TEST_F(LoadTest, RefusesWhatDoesNotFitTogether) {
  EXPECT_TRUE(Load("", "").ok());
  const Status wrong = Load("\"intermediate_size\": 160", "\"intermediate_size\": 192");
  EXPECT_FALSE(wrong.ok());
  EXPECT_NE(wrong.message().find("[160, 64]"), std::string::npos) << wrong.message();
  EXPECT_NE(wrong.message().find("[192, 64]"), std::string::npos) << wrong.message();
  const Status missing = Load("\"model_type\": \"qwen3\"", "\"model_type\": \"qwen2\"");
  EXPECT_FALSE(missing.ok());
  EXPECT_NE(missing.message().find("q_proj.bias"), std::string::npos) << missing.message();
  const Status layers = Load("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
  EXPECT_FALSE(layers.ok());
  EXPECT_NE(layers.message().find("layer_types"), std::string::npos) << layers.message();
}

TEST_F(LoadTest, RefusesWhatDoesNotFitMemory) {
  LoadOptions options;
  options.memory_max = 1000;
  const Status status = Load("", "", options);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

// The state of a sequence as long as was asked for has to fit beside the weights; the sentence has
// the numbers.
TEST_F(LoadTest, ReckonsWithTheContextThatWasAskedFor) {
  LoadOptions options;
  options.memory_max = size_t{260} << 20;
  EXPECT_TRUE(Load("", "", options).ok());
  options.context_tokens = 64;
  EXPECT_TRUE(Load("", "", options).ok());
  options.memory_max = size_t{256} << 20;
  const Status status = Load("", "", options);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* words : {"the state of 64 tokens (", "the weights (", "256.0 MiB"}) {
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }
}

std::string DigestOf(const std::string& path, const LoadOptions& options) {
  TestMachine machine(1);
  const auto checkpoint = OpenCheckpoint(path);
  CHECK(checkpoint.ok());
  const auto model = LoadModel(*checkpoint, machine.context(), options);
  CHECK(model.ok());
  return (*model)->card().digest;
}

// By layer and number, before weights are read.
TEST_F(LoadTest, RefusesWhatTheDeviceHasNoKernelFor) {
  auto& backend = static_cast<cpu::CpuBackend&>(*machine_.context().backend);
  backend.set_sizes_max({.head_dim = 8, .value_dim = 8});
  const Status refused = Load("", "");
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("layer 0: the model has attention heads of width "),
            std::string::npos)
      << refused.message();
  backend.set_sizes_max({.conv_reach = 1, .matrix_keys = 1, .channel_keys = 1});
  EXPECT_TRUE(Load("", "").ok()) << "of these it has none";
  const struct {
    const char* folder;
    StateSizes most;
  } others[] = {{"qwen3_5", {.conv_reach = 2}},
                {"qwen3_5", {.matrix_keys = 2}},
                {"mamba2", {.matrix_keys = 2}},
                {"mamba", {.channel_keys = 2}}};
  for (const auto& [folder, most] : others) {
    const auto checkpoint = OpenCheckpoint(std::string("tests/golden/") + folder);
    ASSERT_TRUE(checkpoint.ok()) << folder;
    backend.set_sizes_max({});
    EXPECT_TRUE(LoadModel(*checkpoint, machine_.context(), {}).ok()) << folder;
    backend.set_sizes_max(most);
    EXPECT_EQ(LoadModel(*checkpoint, machine_.context(), {}).status().code(),
              StatusCode::kUnimplemented)
        << folder;
  }
}

TEST(Digest, NamesWhatTheStateDependsOn) {
  LoadOptions plain;
  LoadOptions wide;
  wide.kv = DType::kF32;
  LoadOptions brain;
  brain.kv = DType::kBF16;
  LoadOptions eight;
  eight.kv = DType::kQ8_0;
  LoadOptions quantised;
  quantised.weights = *FindWeightMix("q8_0");
  const std::string digest = DigestOf(kFolder, plain);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(DigestOf(kFolder, plain), digest);
  EXPECT_NE(DigestOf(kFolder, wide), digest);
  EXPECT_NE(DigestOf(kFolder, brain), digest);
  EXPECT_NE(DigestOf(kFolder, eight), digest);
  EXPECT_NE(DigestOf(kFolder, quantised), digest);
  EXPECT_NE(DigestOf("tests/golden/qwen2", plain), digest);
}

TEST_F(LoadTest, ParametersArePartOfTheDigest) {
  const auto digest = [&](const char* from, const char* to) {
    EXPECT_TRUE(Load(from, to).ok());
    return DigestOf(folder_, {});
  };
  const std::string plain = digest("", "");
  EXPECT_NE(digest("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-05"), plain);
  EXPECT_NE(digest("\"rope_theta\": 1000000.0", "\"rope_theta\": 10000.0"), plain);
  // What nothing reads is not.
  EXPECT_EQ(digest("\"use_cache\": true", "\"use_cache\": false"), plain);
}

TEST(Digest, StateOfOneRotaryRegimeIsNeverFoundByTheOther) {
  const std::string folder = "tests/golden/phi3_longrope";
  const std::string file = ::testing::TempDir() + "digest_longrope.gguf";
  ConvertToGguf(*OpenCheckpoint(folder), "bf16", file);
  for (const std::string& path : {folder, file}) {
    const auto load = [&](int64_t context_tokens) {
      TestMachine machine(1);
      LoadOptions options;
      options.context_tokens = context_tokens;
      const auto model = LoadModel(*OpenCheckpoint(path), machine.context(), options);
      CHECK(model.ok());
      return (*model)->card();
    };
    const ModelCard within = load(64);
    const ModelCard beyond = load(65);
    EXPECT_NE(within.digest, beyond.digest);
    EXPECT_EQ(load(63).digest, within.digest);
    EXPECT_EQ(load(0).digest, beyond.digest);
    EXPECT_EQ(within.context_length, 64);  // a longer one would need the other factors
    EXPECT_EQ(load(0).context_length, 2048);
    EXPECT_NE(within.rope_regime.find("short"), std::string::npos) << within.rope_regime;
    EXPECT_NE(beyond.rope_regime.find("long factors"), std::string::npos) << beyond.rope_regime;
  }
  std::remove(file.c_str());
}

TEST(Card, SaysWhatAModelIs) {
  TestMachine machine(1);
  const auto checkpoint = OpenCheckpoint("tests/golden/qwen3_5");
  ASSERT_TRUE(checkpoint.ok());
  const auto model = LoadModel(*checkpoint, machine.context(), {});
  ASSERT_TRUE(model.ok());
  const ModelCard& card = (*model)->card();
  EXPECT_EQ(card.family, "qwen3_5");
  EXPECT_EQ(card.vocab_size, 320);
  EXPECT_TRUE(card.state.has_kv());
  EXPECT_TRUE(card.state.has_recurrent());
  EXPECT_EQ(card.state.bytes_per_token(StateKind::kFullKv), 2u * 2 * 2 * 32 * 2);
  EXPECT_EQ(card.state.state_bytes(), 6u * 4 * (4 * 16 * 16 + 3 * 128));
  EXPECT_GT(card.state.token_cost, card.layer_products);
  EXPECT_EQ(card.state.token_cost_per_position, 2.0 * 2 * 4 * 32);
  EXPECT_EQ(card.main_type, DType::kBF16);
}

TEST(Vocabulary, ByteVocabularyReadsBack) {
  const std::string path = ::testing::TempDir() + "bytes_" + std::to_string(::getpid()) + ".gguf";
  GgufWriter writer;
  writer.PutString("general.architecture", "qwen3");
  PutByteVocabulary(300, &writer);
  ASSERT_TRUE(writer.AddTensor("x", DType::kF32, {1}).ok());
  ASSERT_TRUE(writer.Open(path).ok());
  const float one = 1;
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(&one, 1))).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto text = ReadModelText(*checkpoint);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->tokenizer->vocab_size(), 300);
  ASSERT_EQ(text->chat_templates.size(), 1u);
  std::vector<int32_t> ids;
  const std::string hello = "Tea for two, d\xc3\xa9j\xc3\xa0 vu \xf0\x9f\x8d\xb5\n";
  ASSERT_TRUE(text->tokenizer->Encode(hello, {}, &ids).ok());
  EXPECT_EQ(text->tokenizer->Decode(ids), hello);
  EXPECT_TRUE(text->tokenizer->IsEos(text->tokenizer->FindToken("<|im_end|>")));
  std::remove(path.c_str());
}

TEST_F(LoadTest, SamplingDefaultsComeWithTheModel) {
  std::filesystem::copy_file(kFolder + "/config.json", folder_ + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const auto read = [&](const std::string& json) {
    std::ofstream(folder_ + "/generation_config.json") << json;
    const auto checkpoint = OpenCheckpoint(folder_);
    CHECK(checkpoint.ok());
    return ReadGenerationDefaults(*checkpoint);
  };
  const auto folder = read(
      R"({"temperature":0.5,"top_k":-1,"top_p":0.9,"min_p":null,"repetition_penalty":1.1,"x":[]})");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->temperature, 0.5f);
  EXPECT_EQ(folder->top_k, 0);
  EXPECT_EQ(folder->top_p, 0.9f);
  EXPECT_FALSE(folder->min_p);
  EXPECT_EQ(folder->repetition_penalty, 1.1f);
  EXPECT_EQ(read(R"({"do_sample":false,"temperature":0.7})")->temperature, 0.0f);
  for (const char* wrong : {R"({"top_p":2})", R"({"temperature":"hot"})", "[]", "{"}) {
    EXPECT_FALSE(read(wrong).ok()) << wrong;
  }
  std::filesystem::remove(folder_ + "/generation_config.json");
  EXPECT_FALSE(ReadGenerationDefaults(*OpenCheckpoint(folder_))->temperature);

  const std::string path = folder_ + "/defaults.gguf";
  GgufWriter writer;
  writer.PutString("general.architecture", "qwen3");
  PutGenerationDefaults(*folder, &writer);
  ASSERT_TRUE(writer.AddTensor("x", DType::kF32, {1}).ok());
  ASSERT_TRUE(writer.Open(path).ok());
  const float one = 1;
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(&one, 1))).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto file = ReadGenerationDefaults(*checkpoint);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->temperature, folder->temperature);
  EXPECT_EQ(file->top_k, folder->top_k);
  EXPECT_EQ(file->top_p, folder->top_p);
  EXPECT_FALSE(file->min_p);
  EXPECT_EQ(file->repetition_penalty, folder->repetition_penalty);
}

// The file with matrices of random blocks of NVFP4, each slice with a scale, and the one with the
// values that they stand for in BF16.
void WriteNvfp4(const std::string& source, const std::string& blocks, const std::string& values) {
  const auto map = MappedFile::Open(source);
  CHECK(map.ok());
  const auto file = GgufFile::Parse(map->bytes());
  CHECK(file.ok());
  GgufWriter four, plain;
  for (const GgufFile::Entry& entry : file->entries()) {
    four.PutValue(entry.key, entry.value);
    plain.PutValue(entry.key, entry.value);
  }
  Rng rng(43);
  std::vector<std::vector<std::byte>> of_four, of_plain;
  std::vector<std::string> turned;
  for (const StoredTensor& tensor : file->tensors()) {
    const Shape& shape = tensor.shape;
    if (shape.rank() < 2 || shape.cols() % kNvfp4BlockValues != 0) {
      CHECK(four.AddTensor(tensor.name, tensor.dtype, shape).ok());
      CHECK(plain.AddTensor(tensor.name, tensor.dtype, shape).ok());
      of_four.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
      of_plain.push_back(of_four.back());
      continue;
    }
    std::vector<std::byte> bytes(size_t(shape.elements() / kNvfp4BlockValues) * kNvfp4BlockBytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto byte = static_cast<uint8_t>(rng.Next());
      bytes[i] = std::byte(i % kNvfp4BlockBytes < 4 ? 0x20 + byte % 32 : byte);
    }
    std::vector<float> scales;
    for (int64_t i = 0; i < (shape.rank() == 3 ? shape[0] : 1); ++i) {
      scales.push_back(0.02f + 0.01f * float(i));
    }
    // A block of Q4_0 has half the bytes for half the values; the type is put right below.
    const std::string stem(tensor.name.substr(0, tensor.name.size() - 7));
    turned.emplace_back(tensor.name);
    CHECK(four.AddTensor(tensor.name, DType::kQ4_0, shape).ok());
    CHECK(four.AddTensor(stem + ".scale", DType::kF32, {int64_t(scales.size())}).ok());
    CHECK(plain.AddTensor(tensor.name, DType::kBF16, shape).ok());
    const StoredTensor stored{tensor.name, DType::kBF16, shape, bytes};
    const StoredTensor scale{
        "", DType::kF32, {int64_t(scales.size())}, std::as_bytes(std::span(scales))};
    const auto recipe = MakeNvfp4Recipe(stored, &scale);
    std::vector<std::byte> made(size_t(shape.elements()) * 2);
    StoredTensor made_of = stored;
    made_of.recipe = recipe.get();
    ConvertRows(made_of, DType::kBF16, 0, shape.rows(), made.data());
    of_four.push_back(std::move(bytes));
    const auto scale_bytes = std::as_bytes(std::span(scales));
    of_four.emplace_back(scale_bytes.begin(), scale_bytes.end());
    of_plain.push_back(std::move(made));
  }
  const auto write = [](GgufWriter* writer, const std::string& path, const auto& all) {
    CHECK(writer->Open(path).ok());
    for (const auto& bytes : all) CHECK(writer->Append(bytes).ok());
    CHECK(writer->Finish().ok());
  };
  write(&four, blocks, of_four);
  write(&plain, values, of_plain);
  std::string text = ReadAll(blocks);
  for (const std::string& name : turned) {
    const uint64_t size = name.size();
    const std::string written = std::string(reinterpret_cast<const char*>(&size), 8) + name;
    const size_t at = text.find(written) + written.size();
    const size_t rank = static_cast<unsigned char>(text[at]);
    text[at + 4 + 8 * rank] = 40;
  }
  std::ofstream(blocks, std::ios::binary) << text;
}

// Matrices and stacks of experts of NVFP4 give the logits of the values that they stand for.
TEST(Nvfp4Test, AModelOfAGgufFile) {
  TestMachine machine;
  const std::string folder = ::testing::TempDir() + "nvfp4_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const auto source = OpenCheckpoint("tests/golden/qwen3_moe");
  ASSERT_TRUE(source.ok());
  ConvertToGguf(*source, "f32", folder + "/f32.gguf");
  WriteNvfp4(folder + "/f32.gguf", folder + "/nvfp4.gguf", folder + "/bf16.gguf");
  std::vector<std::vector<float>> logits;
  for (const char* name : {"/nvfp4.gguf", "/bf16.gguf"}) {
    const auto checkpoint = OpenCheckpoint(folder + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto model = LoadModel(*checkpoint, machine.context(), {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    logits.push_back(RunWhole(**model, machine.context(), std::vector<TokenId>{3, 7, 11, 2, 90}));
    for (const float logit : logits.back()) ASSERT_TRUE(std::isfinite(logit));
  }
  EXPECT_EQ(logits[0], logits[1]);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace reprise
