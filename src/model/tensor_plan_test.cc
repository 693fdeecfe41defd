// SPDX-License-Identifier: Apache-2.0
// Proves that the orders of head rows in the two file formats and in memory are what the formats
// say, and that going through GGUF gives the same memory as reading the Hugging Face file.
#include "model/tensor_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace reprise {
namespace {

std::vector<HeadRows> Orders() {
  return {{HeadOrder::kPlain, false, 0, 0, 0, 0},
          {HeadOrder::kRotary, false, 0, 4, 0, 8},
          {HeadOrder::kQueryGate, false, 0, 4, 0, 4},
          {HeadOrder::kValueHeads, false, 8, 6, 2, 4}};
}
constexpr int64_t kRows = 32;

TEST(TensorPlan, OrdersArePermutations) {
  for (const HeadRows& rows : Orders()) {
    for (const bool gguf : {false, true}) {
      std::set<int64_t> seen;
      for (int64_t row = 0; row < kRows; ++row) seen.insert(FileRowOfMemoryRow(rows, gguf, row));
      EXPECT_EQ(seen.size(), size_t(kRows));
      EXPECT_EQ(*seen.rbegin(), kRows - 1);
    }
    std::set<int64_t> seen;
    for (int64_t row = 0; row < kRows; ++row) seen.insert(HfRowOfGgufRow(rows, row));
    EXPECT_EQ(seen.size(), size_t(kRows));
  }
}

// Where memory does not keep the order of the file, both formats lead to the same memory.
TEST(TensorPlan, BothFormatsGiveTheSameMemory) {
  for (const HeadRows& rows : Orders()) {
    if (rows.order == HeadOrder::kValueHeads) continue;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t through_gguf = HfRowOfGgufRow(rows, FileRowOfMemoryRow(rows, true, row));
      EXPECT_EQ(through_gguf, FileRowOfMemoryRow(rows, false, row));
    }
  }
}

TEST(TensorPlan, RotaryPairs) {
  const HeadRows rows{HeadOrder::kRotary, false, 0, 2, 0, 8};
  // Row 2i + j of a GGUF head is row j * 4 + i of Hugging Face.
  const int64_t expected[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  for (int64_t row = 0; row < 16; ++row) EXPECT_EQ(HfRowOfGgufRow(rows, row), expected[row]);
}

TEST(TensorPlan, QueriesBeforeGates) {
  const HeadRows rows{HeadOrder::kQueryGate, false, 0, 2, 0, 2};
  // File: q0 q0 g0 g0 q1 q1 g1 g1. Memory: q0 q0 q1 q1 g0 g0 g1 g1.
  const int64_t expected[] = {0, 1, 4, 5, 2, 3, 6, 7};
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(FileRowOfMemoryRow(rows, false, row), expected[row]);
    EXPECT_EQ(FileRowOfMemoryRow(rows, true, row), expected[row]);
  }
}

TEST(TensorPlan, PairsBecomeHalves) {
  // Behind one row, two heads of two rows and four that turn, in pairs.
  const HeadRows rows{HeadOrder::kPairs, false, 1, 2, 0, 6, 4};
  const int64_t expected[] = {0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 11, 10, 12};
  for (int64_t row = 0; row < 13; ++row) {
    EXPECT_EQ(FileRowOfMemoryRow(rows, false, row), expected[row]);
    EXPECT_EQ(FileRowOfMemoryRow(rows, true, row), expected[row]);
    EXPECT_EQ(HfRowOfGgufRow(rows, row), row);
  }
}

TEST(TensorPlan, ValueHeadsAreTiled) {
  const HeadRows rows{HeadOrder::kValueHeads, false, 2, 4, 2, 1};
  // Grouped under key heads 0 0 1 1; tiled as 0 1 0 1. Rows before `first` stay.
  const int64_t expected[] = {0, 1, 2, 4, 3, 5};
  for (int64_t row = 0; row < 6; ++row) EXPECT_EQ(HfRowOfGgufRow(rows, row), expected[row]);
}

TEST(TensorPlan, Names) {
  TensorPlan plan("model.language_model.");
  Matrix matrix;
  Vector vector;
  plan.AddMatrix(plan.Layer(3, "self_attn.q_proj.weight", "attn_q.weight"), 4, 5, &matrix);
  plan.AddNorm(plan.Global("norm.weight", "output_norm.weight"), 7, ValueForm::kOnePlus, &vector);
  ASSERT_EQ(plan.tensors().size(), 2u);
  EXPECT_EQ(plan.tensors()[0].hf, "model.language_model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(plan.tensors()[0].gguf, "blk.3.attn_q.weight");
  EXPECT_EQ(plan.tensors()[0].layer, 3);
  EXPECT_EQ(plan.tensors()[1].hf, "model.language_model.norm.weight");
  EXPECT_EQ(plan.tensors()[1].gguf, "output_norm.weight");
  EXPECT_EQ(plan.element_count(), 27);
}

}  // namespace
}  // namespace reprise
