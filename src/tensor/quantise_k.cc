// SPDX-License-Identifier: Apache-2.0
// Quantisers that search. For each sub-block a number of trial scales is tried; each trial rounds
// the values to integers, and for those integers the best scale (and minimum) follows from weighted
// least squares. The trial with the smallest error wins. The scales of the sub-blocks are then
// rounded against the super-block's `d`, and the values rounded once more with the scales that a
// reader will see. Large values weigh more: they carry most of a dot product.
//
// Sums run over eight lanes and are combined in one order, so the result is the same everywhere.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/encode.h"
#include "tensor/half.h"

namespace reprise {
namespace {

constexpr int kSuper = 256;
constexpr int kLanes = 8;

struct Lanes {
  float lane[kLanes] = {};
  float Sum() const {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
};

// The values of a sub-block with their weights.
template <int kSize>
struct Run {
  const float* x;
  float weight[kSize];
  float sum_w = 0.0f, sum_x = 0.0f;  // weighted

  explicit Run(const float* values) : x(values) {
    Lanes squares;
    for (int i = 0; i < kSize; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) squares.lane[j] += x[i + j] * x[i + j];
    }
    const float rms = std::sqrt(squares.Sum() / float(kSize));
    Lanes w, wx;
    for (int i = 0; i < kSize; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        weight[i + j] = rms + std::fabs(x[i + j]);
        w.lane[j] += weight[i + j];
        wx.lane[j] += weight[i + j] * x[i + j];
      }
    }
    sum_w = w.Sum();
    sum_x = wx.Sum();
  }
};

// Weighted sums of the integers q of a trial, and of their products with x.
struct Moments {
  float q, qq, xq;
};

template <int kSize>
Moments MomentsOf(const Run<kSize>& run, const float* q) {
  Lanes sum_q, sum_qq, sum_xq;
  for (int i = 0; i < kSize; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float wq = run.weight[i + j] * q[i + j];
      sum_q.lane[j] += wq;
      sum_qq.lane[j] += wq * q[i + j];
      sum_xq.lane[j] += wq * run.x[i + j];
    }
  }
  return {sum_q.Sum(), sum_qq.Sum(), sum_xq.Sum()};
}

// x is about scale * q - min, with q in [0, top] and min >= 0.
struct Affine {
  float scale = 0.0f;
  float min = 0.0f;
};

// What of the weighted squares of x the fit explains: error = sum(w x x) - gain.
template <int kSize>
float GainOf(const Run<kSize>& run, const Moments& m, const Affine& fit) {
  const float s = fit.scale, b = fit.min;
  return 2.0f * (s * m.xq - b * run.sum_x) -
         (s * s * m.qq - 2.0f * s * b * m.q + b * b * run.sum_w);
}

// The best scale and min >= 0 for given integers.
template <int kSize>
Affine Solve(const Run<kSize>& run, const Moments& m) {
  const float determinant = run.sum_w * m.qq - m.q * m.q;
  if (determinant > 0.0f) {
    const Affine fit{(run.sum_w * m.xq - run.sum_x * m.q) / determinant,
                     (m.q * m.xq - m.qq * run.sum_x) / determinant};
    if (fit.min >= 0.0f) return fit;
  }
  return {m.qq > 0.0f ? m.xq / m.qq : 0.0f, 0.0f};
}

template <int kSize>
Affine FitAffine(const Run<kSize>& run, int top) {
  constexpr int kTrials = 20;
  float low = 0.0f, high = run.x[0];
  for (int i = 0; i < kSize; ++i) {
    low = std::min(low, run.x[i]);
    high = std::max(high, run.x[i]);
  }
  if (!(high > low)) return {0.0f, -low};  // all equal and not positive
  Affine best;
  float best_gain = -INFINITY;
  for (int trial = 0; trial <= kTrials; ++trial) {
    const float inverse = (float(top) - 1.0f + 0.1f * float(trial)) / (high - low);
    float q[kSize];
    for (int i = 0; i < kSize; ++i) {
      q[i] = NearestClamped((run.x[i] - low) * inverse, 0.0f, float(top));
    }
    const Moments moments = MomentsOf(run, q);
    const Affine fit = Solve(run, moments);
    const float gain = GainOf(run, moments, fit);
    if (gain > best_gain) {
      best_gain = gain;
      best = fit;
    }
  }
  return best;
}

// The levels a symmetric type offers: q in [-half, half - 1], or the table of the IQ4 types.
struct UniformLevels {
  float half;
  float Extreme() const { return -half; }
  float Nearest(float v) const { return NearestClamped(v, -half, half - 1.0f); }
};

int NearestIQ4(float v) {
  int index = 0;
  for (int step = 8; step > 0; step /= 2) {
    const int at = index + step;
    const float middle = 0.5f * float(kIQ4Values[at - 1] + kIQ4Values[at]);
    if (v > middle) index = at;
  }
  return index;
}

struct IQ4Levels {
  float Extreme() const { return kIQ4Values[0]; }
  float Nearest(float v) const { return float(kIQ4Values[NearestIQ4(v)]); }
};

// x is about scale * level. `step` is the distance between trials, in levels.
template <int kSize, typename Levels>
float FitScale(const Run<kSize>& run, const Levels& levels, float step) {
  constexpr int kTrials = 9;  // on either side
  float extreme = 0.0f;
  for (int i = 0; i < kSize; ++i) {
    if (std::fabs(run.x[i]) > std::fabs(extreme)) extreme = run.x[i];
  }
  if (extreme == 0.0f) return 0.0f;
  float best = 0.0f, best_gain = 0.0f;
  for (int trial = -kTrials; trial <= kTrials; ++trial) {
    const float inverse = (levels.Extreme() + step * float(trial)) / extreme;
    float q[kSize];
    for (int i = 0; i < kSize; ++i) q[i] = levels.Nearest(run.x[i] * inverse);
    const Moments moments = MomentsOf(run, q);
    if (moments.qq > 0.0f && moments.xq * moments.xq > best_gain * moments.qq) {
      best = moments.xq / moments.qq;
      best_gain = moments.xq * best;
    }
  }
  return best;
}

float Inverse(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }

// Rounds scales >= 0 to [0, top] against a common f16 factor, which is returned.
uint16_t RoundScales(const float* scales, int count, int top, uint8_t* rounded) {
  const float largest = *std::max_element(scales, scales + count);
  const uint16_t d = F32ToF16(largest / float(top));
  const float inverse = Inverse(F16ToF32(d));
  for (int s = 0; s < count; ++s) {
    rounded[s] = uint8_t(RoundClamped(scales[s] * inverse, 0.0f, float(top)));
  }
  return d;
}

// Rounds scales of either sign to [-half, half - 1]; the largest becomes -half.
uint16_t RoundSignedScales(const float* scales, int count, int half, int8_t* rounded) {
  float extreme = 0.0f;
  for (int s = 0; s < count; ++s) {
    if (std::fabs(scales[s]) > std::fabs(extreme)) extreme = scales[s];
  }
  const uint16_t d = F32ToF16(extreme / -float(half));
  const float inverse = Inverse(F16ToF32(d));
  for (int s = 0; s < count; ++s) {
    rounded[s] = int8_t(RoundClamped(scales[s] * inverse, -float(half), float(half) - 1.0f));
  }
  return d;
}

// A super-block of an affine type: quantised scales and minima, and integers in [0, top].
struct AffineSuper {
  uint16_t d, dmin;
  uint8_t scale[16], min[16];
  uint8_t q[kSuper];
};

template <int kSize>
AffineSuper QuantiseAffine(const float* in, int top, int scale_top) {
  constexpr int kSubs = kSuper / kSize;
  float scales[16], minima[16];
  for (int s = 0; s < kSubs; ++s) {
    const Affine fit = FitAffine(Run<kSize>(in + s * kSize), top);
    scales[s] = std::max(fit.scale, 0.0f);
    minima[s] = fit.min;
  }
  AffineSuper super;
  super.d = RoundScales(scales, kSubs, scale_top, super.scale);
  super.dmin = RoundScales(minima, kSubs, scale_top, super.min);
  for (int s = 0; s < kSubs; ++s) {
    const float scale = F16ToF32(super.d) * float(super.scale[s]);
    const float min = F16ToF32(super.dmin) * float(super.min[s]);
    const float inverse = Inverse(scale);
    for (int e = s * kSize; e < (s + 1) * kSize; ++e) {
      super.q[e] = uint8_t(RoundClamped((in[e] + min) * inverse, 0.0f, float(top)));
    }
  }
  return super;
}

// A super-block of a symmetric type of 16 sub-blocks: q is stored with an offset of `half`.
struct SymmetricSuper {
  uint16_t d;
  int8_t scale[16];
  uint8_t q[kSuper];
};

SymmetricSuper QuantiseSymmetric(const float* in, int half, int scale_half) {
  constexpr int kSub = 16;
  float scales[16];
  for (int s = 0; s < 16; ++s) {
    scales[s] = FitScale(Run<kSub>(in + s * kSub), UniformLevels{float(half)}, 0.1f);
  }
  SymmetricSuper super;
  super.d = RoundSignedScales(scales, 16, scale_half, super.scale);
  for (int e = 0; e < kSuper; ++e) {
    const float inverse = Inverse(F16ToF32(super.d) * float(super.scale[e / kSub]));
    const int q = RoundClamped(in[e] * inverse, -float(half), float(half) - 1.0f);
    super.q[e] = uint8_t(q + half);
  }
  return super;
}

void PackTwoBits(const uint8_t* q, uint8_t* qs) {
  std::memset(qs, 0, 64);
  for (int e = 0; e < kSuper; ++e) {
    uint8_t& byte = qs[e / 128 * 32 + e % 32];
    byte = uint8_t(byte | (q[e] & 3) << (e % 128 / 32 * 2));
  }
}

void PackScalesQ4(const AffineSuper& super, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = uint8_t(super.scale[j] | super.scale[j + 4] >> 4 << 6);
    out[j + 4] = uint8_t(super.min[j] | super.min[j + 4] >> 4 << 6);
    out[j + 8] = uint8_t((super.scale[j + 4] & 15) | (super.min[j + 4] & 15) << 4);
  }
}

void PackNibblesQ4(const uint8_t* q, uint8_t* qs) {
  for (int p = 0; p < 4; ++p) {
    for (int l = 0; l < 32; ++l) {
      qs[32 * p + l] = uint8_t((q[64 * p + l] & 15) | (q[64 * p + 32 + l] & 15) << 4);
    }
  }
}

void PackLevels(const float* in, float scale, uint8_t* qs) {
  const float inverse = Inverse(scale);
  for (int j = 0; j < 16; ++j) {
    const int low = NearestIQ4(in[j] * inverse), high = NearestIQ4(in[j + 16] * inverse);
    qs[j] = uint8_t(low | high << 4);
  }
}

}  // namespace

void Encode(const float* in, BlockQ2_K* block) {
  const AffineSuper super = QuantiseAffine<16>(in, 3, 15);
  block->d = super.d;
  block->dmin = super.dmin;
  for (int s = 0; s < 16; ++s) block->scales[s] = uint8_t(super.scale[s] | super.min[s] << 4);
  PackTwoBits(super.q, block->qs);
}

void Encode(const float* in, BlockQ3_K* block) {
  const SymmetricSuper super = QuantiseSymmetric(in, 4, 32);
  block->d = super.d;
  std::memset(block->scales, 0, sizeof block->scales);
  for (int s = 0; s < 16; ++s) {
    const int scale = super.scale[s] + 32;
    uint8_t& low = block->scales[s % 8];
    uint8_t& high = block->scales[8 + s % 4];
    low = uint8_t(low | (scale & 15) << (s / 8 * 4));
    high = uint8_t(high | scale >> 4 << (s / 4 * 2));
  }
  PackTwoBits(super.q, block->qs);
  std::memset(block->hmask, 0, sizeof block->hmask);
  for (int e = 0; e < kSuper; ++e) {
    uint8_t& byte = block->hmask[e % 32];
    byte = uint8_t(byte | super.q[e] >> 2 << (e / 32));
  }
}

void Encode(const float* in, BlockQ4_K* block) {
  const AffineSuper super = QuantiseAffine<32>(in, 15, 63);
  block->d = super.d;
  block->dmin = super.dmin;
  PackScalesQ4(super, block->scales);
  PackNibblesQ4(super.q, block->qs);
}

void Encode(const float* in, BlockQ5_K* block) {
  const AffineSuper super = QuantiseAffine<32>(in, 31, 63);
  block->d = super.d;
  block->dmin = super.dmin;
  PackScalesQ4(super, block->scales);
  PackNibblesQ4(super.q, block->qs);
  std::memset(block->qh, 0, sizeof block->qh);
  for (int e = 0; e < kSuper; ++e) {
    uint8_t& byte = block->qh[e % 32];
    byte = uint8_t(byte | super.q[e] >> 4 << (e / 32));
  }
}

void Encode(const float* in, BlockQ6_K* block) {
  const SymmetricSuper super = QuantiseSymmetric(in, 32, 128);
  block->d = super.d;
  std::memcpy(block->scales, super.scale, sizeof block->scales);
  std::memset(block->ql, 0, sizeof block->ql);
  std::memset(block->qh, 0, sizeof block->qh);
  for (int e = 0; e < kSuper; ++e) {
    const int half = e / 128, k = e % 128 / 32, l = e % 32;
    uint8_t& low = block->ql[64 * half + 32 * (k & 1) + l];
    uint8_t& high = block->qh[32 * half + l];
    low = uint8_t(low | (super.q[e] & 15) << (k / 2 * 4));
    high = uint8_t(high | super.q[e] >> 4 << (2 * k));
  }
}

void Encode(const float* in, BlockIQ4_NL* block) {
  block->d = F32ToF16(FitScale(Run<32>(in), IQ4Levels{}, 1.0f));
  PackLevels(in, F16ToF32(block->d), block->qs);
}

void Encode(const float* in, BlockIQ4_XS* block) {
  float scales[8];
  int8_t rounded[8];
  for (int s = 0; s < 8; ++s) scales[s] = FitScale(Run<32>(in + 32 * s), IQ4Levels{}, 1.0f);
  block->d = RoundSignedScales(scales, 8, 32, rounded);
  block->scales_h = 0;
  std::memset(block->scales_l, 0, sizeof block->scales_l);
  for (int s = 0; s < 8; ++s) {
    const int scale = rounded[s] + 32;
    uint8_t& low = block->scales_l[s / 2];
    low = uint8_t(low | (scale & 15) << (s % 2 * 4));
    block->scales_h = uint16_t(block->scales_h | scale >> 4 << (2 * s));
    PackLevels(in + 32 * s, F16ToF32(block->d) * float(rounded[s]), block->qs + 16 * s);
  }
}

}  // namespace reprise
