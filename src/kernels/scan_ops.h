// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/ops.h"

// Scans of recurrent families beside the gated delta rule of ops.h, under the same law: each
// sequence's state is read and left after its last row; the bits depend on the sequence alone.
// States are f32 and hold a matrix as [key, value], value fastest. kernels/cpu/scan_table.h has the
// order of the arithmetic.
namespace reprise {

// KDA: the gated delta rule with a decay per key. state: [heads, key_dim, value_dim]; decay, q, k:
// [rows, heads * key_dim]; beta: [rows, heads].
void KeyDecayDelta(const OpContext& context, std::span<const RecurrentSequence> sequences,
                   int heads, const Rows& q, const Rows& k, const Rows& v, const Rows& decay,
                   const Rows& beta, const Rows& y);
// decay = exp(-(rate * softplus(x + bias))); bias, rate: [cols].
void DecayGates(const OpContext& context, const Rows& x, const float* bias, const float* rate,
                const Rows& decay);

// Mamba-2. state: [heads, state_dim, head_dim]; b, c: [rows, groups * state_dim]; x, y: [rows,
// heads * head_dim]; dt, decay: [rows, heads]; skip: [heads].
struct SsdShape {
  int heads = 0;
  int groups = 0;  // head h reads b and c of group h / (heads / groups)
  int state_dim = 0;
  int head_dim = 0;
};
void Ssd(const OpContext& context, std::span<const RecurrentSequence> sequences,
         const SsdShape& shape, const Rows& x, const Rows& b, const Rows& c, const Rows& dt,
         const Rows& decay, const float* skip, const Rows& y);
// dt = clamp(softplus(x + bias), low, high), decay = exp(dt * a); bias, a: [heads], a negative.
void SsdGates(const OpContext& context, const Rows& x, const float* bias, const float* a, float low,
              float high, const Rows& dt, const Rows& decay);

// Mamba-1. state: [state_dim, channels]; a: [state_dim, channels], negative; skip: [channels]; x,
// dt, y: [rows, channels]; b, c: [rows, state_dim].
void SelectiveScan(const OpContext& context, std::span<const RecurrentSequence> sequences,
                   const float* a, const float* skip, const Rows& x, const Rows& dt, const Rows& b,
                   const Rows& c, const Rows& y);

// RWKV-7. state: [heads, head_dim (key), head_dim (value)]; operands: [rows, heads * head_dim].
struct Wkv7Operands {
  Rows r, w, k, v, a, b;
};
void Wkv7(const OpContext& context, std::span<const RecurrentSequence> sequences, int heads,
          const Wkv7Operands& operands, const Rows& y);
// outs[i][t] = lerp(x[t], x[t - 1], mix[i]); state: [cols], the row before the first one, left
// holding the last. mix[i]: [cols]. REQUIRES: no out is x.
void TokenShift(const OpContext& context, std::span<const RecurrentSequence> sequences,
                const Rows& x, std::span<const float* const> mix, std::span<const Rows> outs);

// Griffin's recurrent unit. state: [channels]; rate: [channels], 8 * softplus(lambda); r and i are
// the gates before their sigmoid. A row at position 0 starts anew.
void RgLru(const OpContext& context, std::span<const RecurrentSequence> sequences,
           const float* rate, const Rows& x, const Rows& r, const Rows& i, const Rows& y);

}  // namespace reprise
