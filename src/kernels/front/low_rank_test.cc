// SPDX-License-Identifier: Apache-2.0
// Proves that what adapters add to products has, on every table this CPU can build and for any
// number of threads and rows, the bits of the specification, whoever else is in the step; and that
// rows without an adapter keep theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/expert_ops.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/low_rank_ops.h"
#include "kernels/reference/matrix.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

constexpr int64_t kCols = 96;
constexpr int64_t kRows = 70;

std::vector<std::byte> RandomWeights(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
  const Floats values = Uniform(rng, rows * cols, -1, 1);
  const size_t row_bytes = RowBytes(dtype, cols);
  std::vector<std::byte> bytes(size_t(rows) * row_bytes);
  for (int64_t r = 0; r < rows; ++r) {
    QuantiseRow(dtype, values.data() + r * cols, bytes.data() + size_t(r) * row_bytes, cols);
  }
  return bytes;
}

Matrix PackOf(const OpContext& context, DType dtype, int64_t rows, int64_t cols,
              const std::vector<std::byte>& bytes) {
  auto matrix = Matrix::Pack(context, {dtype, 1, rows, cols}, bytes.data(), RowBytes(dtype, cols));
  CHECK(matrix.ok());
  return std::move(*matrix);
}

// One adapter of one weight, packed and as it is stored.
struct TestAdapter {
  TestAdapter(Rng& rng, const OpContext& context, DType dtype, int64_t rank, float scale)
      : down(RandomWeights(rng, dtype, rank, kCols)),
        up(RandomWeights(rng, dtype, kRows, rank)),
        factors{dtype, down.data(), up.data(), rank, kRows, kCols, scale},
        products(2) {
    products[1] = {PackOf(context, dtype, rank, kCols, down),
                   PackOf(context, dtype, kRows, rank, up), scale};
  }
  std::vector<std::byte> down, up;
  reference::LowRankFactors factors;
  std::vector<LowRank> products;  // weight 0 is as it is
};

class LowRankTest : public testing::TestWithParam<std::string> {};

TEST_P(LowRankTest, EqualsTheSpecificationAndLeavesOtherRowsAlone) {
  Rng rng(11);
  for (const int threads : {1, 3}) {
    Machine machine(threads, GetParam());
    const OpContext plain = machine.context();
    const auto base_bytes = RandomWeights(rng, DType::kQ8_0, kRows, kCols);
    const auto other_bytes = RandomWeights(rng, DType::kBF16, kRows, kCols);
    const Matrix base = PackOf(plain, DType::kQ8_0, kRows, kCols, base_bytes);
    const Matrix other = PackOf(plain, DType::kBF16, kRows, kCols, other_bytes);
    const WeightIndex weights = {{&other, 0}, {&base, 1}};
    std::vector<TestAdapter> adapters;
    adapters.emplace_back(rng, plain, DType::kF32, 4, 1.0f);
    adapters.emplace_back(rng, plain, DType::kBF16, 16, 0.3f);
    adapters.emplace_back(rng, plain, DType::kF16, 1, -2.0f);
    adapters.emplace_back(rng, plain, DType::kF32, 33, 0.7f);
    for (int i = 0; i < 60; i += i < 12 ? 1 : 7) {
      // Runs of rows with one adapter or none.
      std::vector<AdaptedRows> adapted;
      std::vector<const TestAdapter*> of_row;
      while (of_row.size() < 1 + size_t(i)) {
        const size_t count = 1 + rng.Below(5);
        const size_t which = rng.Below(adapters.size() + 1);
        if (which < adapters.size()) {
          adapted.push_back({int64_t(of_row.size()), int64_t(count), adapters[which].products});
        }
        of_row.insert(of_row.end(), count, which < adapters.size() ? &adapters[which] : nullptr);
      }
      const int64_t rows = int64_t(of_row.size());
      const Floats x = Uniform(rng, rows * kCols, -2, 2);
      const StepAdapters step = {&weights, adapted, rows};
      OpContext context = plain;
      Floats outs[2] = {Floats(size_t(rows * kRows), -1), Floats(size_t(rows * kRows), -1)};
      Floats plain_outs[2] = {outs[0], outs[1]};
      Project(context, View(x, kCols),
              std::vector<Projection>{{&base, View(plain_outs[0], kRows)},
                                      {&other, View(plain_outs[1], kRows)}});
      context.adapters = &step;
      Project(
          context, View(x, kCols),
          std::vector<Projection>{{&base, View(outs[0], kRows)}, {&other, View(outs[1], kRows)}});
      for (int64_t t = 0; t < rows; ++t) {
        if (of_row[size_t(t)] == nullptr) continue;
        reference::AddLowRank(of_row[size_t(t)]->factors, &x[size_t(t * kCols)],
                              &plain_outs[0][size_t(t * kRows)]);
      }
      EXPECT_TRUE(SameBits(outs[0], plain_outs[0])) << GetParam() << " " << i;
      EXPECT_TRUE(SameBits(outs[1], plain_outs[1])) << GetParam() << " " << i;
    }
  }
}

// Stacks of experts, of which each adapter has a pair of factors for every one: a row that went to
// several has a sum for each.
TEST_P(LowRankTest, ExpertsEqualTheSpecification) {
  constexpr int kExperts = 5;
  Rng rng(13);
  for (const int threads : {1, 3}) {
    Machine machine(threads, GetParam());
    const OpContext plain = machine.context();
    const auto pack = [&](DType dtype, int64_t rows, int64_t cols,
                          const std::vector<std::byte>& bytes) {
      auto stack =
          Matrix::Pack(plain, {dtype, kExperts, rows, cols}, bytes.data(), RowBytes(dtype, cols));
      CHECK(stack.ok());
      return std::move(*stack);
    };
    const Matrix base =
        pack(DType::kQ8_0, kRows, kCols, RandomWeights(rng, DType::kQ8_0, kExperts * kRows, kCols));
    const WeightIndex weights = {{&base, 0}};
    struct Stack {
      std::vector<std::byte> down, up;
      std::vector<LowRank> products;
    };
    const int64_t ranks[] = {3, 8};
    const float scales[] = {1, -0.7f};
    std::vector<Stack> stacks(2);
    for (size_t i = 0; i < stacks.size(); ++i) {
      Stack& stack = stacks[i];
      stack.down = RandomWeights(rng, DType::kBF16, kExperts * ranks[i], kCols);
      stack.up = RandomWeights(rng, DType::kBF16, kExperts * kRows, ranks[i]);
      stack.products.resize(1);
      stack.products[0] = {pack(DType::kBF16, ranks[i], kCols, stack.down),
                           pack(DType::kBF16, kRows, ranks[i], stack.up), scales[i]};
    }
    for (const int64_t rows : {1, 2, 7, 60}) {
      std::vector<AdaptedRows> adapted;
      std::vector<int> of_row(size_t(rows), -1);
      for (int64_t row = 0; row < rows;) {
        const int64_t count = std::min<int64_t>(rows - row, 1 + int64_t(rng.Below(4)));
        const int which = int(rng.Below(3)) - 1;
        if (which >= 0) adapted.push_back({row, count, stacks[size_t(which)].products});
        std::fill_n(of_row.begin() + row, count, which);
        row += count;
      }
      const Floats logits = Uniform(rng, rows * kExperts, -1, 1);
      RoutingParams params;
      params.top_k = 2;
      const Routing routing = RouteExperts(plain, View(logits, kExperts), params);
      const ExpertPlan plan = PlanExperts(plain, routing, kExperts);
      const auto* const of_slot = Raw(plan.row);
      for (const ExpertInput input : {ExpertInput::kRows, ExpertInput::kSlots}) {
        const Floats x =
            Uniform(rng, (input == ExpertInput::kRows ? rows : plan.slots) * kCols, -2, 2);
        Floats expected(size_t(plan.slots * kRows)), actual = expected;
        ProjectExperts(plain, plan, View(x, kCols), input,
                       std::vector<ExpertProjection>{{&base, View(expected, kRows)}});
        const StepAdapters step = {&weights, adapted, rows};
        OpContext context = plain;
        context.adapters = &step;
        ProjectExperts(context, plan, View(x, kCols), input,
                       std::vector<ExpertProjection>{{&base, View(actual, kRows)}});
        for (int64_t slot = 0; slot < plan.slots; ++slot) {
          const int64_t row = of_slot[slot];
          const int which = of_row[size_t(row)];
          if (which < 0) continue;
          const int32_t* const begin = Raw(plan.begin);
          const int64_t e = std::upper_bound(begin, begin + kExperts, slot) - begin - 1;
          const Stack& stack = stacks[size_t(which)];
          const int64_t rank = ranks[which];
          const reference::LowRankFactors factors = {
              DType::kBF16,
              stack.down.data() + RowBytes(DType::kBF16, kCols) * size_t(e * rank),
              stack.up.data() + RowBytes(DType::kBF16, rank) * size_t(e * kRows),
              rank,
              kRows,
              kCols,
              scales[which]};
          reference::AddLowRank(factors,
                                &x[size_t((input == ExpertInput::kRows ? row : slot) * kCols)],
                                &expected[size_t(slot * kRows)]);
        }
        EXPECT_TRUE(SameBits(expected, actual)) << GetParam() << " " << rows << " " << int(input);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LowRankTest, testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
