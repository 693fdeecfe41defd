// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arm_neon.h>

#include <cstdint>

// The vector vocabulary of kernels/cpu/generic (see its README): 16 floats in four registers.
namespace reprise::cpu {
namespace {

struct V16 {
  float32x4_t v[4];
};
struct Mask16 {
  uint32x4_t v[4];
};

// Register tile of attention: kTileQueries x kTileVectors accumulators.
constexpr int kTileQueries = 6;
constexpr int kTileVectors = 1;
// Vectors of columns that the gated delta rule takes at a time.
constexpr int kDeltaVectors = 1;
// The same for one token, whose state is read twice and kept once.
constexpr int kDeltaTokenVectors = 2;
// Tile of a scan that several tokens pass at once.
constexpr int kScanVectors = 1;
constexpr int kScanTokens = 2;
// Vectors that multiply-adds need at a time to hide their latency.
constexpr int kPeakVectors = 4;

template <typename F>
inline V16 Each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
inline uint32x4_t Bits(float32x4_t v) { return vreinterpretq_u32_f32(v); }
inline float32x4_t Floats(uint32x4_t v) { return vreinterpretq_f32_u32(v); }

inline V16 Set(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
inline V16 Zero() { return Set(0); }
inline V16 Load(const float* p) {
  return Each([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline void Store(float* p, V16 x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
}

// f16
inline V16 Load(const uint16_t* p) {
  return Each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
inline void Store(uint16_t* p, V16 x) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
// Rounded to f16 and back.
inline V16 RoundF16(V16 x) {
  return Each([&](int i) { return vcvt_f32_f16(vcvt_f16_f32(x.v[i])); });
}
inline V16 Load(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
inline V16 LoadBF16(const uint16_t* p) {
  return Each([&](int i) { return Floats(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}

template <typename Element>
inline void CopyElements(const Element* from, int n, Element* to) {
  for (int i = 0; i < n; ++i) to[i] = from[i];
}
template <typename Element>
inline V16 LoadPartial(const Element* p, int n) {
  if (n == 16) return Load(p);
  Element whole[16] = {};
  CopyElements(p, n, whole);
  return Load(whole);
}
template <typename Element>
inline void StorePartial(Element* p, V16 x, int n) {
  if (n == 16) return Store(p, x);
  Element whole[16];
  Store(whole, x);
  CopyElements(whole, n, p);
}
inline V16 LoadPartialBF16(const uint16_t* p, int n) {
  uint16_t whole[16] = {};
  CopyElements(p, n, whole);
  return LoadBF16(whole);
}

inline V16 Add(V16 a, V16 b) {
  return Each([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline V16 Sub(V16 a, V16 b) {
  return Each([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline V16 Mul(V16 a, V16 b) {
  return Each([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline V16 Div(V16 a, V16 b) {
  return Each([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
inline V16 Sqrt(V16 a) {
  return Each([&](int i) { return vsqrtq_f32(a.v[i]); });
}
inline V16 Fma(V16 a, V16 b, V16 c) {
  return Each([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline V16 Neg(V16 a) {
  return Each([&](int i) { return vnegq_f32(a.v[i]); });
}
inline V16 Abs(V16 a) {
  return Each([&](int i) { return vabsq_f32(a.v[i]); });
}
// `magnitude` >= 0 (or NaN) with the sign of `sign` set.
inline V16 OrSign(V16 magnitude, V16 sign) {
  const uint32x4_t bit = vdupq_n_u32(0x80000000);
  return Each([&](int i) {
    return Floats(vorrq_u32(Bits(magnitude.v[i]), vandq_u32(bit, Bits(sign.v[i]))));
  });
}

inline Mask16 Less(V16 a, V16 b) {
  return {{vcltq_f32(a.v[0], b.v[0]), vcltq_f32(a.v[1], b.v[1]), vcltq_f32(a.v[2], b.v[2]),
           vcltq_f32(a.v[3], b.v[3])}};
}
inline V16 Select(Mask16 mask, V16 yes, V16 no) {
  return Each([&](int i) { return vbslq_f32(mask.v[i], yes.v[i], no.v[i]); });
}
// a < b ? a : b; not fmin, which returns NaN for a NaN in a.
inline V16 Min(V16 a, V16 b) { return Select(Less(a, b), a, b); }
// a > b ? a : b
inline V16 Max(V16 a, V16 b) { return Select(Less(b, a), a, b); }

// The bits of each lane shifted left by 23, as a float.
inline V16 ShiftToExponent(V16 a) {
  return Each([&](int i) { return Floats(vshlq_n_u32(Bits(a.v[i]), 23)); });
}

// Lanes [begin, end). REQUIRES: 0 <= begin, end <= 16.
inline Mask16 Lanes(int begin, int end) {
  alignas(16) static constexpr int32_t kIndex[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
  const int32x4_t from = vdupq_n_s32(begin), to = vdupq_n_s32(end);
  Mask16 mask;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t lane = vld1q_s32(kIndex + 4 * i);
    mask.v[i] = vandq_u32(vcgeq_s32(lane, from), vcltq_s32(lane, to));
  }
  return mask;
}

// REQUIRES: no lane is NaN.
inline float MaxLanes(V16 a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
}
// l[i] += l[i+8]; l[i] += l[i+4]; l[i] += l[i+2]; l[0] += l[1].
inline float SumLanes(V16 a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// rows[i] lane j becomes rows[j] lane i.
inline void Transpose(V16 (&rows)[16]) {
  V16 out[16];
  for (int i = 0; i < 4; ++i) {    // rows 4 * i..
    for (int j = 0; j < 4; ++j) {  // lanes 4 * j..
      const float32x4x2_t ab = vtrnq_f32(rows[4 * i].v[j], rows[4 * i + 1].v[j]);
      const float32x4x2_t cd = vtrnq_f32(rows[4 * i + 2].v[j], rows[4 * i + 3].v[j]);
      out[4 * j].v[i] = vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0]));
      out[4 * j + 1].v[i] = vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1]));
      out[4 * j + 2].v[i] = vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0]));
      out[4 * j + 3].v[i] = vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1]));
    }
  }
  for (int i = 0; i < 16; ++i) rows[i] = out[i];
}

}  // namespace
}  // namespace reprise::cpu
