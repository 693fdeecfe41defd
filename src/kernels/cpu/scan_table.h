// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Scans over tokens with a state, beside those in table.h: the part of KernelTable that recurrent
// families need. Sequential by definition, so any cut of the rows into calls gives the same bits.
// Plain C, as table.h.
namespace reprise::cpu {

// An operand with one row per token.
struct TokenRows {
  const float* data;
  int64_t stride;  // floats from one token's row to the next
};

// Columns [0, columns) of a matrix state [keys, stride]. Columns are independent of each other.
struct MatrixState {
  float* data;
  int64_t stride;
  int keys;
  int columns;
};

// Gated delta rule with a decay per key (KDA); per token and column c:
//   S[i][c] *= decay[i]; r = fma chain over i of S[i][c] * k[i] from +0; d = beta * (v[c] - r);
//   S[i][c] = fma(k[i], d, S[i][c]); y[c] = fma chain over i of S[i][c] * q[i] from +0.
struct KeyDecayDeltaScan {
  MatrixState state;
  int rows;
  TokenRows q, k, decay;  // [keys]
  TokenRows v;            // [columns]
  TokenRows beta;         // [1]
  float* y;               // [columns]
  int64_t y_stride;
};

// State space dual form (Mamba-2), one head; per token and column c:
//   S[i][c] *= decay; S[i][c] = fma(b[i], dt * x[c], S[i][c]);
//   y[c] = fma(skip, x[c], fma chain over i of S[i][c] * c[i] from +0).
struct SsdScan {
  MatrixState state;
  int rows;
  TokenRows b, c;       // [keys]
  TokenRows x;          // [columns]
  TokenRows dt, decay;  // [1]
  float skip;
  float* y;  // [columns]
  int64_t y_stride;
};

// WKV of RWKV-7, one head; the state is [key, value]. Per token and column c:
//   s = fma chain over i of S[i][c] * a[i] from +0;
//   S[i][c] = fma(S[i][c], w[i], fma(s, b[i], v[c] * k[i]));
//   y[c] = fma chain over i of S[i][c] * r[i] from +0.
struct Wkv7Scan {
  MatrixState state;
  int rows;
  TokenRows r, w, k, a, b;  // [keys]
  TokenRows v;              // [columns]
  float* y;                 // [columns]
  int64_t y_stride;
};

// Selective scan (Mamba-1) of a range of channels; state [n, stride]. Per token and channel c:
//   u = dt[c] * x[c]; for i ascending: S[i][c] = fma(exp(dt[c] * a[i][c]), S[i][c], u * b[i]);
//   y[c] = fma(skip[c], x[c], fma chain over i of S[i][c] * c[i] from +0).
struct SelectiveScan {
  MatrixState state;  // keys = n
  int rows;
  const float* a;  // [n, a_stride], negative
  int64_t a_stride;
  const float* skip;  // [columns]
  TokenRows x, dt;    // [columns]
  TokenRows b, c;     // [n]
  float* y;           // [columns]
  int64_t y_stride;
};

// Real-gated linear recurrent unit (Griffin) of a range of channels; state [columns]. Per channel:
//   l = -(rate * sigmoid(r)); g = x * sigmoid(i);
//   s = fma(exp(l), s, g * sqrt(1 - exp(l + l))); y = s.
// Where `reset`, the first row starts the sequence: s = g.
struct RgLruScan {
  float* state;
  int columns;
  int rows;
  bool reset;
  const float* rate;  // [columns], 8 * softplus(lambda)
  TokenRows x, r, i;  // [columns]
  float* y;           // [columns]
  int64_t y_stride;
};

struct ScanKernels {
  void (*key_decay_delta)(const KeyDecayDeltaScan* scan);
  void (*ssd)(const SsdScan* scan);
  void (*wkv7)(const Wkv7Scan* scan);
  void (*selective)(const SelectiveScan* scan);
  void (*rg_lru)(const RgLruScan* scan);
  // y = exp(-(rate * softplus(x + bias))).
  void (*decay)(const float* x, const float* bias, const float* rate, int64_t n, float* y);
  // dt = min(max(softplus(x + bias), low), high); decay = exp(dt * a).
  void (*ssd_gates)(const float* x, const float* bias, const float* a, float low, float high,
                    int64_t n, float* dt, float* decay);
};

}  // namespace reprise::cpu
