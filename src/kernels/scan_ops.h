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
void KeyDecayDelta(const OpContext& context, const StepLayout& step, size_t state_offset, int heads,
                   const ConstRows& q, const ConstRows& k, const ConstRows& v,
                   const ConstRows& decay, const ConstRows& beta, const Rows& y);
// decay = exp(-(rate * softplus(x + bias))); bias, rate: [cols].
void DecayGates(const OpContext& context, const ConstRows& x, ConstFloats bias, ConstFloats rate,
                const Rows& decay);

// Mamba-2. state: [heads, state_dim, head_dim]; b, c: [rows, groups * state_dim]; x, y: [rows,
// heads * head_dim]; dt, decay: [rows, heads]; skip: [heads].
struct SsdShape {
  int heads = 0;
  int groups = 0;  // head h reads b and c of group h / (heads / groups)
  int state_dim = 0;
  int head_dim = 0;
};
void Ssd(const OpContext& context, const StepLayout& step, size_t state_offset,
         const SsdShape& shape, const ConstRows& x, const ConstRows& b, const ConstRows& c,
         const ConstRows& dt, const ConstRows& decay, ConstFloats skip, const Rows& y);
// dt = clamp(softplus(x + bias), low, high), decay = exp(dt * a); bias, a: [heads], a negative.
void SsdGates(const OpContext& context, const ConstRows& x, ConstFloats bias, ConstFloats a,
              float low, float high, const Rows& dt, const Rows& decay);

// Mamba-1. state: [state_dim, channels]; a: [state_dim, channels], negative; skip: [channels]; x,
// dt, y: [rows, channels]; b, c: [rows, state_dim].
void SelectiveScan(const OpContext& context, const StepLayout& step, size_t state_offset,
                   ConstFloats a, ConstFloats skip, const ConstRows& x, const ConstRows& dt,
                   const ConstRows& b, const ConstRows& c, const Rows& y);

// RWKV-7. state: [heads, head_dim (key), head_dim (value)]; operands: [rows, heads * head_dim].
struct Wkv7Operands {
  ConstRows r, w, k, v, a, b;
};
void Wkv7(const OpContext& context, const StepLayout& step, size_t state_offset, int heads,
          const Wkv7Operands& operands, const Rows& y);
// outs[i][t] = lerp(x[t], x[t - 1], mix[i]); state: [cols], the row before the first one, left
// holding the last. mix[i]: [cols]. REQUIRES: no out is x.
void TokenShift(const OpContext& context, const StepLayout& step, size_t state_offset,
                const ConstRows& x, std::span<const ConstFloats> mix, std::span<const Rows> outs);

// Griffin's recurrent unit. state: [channels]; rate: [channels], 8 * softplus(lambda); r and i are
// the gates before their sigmoid. A row at position 0 starts anew.
void RgLru(const OpContext& context, const StepLayout& step, size_t state_offset, ConstFloats rate,
           const ConstRows& x, const ConstRows& r, const ConstRows& i, const Rows& y);

}  // namespace reprise
