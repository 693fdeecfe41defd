// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/scan_table.h"

// Scans with a matrix state as a GPU computes them: sequential over tokens as on the CPU, but a sum
// over the keys of a column is spread over 32 lanes (8 threads with 4 chains each), so that a token
// takes tens of clocks instead of hundreds. The specification of the CUDA kernels' bits.
//
// LaneSum over keys i: key i goes to lane i % 32; a lane is an fma chain in ascending i from +0;
// with q_j = (l[4j] + l[4j+1]) + (l[4j+2] + l[4j+3]) the sum is
// ((q0 + q1) + (q2 + q3)) + ((q4 + q5) + (q6 + q7)).
namespace reprise::reference {

// Gated delta rule, decay per token; per token and column c:
//   r = LaneSum of S[i][c] * k[i]; d = beta * (v[c] - decay * r);
//   S[i][c] = fma(k[i], d, S[i][c] * decay); y[c] = LaneSum of S[i][c] * q[i].
struct LaneDeltaScan {
  cpu::MatrixState state;
  int rows;
  cpu::TokenRows q, k;         // [keys]
  cpu::TokenRows v;            // [columns]
  cpu::TokenRows decay, beta;  // [1]
  float* y;                    // [columns]
  int64_t y_stride;
};
void LaneDelta(const LaneDeltaScan& scan);

// With a decay per key: r = LaneSum of (S[i][c] * decay[i]) * k[i]; d = beta * (v[c] - r);
//   S[i][c] = fma(k[i], d, S[i][c] * decay[i]); y[c] = LaneSum of S[i][c] * q[i].
void LaneKeyDecayDelta(const cpu::KeyDecayDeltaScan& scan);

// Mamba-2: S[i][c] = fma(b[i], dt * x[c], S[i][c] * decay); y[c] = fma(skip, x[c], LaneSum of
// S[i][c] * c[i]).
void LaneSsd(const cpu::SsdScan& scan);

// RWKV-7: s = LaneSum of S[i][c] * a[i]; S[i][c] = fma(S[i][c], w[i], fma(s, b[i], v[c] * k[i]));
//   y[c] = LaneSum of S[i][c] * r[i].
void LaneWkv7(const cpu::Wkv7Scan& scan);

}  // namespace reprise::reference
