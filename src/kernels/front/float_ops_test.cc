// SPDX-License-Identifier: Apache-2.0
// Proves the law of kernels/ops.h for the float ops: the bits of a row do not depend on the number
// of threads, on how the rows of a sequence are cut into calls, or on other sequences in the batch;
// and that the results are those of the formulas, within a tolerance from the norms of the inputs,
// against a naive double-precision version.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kernels/front/kv_fixture.h"
#include "kernels/front/ops_fixture.h"

namespace reprise {
namespace {

Floats Random(Rng& rng, int64_t n, float scale = 1) { return Uniform(rng, n, -scale, scale); }

class FloatOps : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls op with 1 to 4 threads; all results must be equal. Returns the result.
  template <typename Op>
  Floats SameOnAllThreads(int64_t out_size, const Op& op) {
    Floats first;
    for (int threads = 1; threads <= 4; ++threads) {
      Machine machine(threads, GetParam());
      Floats out(static_cast<size_t>(out_size), 777.0f);
      op(machine.context(), out);
      if (threads == 1) first = out;
      EXPECT_TRUE(SameBits(first, out)) << threads << " threads";
    }
    return first;
  }

  Rng rng_{7};
};

TEST_P(FloatOps, RowOpsDoNotDependOnThreads) {
  constexpr int64_t kRows = 67;
  constexpr int64_t kCols = 384;
  const Floats x = Random(rng_, kRows * kCols, 3);
  const Floats gate = Random(rng_, kRows * kCols, 3);
  const Floats weight = Random(rng_, kCols);
  const int64_t size = kRows * kCols;
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    RmsNorm(c, View(x, kCols), View(weight), 1, 1e-6f, View(y, kCols));
  });
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    RmsNorm(c, View(x, kCols), View(weight), 4, 1e-6f, View(y, kCols));
  });
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    RmsNormGated(c, View(x, kCols), View(gate, kCols), View(weight), 4, 1e-6f, View(y, kCols));
  });
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    L2Norm(c, View(x, kCols), 4, 1e-6f, 0.5f, View(y, kCols));
  });
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    SwiGlu(c, View(gate, kCols), View(x, kCols), View(y, kCols));
  });
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    SigmoidMul(c, View(gate, kCols), View(x, kCols), View(y, kCols));
  });
  SameOnAllThreads(size, [&](const OpContext& c, Floats& y) {
    Add(c, View(gate, kCols), View(x, kCols), View(y, kCols));
  });
}

TEST_P(FloatOps, NormsAreTheFormulas) {
  constexpr int64_t kCols = 96;
  constexpr int kGroups = 3;
  const Floats x = Random(rng_, 5 * kCols, 3);
  const Floats gate = Random(rng_, 5 * kCols, 3);
  const Floats weight = Random(rng_, kCols / kGroups);
  Machine machine(1, GetParam());
  Floats rms(x.size());
  Floats gated(x.size());
  Floats l2(x.size());
  RmsNorm(machine.context(), View(x, kCols), View(weight), kGroups, 1e-5f, View(rms, kCols));
  RmsNormGated(machine.context(), View(x, kCols), View(gate, kCols), View(weight), kGroups, 1e-5f,
               View(gated, kCols));
  L2Norm(machine.context(), View(x, kCols), kGroups, 1e-5f, 0.25f, View(l2, kCols));
  constexpr size_t kWidth = kCols / kGroups;
  for (size_t group = 0; group < x.size() / kWidth; ++group) {
    double sum = 0;
    for (size_t i = 0; i < kWidth; ++i) sum += std::pow(double(x[group * kWidth + i]), 2);
    for (size_t i = 0; i < kWidth; ++i) {
      const size_t at = group * kWidth + i;
      const double expected = x[at] / std::sqrt(sum / kWidth + 1e-5) * weight[i];
      EXPECT_NEAR(rms[at], expected, 1e-5);
      EXPECT_NEAR(gated[at], expected * gate[at] / (1 + std::exp(-gate[at])), 1e-5);
      EXPECT_NEAR(l2[at], x[at] / std::sqrt(sum + 1e-5) * 0.25, 1e-6);
    }
  }
}

// One pass instead of two, the same bits; the sum stays, for the layers behind.
TEST_P(FloatOps, AddRmsNormIsAddThenRmsNorm) {
  constexpr int64_t kRows = 19;
  constexpr int64_t kCols = 1100;
  const Floats x = Random(rng_, kRows * kCols, 3);
  const Floats y = Random(rng_, kRows * kCols, 3);
  const Floats weight = Random(rng_, kCols);
  Machine machine(3, GetParam());
  Floats sum = x, norm(x.size());
  Add(machine.context(), View(sum, kCols), View(y, kCols), View(sum, kCols));
  RmsNorm(machine.context(), View(sum, kCols), View(weight), 1, 1e-6f, View(norm, kCols));
  Floats kept = x, together(x.size());
  AddRmsNorm(machine.context(), View(kept, kCols), View(y, kCols), View(weight), 1e-6f,
             View(together, kCols));
  EXPECT_TRUE(SameBits(kept, sum));
  EXPECT_TRUE(SameBits(together, norm));
}

TEST_P(FloatOps, RopeRotates) {
  constexpr int kHeads = 3;
  constexpr int64_t kHeadDim = 80;  // 64 rotated
  Floats inverse;
  for (int f = 0; f < 32; ++f) inverse.push_back(float(std::pow(1e4, -f / 32.0)));
  std::vector<int32_t> positions;
  for (int t = 0; t < 50; ++t) positions.push_back(t < 25 ? t : 100000 + 31 * t);
  const Floats x = Random(rng_, 50 * kHeads * kHeadDim);
  const Floats y = SameOnAllThreads(int64_t(x.size()), [&](const OpContext& c, Floats& out) {
    out = x;
    TestStep step(50);
    step.SetPositions(positions);
    const RopeTable table = MakeRopeTable(c, step.Begin(c), View(inverse), 32);
    Rope(c, table, kHeads, View(out, kHeads * kHeadDim));
  });
  for (size_t row = 0; row < 50 * kHeads; ++row) {
    for (size_t i = 0; i < size_t(kHeadDim); ++i) {
      const size_t at = row * size_t(kHeadDim) + i;
      if (i >= 64) {
        EXPECT_EQ(x[at], y[at]);
        continue;
      }
      // The angle is an f32 product, as in the models' own code.
      const double angle = double(float(positions[row / kHeads]) * inverse[i % 32]);
      const double other = i < 32 ? -x[at + 32] : x[at - 32];
      EXPECT_NEAR(y[at], x[at] * std::cos(angle) + other * std::sin(angle), 3e-7);
    }
  }
}

constexpr KvShape kShapes[] = {{2, 64, 64, DType::kF16},
                               {1, 32, 48, DType::kF32},
                               {3, 24, 40, DType::kF16},
                               {2, 64, 64, DType::kQ8_0},
                               {1, 40, 72, DType::kQ8_0}};

TEST_P(FloatOps, AttentionDoesNotDependOnThreadsOrSplits) {
  struct Case {
    int window;
    bool sinks;
  };
  for (const KvShape& shape : kShapes) {
    for (const auto& [window, with_sinks] : {Case{0, false}, Case{37, true}, Case{0, true}}) {
      AttentionParams params = {shape.kv_heads * 3, 0.2f, window, 0};
      const Floats sinks = Uniform(rng_, params.q_heads, -2, 4);
      if (with_sinks) params.sinks = View(sinks);
      const AttentionInputs inputs(rng_, shape, params, 150);
      const Floats whole =
          SameOnAllThreads(150 * inputs.out_cols(),
                           [&](const OpContext& c, Floats& out) { out = inputs.Run(c, {}); });
      for (const int threads : {1, 3}) {
        Machine machine(threads, GetParam());
        for (int cut = 1; cut < 150; cut += GetParam() == "scalar" ? 41 : 7) {
          EXPECT_TRUE(SameBits(whole, inputs.Run(machine.context(), {cut}))) << cut;
        }
        std::vector<int> every;
        for (int cut = 1; cut < 150; cut += GetParam() == "scalar" ? 4 : 1) every.push_back(cut);
        EXPECT_TRUE(SameBits(whole, inputs.Run(machine.context(), every)));
        EXPECT_TRUE(SameBits(whole, inputs.Run(machine.context(), {3, 64, 65, 128, 149})));
      }
    }
  }
}

TEST_P(FloatOps, AttentionDoesNotDependOnTheBatch) {
  const KvShape shape = {2, 64, 64, DType::kF16};
  const AttentionParams params = {4, 0.125f, 0, 0};
  std::vector<AttentionInputs> inputs;
  for (int i = 0; i < 9; ++i) inputs.emplace_back(rng_, shape, params, 20 + 37 * i);
  for (const int threads : {1, 2, 4}) {
    Machine machine(threads, GetParam());
    // All but the last rows of each alone, then the last rows of all together: 1, 2, 3, 1...
    KvMemory memory(shape, 9 * BlocksOf(20 + 37 * 8));
    std::vector<KvBlocks> blocks;
    Floats q, k, v;
    int64_t total = 0;
    for (int i = 0; i < 9; ++i) {
      const AttentionInputs& in = inputs[size_t(i)];
      const int rows = 1 + i % 3;
      const int before = in.tokens - rows;
      total += rows;
      blocks.emplace_back(shape, in.tokens, &memory);
      in.Store(machine.context(), blocks.back(), &memory, 0, before);
      q.insert(q.end(), in.q.begin() + before * in.q_cols(), in.q.end());
      k.insert(k.end(), in.k.begin() + before * in.k_cols(), in.k.end());
      v.insert(v.end(), in.v.begin() + before * in.v_cols(), in.v.end());
    }
    TestStep step(total);
    memory.AddTo(&step);
    int64_t row = 0;
    for (int i = 0; i < 9; ++i) {
      const int rows = 1 + i % 3;
      blocks[size_t(i)].AddTo(&step, inputs[size_t(i)].tokens - rows, row, rows);
      row += rows;
    }
    const int64_t out_cols = inputs[0].out_cols();
    Floats out(size_t(row * out_cols), 777.0f);
    const StepLayout& layout = step.Begin(machine.context());
    StoreKv(machine.context(), layout, memory.place(), shape, View(k, inputs[0].k_cols()),
            View(v, inputs[0].v_cols()));
    Attend(machine.context(), layout, memory.place(), shape, params, View(q, inputs[0].q_cols()),
           View(out, out_cols));
    for (int i = 0; i < 9; ++i) {
      const Floats alone = inputs[size_t(i)].Run(machine.context(), {});
      const StepSequence& s = step.sequences()[size_t(i)];
      const Floats together(out.begin() + s.row_begin * out_cols,
                            out.begin() + (s.row_begin + s.row_count) * out_cols);
      const Floats expected(alone.end() - s.row_count * out_cols, alone.end());
      EXPECT_TRUE(SameBits(expected, together)) << "sequence " << i << ", " << threads;
    }
  }
}

TEST_P(FloatOps, AttentionIsTheFormula) {
  for (const KvShape& shape : kShapes) {
    for (const int window : {0, 30}) {
      for (const float softcap : {0.0f, 4.0f}) {
        AttentionParams params = {shape.kv_heads * 2, 0.3f, window, softcap};
        const Floats sinks = Uniform(rng_, params.q_heads, -2, 4);
        const bool with_sinks = (window == 0) == (softcap == 0);
        if (with_sinks) params.sinks = View(sinks);
        // Rows [20, 90) are a picture.
        std::vector<int32_t> ends;
        for (int t = 0; t < 140; ++t) ends.push_back(t >= 20 && t < 90 ? 90 : t + 1);
        const bool whole_picture = (window == 0) != (softcap == 0);
        if (whole_picture) params.ends = ends;
        const AttentionInputs in(rng_, shape, params, 140);
        Machine machine(2, GetParam());
        const Floats out = in.Run(machine.context(), {});
        KvMemory memory(shape, BlocksOf(in.tokens));
        const KvBlocks blocks(shape, in.tokens, &memory);
        in.Store(machine.context(), blocks, &memory, 0, in.tokens);
        for (int t = 0; t < in.tokens; ++t) {
          for (int h = 0; h < params.q_heads; ++h) {
            const int end = whole_picture ? ends[size_t(t)] : t + 1;
            std::vector<double> weight(size_t(end), 0.0);
            double sum = with_sinks ? std::exp(double(sinks[size_t(h)])) : 0.0;
            for (int j = window > 0 ? std::max(0, t - window + 1) : 0; j < end; ++j) {
              double score = 0;
              for (int i = 0; i < shape.head_dim; ++i) {
                score += in.q[size_t(t * in.q_cols() + h * shape.head_dim + i)] *
                         blocks.Key(j, h / 2, i);
              }
              score *= double(params.scale);
              if (softcap != 0) score = softcap * std::tanh(score / softcap);
              weight[size_t(j)] = std::exp(score);
              sum += weight[size_t(j)];
            }
            for (int c = 0; c < shape.value_dim; ++c) {
              double expected = 0;
              for (int j = 0; j < end; ++j) {
                if (weight[size_t(j)] > 0) {
                  expected += weight[size_t(j)] / sum * blocks.Value(j, h / 2, c);
                }
              }
              // |v| <= 1; scores are sums of head_dim products below 2 * 0.3.
              const double tolerance = 0x1p-23 * (8 + 0.6 * shape.head_dim);
              ASSERT_NEAR(out[size_t(t * in.out_cols() + h * shape.value_dim + c)], expected,
                          tolerance);
            }
          }
        }
      }
    }
  }
}

TEST_P(FloatOps, AttentionReadsOnlyTheWindow) {
  const KvShape shape = {1, 32, 32, DType::kF16};
  const AttentionParams params = {2, 0.2f, 70, 0};
  const AttentionInputs in(rng_, shape, params, 300);
  Machine machine(2, GetParam());
  const Floats whole = in.Run(machine.context(), {});
  KvMemory memory(shape, BlocksOf(in.tokens));
  KvBlocks blocks(shape, in.tokens, &memory);
  Floats out(whole.size());
  in.Store(machine.context(), blocks, &memory, 0, 290);
  blocks.Forget(290 - 69);
  in.Store(machine.context(), blocks, &memory, 290, 300);
  TestStep step(in.tokens);
  memory.AddTo(&step);
  blocks.AddTo(&step, 290, 290, 10);
  Attend(machine.context(), step.Begin(machine.context()), memory.place(), shape, params,
         View(in.q, in.q_cols()), View(out, in.out_cols()));
  EXPECT_EQ(0, std::memcmp(out.data() + 290 * in.out_cols(), whole.data() + 290 * in.out_cols(),
                           size_t(10 * in.out_cols()) * sizeof(float)));
}

// One row far behind and a few rows of another sequence, divided among threads: results of blocks
// are kept for a round at a time, so the memory for them does not grow with the context.
TEST_P(FloatOps, AttentionOfLongContextsKeepsFewResults) {
  const KvShape shape = {1, 16, 512, DType::kF16};
  const AttentionParams params = {8, 0.2f, 0, 0};
  const AttentionInputs in(rng_, shape, params, 4 * kKeys);
  KvMemory memory(shape, 4);
  const KvBlocks stored(shape, in.tokens, &memory);
  Machine store(1, GetParam());
  in.Store(store.context(), stored, &memory, 0, in.tokens);
  const auto run = [&](Machine& machine, int deep) {
    // The same four blocks again and again.
    std::vector<uint32_t> ids;
    for (int block = 0; block < BlocksOf(deep); ++block) ids.push_back(stored.ids()[block % 4]);
    const KvBlocks context(shape, ids, &memory);
    TestStep step(in.tokens);
    memory.AddTo(&step);
    context.AddTo(&step, deep - 1, 0, 1);
    stored.AddTo(&step, 190, 1, 5);
    Floats out(size_t(in.tokens * in.out_cols()), 777.0f);
    Attend(machine.context(), step.Begin(machine.context()), memory.place(), shape, params,
           View(in.q, in.q_cols()), View(out, in.out_cols()));
    return out;
  };
  size_t peak[2] = {};
  const int depths[] = {10'000, 30'000};
  for (int i = 0; i < 2; ++i) {
    Machine whole(1, GetParam()), divided(3, GetParam());
    EXPECT_TRUE(SameBits(run(whole, depths[i]), run(divided, depths[i]))) << depths[i];
    peak[i] = divided.scratch().peak_bytes();
  }
  EXPECT_EQ(peak[0], peak[1]);
  EXPECT_LT(peak[1], size_t{5} << 20);
}

TEST_P(FloatOps, NanReachesTheOutputOfItsRowOnly) {
  const KvShape shape = {1, 16, 16, DType::kF16};
  const AttentionParams params = {2, 0.2f, 0, 0};
  AttentionInputs in(rng_, shape, params, 100);
  Machine machine(2, GetParam());
  in.k[size_t(70 * in.k_cols() + 3)] = NAN;  // rows from 70 on see it
  const Floats out = in.Run(machine.context(), {});
  for (int t = 0; t < 100; ++t) {
    for (int64_t i = 0; i < in.out_cols(); ++i) {
      ASSERT_EQ(std::isnan(out[size_t(t * in.out_cols() + i)]), t >= 70) << t;
    }
  }
}

// Runs a recurrent op over `tokens` rows in pieces that end at `cuts`.
template <typename Op>
Floats InPieces(const OpContext& context, Floats state, int64_t tokens, int64_t out_cols,
                std::vector<int> cuts, const Op& op) {
  Floats out(size_t(tokens * out_cols), 777.0f);
  cuts.push_back(int(tokens));
  int64_t begin = 0;
  for (const int end : cuts) {
    TestStep step(tokens);
    step.Add(begin, end - begin, begin);
    step.SetStates(state, int64_t(state.size()));
    op(context, step.Begin(context), out);
    begin = end;
  }
  out.insert(out.end(), state.begin(), state.end());
  return out;
}

TEST_P(FloatOps, ShortConvIsCausalAndSplitInvariant) {
  constexpr int64_t kTokens = 83;
  constexpr int64_t kChannels = 600;
  for (const int reach : {3, 4}) {
    const Floats x = Random(rng_, kTokens * kChannels, 2);
    const Floats weight = Random(rng_, reach * kChannels);
    const Floats bias = Random(rng_, kChannels);
    const auto op = [&](const OpContext& c, const StepLayout& s, Floats& y) {
      ShortConv(c, s, 0, View(weight), View(bias), reach, true, View(x, kChannels),
                {PlaceAt(y.data()), kTokens, kChannels, kChannels});
    };
    const Floats state(size_t((reach - 1) * kChannels), 0.0f);
    const Floats whole = SameOnAllThreads(0, [&](const OpContext& c, Floats& out) {
      out = InPieces(c, state, kTokens, kChannels, {}, op);
    });
    Machine machine(2, GetParam());
    for (int cut = 1; cut < kTokens; cut += 3) {
      EXPECT_TRUE(
          SameBits(whole, InPieces(machine.context(), state, kTokens, kChannels, {cut}, op)));
    }
    EXPECT_TRUE(SameBits(
        whole, InPieces(machine.context(), state, kTokens, kChannels, {1, 2, 3, 50, 51}, op)));
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t c = 0; c < kChannels; c += 37) {
        double sum = bias[size_t(c)];
        for (int j = 0; j < reach; ++j) {
          const int64_t source = t - reach + 1 + j;
          if (source >= 0) {
            sum += double(weight[size_t(j * kChannels + c)]) * x[size_t(source * kChannels + c)];
          }
        }
        EXPECT_NEAR(whole[size_t(t * kChannels + c)], sum / (1 + std::exp(-sum)), 5e-6);
      }
    }
  }
}

struct DeltaInputs {
  DeltaInputs(Rng& rng, const GatedDeltaShape& heads, int64_t token_count)
      : shape(heads),
        tokens(token_count),
        q(Random(rng, tokens * key_cols())),
        k(Random(rng, tokens * key_cols())),
        v(Random(rng, tokens * value_cols())),
        a(Random(rng, tokens * heads.value_heads, 2)),
        b(Random(rng, tokens * heads.value_heads, 2)),
        exp_a(Random(rng, heads.value_heads)),
        bias(Random(rng, heads.value_heads)) {
    for (float& x : exp_a) x = std::fabs(x);
  }

  int64_t key_cols() const { return int64_t{shape.key_heads} * shape.key_dim; }
  int64_t value_cols() const { return int64_t{shape.value_heads} * shape.value_dim; }
  int64_t state_size() const { return value_cols() * shape.key_dim; }

  void Run(const OpContext& c, const StepLayout& s, Floats& y) const {
    Floats nk(k.size());
    Floats decay(a.size());
    Floats beta(a.size());
    L2Norm(c, View(k, key_cols()), shape.key_heads, 1e-6f, 1.0f, View(nk, key_cols()));
    GatedDeltaGates(c, View(a, shape.value_heads), View(b, shape.value_heads), View(exp_a),
                    View(bias), View(decay, shape.value_heads), View(beta, shape.value_heads));
    GatedDelta(c, s, 0, shape, View(q, key_cols()), View(nk, key_cols()), View(v, value_cols()),
               View(decay, shape.value_heads), View(beta, shape.value_heads),
               {PlaceAt(y.data()), tokens, value_cols(), value_cols()});
  }

  GatedDeltaShape shape;
  int64_t tokens;
  Floats q, k, v, a, b, exp_a, bias;
};

TEST_P(FloatOps, GatedDeltaIsSplitInvariant) {
  const DeltaInputs in(rng_, {2, 4, 32, 80, false}, 60);
  const auto op = [&](const OpContext& c, const StepLayout& s, Floats& y) { in.Run(c, s, y); };
  const Floats state = Random(rng_, in.state_size());
  const Floats whole = SameOnAllThreads(0, [&](const OpContext& c, Floats& out) {
    out = InPieces(c, state, in.tokens, in.value_cols(), {}, op);
  });
  Machine machine(2, GetParam());
  for (int cut = 1; cut < in.tokens; cut += 5) {
    EXPECT_TRUE(
        SameBits(whole, InPieces(machine.context(), state, in.tokens, in.value_cols(), {cut}, op)));
  }
  // Two sequences in one call, each as alone.
  Floats states = state;
  states.insert(states.end(), state.begin(), state.end());
  TestStep both(in.tokens);
  both.Add(0, 30, 0, 0);
  both.Add(30, 30, 0, 1);
  both.SetStates(states, in.state_size());
  Floats y(size_t(in.tokens * in.value_cols()));
  in.Run(machine.context(), both.Begin(machine.context()), y);
  EXPECT_EQ(0, std::memcmp(y.data(), whole.data(), y.size() / 2 * sizeof(float)));
}

TEST_P(FloatOps, GatedDeltaIsTheFormula) {
  for (const bool tiled : {false, true}) {
    const DeltaInputs in(rng_, {2, 6, 24, 20, tiled}, 40);
    Machine machine(2, GetParam());
    Floats state(size_t(in.state_size()), 0.0f);
    Floats y(size_t(in.tokens * in.value_cols()));
    TestStep step(in.tokens);
    step.Add(0, in.tokens, 0);
    step.SetStates(state, in.state_size());
    in.Run(machine.context(), step.Begin(machine.context()), y);
    for (int h = 0; h < 6; ++h) {
      const int kh = tiled ? h % 2 : h / 3;
      std::vector<double> matrix(24 * 20, 0.0);
      for (int64_t t = 0; t < in.tokens; ++t) {
        const float* k = in.k.data() + t * in.key_cols() + kh * 24;
        const float* q = in.q.data() + t * in.key_cols() + kh * 24;
        double norm = 1e-6;
        for (int i = 0; i < 24; ++i) norm += double(k[i]) * k[i];
        norm = std::sqrt(norm);
        const size_t gate = size_t(t * 6 + h);
        const double decay =
            std::exp(-in.exp_a[size_t(h)] * std::log1p(std::exp(in.a[gate] + in.bias[size_t(h)])));
        const double beta = 1 / (1 + std::exp(-double(in.b[gate])));
        for (int c = 0; c < 20; ++c) {
          double read = 0;
          for (int i = 0; i < 24; ++i) {
            matrix[size_t(i * 20 + c)] *= decay;
            read += matrix[size_t(i * 20 + c)] * k[i] / norm;
          }
          const double value = in.v[size_t(t * in.value_cols() + h * 20 + c)];
          double out = 0;
          for (int i = 0; i < 24; ++i) {
            matrix[size_t(i * 20 + c)] += k[i] / norm * beta * (value - read);
            out += matrix[size_t(i * 20 + c)] * q[i];
          }
          EXPECT_NEAR(y[size_t(t * in.value_cols() + h * 20 + c)], out, 1e-5);
        }
      }
    }
  }
}

TEST(FloatValues, ArgMaxAndAllFinite) {
  Rng rng(3);
  for (const size_t n : {1u, 2u, 15u, 16u, 17u, 100u, 1000u}) {
    Floats x = Random(rng, int64_t(n));
    for (size_t at = 0; at < n; at += 1 + n / 7) {
      Floats y = x;
      y[at] = 5;
      if (at + 20 < n) y[at + 20] = 5;
      EXPECT_TRUE(AllFinite(y));
      EXPECT_EQ(ArgMax(y), int64_t(at));
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        y[(at * 7 + 3) % n] = bad;
        EXPECT_FALSE(AllFinite(y));
        EXPECT_EQ(ArgMax(y), -1);
      }
    }
  }
  EXPECT_EQ(ArgMax(Floats{-3, -1, -2}), 1);
  EXPECT_EQ(ArgMax({}), -1);
  EXPECT_TRUE(AllFinite(Floats{-3.4e38f, 1e-45f, -0.0f}));
}

INSTANTIATE_TEST_SUITE_P(Isa, FloatOps, ::testing::Values("scalar", "all"),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
