// SPDX-License-Identifier: Apache-2.0
// Products with 16-bit weights against their specification, bit by bit.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <string>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/many/forms.h"
#include "kernels/cuda/tensor/many/product_many.h"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/tensor/round.h"
#include "kernels/cuda/tensor/test_values.h"
#include "tensor/half.h"

namespace reprise::cuda {
namespace {

struct ProductCase {
  int64_t rows, cols, outputs;
};
std::ostream& operator<<(std::ostream& out, const ProductCase& c) {
  return out << c.rows << "x" << c.cols << "x" << c.outputs;
}

using RunProducts = std::function<void(const HalfRows&, std::span<const HalfProduct>)>;

// Weights have a scale, as those of BF16 do.
void ExpectSpecification(float weight_scale, const ProductCase& shape, const RunProducts& run) {
  const int64_t stride = (shape.cols + 15) / 16 * 16;
  std::vector<float> x = RandomFloats(size_t(shape.rows * shape.cols), 1, 1);
  if (shape.rows > 2) x[size_t(2 * shape.cols + 5)] = 3e6f;  // too large for f16
  const std::vector<float> w = RandomFloats(size_t(shape.outputs * shape.cols), 2, 0.05f);
  const std::vector<float> bias = RandomFloats(size_t(shape.outputs), 3, 1);
  std::vector<uint16_t> weights(size_t(shape.outputs * stride));
  for (int64_t r = 0; r < shape.outputs; ++r) {
    for (int64_t k = 0; k < shape.cols; ++k) {
      weights[size_t(r * stride + k)] = F32ToF16(w[size_t(r * shape.cols + k)]);
    }
  }
  DeviceArray<float> device_x(x), device_bias(bias), scale(size_t(shape.rows));
  DeviceArray<uint16_t> device_w(weights), rounded(size_t(shape.rows * stride));
  DeviceArray<float> out(size_t(shape.rows * shape.outputs));
  const View view{device_x.data(), shape.rows, shape.cols, shape.cols};
  HalfRows half{rounded.data(), scale.data(), shape.rows, shape.cols, stride};
  if (MayRoundOnTheWay(view)) {
    half = RoundedOnTheWay(view);
  } else {
    RoundRows(nullptr, view, half);
  }
  // Beside two others of the same input: the first row of the matrix, whose outputs lie behind
  // those of the first half.
  DeviceArray<float> beside(size_t(shape.rows * (shape.outputs / 2 + 1)));
  const HalfProduct products[] = {
      {{device_w.data(), 1, shape.cols, stride, 2 * weight_scale},
       nullptr,
       {beside.data() + shape.outputs / 2, shape.rows, 1, shape.outputs / 2 + 1}},
      {{device_w.data(), shape.outputs / 2, shape.cols, stride, 2 * weight_scale},
       nullptr,
       {beside.data(), shape.rows, shape.outputs / 2, shape.outputs / 2 + 1}},
      {{device_w.data(), shape.outputs, shape.cols, stride, weight_scale},
       device_bias.data(),
       {out.data(), shape.rows, shape.outputs, shape.outputs}}};
  const std::span<const HalfProduct> all(products, 3);
  run(half, shape.outputs > 1 ? all : all.subspan(2, 1));
  const std::vector<float> got = out.Read();
  const std::vector<float> others = beside.Read();

  // All outputs of small shapes, a sample of large ones.
  const int64_t step = std::max<int64_t>(1, shape.rows * shape.outputs * shape.cols / 100'000'000);
  std::atomic<int64_t> different{0};
  ParallelFor(shape.rows, [&](int64_t t) {
    std::vector<uint16_t> row(static_cast<size_t>(stride));
    const float row_scale =
        reference::RoundRow({x.data() + t * shape.cols, size_t(shape.cols)}, row.data());
    for (int64_t r = t % step; r < shape.outputs; r += step) {
      const float expected =
          reference::TensorProduct(TheCore(), weights.data() + r * stride, row.data(), stride,
                                   row_scale * weight_scale, &bias[size_t(r)]);
      different += Bits(got[size_t(t * shape.outputs + r)]) != Bits(expected);
      if (shape.outputs == 1) continue;
      const float plain =
          reference::TensorProduct(TheCore(), weights.data() + r * stride, row.data(), stride,
                                   row_scale * (2 * weight_scale), nullptr);
      const float* other = others.data() + t * (shape.outputs / 2 + 1);
      if (r < shape.outputs / 2) different += Bits(other[r]) != Bits(plain);
      if (r == 0) different += Bits(other[shape.outputs / 2]) != Bits(plain);
    }
  });
  EXPECT_EQ(different, 0) << shape;
}

class ProductTest : public ::testing::TestWithParam<std::tuple<float, ProductCase>> {};

TEST_P(ProductTest, EqualsSpecification) {
  const auto [weight_scale, shape] = GetParam();
  ExpectSpecification(weight_scale, shape,
                      [](const HalfRows& x, auto products) { Products(nullptr, x, products); });
}
INSTANTIATE_TEST_SUITE_P(
    All, ProductTest,
    ::testing::Combine(::testing::Values(1.0f, 0x1p-12f),
                       ::testing::Values(ProductCase{1, 16, 1}, ProductCase{1, 40, 9},
                                         ProductCase{1, 1024, 3584}, ProductCase{1, 4096, 1000},
                                         ProductCase{3, 12288, 260}, ProductCase{4, 2048, 130},
                                         ProductCase{5, 2048, 130}, ProductCase{16, 520, 100},
                                         ProductCase{17, 2048, 130}, ProductCase{33, 4608, 72},
                                         ProductCase{2, 12288, 96}, ProductCase{64, 4096, 257},
                                         ProductCase{65, 100, 65}, ProductCase{300, 1024, 200},
                                         ProductCase{129, 5000, 129}, ProductCase{200, 1100, 4000},
                                         ProductCase{300, 600, 5640}, ProductCase{600, 104, 31},
                                         ProductCase{512, 4096, 12288},
                                         ProductCase{4096, 2560, 1024})));

// As where there is no copy engine, for up to 16 rows.
TEST(FewProductsTest, EqualTheSpecification) {
  for (const ProductCase& shape : {ProductCase{3, 12288, 260}, ProductCase{5, 2048, 130},
                                   ProductCase{8, 4096, 1000}, ProductCase{16, 520, 100}}) {
    ExpectSpecification(1.0f, shape, [](const HalfRows& x, auto products) {
      RunFewProducts(nullptr, {.x = x, .products = products});
    });
  }
}

// Which tiles a product has decides how long it takes, and nothing else.
TEST(ProductFormsTest, EveryFormEqualsTheSpecification) {
  if (!ThisGpu().wgmma) GTEST_SKIP() << "there are no forms to choose from";
  for (size_t form = 0; form < kProductForms.size(); ++form) {
    const Tiling& tiling = kProductForms[form].tiling;
    SCOPED_TRACE(std::to_string(tiling.tokens) + " x " + std::to_string(tiling.outputs));
    for (const ProductCase& shape :
         {ProductCase{17, 100, 31}, ProductCase{40, 1100, 300}, ProductCase{129, 520, 1000},
          ProductCase{300, 2056, 97}, ProductCase{7, 1536, 70}}) {
      ExpectSpecification(1.0f, shape, [&](const HalfRows& x, auto products) {
        ManyRowsProducts(nullptr, x, {}, products, form);
      });
    }
  }
}

// Measured on a GPU with 132 multiprocessors, each against all others.
TEST(ProductFormsTest, TheQuickestIsChosen) {
  if (ThisGpu().multiprocessors != 132) GTEST_SKIP() << "measured on another GPU";
  struct Measured {
    int64_t rows, cols, outputs;
    size_t matrices;
    int tokens_of_tile, outputs_of_tile;
  };
  for (const Measured& one :
       {Measured{4096, 4096, 12288, 1, 128, 192}, Measured{4096, 4096, 4096, 1, 128, 208},
        Measured{4096, 12288, 4096, 1, 128, 208}, Measured{4096, 4096, 8192, 1, 128, 208},
        Measured{512, 4096, 4096, 1, 128, 128},   Measured{432, 4096, 4096, 1, 112, 128},
        Measured{400, 12288, 4096, 1, 104, 128},  Measured{384, 12288, 4096, 1, 128, 96},
        Measured{336, 4096, 8192, 1, 168, 128},   Measured{300, 4096, 8192, 1, 152, 128},
        Measured{272, 12288, 4096, 1, 136, 64},   Measured{256, 4096, 12288, 1, 128, 192},
        Measured{256, 12288, 4096, 1, 128, 64},   Measured{200, 4096, 12288, 1, 104, 192},
        Measured{200, 12288, 4096, 1, 104, 64},   Measured{160, 4096, 12288, 1, 80, 192},
        Measured{144, 4096, 8192, 1, 80, 128},    Measured{144, 12288, 4096, 1, 80, 64},
        Measured{128, 4096, 12288, 1, 128, 96},   Measured{128, 12288, 4096, 1, 64, 64},
        Measured{64, 4096, 12288, 2, 64, 96},     Measured{64, 12288, 4096, 1, 64, 32},
        Measured{16, 12288, 4096, 1, 16, 32}}) {
    const HalfProduct product = {{nullptr, one.outputs, one.cols, one.cols, 1}, nullptr, {}};
    const std::vector<HalfProduct> products(one.matrices, product);
    const Tiling& tiling = kProductForms[PlanOf(one.rows, products).form].tiling;
    EXPECT_EQ(tiling.tokens, one.tokens_of_tile)
        << one.rows << " x " << one.cols << " x " << one.outputs;
    EXPECT_EQ(tiling.outputs, one.outputs_of_tile) << one.rows << " x " << one.cols;
  }
}

// 192 tiles on 132 multiprocessors: those of the second turn are halved, so that all have one.
TEST(ProductFormsTest, AProductMayBeDivided) {
  if (ThisGpu().multiprocessors != 132) GTEST_SKIP() << "measured on another GPU";
  constexpr ProductCase kShape = {300, 4096, 12288};
  const HalfProduct product = {{nullptr, 12288, 4096, 4096, 1}, nullptr, {}};
  const ProductPlan plan = PlanOf(kShape.rows, {&product, 1});
  EXPECT_EQ(plan.outputs, 66 * 128);
  EXPECT_EQ(kProductForms[plan.form].tiling.outputs, 128);
  EXPECT_EQ(kProductForms[plan.rest].tiling.outputs, 64);
  ExpectSpecification(1.0f, kShape, [&](const HalfRows& x, auto products) {
    for (const HalfProduct& one : products) Products(nullptr, x, {&one, 1});
  });
}

TEST(ProductGroupsTest, EachGroupHasItsMatrix) {
  constexpr int64_t kCols = 768, kOutputs = 96, kRows = 40;
  constexpr int kExperts = 40, kChoices = 4;
  for (const int64_t rows : {int64_t{1}, kRows, int64_t{700}}) {
    const std::vector<float> x = RandomFloats(size_t(rows * kCols), 1, 1);
    const std::vector<float> w = RandomFloats(size_t(kExperts * kOutputs * kCols), 2, 0.05f);
    std::vector<uint16_t> weights(w.size());
    for (size_t i = 0; i < w.size(); ++i) weights[i] = F32ToF16(w[i]);
    std::mt19937 random(5);
    std::vector<std::vector<int32_t>> of(kExperts);
    for (int32_t t = 0; t < rows; ++t) {
      // The last experts get nothing, one gets a choice of every row.
      for (int c = 0; c < kChoices; ++c) of[c == 0 ? 3 : random() % (kExperts - 5)].push_back(t);
    }
    std::vector<int32_t> begin = {0}, row;
    for (const auto& list : of) {
      row.insert(row.end(), list.begin(), list.end());
      begin.push_back(int32_t(row.size()));
    }
    const int64_t slots = rows * kChoices;
    DeviceArray<float> device_x(x), scale(static_cast<size_t>(rows));
    DeviceArray<float> out(static_cast<size_t>(slots * kOutputs));
    DeviceArray<uint16_t> device_w(weights), rounded(size_t(rows * kCols));
    DeviceArray<int32_t> device_begin(begin), device_row(row);
    std::vector<float> weight_scale(kExperts);
    for (int e = 0; e < kExperts; ++e) weight_scale[size_t(e)] = std::ldexp(1.0f, e % 7 - 3);
    const DeviceArray<float> scales(weight_scale);
    const HalfRows half{rounded.data(), scale.data(), rows, kCols, kCols};
    RoundRows(nullptr, {device_x.data(), rows, kCols, kCols}, half);
    ProductGroups(
        nullptr, half, {device_w.data(), kOutputs, kCols, kCols},
        {device_begin.data(), device_row.data(), kExperts, kOutputs * kCols, scales.data()},
        nullptr, {out.data(), slots, kOutputs, kOutputs});
    const std::vector<float> got = out.Read();
    int64_t different = 0;
    for (int e = 0; e < kExperts; ++e) {
      for (int32_t s = begin[size_t(e)]; s<begin[size_t(e) + 1]; s += rows> 100 ? 7 : 1) {
        std::vector<uint16_t> rounded_row(kCols);
        const float row_scale = reference::RoundRow(
            {x.data() + row[size_t(s)] * kCols, size_t(kCols)}, rounded_row.data());
        for (int64_t r = 0; r < kOutputs; ++r) {
          const float expected = reference::TensorProduct(
              TheCore(), weights.data() + (e * kOutputs + r) * kCols, rounded_row.data(), kCols,
              row_scale * weight_scale[size_t(e)], nullptr);
          different += Bits(got[size_t(s * kOutputs + r)]) != Bits(expected);
        }
      }
    }
    EXPECT_EQ(different, 0) << rows;
  }
}

}  // namespace
}  // namespace reprise::cuda
