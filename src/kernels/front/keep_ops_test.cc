// SPDX-License-Identifier: Apache-2.0
// The ops of kernels/keep_ops.h: sums of weights are those of the formula, and the same bits
// however rows came into steps, on any number of threads and instruction set; rows that are kept
// are moved as they were, into other blocks or within their own.
#include "kernels/keep_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/front/kv_fixture.h"
#include "kernels/front/ops_fixture.h"

namespace reprise {
namespace {

constexpr KvShape kShapes[] = {{2, 64, 64, DType::kF16},
                               {1, 32, 48, DType::kF32},
                               {3, 24, 40, DType::kBF16},
                               {2, 96, 64, DType::kQ8_0},
                               {3, 40, 24, DType::kQ8_0}};

class KeepOps : public ::testing::TestWithParam<std::string> {
 protected:
  // Weights [kv_heads, tokens] of the last `window` of the tokens, which come in steps that end at
  // `cuts`, each beside `others` rows of another sequence.
  Floats Score(const OpContext& context, const AttentionInputs& in, int window,
               std::vector<int> cuts, int others = 0) {
    KvMemory memory(in.shape, BlocksOf(in.tokens) + BlocksOf(others));
    const KvBlocks blocks(in.shape, in.tokens, &memory);
    const KvBlocks other_blocks(in.shape, others, &memory);
    Floats weights(size_t(in.shape.kv_heads * in.tokens), 0.0f);
    cuts.push_back(in.tokens);
    int begin = 0;
    for (const int end : cuts) {
      const int rows = end - begin;
      const Floats q = WithOthers(in.q, in.q_cols(), begin, rows, others);
      const Floats k = WithOthers(in.k, in.k_cols(), begin, rows, others);
      const Floats v = WithOthers(in.v, in.v_cols(), begin, rows, others);
      TestStep step(others + rows);
      memory.AddTo(&step);
      if (others > 0) other_blocks.AddTo(&step, 0, 0, others);
      blocks.AddTo(&step, begin, others, rows);
      const StepLayout& layout = step.Begin(context);
      StoreKv(context, layout, memory.place(), in.shape, View(k, in.k_cols()),
              View(v, in.v_cols()));
      const int scored = std::min(rows, end - (in.tokens - window));
      if (scored > 0) {
        ScoreKeys(context, layout, memory.place(), in.shape, in.params, View(q, in.q_cols()),
                  {others > 0 ? 1 : 0, others + rows - scored, scored, PlaceAt(weights.data()),
                   in.tokens});
      }
      begin = end;
    }
    return weights;
  }

  // Rows [begin, begin + rows) behind `others` more.
  static Floats WithOthers(const Floats& x, int64_t cols, int begin, int rows, int others) {
    Floats all(size_t(others * cols), 0.25f);
    all.insert(all.end(), x.begin() + begin * cols, x.begin() + (begin + rows) * cols);
    return all;
  }

  Rng rng_{11};
};

TEST_P(KeepOps, ScoresDoNotDependOnThreadsSplitsOrBatch) {
  for (const KvShape& shape : kShapes) {
    const Floats sinks = Uniform(rng_, shape.kv_heads * 5, -2, 4);
    AttentionParams params = {shape.kv_heads * 5, 0.2f, 0, 0};
    if (shape.kv_heads > 1) params.sinks = View(sinks);
    const AttentionInputs in(rng_, shape, params, 215);
    constexpr int kWindow = 45;
    Machine one(1, GetParam());
    const Floats whole = Score(one.context(), in, kWindow, {});
    Machine plain(1, "scalar");
    EXPECT_TRUE(SameBits(whole, Score(plain.context(), in, kWindow, {})));
    for (const int threads : {1, 2, 3}) {
      Machine machine(threads, GetParam());
      EXPECT_TRUE(SameBits(whole, Score(machine.context(), in, kWindow, {}))) << threads;
      EXPECT_TRUE(
          SameBits(whole, Score(machine.context(), in, kWindow, {100, 171, 192, 200, 214})));
      EXPECT_TRUE(SameBits(whole, Score(machine.context(), in, kWindow, {64, 190}, 33)));
      std::vector<int> every;
      for (int cut = 165; cut < 215; ++cut) every.push_back(cut);
      EXPECT_TRUE(SameBits(whole, Score(machine.context(), in, kWindow, every, 3)));
    }
  }
}

TEST_P(KeepOps, ScoresAreTheFormula) {
  for (const KvShape& shape : kShapes) {
    for (const float softcap : {0.0f, 4.0f}) {
      constexpr int kTokens = 150, kWindow = 20, kGroup = 3;
      const Floats sinks = Uniform(rng_, shape.kv_heads * kGroup, -2, 4);
      AttentionParams params = {shape.kv_heads * kGroup, 0.3f, 0, softcap};
      if (softcap == 0) params.sinks = View(sinks);
      const AttentionInputs in(rng_, shape, params, kTokens);
      Machine machine(2, GetParam());
      const Floats weights = Score(machine.context(), in, kWindow, {});
      KvMemory memory(shape, BlocksOf(kTokens));
      const KvBlocks blocks(shape, kTokens, &memory);
      in.Store(machine.context(), blocks, &memory, 0, kTokens);
      std::vector<double> expected(weights.size());
      for (int t = kTokens - kWindow; t < kTokens; ++t) {
        for (int h = 0; h < in.params.q_heads; ++h) {
          std::vector<double> weight;
          double sum = softcap == 0 ? std::exp(double(sinks[size_t(h)])) : 0.0;
          for (int j = 0; j <= t; ++j) {
            double score = 0;
            for (int i = 0; i < shape.head_dim; ++i) {
              score += in.q[size_t(t * in.q_cols() + h * shape.head_dim + i)] *
                       blocks.Key(j, h / kGroup, i);
            }
            score *= double(in.params.scale);
            if (softcap != 0) score = softcap * std::tanh(score / softcap);
            weight.push_back(std::exp(score));
            sum += weight.back();
          }
          for (int j = 0; j <= t; ++j) {
            expected[size_t(h / kGroup * kTokens + j)] += weight[size_t(j)] / sum;
          }
        }
      }
      for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], expected[i], 3e-5) << i;
    }
  }
}

// Rows that stay, per head, of which heads keep different ones.
std::vector<int32_t> SomeRows(Rng& rng, int heads, int tokens, int count) {
  std::vector<int32_t> rows;
  for (int head = 0; head < heads; ++head) {
    int left = count;
    for (int row = 0; row < tokens; ++row) {
      const bool must = tokens - row == left;
      if (left == 0 || (!must && int(rng.Below(uint64_t(tokens))) >= count)) continue;
      rows.push_back(row);
      --left;
    }
  }
  return rows;
}

TEST_P(KeepOps, KeptRowsAreMovedAsTheyWere) {
  for (const KvShape& shape : kShapes) {
    for (const int in_place : {0, 1, 2}) {  // blocks that stay where they are
      for (const int count : {1, 64, 130, 300}) {
        constexpr int kTokens = 300;
        const AttentionInputs in(rng_, shape, {shape.kv_heads, 1, 0, 0}, kTokens);
        Machine machine(2, GetParam());
        KvMemory memory(shape, 2 * BlocksOf(kTokens));
        const KvBlocks before(shape, kTokens, &memory);
        in.Store(machine.context(), before, &memory, 0, kTokens);
        std::vector<uint32_t> to = memory.Take(BlocksOf(count));
        if (in_place == 2) std::copy_n(before.ids().begin(), to.size(), to.begin());
        if (in_place == 1) to[0] = before.ids()[0];
        const std::vector<int32_t> rows = SomeRows(rng_, shape.kv_heads, kTokens, count);
        std::vector<double> keys, values;
        for (int head = 0; head < shape.kv_heads; ++head) {
          for (int i = 0; i < count; ++i) {
            const int row = rows[size_t(head * count + i)];
            for (int c = 0; c < shape.head_dim; ++c) keys.push_back(before.Key(row, head, c));
            for (int c = 0; c < shape.value_dim; ++c) values.push_back(before.Value(row, head, c));
          }
        }
        KeepRows(
            machine.context(), memory.place(), shape,
            {PlaceAt(memory.bytes().data()), memory.block_bytes(), PlaceAt(before.ids().data()),
             PlaceAt(std::as_const(to).data()), PlaceAt(rows.data()), count});
        const KvBlocks after(shape, to, &memory);
        size_t key = 0, value = 0;
        for (int head = 0; head < shape.kv_heads; ++head) {
          for (int i = 0; i < count; ++i) {
            for (int c = 0; c < shape.head_dim; ++c) {
              ASSERT_EQ(after.Key(i, head, c), keys[key++]) << head << " " << i << " " << c;
            }
            for (int c = 0; c < shape.value_dim; ++c) {
              ASSERT_EQ(after.Value(i, head, c), values[value++]) << head << " " << i << " " << c;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KeepOps, ::testing::Values("scalar", "all"),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
