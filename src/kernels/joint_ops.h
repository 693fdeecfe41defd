// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ops.h"

// Stretches of a layer that a backend may have as one kernel. What they compute is written here as
// the ops of ops.h, one after another, and that is what a backend without such a kernel runs: the
// bits are the same.
namespace reprise {

// A GatedDeltaNet layer between its projections: ShortConv with SiLU over the columns [q | k | v],
// L2 norms of q and k per key head, q scaled by 1 / sqrt(key_dim), GatedDeltaGates, GatedDelta,
// RmsNormGated with z.
struct GatedDeltaLayer {
  GatedDeltaShape shape;
  int reach = 0;
  size_t conv_offset = 0;   // of the states
  size_t delta_offset = 0;  // of the states
  ConstFloats conv;         // [reach, conv channels]
  ConstFloats exp_a;        // [value_heads]
  ConstFloats dt_bias;      // [value_heads]
  ConstFloats norm;         // [value_dim]
  float l2_eps = 0;
  float norm_eps = 0;
};
// a and b are not kept.
void GatedDeltaMix(const OpContext& context, const StepLayout& step, const GatedDeltaLayer& layer,
                   const ConstRows& qkv, const Rows& a, const Rows& b, const ConstRows& z,
                   const Rows& y);

// Attention between its input projections and Attend: RMS norms of q and k per head, where they
// have weights; Rope, where the table has angles; StoreKv. k is not kept.
struct HeadInputs {
  int q_heads = 0;
  ConstFloats q_norm = nullptr;  // [head_dim] or null: neither is normed
  ConstFloats k_norm = nullptr;
  float eps = 0;
  RopeTable rope;
};
void StoreHeads(const OpContext& context, const StepLayout& step, const KvPlace& place,
                const KvShape& shape, const HeadInputs& inputs, const Rows& q, const Rows& k,
                const ConstRows& v);

// Attend, then out = sigmoid(gate) * out.
void AttendGated(const OpContext& context, const StepLayout& step, const KvPlace& place,
                 const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                 const ConstRows& q, const Rows& out);

}  // namespace reprise
