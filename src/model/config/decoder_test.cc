// SPDX-License-Identifier: Apache-2.0
// Proves that hostile, contradictory and unsupported configurations are refused with one sentence
// before anything is allocated, and that known regimes of RoPE give the published angles.
#include "model/config/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/json.h"
#include "model/config/rope.h"
#include "model/family.h"

namespace reprise {
namespace {

constexpr std::string_view kPlain = R"({"model_type": "qwen3", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true)";

// What the family says to kPlain with further (or overriding) members.
Status Make(const char* family, std::string_view key, std::string_view value) {
  std::string text(kPlain);
  const std::string quoted = "\"" + std::string(key) + "\":";
  if (const size_t at = text.find(quoted); at != std::string::npos) {
    size_t end = text.find_first_of(",}", at);
    if (end == std::string::npos) end = text.size();
    text.replace(at, end - at, quoted + " " + std::string(value));
    text += "}";
  } else {
    text += ", " + quoted + " " + std::string(value) + "}";
  }
  const auto document = JsonDocument::Parse(text);
  CHECK(document.ok());
  ConfigReader reader(document->root());
  return (*FindFamilyByName(family))->make(&reader, DType::kF16).status();
}

TEST(Config, TakesWhatIsRight) {
  EXPECT_TRUE(Make("qwen3", "extra", "1").ok());
  EXPECT_TRUE(Make("llama", "extra", "1").ok());
  EXPECT_TRUE(Make("llama", "sliding_window", "null").ok());
  EXPECT_TRUE(Make("llama", "sliding_window", "4096").ok());
}

TEST(Config, RefusesHostileNumbers) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "9223372036854775807", "1e30", "\"64\"", "true", "[]"}) {
      const Status status = Make("qwen3", key, value);
      EXPECT_FALSE(status.ok()) << key << " " << value;
      EXPECT_NE(status.message().find(key), std::string::npos) << status.message();
    }
  }
  EXPECT_FALSE(Make("qwen3", "rms_norm_eps", "-1").ok());
  EXPECT_FALSE(Make("qwen3", "rope_theta", "0").ok());
}

TEST(Config, RefusesContradictions) {
  EXPECT_FALSE(Make("qwen3", "num_key_value_heads", "3").ok());
  EXPECT_FALSE(Make("qwen3", "head_dim", "15").ok());
}

TEST(Config, RefusesWhatIsNotComputedHereByName) {
  const auto expect = [](const Status& status, const char* name) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  };
  expect(Make("qwen3", "hidden_act", "\"gelu\""), "gelu");
  expect(Make("llama", "layer_types", R"(["full_attention", "mamba"])"), "mamba");
  expect(Make("qwen3", "rope_scaling", R"({"rope_type": "spiral", "factor": 4.0})"), "spiral");
  expect(Make("qwen3", "attention_bias", "true"), "bias");
  expect(FindFamily(true, "arctic").status(), "arctic");
  expect(FindFamily(true, "arctic").status(), "qwen35");  // known names: those of the format
  expect(FindFamily(false, "arctic").status(), "qwen3_5_text");
  expect(FindFamily(false, "").status(), "model_type");
}

TEST(Config, Rwkv7HasNoVariants) {
  const auto make = [](const std::string& member) {
    const auto document = JsonDocument::Parse(R"({"hidden_size": 64, "num_hidden_layers": 2,
        "head_dim": 16, "intermediate_size": 128, "decay_low_rank_dim": 8, "gate_low_rank_dim": 8,
        "a_low_rank_dim": 8, "v_low_rank_dim": 8, "norm_eps": 1e-5, "vocab_size": 100)" +
                                              member + "}");
    CHECK(document.ok());
    ConfigReader reader(document->root());
    return (*FindFamilyByName("rwkv7"))->make(&reader, DType::kF16).status().message();
  };
  EXPECT_EQ(make(""), "");
  EXPECT_NE(make(R"(, "hidden_act": "gelu")").find("gelu"), std::string::npos);
  EXPECT_NE(make(R"(, "norm_bias": false)").find("norm_bias"), std::string::npos);
  EXPECT_NE(make(R"(, "norm_first": false)").find("norm_first"), std::string::npos);
  EXPECT_NE(make(R"(, "attn": {"layers": [1]})").find("attention layers"), std::string::npos);
  EXPECT_NE(make(R"(, "value_dim": [64, 128])").find("value_dim"), std::string::npos);
  EXPECT_EQ(make(R"(, "value_dim": [64, 64])"), "");
  EXPECT_EQ(make(R"(, "value_dim": 64)"), "");
}

TEST(Config, FindsTheTextPartOfMultimodalModels) {
  const auto document = JsonDocument::Parse(R"({"model_type": "qwen3_5", "vision_config": {},
      "text_config": )" + std::string(kPlain) +
                                            R"(,
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
      "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4}})");
  ASSERT_TRUE(document.ok());
  ConfigReader reader(document->root());
  const auto model = (*FindFamily(false, "qwen3_5"))->make(&reader, DType::kF16);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->vocab_size(), 100);
  EXPECT_EQ((*model)->state_spec().layers.size(), 2u);
}

TEST(Config, WindowsWhereTheModelHasThem) {
  const auto windows = [](const std::string& members) {
    const auto document = JsonDocument::Parse(std::string(kPlain) + members + "}");
    CHECK(document.ok());
    ConfigReader reader(document->root());
    const DecoderConfig config = ReadDecoderConfig(&reader);
    CHECK(reader.status().ok());
    return config.windows;
  };
  using Windows = std::vector<int>;
  EXPECT_EQ(windows(""), (Windows{0, 0}));
  EXPECT_EQ(windows(R"(, "sliding_window": 100)"), (Windows{100, 100}));
  EXPECT_EQ(windows(R"(, "sliding_window": 256)"), (Windows{0, 0}));  // all of the context
  EXPECT_EQ(windows(R"(, "sliding_window": 100, "use_sliding_window": false)"), (Windows{0, 0}));
  EXPECT_EQ(windows(R"(, "sliding_window": 100, "max_window_layers": 1)"), (Windows{0, 100}));
  EXPECT_EQ(windows(R"(, "sliding_window": 100,
                         "layer_types": ["sliding_attention", "full_attention"])"),
            (Windows{100, 0}));
}

TEST(Rope, PlainFrequencies) {
  RopeConfig config;
  config.rotary_dim = 8;
  config.theta = 10000;
  const std::vector<float> frequencies = InverseFrequencies(config);
  ASSERT_EQ(frequencies.size(), 4u);
  for (int f = 0; f < 4; ++f) {
    EXPECT_FLOAT_EQ(frequencies[size_t(f)], float(std::pow(10000.0, -f / 4.0)));
  }
}

TEST(Rope, Llama3ScalesLongWavesOnly) {
  RopeConfig config;
  config.rotary_dim = 64;
  config.theta = 500000;
  config.scaling = RopeConfig::Scaling::kLlama3;
  config.factor = 32;
  config.original_context = 8192;
  const std::vector<float> divisors = StoredDivisors(config);
  EXPECT_EQ(divisors.front(), 1.0f);
  EXPECT_EQ(divisors.back(), 32.0f);
  for (size_t f = 1; f < divisors.size(); ++f) EXPECT_GE(divisors[f], divisors[f - 1]);
  // The same angles whether the divisors come from the configuration or from the file.
  RopeConfig plain = config;
  plain.scaling = RopeConfig::Scaling::kNone;
  const std::vector<float> from_file = InverseFrequencies(plain, divisors);
  const std::vector<float> from_config = InverseFrequencies(config);
  for (size_t f = 0; f < divisors.size(); ++f) {
    EXPECT_NEAR(from_file[f] / from_config[f], 1.0, 1e-6);
  }
}

TEST(Rope, YarnKeepsFastWavesAndStretchesSlowOnes) {
  RopeConfig config;
  config.rotary_dim = 128;
  config.theta = 1000000;
  config.scaling = RopeConfig::Scaling::kYarn;
  config.factor = 4;
  config.original_context = 32768;
  const std::vector<float> scaled = InverseFrequencies(config);
  config.scaling = RopeConfig::Scaling::kNone;
  const std::vector<float> plain = InverseFrequencies(config);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_FLOAT_EQ(scaled.back(), plain.back() / 4);
  config.scaling = RopeConfig::Scaling::kYarn;
  EXPECT_NEAR(RopeMagnitude(config), 0.1 * std::log(4.0) + 1, 1e-6);
}

TEST(Rope, LongRopeTakesOneRegimeForAllOfAModel) {
  const auto read = [](const char* context, int64_t served = 0, const char* further = "") {
    const auto document = JsonDocument::Parse(
        std::string(R"({"original_max_position_embeddings": 4096, "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.5, "rope_scaling": {"type": "longrope",
                        "short_factor": [1, 2], "long_factor": [3, 50])") +
        further + R"(}, "max_position_embeddings": )" + context + "}");
    CHECK(document.ok());
    ConfigReader reader(document->root());
    reader.set_context_tokens(served);
    const RopeConfig config = ReadRopeConfig(&reader, 8, {.partial = true});
    CHECK(reader.status().ok());
    return config;
  };
  const RopeConfig small = read("4096");
  EXPECT_FALSE(small.long_regime);
  EXPECT_FLOAT_EQ(InverseFrequencies(small)[1], 0.01f / 2);
  EXPECT_EQ(RopeMagnitude(small), 1.0f);
  const RopeConfig large = read("131072");
  EXPECT_TRUE(large.long_regime);
  EXPECT_FLOAT_EQ(InverseFrequencies(large)[0], 1.0f / 3);
  EXPECT_FLOAT_EQ(InverseFrequencies(large)[1], 0.01f / 50);
  EXPECT_NEAR(RopeMagnitude(large), std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-6);
  EXPECT_NE(small.Describe(), large.Describe());

  // The context that is served decides; both regimes are scaled alike, as the model says.
  const RopeConfig within = read("131072", 4096);
  EXPECT_FALSE(within.long_regime);
  EXPECT_FLOAT_EQ(InverseFrequencies(within)[1], 0.01f / 2);
  EXPECT_EQ(RopeMagnitude(within), RopeMagnitude(large));
  EXPECT_NE(within.Describe(), large.Describe());
  EXPECT_TRUE(read("131072", 4097).long_regime);
  EXPECT_FALSE(read("4096", 131072).long_regime);  // no more than the model has
  EXPECT_EQ(RopeMagnitude(read("131072", 0, R"(, "attention_factor": 1.5)")), 1.5f);
  EXPECT_NEAR(RopeMagnitude(read("131072", 0, R"(, "factor": 8)")),
              std::sqrt(1 + std::log(8.0) / std::log(4096.0)), 1e-6);
}

// Dynamic NTK is static here: the context that is served decides, from the first token on.
TEST(Rope, DynamicStretchesThetaForTheContextThatIsServed) {
  const auto read = [](int64_t context_tokens) {
    const auto document = JsonDocument::Parse(
        R"({"max_position_embeddings": 100, "hidden_size": 8, "num_hidden_layers": 1,
            "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "dynamic",
            "rope_theta": 10000.0, "factor": 4.0}})");
    CHECK(document.ok());
    ConfigReader reader(document->root());
    reader.set_context_tokens(context_tokens);
    DecoderConfig config;
    ReadStream(&reader, {"rms_norm_eps", ""}, 0, &config);
    config.rope = ReadRopeConfig(&reader, 8);
    CHECK(reader.status().ok());
    return config;
  };
  for (const int64_t tokens : {0, 1, 100}) {
    const DecoderConfig plain = read(tokens);
    EXPECT_EQ(plain.context_length, 100);
    EXPECT_FLOAT_EQ(InverseFrequencies(plain.rope)[1], 0.1f);
    EXPECT_EQ(plain.rope.Regime(), "");
  }
  const DecoderConfig twice = read(200);
  EXPECT_EQ(twice.context_length, 200);
  const double theta = 10000 * std::pow(4.0 * 2 - 3, 8.0 / 6);
  EXPECT_FLOAT_EQ(InverseFrequencies(twice.rope)[1], float(std::pow(theta, -0.25)));
  EXPECT_NE(twice.rope.Regime().find("200"), std::string::npos);
  EXPECT_NE(twice.rope.Describe(), read(100).rope.Describe());
  EXPECT_EQ(read(1000).context_length, 400);  // no more than the factor says
}

TEST(Rope, QueriesGrowWithEveryPeriod) {
  const std::vector<float> factors = GrowthFactors({0.1f, 64}, 150);
  ASSERT_EQ(factors.size(), 3u);
  EXPECT_EQ(factors[0], 1.0f);
  EXPECT_NEAR(factors[1], 1 + 0.1 * std::log(2.0), 1e-6);
  EXPECT_NEAR(factors[2], 1 + 0.1 * std::log(3.0), 1e-6);
}

}  // namespace
}  // namespace reprise
