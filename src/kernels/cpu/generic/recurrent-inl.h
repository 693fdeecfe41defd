// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/math-inl.h"

// Short convolution and gated delta rule: entries of KernelTable of the same names.
namespace reprise::cpu {
namespace {

// Loads and stores of a vector of which only the first n lanes exist where kPartial.
template <bool kPartial>
inline V16 LoadLanes(const float* p, int n) {
  if constexpr (kPartial) return LoadPartial(p, n);
  return Load(p);
}
template <bool kPartial>
inline void StoreLanes(float* p, V16 x, int n) {
  if constexpr (kPartial) {
    StorePartial(p, x, n);
  } else {
    Store(p, x);
  }
}

// Arguments travel by value: stores of vectors may alias anything in memory.
struct ConvArguments {
  const float* x;
  int64_t x_stride;
  const float* weight;
  const float* bias;
  int64_t weight_stride;
  bool silu;
  float* window;
  int64_t window_stride;
  float* y;
  int64_t y_stride;
};

// Rows [begin, end) of up to sixteen channels; the window stays in registers.
template <int kTaps, bool kPartial>
inline void ConvRows(const ConvArguments a, int channel, int lanes, int begin, int end) {
  V16 weight[kTaps];
  V16 past[kTaps];  // the last is the current input
#pragma GCC unroll 8
  for (int j = 0; j < kTaps; ++j) {
    weight[j] = LoadLanes<kPartial>(a.weight + j * a.weight_stride + channel, lanes);
  }
#pragma GCC unroll 8
  for (int j = 0; j + 1 < kTaps; ++j) {
    past[j] = LoadLanes<kPartial>(a.window + j * a.window_stride + channel, lanes);
  }
  const V16 bias = a.bias != nullptr ? LoadLanes<kPartial>(a.bias + channel, lanes) : Zero();
  for (int t = begin; t < end; ++t) {
    past[kTaps - 1] = LoadLanes<kPartial>(a.x + t * a.x_stride + channel, lanes);
    V16 sum = bias;
#pragma GCC unroll 8
    for (int j = 0; j < kTaps; ++j) sum = Fma(weight[j], past[j], sum);
#pragma GCC unroll 8
    for (int j = 0; j + 1 < kTaps; ++j) past[j] = past[j + 1];
    if (a.silu) sum = Silu(sum);
    StoreLanes<kPartial>(a.y + t * a.y_stride + channel, sum, lanes);
  }
#pragma GCC unroll 8
  for (int j = 0; j + 1 < kTaps; ++j) {
    StoreLanes<kPartial>(a.window + j * a.window_stride + channel, past[j], lanes);
  }
}

template <int kTaps>
void ConvTaps(const ConvArguments& a, int rows, int channels) {
  // A few rows at a time: rows are often a power of two apart and share cache sets.
  constexpr int kRows = 8;
  for (int begin = 0; begin < rows; begin += kRows) {
    const int end = begin + kRows < rows ? begin + kRows : rows;
    int c = 0;
    for (; c + 16 <= channels; c += 16) ConvRows<kTaps, false>(a, c, 16, begin, end);
    if (c < channels) ConvRows<kTaps, true>(a, c, channels - c, begin, end);
  }
}

void ShortConv(const float* x, int64_t x_stride, int rows, const float* weight, const float* bias,
               int taps, int64_t weight_stride, int channels, bool silu, float* window,
               int64_t window_stride, float* y, int64_t y_stride) {
  const ConvArguments a = {x,    x_stride, weight,        bias, weight_stride,
                           silu, window,   window_stride, y,    y_stride};
  switch (taps) {
    case 1:
      return ConvTaps<1>(a, rows, channels);
    case 2:
      return ConvTaps<2>(a, rows, channels);
    case 3:
      return ConvTaps<3>(a, rows, channels);
    case 4:
      return ConvTaps<4>(a, rows, channels);
    default:
      break;
  }
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < channels; c += 16) {
      const int n = channels - c < 16 ? channels - c : 16;
      const V16 current = LoadPartial(x + t * x_stride + c, n);
      V16 sum = bias != nullptr ? LoadPartial(bias + c, n) : Zero();
      for (int j = 0; j + 1 < taps; ++j) {
        float* past = window + j * window_stride + c;
        sum = Fma(LoadPartial(weight + j * weight_stride + c, n), LoadPartial(past, n), sum);
        StorePartial(past, j + 2 < taps ? LoadPartial(past + window_stride, n) : current, n);
      }
      sum = Fma(LoadPartial(weight + (taps - 1) * weight_stride + c, n), current, sum);
      StorePartial(y + t * y_stride + c, silu ? Silu(sum) : sum, n);
    }
  }
}

void DeltaGates(const float* a, const float* b, const float* exp_a, const float* dt_bias, int64_t n,
                float* decay, float* beta) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 step = Softplus(Add(LoadPartial(a + i, lanes), LoadPartial(dt_bias + i, lanes)));
    StorePartial(decay + i, Exp(Neg(Mul(LoadPartial(exp_a + i, lanes), step))), lanes);
    StorePartial(beta + i, Sigmoid(LoadPartial(b + i, lanes)), lanes);
  }
}

struct DeltaArguments {
  float* state;
  int64_t state_stride;
  int key_dim;
  const float* q;
  const float* k;
  int64_t qk_stride;
  const float* v;
  int64_t v_stride;
  const float* decay;
  const float* beta;
  int64_t gate_stride;
  int rows;
  float* y;
  int64_t y_stride;
};

// kVectors * 16 columns of the state over all rows. The write of a token and the decay and read of
// the next one share one pass: between tokens the state lies in memory already decayed.
template <int kVectors, bool kPartial>
void DeltaColumns(const DeltaArguments a, int column, int lanes) {
  float* const state = a.state + column;
  V16 read[kVectors];
#pragma GCC unroll 4
  for (int c = 0; c < kVectors; ++c) read[c] = Zero();
  const V16 first_decay = Set(a.decay[0]);
  for (int i = 0; i < a.key_dim; ++i) {
    const V16 key = Set(a.k[i]);
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      float* at = state + i * a.state_stride + 16 * c;
      const V16 s = Mul(LoadLanes<kPartial>(at, lanes), first_decay);
      read[c] = Fma(s, key, read[c]);
      StoreLanes<kPartial>(at, s, lanes);
    }
  }
  for (int t = 0; t < a.rows; ++t) {
    const bool last = t + 1 == a.rows;
    const float* k = a.k + t * a.qk_stride;
    const float* q = a.q + t * a.qk_stride;
    V16 delta[kVectors];
    V16 out[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      const V16 value = LoadLanes<kPartial>(a.v + t * a.v_stride + column + 16 * c, lanes);
      delta[c] = Mul(Set(a.beta[t * a.gate_stride]), Sub(value, read[c]));
      out[c] = Zero();
      read[c] = Zero();
    }
    if (!last) {
      const float* next_k = k + a.qk_stride;
      const V16 next_decay = Set(a.decay[(t + 1) * a.gate_stride]);
      for (int i = 0; i < a.key_dim; ++i) {
        const V16 key = Set(k[i]);
        const V16 query = Set(q[i]);
        const V16 next_key = Set(next_k[i]);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) {
          float* at = state + i * a.state_stride + 16 * c;
          V16 s = Fma(key, delta[c], LoadLanes<kPartial>(at, lanes));
          out[c] = Fma(s, query, out[c]);
          s = Mul(s, next_decay);
          read[c] = Fma(s, next_key, read[c]);
          StoreLanes<kPartial>(at, s, lanes);
        }
      }
    } else {
      for (int i = 0; i < a.key_dim; ++i) {
        const V16 key = Set(k[i]);
        const V16 query = Set(q[i]);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) {
          float* at = state + i * a.state_stride + 16 * c;
          const V16 s = Fma(key, delta[c], LoadLanes<kPartial>(at, lanes));
          out[c] = Fma(s, query, out[c]);
          StoreLanes<kPartial>(at, s, lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      StoreLanes<kPartial>(a.y + t * a.y_stride + column + 16 * c, out[c], lanes);
    }
  }
}

// Moves `columns` columns of the state, `from_stride` apart, to rows `to_stride` apart.
inline void CopyColumns(const float* from, int64_t from_stride, int keys, int columns, float* to,
                        int64_t to_stride) {
  for (int i = 0; i < keys; ++i) {
    int c = 0;
    for (; c + 16 <= columns; c += 16) {
      Store(to + i * to_stride + c, Load(from + i * from_stride + c));
    }
    if (c < columns) {
      const int n = columns - c;
      StorePartial(to + i * to_stride + c, LoadPartial(from + i * from_stride + c, n), n);
    }
  }
}

inline void DeltaRange(const DeltaArguments& a, int columns) {
  int c = 0;
  for (; c + 16 * kDeltaVectors <= columns; c += 16 * kDeltaVectors) {
    DeltaColumns<kDeltaVectors, false>(a, c, 16);
  }
  for (; c + 16 <= columns; c += 16) DeltaColumns<1, false>(a, c, 16);
  if (c < columns) DeltaColumns<1, true>(a, c, columns - c);
}

void GatedDelta(float* state, int64_t state_stride, int key_dim, int columns, const float* q,
                const float* k, int64_t qk_stride, const float* v, int64_t v_stride,
                const float* decay, const float* beta, int64_t gate_stride, int rows, float* y,
                int64_t y_stride) {
  if (rows <= 0) return;
  DeltaArguments a = {state,    state_stride, key_dim, q,           k,    qk_stride, v,
                      v_stride, decay,        beta,    gate_stride, rows, y,         y_stride};
  // The rows of a range of columns share cache sets (they are a power of two apart), so that even
  // a small range does not stay in the first-level cache. Over several tokens a copy pays.
  constexpr int kColumns = 64;
  constexpr int kKeyMax = 128;
  constexpr int kRowsMin = 4;
  if (rows < kRowsMin || key_dim > kKeyMax || columns > kColumns) return DeltaRange(a, columns);
  alignas(64) float tile[kKeyMax * kColumns];
  CopyColumns(state, state_stride, key_dim, columns, tile, kColumns);
  a.state = tile;
  a.state_stride = kColumns;
  DeltaRange(a, columns);
  CopyColumns(tile, kColumns, key_dim, columns, state, state_stride);
}

void OverlayRecurrent(KernelTable* table) {
  table->short_conv = ShortConv;
  table->delta_gates = DeltaGates;
  table->gated_delta = GatedDelta;
}

}  // namespace
}  // namespace reprise::cpu
