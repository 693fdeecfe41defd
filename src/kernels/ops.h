// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/matrix.h"
#include "kernels/op_context.h"
#include "kernels/rows.h"
#include "kernels/step_layout.h"
#include "tensor/dtype.h"

namespace reprise {

// The operations a model may call. Activations are f32, rows are tokens. Every op computes a row
// from that row alone (and the state it names), in an order of arithmetic that depends on nothing
// else: not on the other rows of the batch, the number of threads or the instruction set
// (kernels/cpu/table.h).
//
// Shapes are the caller's duty: programmer errors are CHECKed, nothing here can be reached from
// client input.

// out[t][r] = x[t] . weight[r] (+ bias[r]). Several projections of one input share its quantisation
// and one pass of the thread pool.
struct Projection {
  const Matrix* weight = nullptr;
  Rows out;
  ConstFloats bias = nullptr;  // [weight rows] or null
};
void Project(const OpContext& context, const ConstRows& x, std::span<const Projection> projections);
// Several inputs (of experts, of heads), each with projections of its own, in one pass. The bits
// are those of one Project after another. REQUIRES: every input has rows.
struct ProjectionGroup {
  ConstRows x;
  std::span<const Projection> projections;
};
void ProjectGroups(const OpContext& context, std::span<const ProjectionGroup> groups);
// The first out.cols rows of the weight alone, as they are without adapters: for guesses.
// REQUIRES: a backend that projects_part().
void ProjectFirst(const OpContext& context, const ConstRows& x, const Matrix& weight,
                  const Rows& out);
// Each matrix of a stack with columns of its own (heads, blocks of a block-diagonal matrix): matrix
// h maps columns [h * x_step, h * x_step + weights.cols) of x to columns [h * out_step, h *
// out_step
// + weights.rows) of out. The stacks have the same count and width.
struct HeadProjection {
  const Matrix* weights = nullptr;
  Rows out;
  int64_t out_step = 0;
  ConstFloats bias = nullptr;  // [count * weight rows] or null
};
void ProjectHeads(const OpContext& context, const ConstRows& x, int64_t x_step,
                  std::span<const HeadProjection> projections);

// Uploads the arrays of a step; the first op of it.
void BeginStep(const OpContext& context, StepLayout* step);
// out[t] = row tokens[t] of the table; of tokens that it has no row for, row 0. REQUIRES: tokens[t]
// >= 0.
void Embed(const OpContext& context, const Matrix& table, const StepLayout& step, const Rows& out);
// out[i] = x[index[i]]; index: [out rows].
void GatherRows(const OpContext& context, const ConstRows& x, DevicePtr<const int32_t> index,
                const Rows& out);
void Fill(const OpContext& context, float value, const Rows& y);
// finite[s] = 1 if every value of every row of sequence s is finite and no op of the step has met
// what is not in its state, else 0; [sequences].
//
// The law: a sequence whose K or V, as they are stored, or whose queries, largest scores, inputs of
// convolutions and shifts, or states of scans are not finite numbers is spoilt; its step says so
// here, and nothing of it is published. It has to be said where it happens: attention gives a key
// that is infinite no weight or all of it, and what comes of that is finite. Whether a sequence is
// spoilt does not depend on how its tokens came into steps.
void FiniteRows(const OpContext& context, const StepLayout& step, const ConstRows& x,
                DevicePtr<uint8_t> finite);
// Channels of each of `heads` heads: y[t][h * y_step + i] = x[t][h * x_step + i], 0 <= i < width.
void CopyHeads(const OpContext& context, int heads, int64_t width, const ConstRows& x,
               int64_t x_step, const Rows& y, int64_t y_step);

// RMS norm of each of `groups` equal parts of every row with the same weight [cols / groups].
// x and y may be the same.
void RmsNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, int groups,
             float eps, const Rows& y);
// x = x + y, then h = rms_norm(x): the end of one layer and the beginning of the next.
void AddRmsNorm(const OpContext& context, const Rows& x, const ConstRows& y, ConstFloats weight,
                float eps, const Rows& h);
// y = rms_norm(x) * silu(gate), per group: the gated norm of GatedDeltaNet.
void RmsNormGated(const OpContext& context, const ConstRows& x, const ConstRows& gate,
                  ConstFloats weight, int groups, float eps, const Rows& y);
// y = x / sqrt(sum x^2 + eps) * scale, per group.
void L2Norm(const OpContext& context, const ConstRows& x, int groups, float eps, float scale,
            const Rows& y);

void SwiGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y);
void SigmoidMul(const OpContext& context, const ConstRows& gate, const ConstRows& x, const Rows& y);
void Add(const OpContext& context, const ConstRows& a, const ConstRows& b, const Rows& y);

// Angles of rotary embedding for the rows of a step: computed once, used by every layer.
struct RopeTable {
  ConstFloats cos;  // [rows, half]
  ConstFloats sin;  // [rows, half]
  int half = 0;
};
// cos/sin of float(position * inverse_frequency[f]), rounded from our own double-precision
// functions, times `magnitude`; inverse_frequencies: [half].
RopeTable MakeRopeTable(const OpContext& context, const StepLayout& step,
                        ConstFloats inverse_frequencies, int half, float magnitude = 1);
// Where a row stands where that is more than one number (of a picture): time, row, column.
using RopePlace = std::array<int32_t, 3>;
// The same for rows with places: the angle of frequency f is places[t][axes[f]] *
// inverse_frequencies[f]. Where the three are equal, the bits are those of that position. axes:
// [half]. REQUIRES: the backend sees.
RopeTable MakePlacedRopeTable(const OpContext& context, std::span<const RopePlace> places,
                              std::span<const uint8_t> axes, ConstFloats inverse_frequencies,
                              float magnitude = 1);
// Rotates channels [offset, offset + 2 * half) of each of `heads` heads; x: [rows, heads *
// head_dim].
void Rope(const OpContext& context, const RopeTable& table, int heads, const Rows& x,
          int64_t offset = 0);

// Where K and V of one layer lie in a block of kBlockTokens = 64 tokens, in bytes: heads one behind
// the other, in each on a CPU K as [head_dim, 64] (transposed: the order in which scores are
// computed), V as [64, value_dim]; K/V of type q8_0 as cpu/table.h says.
struct KvPlace {
  size_t k_offset = 0;
  size_t v_offset = 0;
};
struct KvShape {
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  DType dtype = DType::kF16;  // Backend::holds
  // The values are the first value_dim channels of the keys (the latent of MLA): v_offset and v are
  // not used.
  bool value_in_key = false;
};
// Rounds K and V to their storage type and writes them to the blocks of the step's sequences.
void StoreKv(const OpContext& context, const StepLayout& step, const KvPlace& place,
             const KvShape& shape, const ConstRows& k, const ConstRows& v);
struct AttentionParams {
  int q_heads = 0;
  float scale = 1;
  int window = 0;     // 0: all; else keys with q - k < window
  float softcap = 0;  // 0: none
  // [q_heads] or null. The score of a key beside those of the context, whose value is zero: the
  // others weigh the less. It is folded first, as a block with max = sink, sum = 1 and out = 0.
  ConstFloats sinks = nullptr;
  // [rows of the step] or empty: row i sees the rows of its sequence below ends[i], not those up to
  // itself (pictures, whose rows see one another). REQUIRES: none ends before itself or the row
  // before it, all of them are stored; the backend sees.
  std::span<const int32_t> ends = {};
};
// Causal attention of q [rows, q_heads * head_dim] over the stored K/V (this step's included),
// split at multiples of 64 absolute positions and merged in position order. With a window, blocks
// that no row of a sequence can see are not read (they may be kNoBlock).
void Attend(const OpContext& context, const StepLayout& step, const KvPlace& place,
            const KvShape& shape, const AttentionParams& params, const ConstRows& q,
            const Rows& out);

// Recurrent ops: each sequence's state, `state_offset` bytes into its unit, is read and left after
// its last row; on the way it goes to the units of the step's taps, at the same offset.

// Depth-wise causal convolution; state: [reach - 1, channels], oldest first. weight: [reach,
// channels].
void ShortConv(const OpContext& context, const StepLayout& step, size_t state_offset,
               ConstFloats weight, ConstFloats bias, int reach, bool silu, const ConstRows& x,
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
void GatedDeltaGates(const OpContext& context, const ConstRows& a, const ConstRows& b,
                     ConstFloats exp_a, ConstFloats dt_bias, const Rows& decay, const Rows& beta);
// The gated delta rule; state: [value_heads, key_dim, value_dim] f32. q and k are already
// normalised.
void GatedDelta(const OpContext& context, const StepLayout& step, size_t state_offset,
                const GatedDeltaShape& shape, const ConstRows& q, const ConstRows& k,
                const ConstRows& v, const ConstRows& decay, const ConstRows& beta, const Rows& y);

// Of values on the host.
// The index of the largest value; the lowest of equals. -1 if any value is not finite.
int64_t ArgMax(std::span<const float> values);
bool AllFinite(std::span<const float> values);

}  // namespace reprise
