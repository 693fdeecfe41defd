// SPDX-License-Identifier: Apache-2.0
// The start of a step, which is one kernel beside the first products, against its ops one by one,
// bit by bit, on the device.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/joined/joint_ops_fixture.h"

namespace reprise::cuda {
namespace {

struct StartCase {
  const char* name;
  DType table;
  int64_t cols;
  std::vector<std::pair<DType, int64_t>> shapes;  // of the first products
};

class StartTest : public KernelsTest, public ::testing::WithParamInterface<StartCase> {
 protected:
  static constexpr int64_t kVocabulary = 300;
  static constexpr int kHalf = 32;

  // What a step of so many rows begins with, and angles behind it: those are made by a kernel that
  // reads the positions before it waits.
  struct Ops {
    Ops(StartTest* on, int64_t rows)
        : test(on), table(test->Weights(GetParam().table, kVocabulary, GetParam().cols)) {
      const int64_t cols = GetParam().cols;
      for (const auto& [type, outputs] : GetParam().shapes) {
        weights.push_back(test->Weights(type, outputs, cols));
      }
      for (const Matrix& weight : weights) {
        const std::vector<float> zeros(size_t(rows * weight.rows()), 0.0f);
        projections.push_back({&weight, test->RowsOf(zeros, weight.rows()), {}});
      }
      x = test->RowsOf(std::vector<float>(size_t(rows * cols), 0.0f), cols);
      h = test->RowsOf(std::vector<float>(size_t(rows * cols), 0.0f), cols);
      norm = test->OnDevice(test->Random(cols));
      frequencies = test->OnDevice(test->Random(kHalf, 0, 1));
    }

    void Start(const StepLayout& step) {
      const OpContext& context = test->context_;
      Embed(context, table, step, x);
      angles[0] = MakeRopeTable(context, step, frequencies, kHalf);
      RmsNorm(context, x, norm, 1, 1e-6f, h);
      Project(context, h, projections);
    }
    void Run(const StepLayout& step) {
      Start(step);
      angles[1] = MakeRopeTable(test->context_, step, frequencies, kHalf);
    }
    std::vector<float> Results() const {
      std::vector<float> all;
      const auto add = [&](const std::vector<float>& more) {
        all.insert(all.end(), more.begin(), more.end());
      };
      add(test->Read(x));
      add(test->Read(h));
      for (const Projection& one : projections) add(test->Read(one.out));
      for (const RopeTable& one : angles) {
        add(test->Read(one.cos, x.rows * kHalf));
        add(test->Read(one.sin, x.rows * kHalf));
      }
      return all;
    }

    StartTest* test;
    Matrix table;
    std::vector<Matrix> weights;
    std::vector<Projection> projections;
    Rows x, h;
    DevicePtr<float> norm, frequencies;
    RopeTable angles[2];
  };

  // With other tokens, positions and blocks in every step.
  static HandMade Step(int number, int64_t rows, size_t blocks) {
    HandMade step = HandMade::OneRowEach(rows);
    for (int32_t row = 0; row < rows; ++row) {
      step.tokens.push_back((17 * number + 101 * row) % int32_t(kVocabulary));
      step.positions[size_t(row)] = 1000 * number + row;
    }
    for (size_t i = 0; i < blocks; ++i) step.blocks.push_back(uint32_t(i) + 7 * uint32_t(number));
    return step;
  }
};

// The last steps are graphs. Arrays of many blocks come by the copy engine. What the device has of
// the arrays before a step is that of the step before it.
TEST_P(StartTest, AStepEqualsItsOps) {
  for (const int64_t rows : {1, 3}) {
    for (const size_t blocks : {size_t{64}, size_t{20000}}) {
      Ops ops(this, rows);
      const auto run = [&](int number, bool in_step) {
        HandMade step = Step(number, rows, blocks);
        scratch_->Reset();
        CHECK(scratch_->Provide(size_t{1} << 24).ok());
        const StepLayout& layout = step.Begin(context_);
        if (in_step) {
          backend_->RunStep(*scratch_, layout, {.model = &ops}, [&] { ops.Run(layout); });
        } else {
          ops.Run(layout);
        }
        std::vector<uint32_t> brought(blocks);
        backend_->memory().DownloadArray<uint32_t>(brought, layout.device.blocks);
        EXPECT_EQ(brought, step.blocks);
        return ops.Results();
      };
      std::vector<std::vector<float>> in_steps;
      for (int number = 0; number < kSteps; ++number) in_steps.push_back(run(number, true));
      for (int number = 0; number < kSteps; ++number) {
        ExpectSame(in_steps[size_t(number)], run(number, false), "a step");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, StartTest,
    ::testing::Values(
        StartCase{"of_0_8b", DType::kF16, 1024, {{DType::kF16, 6144}, {DType::kF32, 16}}},
        StartCase{"of_9b", DType::kBF16, 4096, {{DType::kBF16, 8192}, {DType::kBF16, 4096}}},
        // Whose products have little to wait for before they let others start.
        StartCase{"of_one_output", DType::kF16, 512, {{DType::kF16, 1}}},
        StartCase{"of_f32", DType::kF32, 1024, {{DType::kF16, 2048}}},
        StartCase{"of_0_8b_q8_0", DType::kQ8_0, 1024, {{DType::kQ8_0, 6144}, {DType::kQ8_0, 2048}}},
        StartCase{"of_9b_q4_k", DType::kQ4_K, 4096, {{DType::kQ4_K, 8192}, {DType::kQ4_K, 4096}}},
        StartCase{"of_two_types", DType::kQ6_K, 4096, {{DType::kQ6_K, 8192}, {DType::kQ4_K, 4096}}},
        StartCase{"of_many",
                  DType::kQ4_0,
                  2048,
                  {{DType::kQ8_0, 96}, {DType::kQ4_0, 40}, {DType::kQ8_0, 7}, {DType::kQ8_0, 9}}},
        StartCase{"of_a_router", DType::kF16, 2048, {{DType::kF32, 128}}}),
    [](const auto& one) { return std::string(one.param.name); });

using StartKernels = StartTest;
// Arrays, rows and angles are one, the norm goes with the products.
TEST_P(StartKernels, AreTwoWithTheFirstProducts) {
  Ops ops(this, 1);
  const auto start = [&](const StepLayout& step) { ops.Start(step); };
  EXPECT_EQ(KernelsOf(Step(0, 1, 1), start, Arrays::kInStep), 2u);
}
TEST_P(StartKernels, AreByThemselvesBeforeSomethingElse) {
  Ops ops(this, 1);
  const auto scaled = [&](const StepLayout& step) {
    Embed(context_, ops.table, step, ops.x);
    Scale(context_, ops.x, 2, ops.x);
  };
  EXPECT_EQ(KernelsOf(Step(0, 1, 1), scaled, Arrays::kInStep), 3u);
}
INSTANTIATE_TEST_SUITE_P(
    Types, StartKernels,
    ::testing::Values(
        StartCase{"of_f16", DType::kF16, 1024, {{DType::kF16, 6144}, {DType::kF16, 2048}}},
        StartCase{"of_q4_k", DType::kQ4_K, 4096, {{DType::kQ4_K, 8192}}}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace reprise::cuda
