// SPDX-License-Identifier: Apache-2.0
// One row through its experts, which is two kernels, against the ops, bit by bit, on the device.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/activation_ops.h"
#include "kernels/cuda/joined/joint_ops_fixture.h"
#include "kernels/expert_ops.h"
#include "kernels/joint_ops.h"

namespace reprise::cuda {
namespace {

// The norm with the router's product, the route with its plan, the gates, the sum.
TEST_F(KernelsTest, MixturesAreFour) {
  constexpr int64_t kDim = 2048, kHidden = 768;
  constexpr int kExperts = 16, kTopK = 8;
  for (const DType type : {DType::kQ4_K, DType::kQ8_0}) {
    const Matrix router = Weights(DType::kF32, kExperts, kDim);
    const Matrix up = Stack(type, kExperts, kHidden, kDim);
    const Matrix gate = Stack(type, kExperts, kHidden, kDim);
    const Matrix down = Stack(type, kExperts, kDim, kHidden);
    const DevicePtr<float> norm = OnDevice(Random(kDim));
    const auto rows = [&](int64_t count, int64_t cols) {
      return RowsOf(Random(count * cols), cols);
    };
    const Rows x = rows(1, kDim), h = rows(1, kDim), y = rows(1, kDim), logits = rows(1, kExperts);
    const Rows g = rows(kTopK, kHidden), u = rows(kTopK, kHidden), slots = rows(kTopK, kDim);
    const auto layer = [&] {
      RmsNorm(context_, x, norm, 1, 1e-6f, h);
      const Projection projection[] = {{&router, logits}};
      Project(context_, h, projection);
      RoutingParams params;
      params.top_k = kTopK;
      const Routing routing = RouteExperts(context_, logits, params);
      const ExpertPlan plan = PlanExperts(context_, routing, kExperts);
      const ExpertProjection in[] = {{&up, u}, {&gate, g}}, out[] = {{&down, slots}};
      ProjectExperts(context_, plan, h, ExpertInput::kRows, in);
      SwiGlu(context_, g, u, g);
      ProjectExperts(context_, plan, g, ExpertInput::kSlots, out);
      CombineExperts(context_, routing, plan, slots, SumStart::kZero, y);
      Add(context_, x, y, x);
    };
    EXPECT_EQ(KernelsOf(1, layer), 4u);
  }
}

// What comes behind the sum of the experts.
enum class Behind : uint8_t { kAdd, kAddRmsNorm, kShared, kNothing };
// Behind which op something else comes, which writes what it reads.
enum class Cut : uint8_t { kNowhere, kGates, kSwiGlu, kDown, kSum };

struct MixtureCase {
  DType type, down;
  int64_t dim, hidden;
  int experts, top_k;
  Behind behind = Behind::kAdd;
  Cut cut = Cut::kNowhere;
  SumStart start = SumStart::kZero;
  int64_t rows = 1;
  DType gate = DType::kF32;  // the type of the gate's weights, if not that of up
};

class MixtureTest : public JointOpsTest, public ::testing::WithParamInterface<MixtureCase> {};

// A layer of a mixture of experts: inside a step, where ops wait for one another, and outside; the
// later steps as a graph. Which experts are chosen differs from step to step.
TEST_P(MixtureTest, JoinedOpsEqualTheOps) {
  const MixtureCase& one = GetParam();
  const DType gate_type = one.gate == DType::kF32 ? one.type : one.gate;
  const Matrix up = Stack(one.type, one.experts, one.hidden, one.dim);
  const Matrix gate = Stack(gate_type, one.experts, one.hidden, one.dim);
  const Matrix down = Stack(one.down, one.experts, one.dim, one.hidden);
  const Matrix shared = Weights(DType::kQ8_0, one.dim, one.dim);
  const DevicePtr<float> norm = OnDevice(Random(one.dim));
  const auto zeros = [&](int64_t rows, int64_t cols) {
    return RowsOf(std::vector<float>(size_t(rows * cols)), cols);
  };
  const int64_t slot_count = one.rows * one.top_k;
  const Rows x = zeros(one.rows, one.dim), h = zeros(one.rows, one.dim),
             y = zeros(one.rows, one.dim);
  const Rows other = zeros(one.rows, one.dim), logits = zeros(one.rows, one.experts);
  const Rows both = zeros(slot_count, 2 * one.hidden), slots = zeros(slot_count, one.dim);
  const Rows g = Columns(both, 0, one.hidden), u = Columns(both, one.hidden, one.hidden);
  RoutingParams params;
  params.top_k = one.top_k;
  params.renormalise = true;
  const auto ops = [&] {
    RmsNorm(context_, x, norm, 1, 1e-6f, h);
    const Routing routing = RouteExperts(context_, logits, params);
    const ExpertPlan plan = PlanExperts(context_, routing, one.experts);
    const ExpertProjection in[] = {{&up, u}, {&gate, g}}, out[] = {{&down, slots}};
    ProjectExperts(context_, plan, h, ExpertInput::kRows, in);
    if (one.cut == Cut::kGates) Fill(context_, 0.5f, h);
    SwiGlu(context_, g, u, g);
    if (one.cut == Cut::kSwiGlu) Fill(context_, 0.5f, u);
    ProjectExperts(context_, plan, g, ExpertInput::kSlots, out);
    if (one.cut == Cut::kDown) Fill(context_, 0.5f, g);
    CombineExperts(context_, routing, plan, slots, one.start, y);
    if (one.cut == Cut::kSum) Fill(context_, 0.5f, slots);
    const Projection projection[] = {{&shared, other}};
    switch (one.behind) {
      case Behind::kAdd:
        return Add(context_, x, y, x);
      case Behind::kAddRmsNorm:
        return AddRmsNorm(context_, x, y, norm, 1e-6f, h);
      case Behind::kShared:
        Project(context_, h, projection);
        return Add(context_, y, other, y);
      case Behind::kNothing:
        return;
    }
  };
  const auto run = [&](const std::vector<float>& x0, const std::vector<float>& logits0,
                       bool in_step) {
    scratch_->Reset();
    HandMade step = HandMade::OneRowEach(one.rows);
    const StepLayout& layout = step.Begin(context_);
    backend_->memory().UploadArray<float>(x.data, x0);
    backend_->memory().UploadArray<float>(logits.data, logits0);
    for (const Rows& rows : {h, other, both, slots}) Fill(context_, 0, rows);
    Fill(context_, 2, y);
    if (in_step) {
      backend_->RunStep(*scratch_, layout, {.model = &one}, ops);
    } else {
      ops();
    }
    std::vector<float> all;
    for (const Rows& rows : {x, h, y, other, both, slots}) {
      const auto more = Read(rows);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  for (int i = 0; i < kSteps; ++i) {
    const auto x0 = Random(one.rows * one.dim), logits0 = Random(one.rows * one.experts, -3, 3);
    // First: the other run would leave its plan where one that is read too early is looked for.
    const auto in_step = run(x0, logits0, true);
    ExpectSame(in_step, run(x0, logits0, false), "every row of the layer");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MixtureTest,
    ::testing::Values(
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 2048, 768, 128, 8},
        MixtureCase{DType::kQ4_K, DType::kQ4_K, 2048, 768, 32, 8, Behind::kAddRmsNorm},
        MixtureCase{DType::kQ8_0, DType::kQ8_0, 2048, 1408, 60, 6, Behind::kAddRmsNorm},
        MixtureCase{DType::kQ8_0, DType::kQ8_0, 1024, 704, 8, 1},
        MixtureCase{DType::kQ4_0, DType::kQ4_0, 1280, 704, 60, 6, Behind::kShared},
        MixtureCase{DType::kQ4_1, DType::kQ5_1, 1056, 96, 8, 2, Behind::kAddRmsNorm},
        MixtureCase{DType::kQ5_0, DType::kIQ4_NL, 96, 1056, 512, 10},
        MixtureCase{DType::kQ5_K, DType::kQ5_K, 4096, 768, 8, 8, Behind::kShared},
        MixtureCase{DType::kQ5_K, DType::kQ6_K, 4096, 1536, 8, 2},
        MixtureCase{DType::kQ2_K, DType::kQ3_K, 1280, 768, 60, 6, Behind::kNothing},
        MixtureCase{DType::kQ6_K, DType::kQ2_K, 1024, 2048, 8, 6},
        MixtureCase{DType::kIQ2_XXS, DType::kIQ4_XS, 1280, 768, 8, 6, Behind::kAddRmsNorm},
        MixtureCase{DType::kIQ4_XS, DType::kIQ2_XXS, 2304, 768, 8, 8},
        MixtureCase{DType::kQ3_K, DType::kQ8_0, 1024, 64, 600, 10},
        MixtureCase{DType::kQ4_K, DType::kQ5_0, 512, 4096, 8, 4},
        MixtureCase{DType::kQ8_0, DType::kQ4_K, 4096, 512, 32, 32},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 2048, 768, 16, 8, Behind::kAdd, Cut::kNowhere,
                    SumStart::kPresent},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 2048, 768, 16, 8, Behind::kAdd, Cut::kGates},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 2048, 768, 16, 8, Behind::kAdd, Cut::kSwiGlu},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 2048, 768, 16, 8, Behind::kAdd, Cut::kDown},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 2048, 768, 16, 8, Behind::kAdd, Cut::kSum},
        // Those that have no such kernels: rows that are long or several, gates of another type.
        MixtureCase{DType::kQ8_0, DType::kQ8_0, 5120, 512, 8, 2},
        MixtureCase{DType::kQ4_K, DType::kQ4_K, 512, 5120, 8, 2},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 1024, 768, 16, 8, Behind::kAdd, Cut::kNowhere,
                    SumStart::kZero, 3},
        MixtureCase{DType::kQ4_K, DType::kQ6_K, 1024, 768, 16, 8, Behind::kAdd, Cut::kNowhere,
                    SumStart::kZero, 1, DType::kQ5_K}));

}  // namespace
}  // namespace reprise::cuda
