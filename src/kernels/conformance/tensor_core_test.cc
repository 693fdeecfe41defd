// SPDX-License-Identifier: Apache-2.0
// The specification of the GPU's arithmetic, on machines without one. That a GPU computes this is
// shown by kernels/cuda/tensor/mma_test.cu on a machine that has it; here the specification is
// held to what was found there, so that nobody changes it unawares.
#include "kernels/reference/gpu/tensor_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/reference/gpu/bf16_weights.h"
#include "kernels/reference/gpu/lane_scan.h"
#include "kernels/reference/gpu/paged_attention.h"
#include "kernels/reference/gpu/power2.h"
#include "kernels/reference/gpu/tensor_probe.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// An instruction whose pairs are (a[i], b[i]) in f16, the rest zero.
float Step(const std::vector<std::pair<float, float>>& pairs, float c,
           TensorCore core = kStepsOf16) {
  uint16_t a[kTensorStep] = {}, b[kTensorStep] = {};
  for (size_t i = 0; i < pairs.size(); ++i) {
    a[i] = F32ToF16(pairs[i].first);
    b[i] = F32ToF16(pairs[i].second);
  }
  return TensorChain(core, Half::kF16, a, b, kTensorStep, c);
}

TEST(TensorStepTest, SmallIntegersAreExact) {
  EXPECT_EQ(Step({{3, 5}, {-7, 2}, {100, 100}}, 0.5f), 10001.5f);
  EXPECT_EQ(Step({}, -2.25f), -2.25f);
}

TEST(TensorStepTest, TermsAreCutTwentyFivePlacesBelowTheLargest) {
  // 1 + 2^-25 has no float; but two of them are kept and make one unit in the last place.
  const float tiny = 0x1p-13f, less = 0x1p-12f;
  EXPECT_EQ(Step({{tiny, less}, {tiny, less}, {tiny, less}, {tiny, less}}, 1.0f), 1.0f + 0x1p-23f);
  // Half of that is cut off term by term, however many there are.
  const float half = 0x1p-13f;
  std::vector<std::pair<float, float>> many(16, {half, half});
  EXPECT_EQ(Step(many, 1.0f), 1.0f);
  // Cut toward zero, not rounded: of both signs.
  EXPECT_EQ(Step({{1, 1}, {tiny, tiny}}, 0), 1.0f);
  EXPECT_EQ(Step({{-1, 1}, {-tiny, tiny}}, 0), -1.0f);
}

TEST(TensorStepTest, SumsAreCutTowardZero) {
  // 1.5 units in the last place above 1.
  EXPECT_EQ(Step({{0x1p-12f, 0x1.8p-11f}}, 1.0f), 1.0f + 0x1p-23f);
  EXPECT_EQ(Step({{-0x1p-12f, 0x1.8p-11f}}, -1.0f), -1.0f - 0x1p-23f);
}

TEST(TensorStepTest, ZerosDoNotMoveTheLargest) {
  uint16_t a[kTensorStep] = {}, b[kTensorStep] = {};
  a[0] = F32ToBF16(0x1p-60f), b[0] = F32ToBF16(0x1p-60f);
  b[1] = F32ToBF16(0x1p120f);  // times zero
  EXPECT_EQ(TensorStep(kStepsOf16, Half::kBF16, a, b, 0), 0x1p-120f);
}

TEST(TensorStepTest, NoZeroIsNegative) {
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{-0.0f, 1}}, -0.0f)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{1, 1}, {-1, 1}}, 0)), 0u);
}

TEST(TensorStepTest, InfinitiesAndNaN) {
  EXPECT_EQ(Step({{kInf, 1}}, 0), kInf);
  EXPECT_EQ(Step({{kInf, -1}}, 5), -kInf);
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{kInf, 1}}, -kInf)), 0x7FFFFFFFu);
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{kInf, 0}}, 0)), 0x7FFFFFFFu);
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{NAN, 1}}, 0)), 0x7FFFFFFFu);
}

// A number that changes when any of the bits does.
class Fingerprint {
 public:
  void Add(float x) {
    hash_ = (hash_ ^ std::bit_cast<uint32_t>(x)) * 0x100000001B3u;
    hash_ ^= hash_ >> 29;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

// Patterns of all finite numbers and zeros, in both types.
TEST(TensorStepTest, BitsAreThoseOfTheDevice) {
  Rng rng(2026);
  Fingerprint all;
  for (const Half type : {Half::kF16, Half::kBF16}) {
    const uint32_t exponent = type == Half::kF16 ? 0x7C00 : 0x7F80;
    const auto finite = [&] {
      for (;;) {
        const uint16_t bits = uint16_t(rng.Next());
        if ((bits & exponent) != exponent) return rng.Next() % 8 == 0 ? uint16_t{0} : bits;
      }
    };
    for (int i = 0; i < 20'000; ++i) {
      uint16_t a[kTensorStep], b[kTensorStep];
      for (int k = 0; k < kTensorStep; ++k) a[k] = finite(), b[k] = finite();
      const float c = std::bit_cast<float>(uint32_t(rng.Next()));
      all.Add(TensorStep(kStepsOf16, type, a, b, std::isfinite(c) ? c : 0.0f));
    }
  }
  EXPECT_EQ(all.value(), 8884804756693450163u);
}

// --- Steps of 8: what cards before 9.0 compute ---------------------------------------------

// One place less than Hopper's: 1 + 4 x 2^-25 is 1, and 2^-24 is kept.
TEST(StepsOf8Test, TermsAreCutTwentyFourPlacesBelowTheLargest) {
  const float tiny = 0x1p-12f, less = 0x1p-13f;
  EXPECT_EQ(Step({{tiny, less}, {tiny, less}, {tiny, less}, {tiny, less}}, 1.0f, kStepsOf8), 1.0f);
  EXPECT_EQ(Step({{tiny, less}, {tiny, less}, {tiny, less}, {tiny, less}}, 1.0f), 1.0f + 0x1p-23f);
  EXPECT_EQ(Step({{tiny, tiny}, {tiny, tiny}}, 1.0f, kStepsOf8), 1.0f + 0x1p-23f);
  EXPECT_EQ(Step({{tiny, tiny}}, 1.0f, kStepsOf8), 1.0f);
  EXPECT_EQ(Step({{-tiny, tiny}, {-tiny, tiny}, {-tiny, tiny}}, -1.0f, kStepsOf8),
            -1.0f - 0x1p-23f);
}

// What an instruction does with its second half happens to what its first half left.
TEST(StepsOf8Test, AnInstructionIsTwoOfThemInOrder) {
  const std::pair<float, float> large{0x1p12f, 0x1p12f}, minus{-0x1p12f, 0x1p12f}, one{1, 1};
  std::vector<std::pair<float, float>> pairs(kTensorStep, {0.0f, 0.0f});
  pairs[0] = large, pairs[1] = one, pairs[8] = minus;
  EXPECT_EQ(Step(pairs, 0, kStepsOf8), 0.0f);
  std::swap(pairs[1], pairs[9]);
  EXPECT_EQ(Step(pairs, 0, kStepsOf8), 1.0f);
  EXPECT_EQ(Step(pairs, 0), 1.0f);
  std::swap(pairs[9], pairs[1]);
  EXPECT_EQ(Step(pairs, 0), 1.0f);
}

TEST(StepsOf8Test, WhatIsExactIsTheSame) {
  EXPECT_EQ(Step({{3, 5}, {-7, 2}, {100, 100}}, 0.5f, kStepsOf8), 10001.5f);
  EXPECT_EQ(Step({{kInf, -1}}, 5, kStepsOf8), -kInf);
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{kInf, 0}}, 0, kStepsOf8)), 0x7FFFFFFFu);
  EXPECT_EQ(std::bit_cast<uint32_t>(Step({{1, 1}, {-1, 1}}, -0.0f, kStepsOf8)), 0u);
}

// The published experiments on accumulators: 1 and so many products of 2^-24 or 2^-25 in a step
// show how many places an adder keeps beyond those of f32, none on V100, one on A100, two and more
// on H100 (Fasi, Higham, Mikaitis and Pranesh 2021; Li and others, arXiv 2403.00232); how many
// products are added at once shows where a large one still hides the next.
TEST(TensorCoreTest, PublishedExperiments) {
  const auto sum_of = [](TensorCore core, int count, float product) {
    std::vector<std::pair<float, float>> pairs(size_t(count), {product, 1});
    return Step(pairs, 1.0f, core);
  };
  constexpr TensorCore kVolta{4, 23};
  const float quarter = 0x1p-24f, eighth = 0x1p-24f / 2;
  EXPECT_EQ(sum_of(kVolta, 4, quarter), 1.0f);
  EXPECT_EQ(sum_of(kStepsOf8, 4, quarter), 1.0f + 0x1p-22f);
  EXPECT_EQ(sum_of(kStepsOf16, 4, quarter), 1.0f + 0x1p-22f);
  // 2^-25 is no f16: a product of two.
  const auto eighths = [&](TensorCore core, int count) {
    std::vector<std::pair<float, float>> pairs(size_t(count), {0x1p-12f, eighth * 0x1p12f});
    return Step(pairs, 1.0f, core);
  };
  EXPECT_EQ(eighths(kStepsOf8, 8), 1.0f);
  EXPECT_EQ(eighths(kStepsOf16, 8), 1.0f + 0x1p-22f);
  // One 2^-24 in each half: together they count, one at a time they do not.
  std::vector<std::pair<float, float>> halves(kTensorStep, {0.0f, 0.0f});
  halves[3] = halves[12] = {quarter, 1};
  EXPECT_EQ(Step(halves, 1.0f, kStepsOf16), 1.0f + 0x1p-23f);
  EXPECT_EQ(Step(halves, 1.0f, kStepsOf8), 1.0f);
}

// The published formula in double precision, which has room for all of it: significands of L
// products and of c, scaled to the largest exponent, cut at F places, added, cut to f32.
float ByFormula(TensorCore core, const float* a, const float* b, float c) {
  std::vector<double> significand;
  std::vector<int> exponent;
  const auto part = [](float x, int* e) {
    const double half = std::frexp(double(x), e);
    *e -= 1;
    return 2 * half;
  };
  int largest = -1000;
  const auto add = [&](double s, int e) {
    significand.push_back(s), exponent.push_back(e);
    if (s != 0) largest = std::max(largest, e);
  };
  for (int i = 0; i < core.step; ++i) {
    int of_a = 0, of_b = 0;
    const double s = part(a[i], &of_a) * part(b[i], &of_b);
    add(s, of_a + of_b);
  }
  int of_c = 0;
  const double s = part(c, &of_c);
  add(s, of_c);
  double sum = 0;
  for (size_t i = 0; i < significand.size(); ++i) {
    sum += std::trunc(std::ldexp(significand[i], exponent[i] - largest + core.fraction));
  }
  if (sum == 0) return 0;
  int of_sum = 0;
  const double m = std::trunc(std::ldexp(std::frexp(sum, &of_sum), 24));
  return float(std::ldexp(m, of_sum - 24 + largest - core.fraction));
}

TEST(TensorCoreTest, EqualsThePublishedFormula) {
  Rng rng(11);
  const auto draw = [&](int low, int count) {
    const float x = 1 + float(rng.Next() % 1024) / 1024;
    const int exponent = low + int(rng.Next() % uint64_t(count));
    return rng.Next() % 8 == 0 ? 0.0f : std::ldexp(rng.Next() % 2 ? x : -x, exponent);
  };
  for (const TensorCore core : {kStepsOf8, kStepsOf16, TensorCore{4, 23}}) {
    for (int i = 0; i < 20'000; ++i) {
      const int low = -int(rng.Next() % 14), count = 1 + int(rng.Next() % 14);
      float a[kTensorStep], b[kTensorStep];
      uint16_t half_a[kTensorStep], half_b[kTensorStep];
      for (int k = 0; k < core.step; ++k) {
        a[k] = draw(low, count), b[k] = draw(low, count);
        half_a[k] = F32ToF16(a[k]), half_b[k] = F32ToF16(b[k]);
      }
      const float c = draw(-20, 40);
      ASSERT_EQ(std::bit_cast<uint32_t>(TensorStep(core, Half::kF16, half_a, half_b, c)),
                std::bit_cast<uint32_t>(ByFormula(core, a, b, c)))
          << core.step << " " << i;
    }
  }
}

// --- Which of them a GPU has ---------------------------------------------------------------

// Those that are judged: the specification takes longer than a GPU.
std::vector<float> OutputsOf(const TensorProbe& probe, TensorCore core) {
  std::vector<float> outputs(probe.c().size());
  for (int tile = 0; tile < TensorProbe::kTiles; ++tile) {
    for (int i = 0; i < TensorProbe::kJudged; ++i) {
      const int at = TensorProbe::Judged(tile, i);
      outputs[size_t(tile) * TensorProbe::kC + size_t(at)] = probe.Expected(core, tile, at);
    }
  }
  return outputs;
}

TEST(TensorProbeTest, TellsTheSpecifiedFromEachOtherAndFromOthers) {
  const TensorProbe probe(Half::kF16);
  EXPECT_EQ(probe.Judge(OutputsOf(probe, kStepsOf8)), kStepsOf8);
  EXPECT_EQ(probe.Judge(OutputsOf(probe, kStepsOf16)), kStepsOf16);
  // The neighbours of both: another number of places, of products, or both.
  for (const TensorCore other : {TensorCore{4, 23}, TensorCore{8, 23}, TensorCore{8, 25},
                                 TensorCore{16, 24}, TensorCore{16, 26}, TensorCore{4, 24}}) {
    EXPECT_EQ(probe.Judge(OutputsOf(probe, other)), std::nullopt)
        << other.step << " " << other.fraction;
  }
}

TEST(TensorProbeTest, OutputsThatAreAnythingElseAreRefused) {
  const TensorProbe probe(Half::kBF16);
  std::vector<float> outputs = OutputsOf(probe, kStepsOf16);
  EXPECT_EQ(probe.Judge(outputs), kStepsOf16);
  // One place of all tiles wrong by one bit: a lane that computes otherwise.
  for (size_t tile = 0; tile < TensorProbe::kTiles; ++tile) {
    float& one = outputs[tile * TensorProbe::kC + 77];
    one = std::bit_cast<float>(std::bit_cast<uint32_t>(one) ^ 1);
  }
  EXPECT_EQ(probe.Judge(outputs), std::nullopt);
  EXPECT_EQ(probe.Judge(std::vector<float>(outputs.size(), 0.0f)), std::nullopt);
}

TEST(TensorDotTest, SlicesOf512AreAddedInOrder) {
  Rng rng(7);
  std::vector<uint16_t> a(1300), b(1300);
  for (auto& x : a) x = F32ToF16(float(rng.Next() % 1000) / 500 - 1);
  for (auto& x : b) x = F32ToF16(float(rng.Next() % 1000) / 500 - 1);
  const float first = TensorChain(kStepsOf16, Half::kF16, a.data(), b.data(), 512);
  const float second = TensorChain(kStepsOf16, Half::kF16, a.data() + 512, b.data() + 512, 512);
  const float third = TensorChain(kStepsOf16, Half::kF16, a.data() + 1024, b.data() + 1024, 276);
  EXPECT_EQ(TensorDot(kStepsOf16, a.data(), b.data(), 1300), (first + second) + third);
}

TEST(RoundRowTest, LargeRowsAreScaledByAPowerOfTwo) {
  const std::vector<float> x = {70000, -3, 0.5f};
  uint16_t rounded[3];
  EXPECT_EQ(RoundRow(x, rounded), 4.0f);
  EXPECT_EQ(F16ToF32(rounded[0]), 17504.0f);
  EXPECT_EQ(F16ToF32(rounded[1]), -0.75f);
  const std::vector<float> usual = {65519, 1};
  EXPECT_EQ(RoundRow(usual, rounded), 1.0f);
  const std::vector<float> infinite = {kInf, 70000};
  EXPECT_EQ(RoundRow(infinite, rounded), 1.0f);
  EXPECT_EQ(F16ToF32(rounded[1]), kInf);
}

TEST(BF16WeightsTest, AreExactInF16DownToTinyOnes) {
  for (const float largest : {1.0f, 3e38f, 1e-20f, 0.02f, 700.0f}) {
    const int exponent = BF16Exponent(F32ToBF16(largest));
    const float scale = std::ldexp(1.0f, -exponent);
    const float top = F16ToF32(BF16ToScaledF16(F32ToBF16(largest), exponent));
    EXPECT_GE(top, 32768.0f);
    EXPECT_LE(top, 65504.0f);
    for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
      const float weight = BF16ToF32(uint16_t(bits));
      if (weight > largest) break;
      const float kept = F16ToF32(BF16ToScaledF16(uint16_t(bits), exponent)) * scale;
      const bool exact = weight >= std::ldexp(largest, -31);
      ASSERT_LE(std::fabs(kept - weight), exact ? 0 : std::ldexp(largest, -40))
          << largest << weight;
      ASSERT_EQ(BF16ToScaledF16(uint16_t(bits | 0x8000), exponent),
                BF16ToScaledF16(uint16_t(bits), exponent) | 0x8000);
    }
  }
}

TEST(BF16WeightsTest, ZerosInfinitiesAndNaN) {
  const uint16_t some[] = {0x8000, 0xFF80, 0x7FC0, 0xBF80, 0x3F00};
  EXPECT_EQ(LargestBF16(some), 0x3F80);  // the -1
  EXPECT_EQ(BF16Exponent(0), 0);
  EXPECT_EQ(BF16ToScaledF16(0xFF80, 3), 0xFC00);
  EXPECT_TRUE(std::isnan(F16ToF32(BF16ToScaledF16(0x7FC0, 3))));
  // Matrices of nothing but denormals: the scale stays a normal number.
  EXPECT_EQ(BF16Exponent(1), 96);
}

// Close to what the formulas say, in double precision.
TEST(PagedAttentionTest, ComputesAttention) {
  constexpr int kDim = 32, kLength = 150;
  Rng rng(5);
  const auto draw = [&] { return float(rng.Next() % 2000) / 1000 - 1; };
  std::vector<float> q(kDim);
  std::vector<uint16_t> k(192 * kDim), v(192 * kDim);
  for (float& x : q) x = draw();
  for (auto& x : k) x = F32ToF16(draw());
  for (auto& x : v) x = F32ToF16(draw());
  std::vector<PageView> pages;
  for (int page = 0; page < 3; ++page) {
    pages.push_back({k.data() + page * kPage * kDim, v.data() + page * kPage * kDim, 0,
                     std::min(kPage, kLength - page * kPage)});
  }
  std::vector<float> out(kDim);
  AttendPages({kStepsOf16, Half::kF16, kDim, kDim, kDim, 0.3f, 0}, q.data(), pages, out.data());
  std::vector<double> weight(kLength);
  double sum = 0;
  for (int c = 0; c < kLength; ++c) {
    double s = 0;
    for (int i = 0; i < kDim; ++i) s += double(q[size_t(i)]) * F16ToF32(k[size_t(c * kDim + i)]);
    sum += weight[size_t(c)] = std::exp(0.3 * s);
  }
  for (int i = 0; i < kDim; ++i) {
    double expected = 0;
    for (int c = 0; c < kLength; ++c) {
      expected += weight[size_t(c)] / sum * F16ToF32(v[size_t(c * kDim + i)]);
    }
    EXPECT_NEAR(out[size_t(i)], expected, 2e-3);
  }
}

TEST(PagedAttentionTest, WhatIsNotVisibleDoesNotMatter) {
  constexpr int kDim = 16;
  std::vector<float> q(kDim, 0.5f), out(kDim), again(kDim);
  std::vector<uint16_t> k(kPage * kDim, F32ToF16(0.25f)), v(kPage * kDim, F32ToF16(2));
  const PagedQuery query{kStepsOf16, Half::kF16, kDim, kDim, kDim, 1, 0};
  const PageView page{k.data(), v.data(), 3, 10};
  AttendPages(query, q.data(), {&page, 1}, out.data());
  for (int c = 0; c < kPage; ++c) {
    if (c >= 3 && c < 10) continue;
    for (int i = 0; i < kDim; ++i) k[size_t(c * kDim + i)] = v[size_t(c * kDim + i)] = 0x7E00;
  }
  AttendPages(query, q.data(), {&page, 1}, again.data());
  EXPECT_EQ(out, again);
  // Weights that are powers of two: the mean of equal values is exact.
  std::fill(q.begin(), q.end(), 0.0f);
  AttendPages(query, q.data(), {&page, 1}, out.data());
  EXPECT_EQ(out[0], 2.0f);
}

// Pages of which each is too small to be seen beside the first are seen as a group.
TEST(PagedAttentionTest, PagesAreJoinedInGroups) {
  constexpr int kDim = 16, kPages = 2 * kPagesOfGroup;
  static_assert(kPagesOfGroup == 16);
  const std::vector<float> q(kDim);
  const std::vector<uint16_t> k(kPage * kDim), large(kPage * kDim, F32ToF16(0x1p15f)),
      small(kPage * kDim, F32ToF16(0x1p-10f));
  std::vector<PageView> pages(kPages, {k.data(), small.data(), 0, kPage});
  pages[0].v = large.data();
  const auto mean = [&](int first_page) {
    std::vector<float> out(kDim);
    AttendPages({kStepsOf16, Half::kF16, kDim, kDim, kDim, 1, 0, first_page}, q.data(), pages,
                out.data());
    return out[3] * kPages;
  };
  EXPECT_EQ(mean(0), 0x1p15f + 0x1p-6f);
  EXPECT_EQ(mean(kPages), 0x1p15f + 0x1p-6f);
  // They begin where the sequence does, not where a query looks first: groups of 8, 16 and 8.
  EXPECT_EQ(mean(8), 0x1p15f + 0x1p-6f + 0x1p-7f);
}

// What power2.h says of itself. Device code is the same, so only this sees a wrong coefficient.
TEST(PagedAttentionTest, WeightsArePowersOfTwo) {
  const float unit = UnitOfScores(0.07f, 0);
  EXPECT_EQ(UnitOfScores(0.07f, 30) * 128, 0x1.715476p0f);
  for (const float largest : {-300.0f, -1.0f, 0.0f, 17.3f, 4000.0f}) {
    const float top = TopOfScores(largest, unit);
    const double exponent = double(largest) * double(unit) * 128;
    ASSERT_GE(top, exponent - 1e-4);
    ASSERT_LT(top, exponent + 1);
    ASSERT_EQ(top, std::rint(top));
    double worst = 0;
    for (int i = 0; i < 200000; ++i) {
      const float score = largest - float(i) * 0.006f;
      const double below = double(score) * double(unit) * 128 - double(top);
      const double expected = 4 * std::exp2(below);
      const double got = double(WeightOfScore(score, unit, ShiftOfTop(top)));
      if (below < -127.9) {
        ASSERT_GE(got, 0x1p-126);
        ASSERT_LE(got, 0x1p-125);
      } else {
        // Far from 0 the product with the unit is rounded, too.
        const double far = std::abs(double(score) * double(unit) * 128) * 0x1p-23;
        worst = std::max(worst, std::abs(got / expected - 1) - far);
      }
    }
    EXPECT_LT(worst, 1.1e-4) << largest;
  }
  EXPECT_EQ(WeightOfScore(5, unit, ShiftOfTop(-3)), 4.0f);  // not above the top
  EXPECT_EQ(WeightOfScore(std::nanf(""), unit, 1), 0x1p-126f);
}

TEST(PagedAttentionTest, FactorsOfJoinsAreExact) {
  for (int n = 0; n <= 126; ++n) EXPECT_EQ(Power2OfInteger(float(-n)), std::ldexp(1.0f, -n));
  EXPECT_EQ(Power2OfInteger(-1e9f), 0x1p-126f);
  EXPECT_EQ(Power2OfInteger(-std::numeric_limits<float>::infinity()), 0x1p-126f);
}

// Any cut of the rows gives the same bits, and the values are those of the CPU's scan but for
// rounding.
TEST(LaneScanTest, CutsDoNotMatter) {
  constexpr int kKeys = 40, kColumns = 6, kRows = 9;
  Rng rng(3);
  const auto draw = [&](size_t count, float scale) {
    std::vector<float> values(count);
    for (float& x : values) x = (float(rng.Next() % 2000) / 1000 - 1) * scale;
    return values;
  };
  const std::vector<float> q = draw(kRows * kKeys, 0.3f), k = draw(kRows * kKeys, 0.3f);
  const std::vector<float> v = draw(kRows * kColumns, 1);
  const std::vector<float> decay(kRows, 0.9f), beta(kRows, 0.5f);
  const std::vector<float> start = draw(kKeys * kColumns, 1);
  const auto run = [&](std::vector<int> pieces) {
    std::vector<float> state = start, y(kRows * kColumns);
    int at = 0;
    for (const int rows : pieces) {
      LaneDelta({{state.data(), kColumns, kKeys, kColumns},
                 rows,
                 {q.data() + at * kKeys, kKeys},
                 {k.data() + at * kKeys, kKeys},
                 {v.data() + at * kColumns, kColumns},
                 {decay.data() + at, 1},
                 {beta.data() + at, 1},
                 y.data() + at * kColumns,
                 kColumns});
      at += rows;
    }
    y.insert(y.end(), state.begin(), state.end());
    return y;
  };
  EXPECT_EQ(run({9}), run({1, 3, 5}));
}

}  // namespace
}  // namespace reprise::reference
