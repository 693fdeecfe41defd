// SPDX-License-Identifier: Apache-2.0
// Proves that nothing that config.json says is silently ignored: with any parameter of a golden
// changed or removed, the model is refused with a sentence that names it (or the tensor that does
// not fit), or computes what the reference implementation computes; and a GGUF file made of it,
// too.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_writer.h"
#include "model/model_fixture.h"
#include "weights/format/gguf.h"

namespace reprise {
namespace {

constexpr size_t kTokens = 40;  // of the golden's, as the reference took

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> ReadFloats(const StoredTensor& tensor) {
  std::vector<float> values(size_t(tensor.shape.elements()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The document of all variants; lives as long as the program.
const JsonValue& AllVariants() {
  static const auto& document =
      *new auto(JsonDocument::Parse(ReadAll("tests/golden/variants.json")));
  CHECK(document.ok());
  return document->root();
}

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const JsonValue::Member& member : AllVariants().members()) names.emplace_back(member.key);
  return names;
}

// Whether a sentence says what is wrong with `value`: one of its names or texts. That of a number
// may say what it does not fit together with.
bool Names(const std::string& sentence, const JsonValue& value) {
  if (value.is_number()) return true;
  if (value.is_string()) return sentence.find(value.as_string()) != std::string::npos;
  if (value.is_array()) {
    return std::any_of(value.items().begin(), value.items().end(),
                       [&](const JsonValue& item) { return Names(sentence, item); });
  }
  if (!value.is_object()) return false;
  return std::any_of(
      value.members().begin(), value.members().end(), [&](const JsonValue::Member& member) {
        return sentence.find(member.key) != std::string::npos || Names(sentence, member.value);
      });
}

// The reference's answer for as many tokens as the variants have.
std::string GoldenFile(const std::string& folder) {
  const std::string shorter = folder + "/golden_short.safetensors";
  return std::filesystem::exists(shorter) ? shorter : folder + "/golden.safetensors";
}

class VariantsTest : public ::testing::TestWithParam<std::string> {
 protected:
  VariantsTest()
      : source_("tests/golden/" + GetParam()),
        folder_(::testing::TempDir() + "variants_" + GetParam() + std::to_string(::getpid())),
        golden_(ReadGolden(GoldenFile(source_))) {
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(source_ + "/model.safetensors", folder_ + "/model.safetensors");
    auto config = JsonDocument::Parse(ReadAll(source_ + "/config.json"));
    CHECK(config.ok());
    config_.emplace(std::move(*config));
    double sum = 0;
    for (const float v : golden_.logits) sum += double(v) * double(v);
    spread_ = std::sqrt(sum / double(golden_.logits.size()));
  }
  ~VariantsTest() override { std::filesystem::remove_all(folder_); }

  void WriteConfig(const JsonValue& variant) const {
    std::string text;
    JsonWriter json(&text);
    json.BeginObject();
    const JsonValue& set = *variant.Find("set");
    const auto dropped = variant.Find("drop")->items();
    for (const JsonValue::Member& member : config_->root().members()) {
      const bool drop = std::any_of(dropped.begin(), dropped.end(), [&](const JsonValue& name) {
        return name.as_string() == member.key;
      });
      if (!drop && set.Find(member.key) == nullptr) json.Key(member.key).Value(member.value);
    }
    for (const JsonValue::Member& member : set.members()) json.Key(member.key).Value(member.value);
    json.EndObject();
    std::ofstream(folder_ + "/config.json") << text;
  }

  // Logits of the last of the tokens; the refusal where there is one.
  Result<std::vector<float>> Compute(const std::string& path) {
    REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
    LoadOptions options;
    options.kv = DType::kF32;
    options.context_tokens = int64_t(kTokens);
    REPRISE_ASSIGN(const auto model, LoadModel(checkpoint, machine_.context(), options));
    const auto tokens = std::span(golden_.tokens).first(kTokens);
    const std::vector<float> all = RunWhole(*model, machine_.context(), tokens);
    return std::vector<float>(all.end() - model->vocab_size(), all.end());
  }

  bool IsClose(std::span<const float> logits, std::span<const float> expected) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(logits[i] - expected[i]) <= 2e-3 * spread_)) return false;
    }
    return true;
  }

  const std::string source_, folder_;
  const Golden golden_;
  std::optional<JsonDocument> config_;
  double spread_ = 0;
  TestMachine machine_{1};
};

TEST_P(VariantsTest, EveryParameterCountsOrIsRefusedByName) {
  const std::string rows_text = ReadAll("tests/golden/variants.safetensors");
  const auto tables = SafetensorsFile::Parse(std::as_bytes(std::span(rows_text)));
  ASSERT_TRUE(tables.ok());
  const StoredTensor* table = tables->Find(GetParam());
  const size_t width = size_t(table->shape[1]);
  const std::vector<float> rows = ReadFloats(*table);
  const auto plain =
      std::span(golden_.logits)
          .subspan((kTokens - 1) * size_t(config_->root().Find("vocab_size")->as_int()), width);
  size_t row = 0, refused = 0, computed = 0;
  for (const JsonValue& variant : AllVariants().Find(GetParam())->items()) {
    const std::string_view expect = variant.Find("expect")->as_string();
    const std::span<const float> expected =
        expect == "differs" ? std::span(rows).subspan(width * row++, width) : plain;
    std::string shown;
    JsonWriter(&shown).Value(variant);
    WriteConfig(variant);
    const auto logits = Compute(folder_);
    if (!logits.ok()) {
      ++refused;
      const std::string& sentence = logits.status().message();
      if (sentence.find(".weight") == std::string::npos &&
          sentence.find(".bias") == std::string::npos && !Names(sentence, *variant.Find("set")) &&
          variant.Find("drop")->items().empty()) {
        ADD_FAILURE() << shown << " is refused without its name: " << sentence;
      }
      continue;
    }
    ++computed;
    if (expect == "fails" && !variant.Find("drop")->items().empty() && IsClose(*logits, plain)) {
      // The reference has another default than what the tensors say.
    } else if (expect == "fails") {
      ADD_FAILURE() << shown << " is taken";
    } else if (!IsClose(*logits, expected)) {
      ADD_FAILURE() << shown << " gives something else"
                    << (IsClose(*logits, plain) ? ": it is ignored" : "");
    } else if (expect == "differs") {
      const std::string file = folder_ + "/model.gguf";
      ConvertToGguf(*OpenCheckpoint(folder_), "f32", file);
      const auto through = Compute(file);
      ASSERT_TRUE(through.ok()) << shown << " through GGUF: " << through.status().message();
      EXPECT_TRUE(IsClose(*through, expected)) << shown << " gives something else through GGUF"
                                               << (IsClose(*through, plain) ? ": it is lost" : "");
      std::filesystem::remove(file);
    }
  }
  RecordProperty("refused", int(refused));
  RecordProperty("computed", int(computed));
}

// A GGUF file with a number or a word of its metadata changed in place.
class GgufVariants {
 public:
  GgufVariants(std::string bytes, std::string architecture)
      : bytes_(std::move(bytes)), prefix_(std::move(architecture) + ".") {
    const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes_)));
    CHECK(file.ok());
    for (const GgufFile::Entry& entry : file->entries()) {
      if (!entry.key.starts_with(prefix_)) continue;
      const auto* at = reinterpret_cast<const char*>(entry.value.bytes().data());
      places_.push_back({std::string(entry.key.substr(prefix_.size())), entry.value.type(),
                         size_t(at - bytes_.data())});
    }
  }

  size_t size() const { return places_.size(); }
  const std::string& key(size_t index) const { return places_[index].key; }

  std::string With(size_t index) const {
    std::string changed = bytes_;
    char* at = changed.data() + places_[index].offset;
    switch (places_[index].type) {
      case GgufType::kF32: {
        float value = 0;
        std::memcpy(&value, at, sizeof(value));
        value = value > 0.01f ? value * 1.5f : 0.05f;
        std::memcpy(at, &value, sizeof(value));
        break;
      }
      case GgufType::kBool:
        *at = char(1 - *at);
        break;
      case GgufType::kString:
        at[sizeof(uint64_t)] = '~';
        break;
      default:
        ++*at;  // the lowest byte of an integer
    }
    return changed;
  }

 private:
  struct Place {
    std::string key;
    GgufType type;
    size_t offset;
  };

  const std::string bytes_;
  const std::string prefix_;
  std::vector<Place> places_;
};

// Metadata that decides nothing here, with the beginning of the goldens' names for which that is
// so.
struct Harmless {
  std::string_view family;
  std::string_view key;
};
constexpr Harmless kHarmless[] = {
    {"", "context_length"},
    {"", "vocab_size"},  // the embedding table says it
    // Written because llama.cpp wants to read them.
    {"falcon_mamba", "attention.head_count"},
    {"falcon_mamba", "feed_forward_length"},
    {"mamba", "attention.head_count"},
    {"mamba", "feed_forward_length"},
    {"minimax", "feed_forward_length"},
    {"nemotron_h", "attention.layer_norm_epsilon"},
    {"rwkv7", "attention.head_count"},
    {"deepseek_v", "attention.head_count_kv"},
    {"glm4_moe_lite", "attention.head_count_kv"},
    // Follow from other metadata.
    {"deepseek_v", "attention.key_length"},
    {"deepseek_v", "attention.value_length"},
    {"deepseek_v", "expert_shared_feed_forward_length"},
    {"glm4_moe", "expert_shared_feed_forward_length"},
    {"glm4_moe_lite", "attention.key_length"},
    {"glm4_moe_lite", "attention.value_length"},
    {"kimi_linear", "attention.key_length"},
    {"kimi_linear", "attention.value_length"},
    {"kimi_linear", "expert_shared_feed_forward_length"},
    {"longcat_flash", "attention.key_length"},
    {"longcat_flash", "attention.value_length"},
    {"nemotron_h", "expert_shared_count"},
    {"recurrent_gemma", "attention.sliding_window_pattern"},
    // Of parts that the golden does not have: layers without experts, positions.
    {"granitemoehybrid", "feed_forward_length"},
    {"granitemoehybrid", "rope.freq_base"},
    {"qwen3_moe", "feed_forward_length"},
    {"gpt_oss", "feed_forward_length"},
    // Decides where a longer context is served.
    {"llama_dynamic", "rope.scaling.dynamic_factor"},
    // The ends of YaRN's ramp, moved by less than a pair of channels.
    {"deepseek_v", "rope.scaling.original_context_length"},
    {"deepseek_v", "rope.scaling.yarn_beta_fast"},
    {"deepseek_v", "rope.scaling.yarn_beta_slow"},
    {"ministral3", "rope.scaling.original_context_length"},
    {"ministral3", "rope.scaling.yarn_beta_fast"},
    {"gpt_oss", "rope.scaling.yarn_beta_fast"},
    {"olmo3", "rope.scaling.original_context_length"},
    {"olmo3", "rope.scaling.yarn_beta_fast"},
    {"olmo3", "rope.scaling.yarn_beta_slow"},
    // One token more or less: the same regime.
    {"phi3_longrope", "rope.scaling.original_context_length"},
};

bool IsHarmless(std::string_view family, std::string_view key) {
  return std::any_of(std::begin(kHarmless), std::end(kHarmless), [&](const Harmless& entry) {
    return family.starts_with(entry.family) && key == entry.key;
  });
}

class GgufVariantsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufVariantsTest, MetadataCountsOrIsRefused) {
  const std::string folder = "tests/golden/" + GetParam();
  const std::string path = ::testing::TempDir() + "gguf_variants_" + GetParam() + ".gguf";
  ConvertToGguf(*OpenCheckpoint(folder), "f32", path);
  const Golden golden = ReadGolden(folder + "/golden.safetensors");
  TestMachine machine(1);
  std::string architecture;
  const auto compute = [&]() -> Result<std::vector<float>> {
    REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
    architecture = checkpoint.architecture();
    REPRISE_ASSIGN(const auto model, LoadModel(checkpoint, machine.context(), {}));
    return RunWhole(*model, machine.context(), std::span(golden.tokens).first(kTokens));
  };
  const auto plain = compute();
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const GgufVariants variants(ReadAll(path), architecture);
  for (size_t i = 0; i < variants.size(); ++i) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << variants.With(i);
    const auto logits = compute();
    EXPECT_FALSE(logits.ok() ? *logits == *plain && !IsHarmless(GetParam(), variants.key(i))
                             : logits.status().message().empty())
        << variants.key(i) << " is ignored";
  }
  std::remove(path.c_str());
}

TEST(GgufMetadata, WhatIsNotComputedHereIsRefusedByName) {
  const std::string path = ::testing::TempDir() + "gguf_metadata.gguf";
  const auto load = [&](const char* family, const std::function<void(GgufWriter*)>& add) {
    ConvertToGguf(*OpenCheckpoint(std::string("tests/golden/") + family), "bf16", path, add);
    TestMachine machine(1);
    return LoadModel(*OpenCheckpoint(path), machine.context(), {}).status().message();
  };
  const auto expect = [&](const char* family, const char* name,
                          const std::function<void(GgufWriter*)>& add) {
    const std::string sentence = load(family, add);
    EXPECT_NE(sentence.find(name), std::string::npos) << family << " " << name << ": " << sentence;
  };
  EXPECT_EQ(load("llama", nullptr), "");
  expect("llama", "dynamic",
         [](GgufWriter* out) { out->PutString("llama.rope.scaling.type", "dynamic"); });
  expect("llama", "rope_factors_long",
         [](GgufWriter* out) { out->PutString("llama.rope.scaling.type", "longrope"); });
  expect("llama", "experts", [](GgufWriter* out) { out->Put<uint32_t>("llama.expert_count", 8); });
  expect("llama", "attention.causal",
         [](GgufWriter* out) { out->Put<bool>("llama.attention.causal", false); });
  expect("qwen3", "yarn_ext_factor", [](GgufWriter* out) {
    out->PutString("qwen3.rope.scaling.type", "yarn");
    out->Put<float>("qwen3.rope.scaling.yarn_ext_factor", 0.5f);
  });
  expect("qwen3_moe", "expert_gating_func",
         [](GgufWriter* out) { out->Put<uint32_t>("qwen3moe.expert_gating_func", 2); });
  expect("deepseek_v3", "temperature_scale",
         [](GgufWriter* out) { out->Put<float>("deepseek2.attention.temperature_scale", 0.1f); });
  expect("granite", "experts",
         [](GgufWriter* out) { out->Put<uint32_t>("granite.expert_count", 8); });
  expect("nemotron_h_moe", "moe_latent_size",
         [](GgufWriter* out) { out->Put<uint32_t>("nemotron_h_moe.moe_latent_size", 32); });
  std::remove(path.c_str());
}

TEST(GgufTensors, NothingIsLeftOut) {
  // A qwen3 file that says that it is a llama: its norms of queries and keys would be left out.
  const std::string path = ::testing::TempDir() + "gguf_left.gguf";
  ConvertToGguf(*OpenCheckpoint("tests/golden/qwen3"), "bf16", path);
  std::string bytes = ReadAll(path);
  for (size_t at = bytes.find("qwen3"); at != std::string::npos; at = bytes.find("qwen3")) {
    bytes.replace(at, 5, "llama");
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  TestMachine machine(1);
  const auto model = LoadModel(*OpenCheckpoint(path), machine.context(), {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("_norm.weight"), std::string::npos)
      << model.status().message();
  std::remove(path.c_str());
}

std::vector<std::string> Folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, GgufVariantsTest, ::testing::ValuesIn(Folders()),
                         [](const auto& param) { return param.param; });
INSTANTIATE_TEST_SUITE_P(Families, VariantsTest, ::testing::ValuesIn(Families()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace reprise
