// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/lanes-inl.h"
#include "kernels/cpu/generic/math-inl.h"

// Scans of Mamba, Mamba-2, RWKV-7 and Griffin: entries of ScanKernels of the same names. Scans are
// passed by value: stores of vectors may alias anything in memory.
namespace reprise::cpu {
namespace {

inline const float* Row(const TokenRows& rows, int t) { return rows.data + t * rows.stride; }

// Rows [t, t + kTokens) of kVectors * 16 columns: a piece of the state is loaded and stored once
// for all of them, since what a token reads of it needs nothing but the same piece of its
// predecessor.
template <int kVectors, int kTokens, bool kPartial>
inline void SsdTokens(const SsdScan scan, const MatrixState matrix, int column, int lanes, int t) {
  float* const state = matrix.data + column;
  const float* b[kTokens];
  const float* c[kTokens];
  V16 decay[kTokens];
  V16 u[kTokens][kVectors];
  V16 out[kTokens][kVectors];
#pragma GCC unroll 8
  for (int n = 0; n < kTokens; ++n) {
    b[n] = Row(scan.b, t + n);
    c[n] = Row(scan.c, t + n);
    decay[n] = Set(*Row(scan.decay, t + n));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const float* x = Row(scan.x, t + n) + column + 16 * v;
      u[n][v] = Mul(Set(*Row(scan.dt, t + n)), LoadLanes<kPartial>(x, lanes));
      out[n][v] = Zero();
    }
  }
  for (int i = 0; i < matrix.keys; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* at = state + i * matrix.stride + 16 * v;
      V16 s = LoadLanes<kPartial>(at, lanes);
#pragma GCC unroll 8
      for (int n = 0; n < kTokens; ++n) {
        s = Fma(Set(b[n][i]), u[n][v], Mul(s, decay[n]));
        out[n][v] = Fma(s, Set(c[n][i]), out[n][v]);
      }
      StoreLanes<kPartial>(at, s, lanes);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < kTokens; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const V16 x = LoadLanes<kPartial>(Row(scan.x, t + n) + column + 16 * v, lanes);
      StoreLanes<kPartial>(scan.y + (t + n) * scan.y_stride + column + 16 * v,
                           Fma(Set(scan.skip), x, out[n][v]), lanes);
    }
  }
}

void Ssd(const SsdScan* scan) {
  int t = 0;
  OnTile(scan->state, scan->rows, [&](const MatrixState& state) {
    for (; t + kScanTokens <= scan->rows; t += kScanTokens) {
      ForColumns<kScanVectors>(
          state.columns, [&](auto vectors, int column, int lanes, auto partial) {
            SsdTokens<decltype(vectors)::value, kScanTokens, decltype(partial)::value>(
                *scan, state, column, lanes, t);
          });
    }
    for (; t < scan->rows; ++t) {
      ForColumns<kDeltaVectors>(state.columns,
                                [&](auto vectors, int column, int lanes, auto partial) {
                                  SsdTokens<decltype(vectors)::value, 1, decltype(partial)::value>(
                                      *scan, state, column, lanes, t);
                                });
    }
  });
}

// The write of a token and the read of the next one share one pass.
template <int kVectors, bool kPartial>
void Wkv7Columns(const Wkv7Scan scan, const MatrixState matrix, int column, int lanes) {
  float* const state = matrix.data + column;
  V16 read[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) read[v] = Zero();
  for (int i = 0; i < matrix.keys; ++i) {
    const V16 a = Set(scan.a.data[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      read[v] = Fma(LoadLanes<kPartial>(state + i * matrix.stride + 16 * v, lanes), a, read[v]);
    }
  }
  for (int t = 0; t < scan.rows; ++t) {
    const float* r = Row(scan.r, t);
    const float* w = Row(scan.w, t);
    const float* k = Row(scan.k, t);
    const float* b = Row(scan.b, t);
    // The read of the last token's successor is computed and dropped.
    const float* next_a = Row(scan.a, t + 1 < scan.rows ? t + 1 : t);
    V16 value[kVectors];
    V16 now[kVectors];
    V16 out[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = LoadLanes<kPartial>(Row(scan.v, t) + column + 16 * v, lanes);
      now[v] = read[v];
      read[v] = Zero();
      out[v] = Zero();
    }
    for (int i = 0; i < matrix.keys; ++i) {
      const V16 key = Set(k[i]);
      const V16 erase = Set(b[i]);
      const V16 decay = Set(w[i]);
      const V16 query = Set(r[i]);
      const V16 next = Set(next_a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* at = state + i * matrix.stride + 16 * v;
        const V16 add = Fma(now[v], erase, Mul(value[v], key));
        const V16 s = Fma(LoadLanes<kPartial>(at, lanes), decay, add);
        out[v] = Fma(s, query, out[v]);
        read[v] = Fma(s, next, read[v]);
        StoreLanes<kPartial>(at, s, lanes);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      StoreLanes<kPartial>(scan.y + t * scan.y_stride + column + 16 * v, out[v], lanes);
    }
  }
}

void Wkv7(const Wkv7Scan* scan) {
  if (scan->rows <= 0) return;
  OnTile(scan->state, scan->rows, [&](const MatrixState& state) {
    ForColumns<kDeltaVectors>(state.columns, [&](auto vectors, int column, int lanes,
                                                 auto partial) {
      Wkv7Columns<decltype(vectors)::value, decltype(partial)::value>(*scan, state, column, lanes);
    });
  });
}

// Rows [t, t + kTokens) of up to sixteen channels. As above, one pass over the state for all of
// them; it also keeps several exponentials under way.
template <int kTokens, bool kPartial>
inline void SelectiveTokens(const SelectiveScan scan, int channel, int lanes, int t) {
  float* const state = scan.state.data + channel;
  const float* const a = scan.a + channel;
  const float* b[kTokens];
  const float* c[kTokens];
  V16 dt[kTokens];
  V16 u[kTokens];
  V16 out[kTokens];
#pragma GCC unroll 8
  for (int n = 0; n < kTokens; ++n) {
    b[n] = Row(scan.b, t + n);
    c[n] = Row(scan.c, t + n);
    dt[n] = LoadLanes<kPartial>(Row(scan.dt, t + n) + channel, lanes);
    u[n] = Mul(dt[n], LoadLanes<kPartial>(Row(scan.x, t + n) + channel, lanes));
    out[n] = Zero();
  }
  for (int i = 0; i < scan.state.keys; ++i) {
    float* at = state + i * scan.state.stride;
    const V16 rate = LoadLanes<kPartial>(a + i * scan.a_stride, lanes);
    V16 s = LoadLanes<kPartial>(at, lanes);
#pragma GCC unroll 8
    for (int n = 0; n < kTokens; ++n) {
      s = Fma(Exp(Mul(dt[n], rate)), s, Mul(u[n], Set(b[n][i])));
      out[n] = Fma(s, Set(c[n][i]), out[n]);
    }
    StoreLanes<kPartial>(at, s, lanes);
  }
  const V16 skip = LoadLanes<kPartial>(scan.skip + channel, lanes);
#pragma GCC unroll 8
  for (int n = 0; n < kTokens; ++n) {
    const V16 x = LoadLanes<kPartial>(Row(scan.x, t + n) + channel, lanes);
    StoreLanes<kPartial>(scan.y + (t + n) * scan.y_stride + channel, Fma(skip, x, out[n]), lanes);
  }
}

void Selective(const SelectiveScan* scan) {
  int t = 0;
  for (; t + kScanTokens <= scan->rows; t += kScanTokens) {
    ForColumns<1>(scan->state.columns, [&](auto, int channel, int lanes, auto partial) {
      SelectiveTokens<kScanTokens, decltype(partial)::value>(*scan, channel, lanes, t);
    });
  }
  for (; t < scan->rows; ++t) {
    ForColumns<1>(scan->state.columns, [&](auto, int channel, int lanes, auto partial) {
      SelectiveTokens<1, decltype(partial)::value>(*scan, channel, lanes, t);
    });
  }
}

template <bool kPartial>
inline void RgLruRows(const RgLruScan scan, int channel, int lanes, int begin, int end) {
  V16 s = LoadLanes<kPartial>(scan.state + channel, lanes);
  const V16 rate = LoadLanes<kPartial>(scan.rate + channel, lanes);
  for (int t = begin; t < end; ++t) {
    const V16 r = LoadLanes<kPartial>(Row(scan.r, t) + channel, lanes);
    const V16 i = LoadLanes<kPartial>(Row(scan.i, t) + channel, lanes);
    const V16 x = LoadLanes<kPartial>(Row(scan.x, t) + channel, lanes);
    const V16 l = Neg(Mul(rate, Sigmoid(r)));
    const V16 gated = Mul(x, Sigmoid(i));
    const V16 rest = Sqrt(Sub(Set(1.0f), Exp(Add(l, l))));
    s = scan.reset && t == 0 ? gated : Fma(Exp(l), s, Mul(gated, rest));
    StoreLanes<kPartial>(scan.y + t * scan.y_stride + channel, s, lanes);
  }
  StoreLanes<kPartial>(scan.state + channel, s, lanes);
}

void RgLru(const RgLruScan* scan) {
  constexpr int kRows = 8;
  for (int begin = 0; begin < scan->rows; begin += kRows) {
    const int end = begin + kRows < scan->rows ? begin + kRows : scan->rows;
    ForColumns<1>(scan->columns, [&](auto, int channel, int lanes, auto partial) {
      RgLruRows<decltype(partial)::value>(*scan, channel, lanes, begin, end);
    });
  }
}

void DecayRow(const float* x, const float* bias, const float* rate, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 step = Softplus(Add(LoadPartial(x + i, lanes), LoadPartial(bias + i, lanes)));
    StorePartial(y + i, Exp(Neg(Mul(LoadPartial(rate + i, lanes), step))), lanes);
  }
}

void SsdGates(const float* x, const float* bias, const float* a, float low, float high, int64_t n,
              float* dt, float* decay) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    V16 step = Softplus(Add(LoadPartial(x + i, lanes), LoadPartial(bias + i, lanes)));
    step = Min(Set(high), Max(Set(low), step));
    StorePartial(dt + i, step, lanes);
    StorePartial(decay + i, Exp(Mul(step, LoadPartial(a + i, lanes))), lanes);
  }
}

void OverlayScans(KernelTable* table) {
  table->scan.ssd = Ssd;
  table->scan.wkv7 = Wkv7;
  table->scan.selective = Selective;
  table->scan.rg_lru = RgLru;
  table->scan.decay = DecayRow;
  table->scan.ssd_gates = SsdGates;
}

}  // namespace
}  // namespace reprise::cpu
