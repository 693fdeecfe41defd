// SPDX-License-Identifier: Apache-2.0
// Proves what is peculiar to the hybrids of delta rule and attention: which layers recur, how it is
// written to GGUF and found again, and that variants which nothing here computes are refused by
// name.
#include "model/decoders/delta_decoder.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/json.h"
#include "device/thread_pool.h"
#include "model/export/gguf_export.h"

namespace reprise {
namespace {

std::string ConfigText(const std::string& members) {
  return R"({"model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 64,
      "num_hidden_layers": 5, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
      "vocab_size": 64, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
      "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25)" +
         members + "}";
}

Result<DeltaDecoderConfig> Read(const std::string& members) {
  const auto document = JsonDocument::Parse(ConfigText(members));
  CHECK(document.ok());
  ConfigReader reader(document->root());
  return ReadDeltaDecoderConfig(&reader, {"qwen3_5", "qwen35"}, DType::kF16);
}

TEST(DeltaDecoder, LayersRecurByIntervalOrByList) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(Read("")->recurrent, (Layers{true, true, true, false, true}));
  EXPECT_EQ(Read(R"(, "full_attention_interval": 2)")->recurrent,
            (Layers{true, false, true, false, true}));
  const auto listed = Read(R"(, "layer_types": ["full_attention", "linear_attention",
      "full_attention", "full_attention", "linear_attention"])");
  EXPECT_EQ(listed->recurrent, (Layers{false, true, false, false, true}));
  EXPECT_EQ(listed->full_interval, 0);
}

TEST(DeltaDecoder, RefusesByName) {
  const auto expect = [](const std::string& members, const char* name) {
    const auto config = Read(members);
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.status().message().find(name), std::string::npos) << config.status().message();
  };
  expect(R"(, "layer_types": ["full_attention"])", "layer");
  expect(R"(, "output_gate_type": "sigmoid")", "sigmoid");
  expect(R"(, "num_experts": 8)", "experts");
  expect(R"(, "sliding_window": 32)", "window");
}

// Irregular patterns are written as a list; the state found in the file is the state of the model.
TEST(DeltaDecoder, GgufKeepsTheLayers) {
  for (const char* members :
       {"", R"(, "layer_types": ["full_attention", "linear_attention", "full_attention",
                                 "full_attention", "linear_attention"])"}) {
    const auto document = JsonDocument::Parse(ConfigText(members));
    ConfigReader reader(document->root());
    const Family* family = *FindFamilyByName("qwen3_5");
    const auto model = family->make(&reader, DType::kF16);
    ASSERT_TRUE(model.ok());
    RandomSource source(3);
    ThreadPool pool(1);
    GgufWriter writer;
    const std::string path = ::testing::TempDir() + "delta_decoder_test.gguf";
    GgufExport request{family, model->get(), &source, *FindWeightMix("f16"), "t", path, nullptr};
    ASSERT_TRUE(ExportGguf(request, &writer, &pool).ok());
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok());
    ConfigReader file(*checkpoint);
    const auto again = family->make(&file, DType::kF16);
    ASSERT_TRUE(again.ok()) << again.status().message();
    const StateSpec& a = (*model)->state_spec();
    const StateSpec& b = (*again)->state_spec();
    ASSERT_EQ(a.layers.size(), b.layers.size());
    for (size_t i = 0; i < a.layers.size(); ++i) EXPECT_EQ(a.layers[i].kind, b.layers[i].kind);
    EXPECT_EQ(a.state_bytes(), b.state_bytes());
    EXPECT_EQ(a.kv_block_bytes(), b.kv_block_bytes());
    std::remove(path.c_str());
  }
}

}  // namespace
}  // namespace reprise
