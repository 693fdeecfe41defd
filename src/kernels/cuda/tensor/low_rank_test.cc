// SPDX-License-Identifier: Apache-2.0
// What adapters add to products, of all rows and adapters at once, against one row at a time with
// the ops that say what it is, bit by bit, on the device; also in steps that are graphs by then,
// whose rows have other adapters than those that were recorded.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/activation_ops.h"
#include "kernels/cuda/joined/joint_ops_fixture.h"
#include "kernels/low_rank_ops.h"

namespace reprise::cuda {
namespace {

struct LowRankCase {
  DType base;
  int64_t cols;
  int64_t outputs[2];
  int64_t rows;
  DType down, up;
  int64_t rank;
  float reach = 1;  // of the inputs
};

class AdaptersTest : public KernelsTest {
 protected:
  struct Adapter {
    std::vector<LowRank> products;  // of two weights
    DeviceBuffer table;
    uint64_t shape = 0;
  };

  Adapter MakeAdapter(const LowRankCase& shape, float scale, bool both) {
    Adapter adapter;
    adapter.products.resize(2);
    for (size_t i = both ? 0 : 1; i < 2; ++i) {
      adapter.products[i] = {Weights(shape.down, shape.rank, shape.cols),
                             Weights(shape.up, shape.outputs[i], shape.rank), scale};
    }
    auto table = backend_->LowRankTable(adapter.products);
    CHECK(table.ok() && table->size() > 0);
    adapter.table = std::move(*table);
    adapter.shape = both ? 2 : 1;
    return adapter;
  }
};
class LowRankTest : public AdaptersTest, public ::testing::WithParamInterface<LowRankCase> {};

Rows OneRow(const Rows& all, int64_t row) {
  return {all.data + row * all.stride, 1, all.cols, all.stride};
}

TEST_P(LowRankTest, AllAtOnceEqualsOneAtATime) {
  const LowRankCase& shape = GetParam();
  const Matrix first = Weights(shape.base, shape.outputs[0], shape.cols);
  const Matrix second = Weights(shape.base, shape.outputs[1], shape.cols);
  const WeightIndex weights = {{&first, 0}, {&second, 1}};
  std::vector<Adapter> adapters;
  adapters.push_back(MakeAdapter(shape, 1.0f, true));
  adapters.push_back(MakeAdapter(shape, -0.3f, true));
  adapters.push_back(MakeAdapter(shape, 0.7f, false));
  const Rows x = RowsOf(Random(shape.rows * shape.cols, -shape.reach, shape.reach), shape.cols);
  const std::vector<float> nothing(size_t(shape.rows * 2 * shape.outputs[0]) +
                                   size_t(shape.rows * 2 * shape.outputs[1]));
  const DevicePtr<float> place = OnDevice(nothing);
  const auto out = [&](int64_t which, bool expected) {
    const int64_t before = which == 0 ? 0 : 2 * shape.rows * shape.outputs[0];
    const int64_t cols = shape.outputs[which];
    return Rows{place + before + (expected ? shape.rows * cols : 0), shape.rows, cols, cols};
  };
  for (int i = 0; i < kSteps; ++i) {
    // Neighbours that share an adapter, and rows without one.
    std::vector<AdaptedRows> adapted;
    std::vector<const Adapter*> of_row;
    while (int64_t(of_row.size()) < shape.rows) {
      const int64_t left = shape.rows - int64_t(of_row.size());
      const int64_t count = std::min<int64_t>(left, 1 + int64_t(rng_.Below(i == 0 ? 12 : 3)));
      // A step of the same shape has the same adapters somewhere.
      const size_t which = of_row.empty() ? size_t(i) % 3 : rng_.Below(4);
      const Adapter* const one = which < 3 ? &adapters[which] : nullptr;
      if (one != nullptr) {
        adapted.push_back(
            {int64_t(of_row.size()), count, one->products, one->table.data(), one->shape});
      }
      of_row.insert(of_row.end(), size_t(count), one);
    }
    const StepAdapters step_adapters = {&weights, adapted, shape.rows};
    HandMade step = HandMade::OneRowEach(shape.rows);
    scratch_->Reset();
    OpContext context = context_;
    context.adapters = &step_adapters;
    const StepLayout& layout = step.Begin(context);
    backend_->RunStep(*scratch_, layout, {.model = &adapters}, [&] {
      Project(context, x,
              std::vector<Projection>{{&first, out(0, false)}, {&second, out(1, false)}});
    });
    scratch_->Reset();
    Project(context_, x, std::vector<Projection>{{&first, out(0, true)}, {&second, out(1, true)}});
    for (int64_t row = 0; row < shape.rows; ++row) {
      if (of_row[size_t(row)] == nullptr) continue;
      for (size_t which = 0; which < 2; ++which) {
        const LowRank& product = of_row[size_t(row)]->products[which];
        if (product.empty()) continue;
        scratch_->Reset();
        const Rows between = {scratch_->Floats(size_t(shape.rank)), 1, shape.rank, shape.rank};
        const Rows y = OneRow(out(int64_t(which), true), row);
        const Rows more = {scratch_->Floats(size_t(y.cols)), 1, y.cols, y.cols};
        Project(context_, OneRow(x, row), std::vector<Projection>{{&product.down, between}});
        if (product.scale != 1) Scale(context_, between, product.scale, between);
        Project(context_, between, std::vector<Projection>{{&product.up, more}});
        Add(context_, y, more, y);
      }
    }
    ASSERT_TRUE(backend_->TakeError().ok());
    ExpectSame(Read(out(0, false)), Read(out(0, true)), "the first weight");
    ExpectSame(Read(out(1, false)), Read(out(1, true)), "the second weight");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LowRankTest,
    ::testing::Values(
        LowRankCase{DType::kQ8_0, 96, {70, 33}, 1, DType::kBF16, DType::kBF16, 16},
        LowRankCase{DType::kQ8_0, 1024, {512, 600}, 3, DType::kF16, DType::kBF16, 4},
        LowRankCase{DType::kQ4_K, 4096, {4096, 1024}, 16, DType::kBF16, DType::kBF16, 16},
        LowRankCase{DType::kF16, 12288, {4096, 64}, 16, DType::kF16, DType::kF16, 33},
        LowRankCase{DType::kBF16, 200, {130, 17}, 5, DType::kBF16, DType::kF16, 1},
        LowRankCase{DType::kF32, 96, {70, 600}, 40, DType::kF32, DType::kF32, 33},
        LowRankCase{DType::kQ8_0, 4096, {512, 600}, 17, DType::kF32, DType::kF32, 16},
        LowRankCase{DType::kQ8_0, 544, {70, 600}, 100, DType::kBF16, DType::kF32, 8},
        LowRankCase{DType::kQ8_0, 544, {70, 600}, 100, DType::kF32, DType::kBF16, 64},
        LowRankCase{DType::kQ8_0, 1024, {40, 1040}, 300, DType::kBF16, DType::kBF16, 16},
        LowRankCase{DType::kQ8_0, 1024, {40, 100}, 9, DType::kF16, DType::kF16, 528},
        LowRankCase{DType::kF16, 2048, {40, 100}, 24, DType::kF16, DType::kF16, 16, 1e5f}));

// Rounding, narrow products, products, tall products.
TEST_F(AdaptersTest, AreTwoKernelsMoreHoweverManyThereAre) {
  const LowRankCase shape = {DType::kQ8_0, 1024, {512, 512}, 16, DType::kF16, DType::kF16, 16};
  const Matrix first = Weights(shape.base, shape.outputs[0], shape.cols);
  const Matrix second = Weights(shape.base, shape.outputs[1], shape.cols);
  const WeightIndex weights = {{&first, 0}, {&second, 1}};
  std::vector<Adapter> adapters;
  for (int i = 0; i < 16; ++i) adapters.push_back(MakeAdapter(shape, 1, true));
  const Rows x = RowsOf(Random(shape.rows * shape.cols), shape.cols);
  const Rows y[] = {RowsOf(Random(shape.rows * 512), 512), RowsOf(Random(shape.rows * 512), 512)};
  for (const int64_t count : {0, 1, 16}) {
    std::vector<AdaptedRows> adapted;
    for (int64_t row = 0; row < count; ++row) {
      const Adapter& one = adapters[size_t(row)];
      adapted.push_back({row, 1, one.products, one.table.data(), one.shape});
    }
    const StepAdapters step_adapters = {&weights, adapted, shape.rows};
    const OpContext plain = context_;
    if (count > 0) context_.adapters = &step_adapters;
    const size_t kernels = KernelsOf(shape.rows, [&] {
      Project(context_, x, std::vector<Projection>{{&first, y[0]}, {&second, y[1]}});
    });
    context_ = plain;
    EXPECT_EQ(kernels, count > 0 ? 4u : 2u) << count;
  }
}

}  // namespace
}  // namespace reprise::cuda
