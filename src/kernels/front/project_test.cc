// SPDX-License-Identifier: Apache-2.0
// Proves that Project and Embed, on every table this CPU can build, give for any number of threads,
// tokens and rows the bits of the reference kernels applied one row and one token at a time.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/reference/matrix.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

std::vector<float> RandomFloats(Rng& rng, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = float(rng.Uniform() * 2 - 1);
  return values;
}

std::vector<std::byte> RandomWeights(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
  const size_t row_bytes = RowBytes(dtype, cols);
  std::vector<std::byte> bytes(size_t(rows) * row_bytes);
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> row = RandomFloats(rng, size_t(cols));
    QuantiseRow(dtype, row.data(), bytes.data() + size_t(r) * row_bytes, cols);
  }
  return bytes;
}

// out[t][r] by the specification.
std::vector<float> Specified(DType dtype, int64_t rows, int64_t cols,
                             const std::vector<std::byte>& weights, const std::vector<float>& x,
                             int64_t tokens, const std::vector<float>& bias) {
  const cpu::MatrixKernel kernel = reference::MatrixKernelOf(dtype);
  std::vector<float> out(size_t(tokens * rows));
  std::vector<int8_t> q(static_cast<size_t>(cols));
  std::vector<float> scale(static_cast<size_t>(cols));
  std::vector<int16_t> sum(static_cast<size_t>(cols));
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x.data() + t * cols;
    cpu::QuantisedRows quantised = {q.data(), scale.data(), sum.data(), 0, 0, 0};
    if (kernel.activations == cpu::ActivationFormat::kQ8Block32) {
      reference::Quantise32(row, cols, q.data(), scale.data(), sum.data());
    } else if (kernel.activations == cpu::ActivationFormat::kQ8Block256) {
      reference::Quantise256(row, cols, q.data(), scale.data(), sum.data());
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* y = &out[size_t(t * rows + r)];
      kernel.run(weights.data() + size_t(r) * RowBytes(dtype, cols), 1, cols, row, cols, &quantised,
                 1, y, 1);
      *y += bias[size_t(r)];
    }
  }
  return out;
}

class ProjectTest : public testing::TestWithParam<std::string> {};

TEST_P(ProjectTest, EqualsReferenceForAnyThreadsAndTokens) {
  Rng rng(7);
  const int64_t cols = 512;
  for (const int threads : {1, 2, 3}) {
    Machine machine(threads, GetParam());
    const OpContext context = machine.context();
    for (const int64_t tokens : {1, 5, 33}) {
      const std::vector<float> x = RandomFloats(rng, size_t(tokens * cols));
      const DType types[] = {DType::kQ8_0, DType::kQ6_K, DType::kBF16};
      const int64_t rows[] = {70, 33, 5};
      std::vector<Matrix> matrices;
      std::vector<std::vector<float>> outs, expected, biases;
      for (int i = 0; i < 3; ++i) {
        const auto weights = RandomWeights(rng, types[i], rows[i], cols);
        biases.push_back(RandomFloats(rng, size_t(rows[i])));
        auto matrix = Matrix::Pack(context, {types[i], 1, rows[i], cols}, weights.data(),
                                   RowBytes(types[i], cols));
        ASSERT_TRUE(matrix.ok());
        matrices.push_back(std::move(*matrix));
        outs.emplace_back(size_t(tokens * rows[i]), -1.0f);
        expected.push_back(Specified(types[i], rows[i], cols, weights, x, tokens, biases.back()));
      }
      std::vector<Projection> projections;
      for (size_t i = 0; i < 3; ++i) {
        projections.push_back({&matrices[i], View(outs[i], rows[i]), View(biases[i])});
      }
      Project(context, View(x, cols), projections);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(0, std::memcmp(outs[i].data(), expected[i].data(), outs[i].size() * 4))
            << NameOf(types[i]) << " threads " << threads << " tokens " << tokens;
      }
    }
  }
}

// What is refused for want of memory is refused before it is taken.
TEST_P(ProjectTest, MatricesTakeWhatIsSaidBefore) {
  Machine machine(1, GetParam());
  const OpContext context = machine.context();
  for (int i = 0; i < kDTypeCount; ++i) {
    const MatrixShape shape = {static_cast<DType>(i), 3, 70, 512};
    if (shape.dtype == DType::kI32) continue;
    const auto matrix = context.backend->MakeMatrix(shape);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ((*matrix)->bytes(), context.backend->MatrixBytes(shape)) << NameOf(shape.dtype);
  }
}

// Inputs of different lengths, widths and types in one pass: the bits of one Project each.
TEST_P(ProjectTest, GroupsEqualOneProjectEach) {
  Rng rng(9);
  const DType types[] = {DType::kQ8_0, DType::kQ6_K, DType::kBF16, DType::kQ4_0};
  const int64_t cols[] = {256, 512, 64, 96};
  const int64_t rows[] = {70, 33, 5, 130};
  const int64_t tokens[] = {1, 40, 3, 17};
  for (const int threads : {1, 2, 3}) {
    Machine machine(threads, GetParam());
    const OpContext context = machine.context();
    std::vector<std::vector<float>> xs, outs, expected;
    std::vector<Matrix> matrices;
    for (size_t i = 0; i < 4; ++i) {
      const auto weights = RandomWeights(rng, types[i], rows[i], cols[i]);
      auto matrix = Matrix::Pack(context, {types[i], 1, rows[i], cols[i]}, weights.data(),
                                 RowBytes(types[i], cols[i]));
      ASSERT_TRUE(matrix.ok());
      matrices.push_back(std::move(*matrix));
      xs.push_back(RandomFloats(rng, size_t(tokens[i] * cols[i])));
      outs.emplace_back(size_t(tokens[i] * rows[i]), -1.0f);
      expected.push_back(outs.back());
    }
    std::vector<Projection> projections;
    std::vector<ProjectionGroup> groups;
    for (size_t i = 0; i < 4; ++i) {
      projections.push_back({&matrices[i], View(outs[i], rows[i])});
    }
    for (size_t i = 0; i < 4; ++i) {
      const Rows x = View(xs[i], cols[i]);
      groups.push_back({x, std::span(&projections[i], 1)});
      const Projection alone = {&matrices[i], View(expected[i], rows[i])};
      Project(context, x, std::span(&alone, 1));
    }
    ProjectGroups(context, groups);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(outs[i], expected[i]) << threads << " " << i;
  }
}

TEST_P(ProjectTest, EmbedReturnsTheStoredValues) {
  Rng rng(8);
  Machine machine(2, GetParam());
  const OpContext context = machine.context();
  const int64_t rows = 45, cols = 256;
  for (const DType dtype : {DType::kF16, DType::kQ4_0, DType::kQ6_K}) {
    const auto weights = RandomWeights(rng, dtype, rows, cols);
    const auto matrix =
        Matrix::Pack(context, {dtype, 1, rows, cols}, weights.data(), RowBytes(dtype, cols));
    ASSERT_TRUE(matrix.ok());
    std::vector<int32_t> tokens;
    for (int32_t t = 0; t < 100; ++t) tokens.push_back(t * 7 % int32_t(rows));
    std::vector<float> out(tokens.size() * size_t(cols));
    TestStep step(int64_t(tokens.size()));
    step.SetTokens(tokens);
    Embed(context, *matrix, step.Begin(context), View(out, cols));
    std::vector<float> expected(static_cast<size_t>(cols));
    for (size_t t = 0; t < tokens.size(); ++t) {
      DequantiseRow(dtype, weights.data() + size_t(tokens[t]) * RowBytes(dtype, cols),
                    expected.data(), cols);
      EXPECT_EQ(0, std::memcmp(expected.data(), &out[t * size_t(cols)], size_t(cols) * 4));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachIsa, ProjectTest, testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

TEST(DispatchTest, UnknownOrUnsupportedIsaIsRefusedByName) {
  const auto table = cpu::BuildTable("scalar,pentium");
  ASSERT_FALSE(table.ok());
  EXPECT_NE(std::string::npos, table.status().message().find("pentium"));
}

TEST(DispatchTest, ScalarIsAlwaysThere) {
  EXPECT_EQ("scalar", cpu::AvailableIsas().front());
  const auto table = cpu::BuildTable("scalar");
  ASSERT_TRUE(table.ok());
  EXPECT_STREQ("scalar", table->matrix[size_t(DType::kQ8_0)].isa);
}

}  // namespace
}  // namespace reprise
