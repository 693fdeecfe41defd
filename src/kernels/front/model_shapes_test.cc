// SPDX-License-Identifier: Apache-2.0
// Proves ops at the shapes that models have, where drivers cut work into pieces that small tests
// never see: rows of 16,384 values and more, several blocks of tokens, many K/V blocks, positions
// up to 262,143, hundreds of experts, taps inside long runs. What is expected comes from the leaf
// functions of kernels/reference in plain loops, never from a driver, and is compared bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/expert_ops.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/rope.h"
#include "kernels/scan_ops.h"
#include "tensor/codec.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"

namespace reprise {
namespace {

constexpr int kKeys = 64;

class ModelShapes : public ::testing::TestWithParam<std::string> {
 protected:
  Rng rng_{21};
};

// Random weights of any type: a few rows, quantised, in turn.
std::vector<std::byte> RandomWeights(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
  const size_t row_bytes = RowBytes(dtype, cols);
  std::vector<std::byte> bytes(size_t(rows) * row_bytes);
  for (int64_t r = 0; r < rows; ++r) {
    const Floats row = Uniform(rng, cols, -1, 1);
    QuantiseRow(dtype, row.data(), bytes.data() + size_t(r) * row_bytes, cols);
  }
  return bytes;
}

// One output of a product by the specification.
class SpecifiedProduct {
 public:
  SpecifiedProduct(DType dtype, int64_t cols)
      : kernel_(reference::MatrixKernelOf(dtype)),
        cols_(cols),
        q_(size_t(cols)),
        scale_(size_t(cols)),
        sum_(size_t(cols)) {}

  void SetInput(const float* x) {
    x_ = x;
    if (kernel_.activations == cpu::ActivationFormat::kQ8Block32) {
      reference::Quantise32(x, cols_, q_.data(), scale_.data(), sum_.data());
    } else if (kernel_.activations == cpu::ActivationFormat::kQ8Block256) {
      reference::Quantise256(x, cols_, q_.data(), scale_.data(), sum_.data());
    }
  }
  float Times(const std::byte* row) const {
    const cpu::QuantisedRows quantised = {q_.data(), scale_.data(), sum_.data(), 0, 0, 0};
    float y = 0;
    kernel_.run(row, 1, cols_, x_, cols_, &quantised, 1, &y, 1);
    return y;
  }

 private:
  const cpu::MatrixKernel kernel_;
  const int64_t cols_;
  const float* x_ = nullptr;
  std::vector<int8_t> q_;
  Floats scale_;
  std::vector<int16_t> sum_;
};

// 17,408 is the inner width of a 27B model, and not a power of two. Tokens of a block: 60 with
// 8-bit activations, 32 with floats; the last block is not full.
TEST_P(ModelShapes, ProductsOfWideRowsInSeveralBlocksOfTokens) {
  constexpr int64_t kCols = 17408;
  constexpr int64_t kRows = 37;
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kBF16}) {
    const int64_t tokens = IsQuantised(dtype) ? 131 : 70;
    const auto weights = RandomWeights(rng_, dtype, kRows, kCols);
    const Floats x = Uniform(rng_, tokens * kCols, -1, 1);
    const Floats bias = Uniform(rng_, kRows, -1, 1);
    Floats expected(size_t(tokens * kRows));
    SpecifiedProduct product(dtype, kCols);
    for (int64_t t = 0; t < tokens; ++t) {
      product.SetInput(x.data() + t * kCols);
      for (int64_t r = 0; r < kRows; ++r) {
        expected[size_t(t * kRows + r)] =
            product.Times(weights.data() + size_t(r) * RowBytes(dtype, kCols)) + bias[size_t(r)];
      }
    }
    for (const int threads : {1, 3}) {
      Machine machine(threads, GetParam());
      const auto matrix = Matrix::Pack(machine.context(), {dtype, 1, kRows, kCols}, weights.data(),
                                       RowBytes(dtype, kCols));
      ASSERT_TRUE(matrix.ok());
      Floats y(expected.size(), 777.0f);
      const Projection projection[] = {{&*matrix, View(y, kRows), View(bias)}};
      Project(machine.context(), View(x, kCols), projection);
      EXPECT_TRUE(SameBits(expected, y)) << NameOf(dtype) << ", " << threads << " threads";
    }
  }
}

// 160 experts with 8 of them a row, some of them with many rows, some with none.
TEST_P(ModelShapes, ExpertsByTheHundred) {
  constexpr int kExperts = 160;
  constexpr int64_t kCols = 512;
  constexpr int64_t kHidden = 40;
  constexpr int64_t kRows = 300;
  const Floats x = Uniform(rng_, kRows * kCols, -1, 1);
  Floats logits = Uniform(rng_, kRows * kExperts, -1, 1);
  for (int64_t t = 0; t < kRows; ++t) logits[size_t(t * kExperts + 7)] = 3;      // everybody's
  for (int64_t t = 0; t < kRows; ++t) logits[size_t(t * kExperts + 150)] = -30;  // nobody's
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_K}) {
    const auto weights = RandomWeights(rng_, dtype, kExperts * kHidden, kCols);
    const size_t row_bytes = RowBytes(dtype, kCols);
    for (const int threads : {1, 3}) {
      Machine machine(threads, GetParam());
      const OpContext context = machine.context();
      const auto stack =
          Matrix::Pack(context, {dtype, kExperts, kHidden, kCols}, weights.data(), row_bytes);
      ASSERT_TRUE(stack.ok());
      RoutingParams params;
      params.top_k = 8;
      const Routing routing = RouteExperts(context, View(logits, kExperts), params);
      const ExpertPlan plan = PlanExperts(context, routing, kExperts);
      ASSERT_EQ(plan.slots, kRows * 8);
      Floats y(size_t(plan.slots * kHidden), 777.0f);
      const ExpertProjection projection[] = {{&*stack, View(y, kHidden)}};
      ProjectExperts(context, plan, View(x, kCols), ExpertInput::kRows, projection);
      SpecifiedProduct product(dtype, kCols);
      int64_t checked = 0;
      for (int64_t t = 0; t < kRows; ++t) {
        product.SetInput(x.data() + t * kCols);
        for (int64_t k = 0; k < 8; ++k) {
          const int64_t expert = Raw(routing.experts)[t * 8 + k];
          const int64_t slot = Raw(plan.slot)[t * 8 + k];
          ASSERT_EQ(Raw(plan.row)[slot], t);
          ASSERT_NE(expert, 150);
          ASSERT_TRUE(Raw(plan.begin)[expert] <= slot && slot < Raw(plan.begin)[expert + 1]);
          for (int64_t r = (t + k) % 3; r < kHidden; r += 3) {
            const float expected =
                product.Times(weights.data() + size_t(expert * kHidden + r) * row_bytes);
            ASSERT_EQ(y[size_t(slot * kHidden + r)], expected) << "row " << t << ", " << expert;
            ++checked;
          }
        }
      }
      EXPECT_GT(checked, 30000);
    }
  }
}

// Queries of one sequence over a long stored past, against a loop over its blocks.
struct LongPast {
  KvShape shape;
  AttentionParams params;
  int64_t position;  // of the first row
  int64_t rows;
};

Floats SpecifiedAttention(const LongPast& c, const std::vector<std::byte>& memory,
                          const std::vector<uint32_t>& ids, size_t block_bytes, size_t v_offset,
                          const Floats& q) {
  const int group = c.params.q_heads / c.shape.kv_heads;
  const int dim = c.shape.head_dim;
  const int values = c.shape.value_dim;
  Floats out;
  Floats scratch(size_t(kKeys * (dim + values + 1) + 8));
  Floats scaled(static_cast<size_t>(dim));
  Floats sum_of(static_cast<size_t>(values));
  for (int64_t row = 0; row < c.rows; ++row) {
    const int64_t position = c.position + row;
    for (int head = 0; head < c.params.q_heads; ++head) {
      const float* query = q.data() + (row * c.params.q_heads + head) * dim;
      for (int i = 0; i < dim; ++i) scaled[size_t(i)] = query[i] * c.params.scale;
      float max = -std::numeric_limits<float>::infinity();
      float sum = 0;
      const cpu::AttentionState state = {&max, &sum, sum_of.data()};
      const int64_t seen =
          c.params.window > 0 ? std::max<int64_t>(0, position - c.params.window + 1) : 0;
      for (int64_t block = seen / kKeys; block <= position / kKeys; ++block) {
        const int first = static_cast<int>(std::max<int64_t>(0, seen - block * kKeys));
        const int visible =
            static_cast<int>(std::min<int64_t>(kKeys, position + 1 - block * kKeys));
        const std::byte* place = memory.data() + ids[size_t(block)] * block_bytes;
        const size_t kv_head = size_t(head / group);
        cpu::AttentionTile tile = {};
        tile.q = scaled.data();
        tile.queries = 1;
        tile.first = &first;
        tile.visible = &visible;
        tile.k = place + kv_head * kKeys * KvRowBytes(c.shape.dtype, dim);
        tile.v = place + v_offset + kv_head * kKeys * KvRowBytes(c.shape.dtype, values);
        tile.head_dim = dim;
        tile.value_dim = values;
        tile.softcap = c.params.softcap;
        (c.shape.dtype == DType::kF16 ? reference::AttendF16 : reference::AttendQ8)(&tile, &state,
                                                                                    scratch.data());
      }
      for (const float value : sum_of) out.push_back(value * (1.0f / sum));
    }
  }
  return out;
}

// Rows of K or V of one head.
void FillRows(Rng& rng, DType type, int channels, std::byte* at) {
  const auto random_half = [&] { return F32ToF16(float(int(rng.Next() % 2048) - 1024) / 1024); };
  size_t halves = size_t(kKeys * channels);
  if (type == DType::kQ8_0) {
    for (int i = 0; i < kKeys * channels; ++i) at[i] = std::byte(rng.Next());
    at += kKeys * channels;
    halves = size_t(kKeys * KvGroups(channels));
  }
  for (size_t i = 0; i < halves; ++i) {
    uint16_t half = random_half();
    if (type == DType::kQ8_0) half = F32ToF16(F16ToF32(half) / 128);
    std::memcpy(at + 2 * i, &half, 2);
  }
}

TEST_P(ModelShapes, AttentionOverALongPast) {
  const bool scalar = GetParam() == "scalar";
  const LongPast cases[] = {
      {{2, 64, 64, DType::kF16}, {8, 0.125f, 0, 0}, 1000, 9},
      {{1, 128, 128, DType::kF16}, {4, 0.09f, 0, 20}, 700, scalar ? 30 : 150},
      {{2, 32, 48, DType::kF16}, {4, 0.2f, 4096, 0}, 20000, 5},
      {{1, 32, 32, DType::kF16}, {2, 0.2f, 0, 0}, 262142, 2},
      {{2, 128, 128, DType::kQ8_0}, {8, 0.09f, 0, 0}, 1500, scalar ? 3 : 40},
      {{1, 256, 256, DType::kQ8_0}, {4, 0.06f, 300, 0}, 700, 5},
  };
  for (const LongPast& c : cases) {
    const int64_t tokens = c.position + c.rows;
    const DType type = c.shape.dtype;
    const size_t k_head = kKeys * KvRowBytes(type, c.shape.head_dim);
    const size_t v_head = kKeys * KvRowBytes(type, c.shape.value_dim);
    const size_t k_bytes = k_head * size_t(c.shape.kv_heads);
    const size_t v_bytes = v_head * size_t(c.shape.kv_heads);
    const size_t block_bytes = k_bytes + v_bytes;
    const int64_t blocks = (tokens + kKeys - 1) / kKeys;
    std::vector<uint32_t> ids(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0u);
    for (size_t i = 0; i < ids.size(); ++i) std::swap(ids[i], ids[rng_.Below(ids.size())]);
    std::vector<std::byte> memory(block_bytes * ids.size());
    for (size_t block = 0; block < ids.size(); ++block) {
      for (size_t head = 0; head < size_t(c.shape.kv_heads); ++head) {
        std::byte* const at = memory.data() + block * block_bytes;
        FillRows(rng_, type, c.shape.head_dim, at + head * k_head);
        FillRows(rng_, type, c.shape.value_dim, at + k_bytes + head * v_head);
      }
    }
    const Floats q = Uniform(rng_, c.rows * c.params.q_heads * c.shape.head_dim, -2, 2);
    const Floats expected = SpecifiedAttention(c, memory, ids, block_bytes, k_bytes, q);
    for (const int threads : {1, 2, 3}) {
      Machine machine(threads, GetParam());
      TestStep step(c.rows);
      step.Add(0, c.rows, c.position);
      step.AddBlocks(ids);
      step.SetBlockMemory(memory, block_bytes);
      Floats out(expected.size(), 777.0f);
      Attend(machine.context(), step.Begin(machine.context()), {0, k_bytes}, c.shape, c.params,
             View(q, c.params.q_heads * c.shape.head_dim),
             View(out, c.params.q_heads * c.shape.value_dim));
      EXPECT_TRUE(SameBits(expected, out)) << "from " << c.position << ", " << threads;
    }
  }
}

// What attention needs for itself is in proportion to the queries that there are.
TEST_P(ModelShapes, AttentionTakesLittleScratch) {
  constexpr int64_t kPast = 32768;
  const KvShape shape = {2, 128, 128, DType::kF16};
  const size_t block_bytes = size_t(2 * 2 * kKeys * 2 * 128);
  std::vector<uint32_t> ids(kPast / kKeys);
  std::iota(ids.begin(), ids.end(), 0u);
  std::vector<std::byte> memory(block_bytes * ids.size());
  Machine machine(3, GetParam());
  TestStep step(1);
  step.Add(0, 1, kPast - 1);
  step.AddBlocks(ids);
  step.SetBlockMemory(memory, block_bytes);
  Floats q(8 * 128);
  Floats out(8 * 128);
  Attend(machine.context(), step.Begin(machine.context()), {0, block_bytes / 2}, shape,
         {8, 1, 0, 0}, View(q, 8 * 128), View(out, 8 * 128));
  // Per head, block and query: the sum of its values, twice 128 floats with what goes with it.
  EXPECT_LT(machine.scratch().peak_bytes(), 8 * ids.size() * 160 * sizeof(float) + (1 << 20));
}

TEST_P(ModelShapes, RotationsFarOut) {
  constexpr int kHalf = 64;
  Floats inverse;
  for (int f = 0; f < kHalf; ++f) inverse.push_back(float(std::pow(1e7, -f / double(kHalf))));
  std::vector<int32_t> positions;
  for (int i = 0; i < 200; ++i) positions.push_back(262143 - i * 1311);
  const Floats x = Uniform(rng_, 200 * 2 * 128, -1, 1);
  for (const int threads : {1, 3}) {
    Machine machine(threads, GetParam());
    TestStep step(200);
    step.SetPositions(positions);
    const RopeTable table =
        MakeRopeTable(machine.context(), step.Begin(machine.context()), View(inverse), kHalf);
    Floats y = x;
    Rope(machine.context(), table, 2, View(y, 2 * 128));
    Floats expected = x;
    Floats cos(kHalf);
    Floats sin(kHalf);
    for (size_t row = 0; row < 200; ++row) {
      reference::RopeAngles(float(positions[row]), inverse.data(), kHalf, cos.data(), sin.data());
      for (size_t h = 0; h < 2; ++h) {
        reference::Rope(&expected[row * 256 + h * 128], cos.data(), sin.data(), kHalf);
      }
      const double angle = double(float(positions[row]) * inverse[1]);
      EXPECT_NEAR(cos[1], std::cos(angle), 1e-7) << positions[row];
    }
    EXPECT_TRUE(SameBits(expected, y));
  }
}

// Taps inside long runs hold what a run that ends there leaves behind.
TEST_P(ModelShapes, TapsAreTheStatesOnTheWay) {
  constexpr int64_t kRows = 150;
  constexpr int64_t kChannels = 700;
  const Floats x = Uniform(rng_, kRows * kChannels, -1, 1);
  const Floats weight = Uniform(rng_, 4 * kChannels, -1, 1);
  const GatedDeltaShape shape = {2, 6, 48, 130, false};
  const Floats q = Uniform(rng_, kRows * 96, -0.2f, 0.2f);
  const Floats v = Uniform(rng_, kRows * 780, -1, 1);
  const Floats gates = Uniform(rng_, kRows * 6, 0.5f, 1);
  constexpr int64_t kUnit = 3 * kChannels + 6 * 48 * 130;
  const Floats start = Uniform(rng_, kUnit, -1, 1);
  const auto run = [&](const OpContext& context, TestStep* step, Floats* units) {
    step->SetStates(*units, kUnit);
    const StepLayout& layout = step->Begin(context);
    Floats y(x.size());
    ShortConv(context, layout, 0, View(weight), nullptr, 4, true, View(x, kChannels),
              View(y, kChannels));
    Floats z(v.size());
    GatedDelta(context, layout, 3 * kChannels * sizeof(float), shape, View(q, 96), View(q, 96),
               View(v, 780), View(gates, 6), View(gates, 6), View(z, 780));
    y.insert(y.end(), z.begin(), z.end());
    return y;
  };
  for (const int threads : {1, 3}) {
    Machine machine(threads, GetParam());
    // Two sequences, of 90 and 60 rows, with taps in different places; the last behind all rows.
    Floats units(size_t(7 * kUnit), 555.0f);
    std::copy(start.begin(), start.end(), units.begin());
    std::copy(start.begin(), start.end(), units.begin() + kUnit);
    TestStep step(kRows);
    step.Add(0, 90, 0, 0);
    step.AddTap(1, 2);
    step.AddTap(65, 3);
    step.AddTap(89, 4);
    step.Add(90, 60, 1000, 1);
    step.AddTap(120, 5);
    step.AddTap(150, 6);
    const Floats tapped = run(machine.context(), &step, &units);
    const auto unit = [&](int64_t id) {
      return Floats(units.begin() + id * kUnit, units.begin() + (id + 1) * kUnit);
    };
    const struct {
      int64_t begin, end, id;
    } wanted[] = {{0, 1, 2},    {0, 65, 3},   {0, 89, 4},  {0, 90, 0},
                  {90, 120, 5}, {90, 150, 6}, {90, 150, 1}};
    for (const auto& w : wanted) {
      Floats alone = start;
      TestStep part(kRows);
      part.Add(w.begin, w.end - w.begin, 0);
      const Floats y = run(machine.context(), &part, &alone);
      EXPECT_TRUE(SameBits(unit(w.id), alone)) << "rows " << w.begin << " to " << w.end;
      EXPECT_EQ(0, std::memcmp(y.data() + w.begin * kChannels, tapped.data() + w.begin * kChannels,
                               size_t((w.end - w.begin) * kChannels) * sizeof(float)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ModelShapes, ::testing::Values("scalar", "all"),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
