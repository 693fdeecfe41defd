// SPDX-License-Identifier: Apache-2.0
// Proves that a model may have more experts than a process may have mappings (vm.max_map_count,
// 65,530 by default): 9 layers of 4,096 experts of three matrices each. Qwen3-235B has 36,096.
#include <cstdio>

#include "model/model_fixture.h"

namespace reprise {
namespace {

constexpr char kConfig[] = R"({"model_type": "qwen3_moe", "hidden_size": 16,
  "intermediate_size": 16, "moe_intermediate_size": 8, "num_experts": 4096,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "num_hidden_layers": 9,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 96,
  "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
  "tie_word_embeddings": true})";

TEST(ExpertsTest, MoreThanThereCanBeMappings) {
  const std::string path = ::testing::TempDir() + "experts.gguf";
  const auto document = JsonDocument::Parse(kConfig);
  ASSERT_TRUE(document.ok());
  const Family* family = *FindFamily(false, "qwen3_moe");
  ConfigReader config(document->root());
  const auto planned = family->make(&config, DType::kF16);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  RandomSource source(7);
  TestMachine machine;
  GgufWriter writer;
  const GgufExport request{family, planned->get(), &source, *FindWeightMix("bf16"),
                           "many", path,           nullptr};
  const Status written = ExportGguf(request, &writer, &machine.context().backend->host_threads());
  ASSERT_TRUE(written.ok()) << written.message();
  {
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok());
    const auto model = LoadModel(*checkpoint, machine.context(), {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<TokenId> tokens = {1, 2, 3, 50, 60, 70, 5};
    const size_t pieces[] = {1, 4, 1, 1};
    EXPECT_EQ(RunWhole(**model, machine.context(), tokens),
              RunInPieces(**model, machine.context(), tokens, pieces));
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace reprise
