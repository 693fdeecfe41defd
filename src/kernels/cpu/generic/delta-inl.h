// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/lanes-inl.h"
#include "kernels/cpu/generic/math-inl.h"

// The gated delta rule, with one decay per token and head or one per key, and its gates: entries of
// KernelTable of the same names.
namespace reprise::cpu {
namespace {

void DeltaGates(const float* a, const float* b, const float* exp_a, const float* dt_bias, int64_t n,
                float* decay, float* beta) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 step = Softplus(Add(LoadPartial(a + i, lanes), LoadPartial(dt_bias + i, lanes)));
    StorePartial(decay + i, Exp(Neg(Mul(LoadPartial(exp_a + i, lanes), step))), lanes);
    StorePartial(beta + i, Sigmoid(LoadPartial(b + i, lanes)), lanes);
  }
}

// Decay of a token for key i: one each, or `all`. A function of plain vectors: GCC keeps a struct
// that holds one in memory and reads it back in another width than it was written.
template <bool kPerKey>
inline V16 DecayOf(const float* row, int i, V16 all) {
  if constexpr (kPerKey) return Set(row[i]);
  return all;
}

// kVectors * 16 columns of the state over all rows. The write of a token and the decay and read of
// the next one share one pass: between tokens the state lies in memory already decayed. The scan is
// passed by value: stores of vectors may alias anything in memory.
template <int kVectors, bool kPartial, bool kPerKey>
void DeltaColumns(const KeyDecayDeltaScan scan, const MatrixState matrix, int column, int lanes) {
  float* const state = matrix.data + column;
  V16 read[kVectors];
#pragma GCC unroll 4
  for (int c = 0; c < kVectors; ++c) read[c] = Zero();
  const V16 first = Set(*scan.decay.data);
  for (int i = 0; i < matrix.keys; ++i) {
    const V16 key = Set(scan.k.data[i]);
    const V16 decay = DecayOf<kPerKey>(scan.decay.data, i, first);
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      float* at = state + i * matrix.stride + 16 * c;
      const V16 s = Mul(LoadLanes<kPartial>(at, lanes), decay);
      read[c] = Fma(s, key, read[c]);
      StoreLanes<kPartial>(at, s, lanes);
    }
  }
  for (int t = 0; t < scan.rows; ++t) {
    const float* k = scan.k.data + t * scan.k.stride;
    const float* q = scan.q.data + t * scan.q.stride;
    V16 delta[kVectors];
    V16 out[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      const float* value = scan.v.data + t * scan.v.stride + column + 16 * c;
      delta[c] = Mul(Set(scan.beta.data[t * scan.beta.stride]),
                     Sub(LoadLanes<kPartial>(value, lanes), read[c]));
      out[c] = Zero();
      read[c] = Zero();
    }
    if (t + 1 < scan.rows) {
      const float* next_k = k + scan.k.stride;
      const float* next_decay = scan.decay.data + (t + 1) * scan.decay.stride;
      const V16 next = Set(*next_decay);
      for (int i = 0; i < matrix.keys; ++i) {
        const V16 key = Set(k[i]);
        const V16 query = Set(q[i]);
        const V16 next_key = Set(next_k[i]);
        const V16 decay = DecayOf<kPerKey>(next_decay, i, next);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) {
          float* at = state + i * matrix.stride + 16 * c;
          V16 s = Fma(key, delta[c], LoadLanes<kPartial>(at, lanes));
          out[c] = Fma(s, query, out[c]);
          s = Mul(s, decay);
          read[c] = Fma(s, next_key, read[c]);
          StoreLanes<kPartial>(at, s, lanes);
        }
      }
    } else {
      for (int i = 0; i < matrix.keys; ++i) {
        const V16 key = Set(k[i]);
        const V16 query = Set(q[i]);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) {
          float* at = state + i * matrix.stride + 16 * c;
          const V16 s = Fma(key, delta[c], LoadLanes<kPartial>(at, lanes));
          out[c] = Fma(s, query, out[c]);
          StoreLanes<kPartial>(at, s, lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      StoreLanes<kPartial>(scan.y + t * scan.y_stride + column + 16 * c, out[c], lanes);
    }
  }
}

// Some of the lines of kVectors vectors at `at`, towards the second-level cache.
template <int kFirst, int kEnd>
inline void AskVectors(const float* at) {
#pragma GCC unroll 8
  for (int c = kFirst; c < kEnd; ++c) __builtin_prefetch(at + 16 * c, 0, 2);
}

// The same for one token: the state is written once, and decays twice instead. What is read next is
// asked for in both passes, so that memory has no rest.
template <int kVectors, bool kPartial, bool kPerKey>
void DeltaToken(const KeyDecayDeltaScan scan, const float* ahead, int column, int lanes) {
  constexpr int kHalf = (kVectors + 1) / 2;
  const int64_t stride = scan.state.stride;
  const int keys = scan.state.keys;
  float* const state = scan.state.data + column;
  const float* const next = ahead != nullptr ? ahead + column : state;
  const V16 first = Set(*scan.decay.data);
  V16 read[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) read[c] = Zero();
  for (int i = 0; i < keys; ++i) {
    AskVectors<0, kHalf>(next + i * stride);
    const V16 key = Set(scan.k.data[i]);
    const V16 decay = DecayOf<kPerKey>(scan.decay.data, i, first);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      const V16 s = Mul(LoadLanes<kPartial>(state + i * stride + 16 * c, lanes), decay);
      read[c] = Fma(s, key, read[c]);
    }
  }
  V16 delta[kVectors];
  V16 out[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    const V16 value = LoadLanes<kPartial>(scan.v.data + column + 16 * c, lanes);
    delta[c] = Mul(Set(*scan.beta.data), Sub(value, read[c]));
    out[c] = Zero();
  }
  for (int i = 0; i < keys; ++i) {
    AskVectors<kHalf, kVectors>(next + i * stride);
    const V16 key = Set(scan.k.data[i]);
    const V16 query = Set(scan.q.data[i]);
    const V16 decay = DecayOf<kPerKey>(scan.decay.data, i, first);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      float* const at = state + i * stride + 16 * c;
      const V16 s = Fma(key, delta[c], Mul(LoadLanes<kPartial>(at, lanes), decay));
      out[c] = Fma(s, query, out[c]);
      StoreLanes<kPartial>(at, s, lanes);
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    StoreLanes<kPartial>(scan.y + column + 16 * c, out[c], lanes);
  }
}

template <bool kPerKey>
void DeltaScan(const KeyDecayDeltaScan& scan, const float* ahead) {
  if (scan.rows <= 0) return;
  if (scan.rows == 1) {
    return ForColumns<kDeltaTokenVectors>(
        scan.state.columns, [&](auto vectors, int column, int lanes, auto partial) {
          DeltaToken<decltype(vectors)::value, decltype(partial)::value, kPerKey>(scan, ahead,
                                                                                  column, lanes);
        });
  }
  OnTile(scan.state, scan.rows, [&](const MatrixState& state) {
    ForColumns<kDeltaVectors>(
        state.columns, [&](auto vectors, int column, int lanes, auto partial) {
          DeltaColumns<decltype(vectors)::value, decltype(partial)::value, kPerKey>(scan, state,
                                                                                    column, lanes);
        });
  });
}

void KeyDecayDelta(const KeyDecayDeltaScan* scan) { DeltaScan<true>(*scan, nullptr); }

void GatedDelta(float* state, int64_t state_stride, int key_dim, int columns, const float* q,
                const float* k, int64_t qk_stride, const float* v, int64_t v_stride,
                const float* decay, const float* beta, int64_t gate_stride, int rows, float* y,
                int64_t y_stride, const float* ahead) {
  DeltaScan<false>({{state, state_stride, key_dim, columns},
                    rows,
                    {q, qk_stride},
                    {k, qk_stride},
                    {decay, gate_stride},
                    {v, v_stride},
                    {beta, gate_stride},
                    y,
                    y_stride},
                   ahead);
}

void OverlayDelta(KernelTable* table) {
  table->delta_gates = DeltaGates;
  table->gated_delta = GatedDelta;
  table->scan.key_decay_delta = KeyDecayDelta;
}

}  // namespace
}  // namespace reprise::cpu
