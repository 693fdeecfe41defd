// SPDX-License-Identifier: Apache-2.0
// Proves the law of kernels/ops.h for the ops of scan_ops.h, activation_ops.h and expert_ops.h: the
// bits of a row do not depend on threads, on how a sequence is cut into calls, or on the sequences
// beside it; and that norms, shifts and expert choices are what their comments say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/activation_ops.h"
#include "kernels/expert_ops.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/scan_ops.h"

namespace reprise {
namespace {

Floats Random(Rng& rng, int64_t n, float low = -1, float high = 1) {
  return Uniform(rng, n, low, high);
}

// A recurrent op over `tokens` rows: writes y [tokens, cols].
struct ScanOp {
  int64_t tokens;
  int64_t cols;
  int64_t state_size;
  std::function<void(const OpContext&, const StepLayout&, const Rows& y)> run;
};

// Output and final state after running in pieces that end at `cuts`.
Floats InPieces(const OpContext& context, const ScanOp& op, Floats state, std::vector<int> cuts) {
  Floats y(size_t(op.tokens * op.cols), 777.0f);
  cuts.push_back(int(op.tokens));
  int begin = 0;
  for (const int end : cuts) {
    TestStep step(op.tokens);
    step.Add(begin, end - begin, begin);
    step.SetStates(state, op.state_size);
    op.run(context, step.Begin(context), View(y, op.cols));
    begin = end;
  }
  y.insert(y.end(), state.begin(), state.end());
  return y;
}

void ExpectLaw(Rng& rng, const ScanOp& op) {
  const Floats state = Random(rng, op.state_size);
  Machine one(1);
  const Floats whole = InPieces(one.context(), op, state, {});
  Machine scalar(1, "scalar");
  EXPECT_TRUE(SameBits(whole, InPieces(scalar.context(), op, state, {})));
  for (int threads = 2; threads <= 4; ++threads) {
    Machine machine(threads);
    EXPECT_TRUE(SameBits(whole, InPieces(machine.context(), op, state, {}))) << threads;
    EXPECT_TRUE(SameBits(whole, InPieces(machine.context(), op, state, {1, 2, 7, 20})));
    // Two sequences in one call; the first is the beginning of the whole.
    Floats states = state;
    states.insert(states.end(), state.begin(), state.end());
    TestStep both(op.tokens);
    both.Add(0, 13, 0, 0);
    both.Add(13, op.tokens - 13, 5, 1);
    both.SetStates(states, op.state_size);
    Floats y(size_t(op.tokens * op.cols));
    op.run(machine.context(), both.Begin(machine.context()), View(y, op.cols));
    EXPECT_EQ(0, std::memcmp(y.data(), whole.data(), size_t(13 * op.cols) * sizeof(float)));
  }
  for (int cut = 1; cut < op.tokens; cut += 4) {
    EXPECT_TRUE(SameBits(whole, InPieces(one.context(), op, state, {cut}))) << cut;
  }
}

constexpr int64_t kTokens = 30;

TEST(FamilyOps, ScansFollowTheLaw) {
  Rng rng(5);
  {
    constexpr int kHeads = 3;
    const Floats q = Random(rng, kTokens * kHeads * 40);
    const Floats k = Random(rng, kTokens * kHeads * 40, -0.2f, 0.2f);
    const Floats decay = Random(rng, kTokens * kHeads * 40, 0.3f, 1);
    const Floats v = Random(rng, kTokens * kHeads * 100);
    const Floats beta = Random(rng, kTokens * kHeads, 0, 1);
    ExpectLaw(rng, {kTokens, kHeads * 100, kHeads * 40 * 100,
                    [&](const OpContext& c, const StepLayout& s, const Rows& y) {
                      KeyDecayDelta(c, s, 0, kHeads, View(q, kHeads * 40), View(k, kHeads * 40),
                                    View(v, kHeads * 100), View(decay, kHeads * 40),
                                    View(beta, kHeads), y);
                    }});
  }
  {
    const SsdShape shape = {6, 2, 32, 48};
    const Floats x = Random(rng, kTokens * 6 * 48);
    const Floats b = Random(rng, kTokens * 2 * 32);
    const Floats c = Random(rng, kTokens * 2 * 32);
    const Floats raw = Random(rng, kTokens * 6, -3, 3);
    const Floats bias = Random(rng, 6);
    const Floats a = Random(rng, 6, -3, 0);
    const Floats skip = Random(rng, 6);
    ExpectLaw(
        rng,
        {kTokens, 6 * 48, 6 * 32 * 48, [&](const OpContext& k, const StepLayout& s, const Rows& y) {
           Floats dt(raw.size());
           Floats decay(raw.size());
           SsdGates(k, View(raw, 6), View(bias), View(a), 0, INFINITY, View(dt, 6), View(decay, 6));
           Ssd(k, s, 0, shape, View(x, 6 * 48), View(b, 64), View(c, 64), View(dt, 6),
               View(decay, 6), View(skip), y);
         }});
  }
  {
    constexpr int64_t kChannels = 200;
    const Floats a = Random(rng, 16 * kChannels, -4, 0);
    const Floats skip = Random(rng, kChannels);
    const Floats x = Random(rng, kTokens * kChannels);
    const Floats dt = Random(rng, kTokens * kChannels, 0, 1);
    const Floats b = Random(rng, kTokens * 16);
    const Floats c = Random(rng, kTokens * 16);
    ExpectLaw(rng, {kTokens, kChannels, 16 * kChannels,
                    [&](const OpContext& k, const StepLayout& s, const Rows& y) {
                      SelectiveScan(k, s, 0, View(a), View(skip), View(x, kChannels),
                                    View(dt, kChannels), View(b, 16), View(c, 16), y);
                    }});
  }
  {
    constexpr int64_t kCols = 3 * 64;
    std::vector<Floats> in;
    for (int i = 0; i < 6; ++i)
      in.push_back(Random(rng, kTokens * kCols, i == 1 ? 0.6f : -0.1f, i == 1 ? 1.0f : 0.1f));
    ExpectLaw(rng, {kTokens, kCols, kCols * 64,
                    [&](const OpContext& c, const StepLayout& s, const Rows& y) {
                      Wkv7(c, s, 0, 3,
                           {View(in[0], kCols), View(in[1], kCols), View(in[2], kCols),
                            View(in[3], kCols), View(in[4], kCols), View(in[5], kCols)},
                           y);
                    }});
  }
  {
    constexpr int64_t kChannels = 150;
    const Floats rate = Random(rng, kChannels, 0, 8);
    const Floats x = Random(rng, kTokens * kChannels);
    const Floats r = Random(rng, kTokens * kChannels, -3, 3);
    const Floats i = Random(rng, kTokens * kChannels, -3, 3);
    ExpectLaw(rng, {kTokens, kChannels, kChannels,
                    [&](const OpContext& c, const StepLayout& s, const Rows& y) {
                      RgLru(c, s, 0, View(rate), View(x, kChannels), View(r, kChannels),
                            View(i, kChannels), y);
                    }});
  }
  {
    constexpr int64_t kChannels = 150;
    const Floats x = Random(rng, kTokens * kChannels);
    const Floats mix = Random(rng, kChannels, 0, 1);
    ExpectLaw(rng, {kTokens, kChannels, kChannels,
                    [&](const OpContext& c, const StepLayout& s, const Rows& y) {
                      const ConstFloats mixes[] = {View(mix)};
                      TokenShift(c, s, 0, View(x, kChannels), mixes, {&y, 1});
                    }});
  }
}

TEST(FamilyOps, TokenShiftMixesWithTheRowBefore) {
  Rng rng(6);
  const Floats x = Random(rng, 4 * 10);
  const Floats mix = Random(rng, 10, 0, 1);
  const Floats other = Random(rng, 10, 0, 1);
  Floats state = Random(rng, 10);
  const Floats before = state;
  Floats a(40);
  Floats b(40);
  TestStep step(4);
  step.Add(0, 4, 0);
  step.SetStates(state, 10);
  const ConstFloats mixes[] = {View(mix), View(other)};
  const Rows outs[] = {View(a, 10), View(b, 10)};
  Machine machine(2);
  TokenShift(machine.context(), step.Begin(machine.context()), 0, View(x, 10), mixes, outs);
  for (size_t t = 0; t < 4; ++t) {
    for (size_t i = 0; i < 10; ++i) {
      const double last = t == 0 ? before[i] : x[(t - 1) * 10 + i];
      const double now = x[t * 10 + i];
      EXPECT_NEAR(a[t * 10 + i], now + (last - now) * mix[i], 1e-6);
      EXPECT_NEAR(b[t * 10 + i], now + (last - now) * other[i], 1e-6);
    }
  }
  EXPECT_EQ(0, std::memcmp(state.data(), x.data() + 30, 40));
}

TEST(FamilyOps, NormsAreTheFormulas) {
  constexpr int64_t kCols = 96;
  constexpr int kGroups = 3;
  constexpr size_t kWidth = kCols / kGroups;
  Rng rng(8);
  const Floats x = Random(rng, 40 * kCols, -2, 3);
  const Floats gate = Random(rng, 40 * kCols, -3, 3);
  const Floats weight = Random(rng, kCols);
  const Floats bias = Random(rng, kCols);
  Floats first[4];
  for (int threads = 1; threads <= 3; ++threads) {
    Machine machine(threads);
    const OpContext c = machine.context();
    Floats out[4] = {Floats(x.size()), Floats(x.size()), Floats(x.size()), Floats(x.size())};
    LayerNorm(c, View(x, kCols), View(weight), View(bias), kGroups, 1e-5f, View(out[0], kCols));
    GroupRmsNorm(c, View(x, kCols), View(weight), kGroups, 1e-5f, View(out[1], kCols));
    GateRmsNorm(c, View(x, kCols), View(gate, kCols), View(weight), kGroups, 1e-5f,
                View(out[2], kCols));
    out[3] = x;
    RwkvBonus(c, View(x, kCols), View(gate, kCols), View(weight), View(x, kCols), kGroups,
              View(out[3], kCols));
    for (int i = 0; i < 4; ++i) {
      if (threads == 1) first[i] = out[i];
      EXPECT_TRUE(SameBits(first[i], out[i]));
    }
  }
  for (size_t group = 0; group < x.size() / kWidth; ++group) {
    double sum = 0, squares = 0, gated = 0, dot = 0;
    const auto silu = [&](size_t at) { return gate[at] / (1 + std::exp(-double(gate[at]))); };
    for (size_t at = group * kWidth; at < (group + 1) * kWidth; ++at) {
      sum += x[at];
      squares += double(x[at]) * x[at];
      gated += std::pow(x[at] * silu(at), 2);
      dot += double(x[at]) * gate[at] * weight[at % kCols];
    }
    const double mean = sum / kWidth;
    const double deviation = std::sqrt(squares / kWidth - mean * mean + 1e-5);
    for (size_t at = group * kWidth; at < (group + 1) * kWidth; ++at) {
      const double w = weight[at % kCols];
      EXPECT_NEAR(first[0][at], (x[at] - mean) / deviation * w + bias[at % kCols], 1e-5);
      EXPECT_NEAR(first[1][at], x[at] / std::sqrt(squares / kWidth + 1e-5) * w, 1e-5);
      EXPECT_NEAR(first[2][at], x[at] * silu(at) / std::sqrt(gated / kWidth + 1e-5) * w, 1e-5);
      EXPECT_NEAR(first[3][at], x[at] + dot * x[at], 5e-5);
    }
  }
}

TEST(FamilyOps, ActivationsAreTheFormulas) {
  Rng rng(9);
  const Floats x = Random(rng, 100 * 300, -6, 6);
  const Floats up = Random(rng, 100 * 300);
  const Floats bias = Random(rng, 300);
  Machine machine(3);
  const OpContext c = machine.context();
  const auto check = [&](const std::function<void(const Rows& y)>& op,
                         const std::function<double(double, size_t)>& exact) {
    Floats y(x.size(), 777.0f);
    op(View(y, 300));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], exact(x[i], i), 3e-6) << x[i];
  };
  const ConstRows in = View(x, 300);
  const auto gelu = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  check([&](const Rows& y) { Gelu(c, in, y); }, [&](double v, size_t) { return gelu(v); });
  check([&](const Rows& y) { GeGlu(c, in, View(up, 300), y); },
        [&](double v, size_t i) { return gelu(v) * up[i]; });
  check([&](const Rows& y) { GeGluErf(c, in, View(up, 300), y); },
        [&](double v, size_t i) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))) * up[i]; });
  check([&](const Rows& y) { ClampedSwiGlu(c, in, View(up, 300), 1.702f, 0.75f, y); },
        [&](double v, size_t i) {
          const double g = std::min(v, 0.75), u = std::clamp(double(up[i]), -0.75, 0.75);
          return (u + 1) * g / (1 + std::exp(-double(1.702f) * g));
        });
  check([&](const Rows& y) { ReluSquared(c, in, y); },
        [&](double v, size_t) { return v > 0 ? v * v : 0; });
  check([&](const Rows& y) { Softcap(c, in, 3, y); },
        [&](double v, size_t) { return 3 * std::tanh(v / 3); });
  check([&](const Rows& y) { Sigmoid(c, in, View(bias), y); },
        [&](double v, size_t i) { return 1 / (1 + std::exp(-(v + bias[i % 300]))); });
  check([&](const Rows& y) { Softplus(c, in, View(bias), y); },
        [&](double v, size_t i) { return std::log1p(std::exp(v + bias[i % 300])); });
  check([&](const Rows& y) { RwkvDecay(c, in, View(bias), y); },
        [&](double v, size_t i) {
          return std::exp(-0.606531 / (1 + std::exp(-(v + bias[i % 300]))));
        });
  check([&](const Rows& y) { Mul(c, in, View(up, 300), y); },
        [&](double v, size_t i) { return v * up[i]; });
  check([&](const Rows& y) { Scale(c, in, 0.5f, y); }, [&](double v, size_t) { return v / 2; });
  check([&](const Rows& y) { Silu(c, in, y); },
        [&](double v, size_t) { return v / (1 + std::exp(-v)); });
  check([&](const Rows& y) { Lerp(c, in, View(up, 300), View(up, 300), y); },
        [&](double v, size_t i) { return v + (up[i] - v) * up[i]; });
}

TEST(FamilyOps, LengthsOfRowsAreTheFormulas) {
  Rng rng(12);
  constexpr int64_t kRows = 5, kCols = 300;
  Floats x = Random(rng, kRows * kCols, -2, 3);
  const Floats like = Random(rng, kRows * kCols, -4, 4);
  for (int64_t i = 0; i < kCols; ++i) x[size_t(i)] *= 1e-4f;  // shorter than the least
  Machine machine(3);
  Floats matched(x.size()), cut(x.size());
  MatchMagnitude(machine.context(), View(x, kCols), View(like, kCols), 1e-5f, View(matched, kCols));
  CutBelow(machine.context(), View(x, kCols), 0.7f, View(cut, kCols));
  for (size_t row = 0; row < size_t(kRows); ++row) {
    double squares = 0, wanted = 0, sum = 0, about = 0;
    for (size_t i = row * kCols; i < (row + 1) * kCols; ++i) {
      squares += double(x[i]) * x[i], wanted += double(like[i]) * like[i], sum += x[i];
    }
    const double mean = sum / kCols;
    for (size_t i = row * kCols; i < (row + 1) * kCols; ++i) {
      about += (x[i] - mean) * (x[i] - mean);
    }
    const double factor = std::sqrt(wanted / kCols) / std::sqrt(std::max(squares / kCols, 1e-5));
    const double least = mean + 0.7 * std::sqrt(about / kCols);
    for (size_t i = row * kCols; i < (row + 1) * kCols; ++i) {
      ASSERT_NEAR(matched[i], x[i] * factor, 1e-5);
      ASSERT_NEAR(cut[i], std::max(x[i] - least, 0.0), 1e-5);
    }
  }
}

TEST(FamilyOps, StreamsAreTheFormulas) {
  Rng rng(13);
  constexpr int64_t kRows = 6, kWidth = 70;
  constexpr int kStreams = 4;
  const Floats x = Random(rng, kRows * kStreams * kWidth);
  const Floats mix = Random(rng, kRows * kStreams * kStreams);
  const Floats add = Random(rng, kRows * kStreams);
  const Floats one = Random(rng, kRows * kWidth);
  Machine machine(3);
  Floats y(x.size(), 777.0f);
  MixStreams(machine.context(), View(x, kStreams * kWidth), View(mix, kStreams * kStreams),
             kStreams, View(y, kStreams * kWidth));
  AddToStreams(machine.context(), View(one, kWidth), View(add, kStreams),
               View(y, kStreams * kWidth));
  for (size_t t = 0; t < size_t(kRows); ++t) {
    for (size_t i = 0; i < kStreams; ++i) {
      for (size_t c = 0; c < size_t(kWidth); ++c) {
        double sum = x[(t * kStreams + i) * kWidth + c];
        for (size_t j = 0; j < kStreams; ++j) {
          sum +=
              double(mix[(t * kStreams + i) * kStreams + j]) * x[(t * kStreams + j) * kWidth + c];
        }
        sum += (add[t * kStreams + i] + 1.0) * one[t * kWidth + c];
        ASSERT_NEAR(y[(t * kStreams + i) * kWidth + c], sum, 1e-5);
      }
    }
  }
}

TEST(FamilyOps, FactorsGoByPosition) {
  Rng rng(14);
  const std::vector<int32_t> positions = {0, 63, 64, 127, 128, 191};
  const Floats factors = {1, 1.25f, 0.5f};
  const Floats x = Random(rng, 6 * 20);
  StepLayout step;
  step.host.tokens = positions;  // any: as many as there are rows
  step.host.positions = positions;
  Machine machine(2);
  BeginStep(machine.context(), &step);
  Floats y(x.size());
  ScaleByPosition(machine.context(), step, View(factors), 64, View(x, 20), View(y, 20));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i], x[i] * factors[size_t(positions[i / 20] / 64)]);
  }
}

TEST(ExpertOps, RoutesTheBestAndLowestOfEquals) {
  Rng rng(10);
  constexpr int64_t kExperts = 24;
  constexpr int64_t kRows = 70;
  Floats logits = Random(rng, kRows * kExperts, -2, 2);
  logits[3] = logits[7] = logits[5] = 4;  // a tie in row 0
  const Floats bias = Random(rng, kExperts, -0.2f, 0.2f);
  for (const ExpertScore score : {ExpertScore::kSoftmax, ExpertScore::kSigmoid}) {
    for (const int groups : {1, 4}) {
      RoutingParams params;
      params.top_k = 5;
      params.score = score;
      params.groups = groups;
      params.group_top_k = groups == 1 ? 1 : 2;
      params.selection_bias = groups == 1 ? ConstFloats() : View(bias);
      params.renormalise = score == ExpertScore::kSigmoid;
      params.sum_floor = 1e-20f;
      params.scale = 2.5f;
      params.expert_scale = groups == 1 ? View(bias) : ConstFloats();
      Machine machine(2);
      const Routing routing = RouteExperts(machine.context(), View(logits, kExperts), params);
      for (size_t t = 0; t < size_t(kRows); ++t) {
        const float* row = logits.data() + t * kExperts;
        std::vector<double> p(kExperts);
        double total = 0;
        for (size_t e = 0; e < kExperts; ++e) {
          p[e] = score == ExpertScore::kSoftmax ? std::exp(double(row[e]))
                                                : 1 / (1 + std::exp(-double(row[e])));
          total += p[e];
        }
        if (score == ExpertScore::kSoftmax) {
          for (double& v : p) v /= total;
        }
        std::vector<double> choice = p;
        if (params.selection_bias) {
          for (size_t e = 0; e < kExperts; ++e) choice[e] += bias[e];
        }
        if (groups > 1) {
          const size_t width = kExperts / size_t(groups);
          std::vector<std::pair<double, size_t>> worth;
          for (size_t g = 0; g < size_t(groups); ++g) {
            std::vector<double> part(choice.begin() + int64_t(g * width),
                                     choice.begin() + int64_t((g + 1) * width));
            std::sort(part.rbegin(), part.rend());
            worth.emplace_back(-(part[0] + part[1]), g);
          }
          std::sort(worth.begin(), worth.end());
          for (size_t n = 2; n < worth.size(); ++n) {
            std::fill_n(choice.begin() + int64_t(worth[n].second * width), width, -1e9);
          }
        }
        std::vector<int32_t> order(kExperts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return choice[size_t(a)] > choice[size_t(b)] + 1e-12;
        });
        double sum = 0;
        for (size_t k = 0; k < 5; ++k) sum += p[size_t(order[k])];
        for (size_t k = 0; k < 5; ++k) {
          ASSERT_EQ(Raw(routing.experts)[t * 5 + k], order[k]) << "row " << t;
          double weight = p[size_t(order[k])] / (params.renormalise ? sum : 1) * 2.5;
          if (params.expert_scale) weight *= bias[size_t(order[k])];
          ASSERT_NEAR(Raw(routing.weights)[t * 5 + k], weight, 1e-6);
        }
      }
    }
  }
}

TEST(ExpertOps, PlanGathersAndCombines) {
  Rng rng(12);
  constexpr int64_t kExperts = 7;
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 33;
  const Floats logits = Random(rng, kRows * kExperts);
  const Floats x = Random(rng, kRows * kCols);
  Floats first;
  for (int threads = 1; threads <= 3; ++threads) {
    Machine machine(threads);
    const OpContext c = machine.context();
    RoutingParams params;
    params.top_k = 3;
    const Routing routing = RouteExperts(c, View(logits, kExperts), params);
    const ExpertPlan plan = PlanExperts(c, routing, kExperts);
    EXPECT_EQ(Raw(plan.begin)[0], 0);
    EXPECT_EQ(Raw(plan.begin)[kExperts], kRows * 3);
    const Floats bias = Random(rng, kExperts * kCols);
    Floats biased(size_t(kRows * 3 * kCols), 1.0f);
    AddExpertBias(c, plan, View(bias), View(biased, kCols));
    for (size_t e = 0; e < kExperts; ++e) {
      for (int32_t slot = Raw(plan.begin)[e]; slot < Raw(plan.begin)[e + 1]; ++slot) {
        for (size_t i = 0; i < size_t(kCols); ++i) {
          ASSERT_EQ(biased[size_t(slot) * kCols + i], 1.0f + bias[e * kCols + i]) << slot;
        }
      }
    }
    Floats gathered(size_t(kRows * 3 * kCols));
    GatherRows(c, View(x, kCols), plan.row, View(gathered, kCols));
    // Expert e multiplies by e + 1.
    for (size_t e = 0; e < kExperts; ++e) {
      for (int32_t slot = Raw(plan.begin)[e]; slot < Raw(plan.begin)[e + 1]; ++slot) {
        if (slot > Raw(plan.begin)[e]) {
          EXPECT_LT(Raw(plan.row)[slot - 1], Raw(plan.row)[slot]);
        }
        for (int64_t i = 0; i < kCols; ++i) gathered[size_t(slot * kCols + i)] *= float(e + 1);
      }
    }
    Floats y(x.size(), 1.0f);
    CombineExperts(c, routing, plan, View(gathered, kCols), SumStart::kPresent, View(y, kCols));
    for (size_t t = 0; t < size_t(kRows); ++t) {
      double factor = 0;
      for (size_t k = 0; k < 3; ++k) {
        factor += double(Raw(routing.weights)[t * 3 + k]) * (Raw(routing.experts)[t * 3 + k] + 1);
      }
      for (size_t i = 0; i < size_t(kCols); ++i) {
        EXPECT_NEAR(y[t * kCols + i], 1 + factor * x[t * kCols + i], 1e-5);
      }
    }
    if (threads == 1) first = y;
    EXPECT_TRUE(SameBits(first, y));
    // From zero: whatever was there is gone.
    Floats zero(x.size(), 0.0f), nothing(x.size(), std::numeric_limits<float>::quiet_NaN());
    CombineExperts(c, routing, plan, View(gathered, kCols), SumStart::kPresent, View(zero, kCols));
    CombineExperts(c, routing, plan, View(gathered, kCols), SumStart::kZero, View(nothing, kCols));
    EXPECT_TRUE(SameBits(zero, nothing));
  }
}

}  // namespace
}  // namespace reprise
