// SPDX-License-Identifier: Apache-2.0
// Products of one input, which are few kernels, against each of them alone, bit by bit, on the
// device.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/joined/joint_ops_fixture.h"

namespace reprise::cuda {
namespace {

struct InputCase {
  const char* name;
  std::vector<std::pair<DType, int64_t>> shapes;  // of matrices with one input
  int64_t cols = 1024;
  float size = 1;  // of the inputs
};

class InputTest : public JointOpsTest, public ::testing::WithParamInterface<InputCase> {
 protected:
  enum class How : uint8_t { kInStep, kTogether, kAlone };

  // Projects x, behind a norm where it has weights, and gives all outputs one after another.
  std::vector<float> Outputs(const std::vector<Matrix>& weights, const Rows& x,
                             DevicePtr<float> norm, DevicePtr<float> bias, How how) {
    scratch_->Reset();
    HandMade step = HandMade::OneRowEach(x.rows);
    const StepLayout& layout = step.Begin(context_);
    std::vector<Projection> all;
    for (const Matrix& weight : weights) {
      const auto zeros = std::vector<float>(size_t(x.rows * weight.rows()));
      all.push_back({&weight, RowsOf(zeros, weight.rows()), bias});
    }
    const Rows h = norm ? RowsOf(std::vector<float>(size_t(x.rows * x.cols)), x.cols) : x;
    const auto ops = [&](bool together) {
      if (norm) RmsNorm(context_, x, norm, 1, 1e-6f, h);
      const size_t each = together ? all.size() : 1;
      for (size_t i = 0; i < all.size(); i += each) {
        Project(context_, h, std::span(all).subspan(i, each));
      }
    };
    if (how == How::kInStep) {
      backend_->RunStep(*scratch_, layout, {.model = &all}, [&] { ops(true); });
    } else {
      ops(how == How::kTogether);
    }
    std::vector<float> outputs = Read(h);
    for (const Projection& one : all) {
      const auto more = Read(one.out);
      outputs.insert(outputs.end(), more.begin(), more.end());
    }
    return outputs;
  }
};

// Matrices of one input: in a step, in one call, and one by one; as it is and behind a norm.
TEST_P(InputTest, ProductsEqualEachAlone) {
  const int64_t cols = GetParam().cols;
  std::vector<Matrix> weights;
  for (const auto& [type, rows] : GetParam().shapes) weights.push_back(Weights(type, rows, cols));
  const DevicePtr<float> bias = OnDevice(Random(8192));
  for (const int64_t rows : {1, 3, 20, 70}) {
    const Rows x = RowsOf(Random(rows * cols, -GetParam().size, GetParam().size), cols);
    for (const DevicePtr<float> norm : {DevicePtr<float>(), OnDevice(Random(cols))}) {
      const auto alone = Outputs(weights, x, norm, bias, How::kAlone);
      ExpectSame(Outputs(weights, x, norm, bias, How::kTogether), alone, "outputs together");
      ExpectSame(Outputs(weights, x, norm, bias, How::kInStep), alone, "outputs in a step");
    }
  }
}

// Kernels for one row have other divisions of the weights than those for more, and no other bits.
TEST_P(InputTest, ARowIsTheSameAmongMany) {
  const int64_t cols = GetParam().cols, rows = 20;
  const auto values = Random(rows * cols, -GetParam().size, GetParam().size);
  const DevicePtr<float> norm = OnDevice(Random(cols)), bias = OnDevice(Random(8192));
  for (const auto& [type, outputs] : GetParam().shapes) {
    std::vector<Matrix> weights;
    weights.push_back(Weights(type, outputs, cols));
    const Rows one = RowsOf(std::vector(values.begin(), values.begin() + cols), cols);
    // Behind the normed rows.
    const auto many = Outputs(weights, RowsOf(values, cols), norm, bias, How::kAlone);
    const auto first = many.begin() + rows * cols;
    const auto alone = Outputs(weights, one, norm, bias, How::kAlone);
    ExpectSame(std::vector(alone.begin() + cols, alone.end()), std::vector(first, first + outputs),
               "a row among many");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, InputTest,
    ::testing::Values(
        InputCase{"quantised",
                  {{DType::kQ8_0, 528},
                   {DType::kQ8_0, 16},
                   {DType::kQ4_K, 2048},
                   {DType::kQ6_K, 100},
                   {DType::kQ8_0, 40},
                   {DType::kQ4_K, 3000},
                   {DType::kQ8_0, 7},
                   {DType::kQ8_0, 9},
                   {DType::kQ4_0, 1},
                   {DType::kQ6_K, 5},
                   {DType::kQ6_K, 6},
                   {DType::kQ6_K, 7},
                   {DType::kQ6_K, 11},
                   {DType::kQ6_K, 13}}},
        InputCase{"quantised_and_f32",
                  {{DType::kQ4_K, 528}, {DType::kF32, 32}, {DType::kQ4_K, 40}, {DType::kF32, 7}}},
        InputCase{"half_and_f32",
                  {{DType::kBF16, 528},
                   {DType::kBF16, 40},
                   {DType::kF32, 32},
                   {DType::kF32, 31},
                   {DType::kF32, 1},
                   {DType::kF32, 64},
                   {DType::kF32, 3}}},
        // The gates of recurrences, in the shapes of models.
        InputCase{"gates_of_0_8b",
                  {{DType::kF16, 6144}, {DType::kF16, 2048}, {DType::kF32, 16}, {DType::kF32, 16}}},
        InputCase{"gates_of_9b",
                  {{DType::kF16, 8192}, {DType::kF16, 4096}, {DType::kF32, 32}, {DType::kF32, 32}},
                  4096},
        InputCase{
            "gates_of_27b",
            {{DType::kBF16, 1024}, {DType::kF32, 48}, {DType::kBF16, 6144}, {DType::kF32, 48}},
            5120},
        // Layers of small models: slices of K meet, a thread has several groups of the row.
        InputCase{"half_of_2048", {{DType::kF16, 1024}, {DType::kBF16, 2048}}, 2048},
        InputCase{"half_of_3584", {{DType::kF16, 1024}, {DType::kBF16, 520}}, 3584},
        InputCase{"quantised_of_2048",
                  {{DType::kQ8_0, 1024}, {DType::kQ4_K, 4096}, {DType::kQ6_K, 512}},
                  2048},
        InputCase{
            "quantised_of_3584",
            {{DType::kQ8_0, 1024}, {DType::kQ4_K, 1024}, {DType::kQ6_K, 258}, {DType::kQ4_0, 9}},
            3584},
        // Files that mix types: in the shapes of models, more bits first and last, many products.
        InputCase{
            "mixture_of_9b",
            {{DType::kQ6_K, 8192}, {DType::kQ4_K, 4096}, {DType::kQ4_K, 32}, {DType::kQ4_K, 32}},
            4096},
        InputCase{"mixture_of_30b",
                  {{DType::kQ4_K, 4096}, {DType::kQ4_K, 512}, {DType::kQ6_K, 512}},
                  2048},
        InputCase{"mixture_of_q5_k", {{DType::kQ5_K, 4099}, {DType::kQ6_K, 1027}}, 2304},
        InputCase{"mixture_of_a_long_row", {{DType::kQ6_K, 6}, {DType::kQ4_K, 4100}}, 12288},
        // Types whose products are sums of integers.
        InputCase{"integers",
                  {{DType::kIQ4_NL, 528},
                   {DType::kIQ4_NL, 16},
                   {DType::kQ2_K, 2048},
                   {DType::kIQ4_XS, 100},
                   {DType::kQ3_K, 3000},
                   {DType::kIQ2_XXS, 7},
                   {DType::kIQ2_XXS, 13}}},
        InputCase{"integers_of_3584",
                  {{DType::kIQ4_NL, 1024}, {DType::kQ2_K, 1024}, {DType::kIQ4_XS, 258}},
                  3584},
        InputCase{"integers_of_a_long_row", {{DType::kIQ4_XS, 6}, {DType::kQ3_K, 4100}}, 12288},
        // Routers of experts: alone behind their norm.
        InputCase{"router_of_128", {{DType::kF32, 128}}, 2048},
        InputCase{"router_of_256", {{DType::kF32, 256}}, 7168},
        InputCase{"router_of_512", {{DType::kF32, 512}}, 4096},
        InputCase{"routers",
                  {{DType::kF32, 60}, {DType::kF32, 1}, {DType::kF32, 257}, {DType::kF32, 7}},
                  2880},
        InputCase{"router_of_few_columns", {{DType::kF32, 9}, {DType::kF32, 2}}, 64},
        InputCase{"router_of_odd_columns", {{DType::kF32, 32}}, 1040},
        InputCase{"more_f32_than_ride", {{DType::kF32, 1024}, {DType::kF32, 128}}, 1024},
        InputCase{"gates_of_few_columns",
                  {{DType::kF16, 136}, {DType::kF32, 5}, {DType::kF32, 33}, {DType::kF32, 1}},
                  80},
        InputCase{"gates_of_large_inputs",
                  {{DType::kF16, 528}, {DType::kF32, 17}, {DType::kF32, 4}},
                  2048,
                  1e6f}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace reprise::cuda
