// SPDX-License-Identifier: Apache-2.0
// Proves that mixes of weight types are those of llama.cpp, layer by layer, and fit any width.
#include "model/weight_mix.h"

#include <gtest/gtest.h>

#include <set>

namespace reprise {
namespace {

class WeightMixTest : public ::testing::Test {
 protected:
  WeightMixTest() : plan_("model.") {
    plan_.AddMatrix(plan_.Global("embed_tokens.weight", "token_embd.weight"), 64, 256, &matrix_)
        .role = TensorRole::kEmbedding;
    for (int i = 0; i < 24; ++i) {
      plan_.AddMatrix(plan_.Layer(i, "v", "attn_v.weight"), 128, 256, &matrix_);
      plan_.AddMatrix(plan_.Layer(i, "o", "attn_output.weight"), 256, 512, &matrix_);
      plan_.AddMatrix(plan_.Layer(i, "down", "ffn_down.weight"), 256, 512, &matrix_);
      plan_.AddMatrix(plan_.Layer(i, "up", "ffn_up.weight"), 512, 256, &matrix_);
    }
    plan_.AddMatrix({"lm_head.weight", "output.weight"}, 64, 256, &matrix_).role =
        TensorRole::kHead;
  }

  std::string Type(const char* mix, const std::string& name) const {
    const MixedTypes types(*FindWeightMix(mix), plan_);
    for (const PlannedTensor& tensor : plan_.tensors()) {
      if (tensor.gguf == name) return std::string(NameOf(types.TypeOf(tensor)));
    }
    return "absent";
  }

  Matrix matrix_;
  TensorPlan plan_;
};

TEST_F(WeightMixTest, OneTypeForAll) {
  EXPECT_EQ(Type("q8_0", "output.weight"), "q8_0");
  EXPECT_EQ(Type("q8_0", "blk.3.attn_v.weight"), "q8_0");
  EXPECT_EQ(Type("bf16", "output.weight"), "bf16");
  EXPECT_EQ(Type("q4_0", "output.weight"), "q6_k");
  EXPECT_EQ(Type("q4_0", "token_embd.weight"), "q4_0");
}

TEST_F(WeightMixTest, MediumSpendsMoreBitsWhereLlamaCppDoes) {
  // Of 24 layers: the first 3, the last 3, and every third of the others.
  const std::set<int> more = {0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23};
  for (int i = 0; i < 24; ++i) {
    const std::string layer = "blk." + std::to_string(i);
    const char* expected = more.contains(i) ? "q6_k" : "q4_k";
    EXPECT_EQ(Type("q4_k_m", layer + ".attn_v.weight"), expected) << layer;
    EXPECT_EQ(Type("q4_k_m", layer + ".ffn_down.weight"), expected) << layer;
    EXPECT_EQ(Type("q4_k_m", layer + ".ffn_up.weight"), "q4_k") << layer;
  }
  EXPECT_EQ(Type("q4_k_m", "output.weight"), "q6_k");
}

TEST_F(WeightMixTest, FallsBackWhereRowsAreNotWholeBlocks) {
  PlannedTensor tensor;
  tensor.matrix = &matrix_;
  tensor.rows = 4;
  tensor.cols = 160;
  EXPECT_EQ(MixedTypes(*FindWeightMix("q4_k"), plan_).TypeOf(tensor), DType::kQ5_0);
  EXPECT_EQ(MixedTypes(*FindWeightMix("q6_k"), plan_).TypeOf(tensor), DType::kQ8_0);
  tensor.cols = 100;
  EXPECT_EQ(MixedTypes(*FindWeightMix("q8_0"), plan_).TypeOf(tensor), DType::kF16);
}

TEST(WeightMix, UnknownNamesAreListed) {
  const auto mix = FindWeightMix("q9");
  ASSERT_FALSE(mix.ok());
  EXPECT_NE(mix.status().message().find("q4_k_m"), std::string::npos);
}

}  // namespace
}  // namespace reprise
