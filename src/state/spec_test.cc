// SPDX-License-Identifier: Apache-2.0
// Proves the sizes of published models (the figures are those of the model cards' geometry) and
// that tensors of a block or state do not overlap.
#include "state/spec.h"

#include <gtest/gtest.h>

#include "state/ids.h"

namespace reprise {
namespace {

StateSpec Qwen35Small() {
  StateSpec spec;
  for (int layer = 0; layer < 24; ++layer) {
    LayerState state;
    state.layer = layer;
    if ((layer + 1) % 4 == 0) {
      state.kind = StateKind::kFullKv;
      state.tensors = {{"k", {2, 256}, DType::kF16}, {"v", {2, 256}, DType::kF16}};
    } else {
      state.kind = StateKind::kRecurrent;
      state.tensors = {{"conv", {3, 6144}, DType::kF32}, {"delta", {16, 128, 128}, DType::kF32}};
    }
    spec.layers.push_back(state);
  }
  return spec;
}

TEST(StateSpec, SizesOfQwen35Small) {
  const StateSpec spec = Qwen35Small();
  EXPECT_TRUE(spec.has_recurrent());
  EXPECT_TRUE(spec.has_kv());
  EXPECT_EQ(spec.bytes_per_token(StateKind::kFullKv), 12288u);
  EXPECT_EQ(spec.bytes_per_token(StateKind::kWindowKv), 0u);
  EXPECT_EQ(spec.state_bytes(), 20201472u);
  EXPECT_EQ(spec.kv_block_bytes(), 12288u * kBlockTokens);
}

TEST(StateSpec, RowsOfQ8AreCodesAndScales) {
  const auto bytes = [](std::vector<int64_t> shape) {
    return StateTensor{"k", std::move(shape), DType::kQ8_0}.bytes();
  };
  EXPECT_EQ(bytes({2, 256}), 2u * (256 + 2 * 8));
  EXPECT_EQ(bytes({576}), 576u + 2 * 18);
  EXPECT_EQ(bytes({3, 16}), 3u * (16 + 2)) << "the last group of a row may be small";
  EXPECT_EQ(bytes({1, 80}), 80u + 2 * 3);
  // What is no K/V of a model, as simulations have it, is counted by its elements.
  EXPECT_EQ((StateTensor{"k", {2, 4}, DType::kI32}.bytes()), 32u);
}

TEST(StateLayout, TensorsFollowEachOtherAligned) {
  StateSpec spec;
  spec.layers = {
      {0, StateKind::kRecurrent, 0, {{"a", {3}, DType::kF32}, {"b", {17}, DType::kF32}}},
      {0, StateKind::kFullKv, 0, {{"k", {1, 3}, DType::kF16}, {"v", {1, 3}, DType::kF16}}}};
  const StateLayout layout(spec);
  EXPECT_EQ(layout.offset(0, 0), 0u);
  EXPECT_EQ(layout.offset(0, 1), 64u);
  EXPECT_EQ(layout.state_bytes(), 192u);
  EXPECT_EQ(layout.offset(1, 1), 384u);
  EXPECT_EQ(layout.block_bytes(), 768u);
}

TEST(StateLayout, ListsAreTheHeadsOfFullKv) {
  StateSpec spec;
  const std::vector<StateTensor> kv = {{"k", {3, 8}, DType::kF16}, {"v", {3, 8}, DType::kF16}};
  spec.layers = {{0, StateKind::kFullKv, 0, kv},
                 {1, StateKind::kWindowKv, 16, kv},
                 {2, StateKind::kRecurrent, 0, {{"conv", {3, 6}, DType::kF32}}},
                 {3, StateKind::kFullKv, 0, {{"latent", {24}, DType::kF16}}},
                 {4, StateKind::kFullKv, 0, kv}};
  const StateLayout layout(spec);
  EXPECT_EQ(layout.list_begin(0), 0u);
  EXPECT_EQ(layout.list_begin(3), 3u);
  EXPECT_EQ(layout.list_begin(4), 4u);
  EXPECT_EQ(layout.list_count(), 7u);
}

}  // namespace
}  // namespace reprise
