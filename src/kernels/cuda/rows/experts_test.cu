// SPDX-License-Identifier: Apache-2.0
// Routing, plans and sums of experts against the CPU: the same experts, slots and bits.
#include <deque>

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/product_float.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/expert_ops.h"
#include "kernels/reference/matrix.h"

namespace reprise::cuda {
namespace {

struct Router {
  int experts;
  RoutingParams params;
  bool bias = false;  // and scales, the same numbers
};

std::vector<Router> Routers() {
  std::vector<Router> routers;
  const auto add = [&](int experts, int top_k, ExpertScore score, int groups, int group_top_k,
                       bool renormalise, bool bias) {
    Router router;
    router.experts = experts;
    router.params.top_k = top_k;
    router.params.score = score;
    router.params.groups = groups;
    router.params.group_top_k = group_top_k;
    router.params.renormalise = renormalise;
    router.params.sum_floor = renormalise ? 1e-20f : 0;
    router.params.scale = renormalise ? 2.5f : 1;
    router.bias = bias;
    routers.push_back(router);
  };
  add(8, 2, ExpertScore::kSoftmax, 1, 1, false, false);
  add(60, 4, ExpertScore::kSoftmax, 1, 1, true, false);
  add(128, 8, ExpertScore::kSoftmax, 1, 1, true, false);
  add(256, 8, ExpertScore::kSigmoid, 8, 4, true, true);
  add(512, 10, ExpertScore::kSoftmax, 1, 1, true, true);
  add(96, 6, ExpertScore::kSigmoid, 3, 1, false, false);
  return routers;
}

class ExpertKernels : public ::testing::Test {
 protected:
  Rng rng_{13};
  SpecifiedOps cpu_;
};

// What the CPU left in host memory.
template <typename T>
std::vector<T> ValuesAt(DevicePtr<T> place, size_t count) {
  return {Raw(place), Raw(place) + count};
}

// What both ops leave on the device.
struct Routed {
  Routed(int64_t rows, int top_k, int choices)
      : slots(size_t(rows * top_k)),
        experts(slots),
        row(slots),
        slot(slots),
        begin(size_t(choices) + 1),
        weights(slots),
        routing{experts.data(), weights.data(), rows, top_k},
        plan{begin.data(), row.data(), slot.data(), choices, int64_t(slots)} {}

  void ExpectSame(const Routing& cpu_routing, const ExpertPlan& cpu_plan) const {
    EXPECT_EQ(experts.Read(), ValuesAt(cpu_routing.experts, slots));
    EXPECT_EQ(begin.Read(), ValuesAt(cpu_plan.begin, size_t(plan.experts) + 1));
    EXPECT_EQ(row.Read(), ValuesAt(cpu_plan.row, slots));
    EXPECT_EQ(slot.Read(), ValuesAt(cpu_plan.slot, slots));
    const Floats expected = ValuesAt(cpu_routing.weights, slots);
    const Floats got = weights.Read();
    for (size_t i = 0; i < slots; ++i) {
      if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]));
    }
  }

  const size_t slots;
  const DeviceArray<int32_t> experts, row, slot, begin;
  const DeviceArray<float> weights;
  const RoutingView routing;
  const PlanView plan;
};

TEST_F(ExpertKernels, RoutePlanAndCombine) {
  for (Router& router : Routers()) {
    for (const int64_t rows : {1, 2, 7, 64, 300, 4096}) {
      SCOPED_TRACE(std::to_string(router.experts) + " experts, " + std::to_string(rows) + " rows");
      const int top_k = router.params.top_k;
      const RowShape shape = {rows, router.experts, 3};
      DeviceRows logits(shape, rng_);
      for (int64_t t = 0; t < rows; ++t) {
        // Ties, and rows of which some or all values are no numbers.
        if (t % 5 == 1) std::fill_n(RowOf(logits.rows(), t), router.experts / 2, 1.5f);
        if (t % 17 == 2) logits.at(t, 3) = std::numeric_limits<float>::quiet_NaN();
        if (t % 31 == 4) {
          std::fill_n(RowOf(logits.rows(), t), router.experts,
                      std::numeric_limits<float>::quiet_NaN());
        }
      }
      logits.Upload();
      const Floats bias = Numbers(rng_, router.experts);
      const DeviceArray<float> device_bias(bias);
      const OpContext context = cpu_.context();
      router.params.selection_bias = router.bias ? PlaceAt(bias.data()) : nullptr;
      router.params.expert_scale = router.params.selection_bias;
      const Routing routing = reprise::RouteExperts(context, logits.rows(), router.params);
      const ExpertPlan plan = reprise::PlanExperts(context, routing, router.experts);

      const Routed routed(rows, top_k, router.experts);
      router.params.selection_bias = router.bias ? PlaceAt(device_bias.data()) : nullptr;
      router.params.expert_scale = router.params.selection_bias;
      RouteExperts(nullptr, logits.view(), router.params, routed.routing);
      const DeviceArray<std::byte> scratch(PlanScratchBytes(routed.plan.slots, router.experts));
      PlanExperts(nullptr, routed.routing, scratch.data(), routed.plan);
      routed.ExpectSame(routing, plan);

      DeviceRows slot_rows({routed.plan.slots, 129, 2}, rng_), y({rows, 129}, rng_);
      const Floats biases = Numbers(rng_, int64_t{router.experts} * 129);
      const DeviceArray<float> device_biases(biases);
      reprise::AddExpertBias(context, plan, PlaceAt(biases.data()), slot_rows.rows());
      AddExpertBias(nullptr, routed.plan, device_biases.data(), slot_rows.view());
      EXPECT_TRUE(slot_rows.Same());
      for (const SumStart start : {SumStart::kPresent, SumStart::kZero}) {
        reprise::CombineExperts(context, routing, plan, slot_rows.rows(), start, y.rows());
        CombineExperts(nullptr, routed.routing, routed.plan, slot_rows.view(), start, y.view());
        EXPECT_TRUE(y.Same());
      }
    }
  }
}

// Kinds of rows that are rare: ties, and what is no number or infinite, which leaves less to choose
// from than is chosen.
constexpr int kKinds = 10;
void MakeRare(float* row, int experts, int kind) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto every = [&](int first, int step, float value) {
    for (int e = first; e < experts; e += step) row[e] = value;
  };
  switch (kind) {
    case 1:
      return every(experts / 3, 1, 1.5f);
    case 2:
      return every(0, 1, 0.25f);
    case 3:
      return every(experts / 2, experts, kNan);
    case 4:
      return every(0, 1, kNan);
    case 5:
      every(0, 1, kNan);
      return every(experts - 1, experts, 2.0f);
    case 6:
      return every(0, 1, -kInf);
    case 7:
      every(0, 1, -kInf);
      return every(0, 33, 1.0f);
    case 8:
      return every(1, 40, kInf);
    case 9:
      every(0, 2, 0.0f);
      return every(1, 2, -0.0f);
    default:
      return;
  }
}

TEST_F(ExpertKernels, RouteAndPlanOfFewRows) {
  std::vector<Router> routers = Routers();
  const auto add = [&](int experts, int top_k, ExpertScore score, bool renormalise, bool bias) {
    Router router;
    router.experts = experts;
    router.params.top_k = top_k;
    router.params.score = score;
    router.params.renormalise = renormalise;
    router.params.scale = 1.25f;
    router.bias = bias;
    routers.push_back(router);
  };
  add(1, 1, ExpertScore::kSigmoid, false, false);
  add(128, 8, ExpertScore::kSigmoid, true, true);
  add(256, 8, ExpertScore::kSoftmax, false, false);
  add(257, 32, ExpertScore::kSigmoid, false, true);
  add(512, 32, ExpertScore::kSoftmax, true, false);
  add(520, 8, ExpertScore::kSoftmax, true, false);  // more than registers hold
  add(64, 33, ExpertScore::kSoftmax, true, false);  // more than lanes
  for (Router& router : routers) {
    for (const int64_t rows : {1, 2, 3, 32, 33}) {
      for (int shift = 0; shift < (rows > 3 ? 1 : kKinds); ++shift) {
        SCOPED_TRACE(std::to_string(router.experts) + " experts, " + std::to_string(rows) +
                     " rows from kind " + std::to_string(shift) + " on");
        const int top_k = router.params.top_k;
        DeviceRows logits({rows, router.experts, 3}, rng_);
        for (int64_t t = 0; t < rows; ++t) {
          MakeRare(RowOf(logits.rows(), t), router.experts, int(t + shift) % kKinds);
        }
        logits.Upload();
        const bool few = rows <= 32 && router.experts <= 512 && top_k <= 32;
        EXPECT_EQ(MayRouteAndPlan(logits.view(), router.params), few && router.params.groups == 1);
        if (!MayRouteAndPlan(logits.view(), router.params)) continue;
        const Floats bias = Numbers(rng_, router.experts);
        const DeviceArray<float> device_bias(bias);
        const OpContext context = cpu_.context();
        router.params.selection_bias = router.bias ? PlaceAt(bias.data()) : nullptr;
        router.params.expert_scale = router.params.selection_bias;
        const Routing routing = reprise::RouteExperts(context, logits.rows(), router.params);
        const ExpertPlan plan = reprise::PlanExperts(context, routing, router.experts);
        router.params.selection_bias = router.bias ? PlaceAt(device_bias.data()) : nullptr;
        router.params.expert_scale = router.params.selection_bias;
        const Routed routed(rows, top_k, router.experts);
        RouteAndPlan(nullptr, logits.view(), router.params, routed.routing, routed.plan);
        routed.ExpectSame(routing, plan);
      }
    }
  }
}

// weight: [rows, cols] of one matrix; y[t] of the rows of x that `row` names, or all.
void Expected(SpecifiedOps& cpu, const float* weight, const float* bias, const Rows& x,
              const int32_t* row, int64_t begin, int64_t end, const Rows& y) {
  const cpu::MatrixKernel kernel = reference::MatrixKernelOf(DType::kF32);
  cpu.pool().ParallelFor(y.cols, 1, [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      for (int64_t t = begin; t < end; ++t) {
        float* out = RowOf(y, t) + r;
        kernel.run(weight + r * x.cols, 1, x.cols, RowOf(x, row != nullptr ? row[t] : t), x.stride,
                   nullptr, 1, out, 1);
        if (bias != nullptr) *out += bias[r];
      }
    }
  });
}

TEST_F(ExpertKernels, ProductF32) {
  for (const auto& [rows, gap] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 0}, {1, 5}, {2, 4}, {4, 5}, {7, 4}, {9, 8}, {64, 4}, {64, 5}, {300, 8}, {1700, 4}}) {
    for (const auto& [outputs, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {7, 33}, {133, 2048}, {65, 4096}, {5, 100}, {64, 2304}, {40, 16384}}) {
      DeviceRows x({rows, cols, gap}, rng_), y({rows, outputs, 2}, rng_);
      const Floats weight = Numbers(rng_, outputs * cols), bias = Numbers(rng_, outputs);
      const DeviceArray<float> device_weight(weight), device_bias(bias);
      Expected(cpu_, weight.data(), bias.data(), x.rows(), nullptr, 0, rows, y.rows());
      ProductF32(nullptr, device_weight.data(), device_bias.data(), x.view(), y.view());
      EXPECT_TRUE(y.Same()) << rows << " rows, " << outputs << " x " << cols;
      Expected(cpu_, weight.data(), nullptr, x.rows(), nullptr, 0, rows, y.rows());
      ProductF32(nullptr, device_weight.data(), nullptr, x.view(), y.view());
      EXPECT_TRUE(y.Same()) << rows << " rows, " << outputs << " x " << cols;
    }
  }
}

// More of one input than a kernel takes, of every size of a tile.
TEST_F(ExpertKernels, ProductsF32) {
  const int64_t cols = 1024;
  for (const int64_t rows : {1, 17, 200, 1100}) {
    DeviceRows x({rows, cols, 4}, rng_);
    std::deque<DeviceArray<float>> device_weights;
    std::deque<DeviceRows> outs;
    std::vector<FloatProduct> products;
    for (const int64_t outputs : {32, 5, 64, 1, 40, 7}) {
      const Floats weight = Numbers(rng_, outputs * cols);
      device_weights.emplace_back(weight);
      outs.emplace_back(RowShape{rows, outputs, 3}, rng_);
      Expected(cpu_, weight.data(), nullptr, x.rows(), nullptr, 0, rows, outs.back().rows());
    }
    for (size_t i = 0; i < outs.size(); ++i) {
      products.push_back({device_weights[i].data(), nullptr, outs[i].view()});
    }
    ProductsF32(nullptr, products, x.view());
    for (size_t i = 0; i < outs.size(); ++i) EXPECT_TRUE(outs[i].Same()) << rows << ", " << i;
  }
}

TEST_F(ExpertKernels, ExpertsProductF32) {
  const int experts = 5;
  const int64_t outputs = 70, cols = 200, x_rows = 30;
  const std::vector<int32_t> begin = {0, 3, 3, 40, 41, 60};
  std::vector<int32_t> row(60);
  for (int32_t& r : row) r = int32_t(rng_.Below(uint64_t(x_rows)));
  const DeviceArray<int32_t> device_begin(begin), device_row(row);
  const Floats weight = Numbers(rng_, experts * outputs * cols);
  const DeviceArray<float> device_weight(weight);
  const PlanView plan = {device_begin.data(), device_row.data(), nullptr, experts, 60};
  for (const bool gather : {true, false}) {
    DeviceRows x({gather ? x_rows : 60, cols, 1}, rng_), y({60, outputs, 3}, rng_);
    for (int e = 0; e < experts; ++e) {
      Expected(cpu_, weight.data() + e * outputs * cols, nullptr, x.rows(),
               gather ? row.data() : nullptr, begin[size_t(e)], begin[size_t(e) + 1], y.rows());
    }
    ExpertsProductF32(nullptr, device_weight.data(), plan, gather, x.view(), y.view());
    EXPECT_TRUE(y.Same());
  }
}

}  // namespace
}  // namespace reprise::cuda
