// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"
#include "kernels/op_context.h"
#include "tensor/dtype.h"

namespace reprise {

// The operations a model may call. Activations are f32, rows are tokens. Every op computes a row
// from that row alone (and the state it names), in an order of arithmetic that depends on nothing
// else: not on the other rows of the batch, the number of threads or the instruction set
// (kernels/cpu/table.h).
//
// Shapes are the caller's duty: programmer errors are CHECKed, nothing here can be reached from
// client input.

// Rows of activations: [rows, cols], `stride` floats apart.
struct Rows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* row(int64_t i) const { return data + i * stride; }
};

// out[t][r] = x[t] . weight[r] (+ bias[r]). Several projections of one input share its quantisation
// and one pass of the thread pool.
struct Projection {
  const Matrix* weight = nullptr;
  Rows out;
  const float* bias = nullptr;  // [weight rows] or null
};
void Project(const OpContext& context, const Rows& x, std::span<const Projection> projections);
// Several inputs (of experts, of heads), each with projections of its own, in one pass. The bits
// are those of one Project after another. REQUIRES: every input has rows.
struct ProjectionGroup {
  Rows x;
  std::span<const Projection> projections;
};
void ProjectGroups(const OpContext& context, std::span<const ProjectionGroup> groups);

// out[t] = row tokens[t] of the table. REQUIRES: 0 <= tokens[t] < table.rows().
void Embed(const OpContext& context, const Matrix& table, std::span<const int32_t> tokens,
           const Rows& out);

// RMS norm of each of `groups` equal parts of every row with the same weight [cols / groups].
// x and y may be the same.
void RmsNorm(const OpContext& context, const Rows& x, const float* weight, int groups, float eps,
             const Rows& y);
// y = rms_norm(x) * silu(gate), per group: the gated norm of GatedDeltaNet.
void RmsNormGated(const OpContext& context, const Rows& x, const Rows& gate, const float* weight,
                  int groups, float eps, const Rows& y);
// y = x / sqrt(sum x^2 + eps) * scale, per group.
void L2Norm(const OpContext& context, const Rows& x, int groups, float eps, float scale,
            const Rows& y);

void SwiGlu(const OpContext& context, const Rows& gate, const Rows& up, const Rows& y);
void SigmoidMul(const OpContext& context, const Rows& gate, const Rows& x, const Rows& y);
void Add(const OpContext& context, const Rows& a, const Rows& b, const Rows& y);

// Angles of rotary embedding for the rows of a step: computed once, used by every layer.
struct RopeTable {
  const float* cos = nullptr;  // [rows, half]
  const float* sin = nullptr;  // [rows, half]
  int half = 0;
};
// cos/sin of float(position * inverse_frequency[f]), rounded from our own double-precision
// functions, times `magnitude`.
RopeTable MakeRopeTable(const OpContext& context, std::span<const int32_t> positions,
                        std::span<const float> inverse_frequencies, float magnitude = 1);
// Rotates the first 2 * half channels of each of `heads` heads; x: [rows, heads * head_dim].
void Rope(const OpContext& context, const RopeTable& table, int heads, const Rows& x);

// One sequence's K/V of one layer, by block of kBlockTokens = 64 tokens: k_blocks[b] points to
// [kv_heads, head_dim, 64] (transposed: the order in which scores are computed), v_blocks[b] to
// [kv_heads, 64, value_dim].
struct KvSequence {
  std::byte* const* k_blocks = nullptr;
  std::byte* const* v_blocks = nullptr;
  int32_t position = 0;  // of its first row
  int64_t row_begin = 0;
  int64_t row_count = 0;
};
struct KvShape {
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  DType dtype = DType::kF16;  // kF16 or kF32
  // The values are the first value_dim channels of the keys (the latent of MLA): v_blocks and v are
  // not used.
  bool value_in_key = false;
};
// Rounds K and V to their storage type and writes them to the blocks.
void StoreKv(const OpContext& context, std::span<const KvSequence> sequences, const KvShape& shape,
             const Rows& k, const Rows& v);
struct AttentionParams {
  int q_heads = 0;
  float scale = 1;
  int window = 0;     // 0: all; else keys with q - k < window
  float softcap = 0;  // 0: none
};
// Causal attention of q [rows, q_heads * head_dim] over the stored K/V (this step's included),
// split at multiples of 64 absolute positions and merged in position order. With a window, blocks
// that no row of a sequence can see are not read (their pointers may be null).
void Attend(const OpContext& context, std::span<const KvSequence> sequences, const KvShape& shape,
            const AttentionParams& params, const Rows& q, const Rows& out);

// Recurrent ops: each sequence's state is read and left after its last row.
struct RecurrentSequence {
  float* state = nullptr;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  int32_t position = 0;  // of its first row; only ops that treat position 0 specially look at it
};
// Depth-wise causal convolution; state: [taps - 1, channels], oldest first. weight: [taps,
// channels].
void ShortConv(const OpContext& context, std::span<const RecurrentSequence> sequences,
               const float* weight, const float* bias, int taps, bool silu, const Rows& x,
               const Rows& y);

struct GatedDeltaShape {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  // Key head of value head h: h / (value_heads / key_heads) where false, h % key_heads where true.
  bool tiled_heads = false;
};
// decay = exp(-exp_a * softplus(a + dt_bias)), beta = sigmoid(b), per row and value head.
void GatedDeltaGates(const OpContext& context, const Rows& a, const Rows& b, const float* exp_a,
                     const float* dt_bias, const Rows& decay, const Rows& beta);
// The gated delta rule; state: [value_heads, key_dim, value_dim] f32. q and k are already
// normalised.
void GatedDelta(const OpContext& context, std::span<const RecurrentSequence> sequences,
                const GatedDeltaShape& shape, const Rows& q, const Rows& k, const Rows& v,
                const Rows& decay, const Rows& beta, const Rows& y);

// The index of the largest value; the lowest of equals. -1 if any value is not finite.
int64_t ArgMax(std::span<const float> values);
bool AllFinite(std::span<const float> values);

}  // namespace reprise
