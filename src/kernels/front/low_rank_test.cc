// SPDX-License-Identifier: Apache-2.0
// Proves that what adapters add to products has, on every table this CPU can build and for any
// number of threads and rows, the bits of the specification, whoever else is in the step; and that
// rows without an adapter keep theirs.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

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
    for (int i = 0; i < 20; ++i) {
      // Runs of rows with one adapter or none.
      std::vector<AdaptedRows> adapted;
      std::vector<const TestAdapter*> of_row;
      while (of_row.size() < 1 + size_t(i)) {
        const size_t count = 1 + rng.Below(5);
        const size_t which = rng.Below(adapters.size() + 1);
        if (which < adapters.size()) {
          adapted.push_back(
              {int64_t(of_row.size()), int64_t(count), adapters[which].products});
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
      Project(context, View(x, kCols),
              std::vector<Projection>{{&base, View(outs[0], kRows)},
                                      {&other, View(outs[1], kRows)}});
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

INSTANTIATE_TEST_SUITE_P(Tables, LowRankTest, testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
