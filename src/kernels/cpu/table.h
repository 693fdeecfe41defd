// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/scan_table.h"

// The table of leaf kernels: what the instruction sets compete for. ISA folders may include this
// file, their own *-inl.h, the intrinsics header and kernels/cpu/generic/*-inl.h (algorithms
// written once against a 16-lane vector that each ISA defines; all in an anonymous namespace),
// nothing else (cmake/isa.cmake says why), so it is plain C. On aarch64, dotprod and i8mm may also
// include neon/packed.h and neon/*-inl.h.
//
// Overlay, not ladder: `scalar` fills every entry with the code of kernels/reference, the
// specification of the bits; every further ISA overwrites the entries that it improves. An entry
// must give the bits of the reference for every input and shape: tests compare with memcmp. A
// kernel reads nothing outside its operands and writes nothing outside its outputs; pointers need
// no alignment unless a comment says so. Kernels are single-threaded leaves: drivers
// (kernels/cpu/*.cc) divide the output among threads.
namespace reprise::cpu {

// Virtual lanes of float reductions: element i goes to lane i % 16, each lane is an fma (or add)
// chain in ascending i from +0, and lanes are combined as a tree: l[i] += l[i+8]; l[i] += l[i+4];
// l[i] += l[i+2]; l[0] += l[1].
inline constexpr int kLanes = 16;

// Rows of activations, quantised symmetrically in blocks of 32 or of 256 elements. With m = max|x|:
//   m finite, m >= 2^-100:  scale = m / 127, q = round_half_even(x * (127 / m)), |q| <= 127
//   m smaller:              scale = 0, q = 0
//   an Inf or NaN in x:     scale = NaN, q = 0, so that it reaches every output
// Row t of an array begins at t * its stride (in elements).
struct QuantisedRows {
  const int8_t* q;     // [cols]
  const float* scale;  // [cols / block]
  const int16_t* sum;  // sums of q: [cols / 32] where block is 32; [cols / 16] where it is 256
  int64_t q_stride;
  int64_t scale_stride;
  int64_t sum_stride;
};

enum class ActivationFormat : uint8_t { kF32, kQ8Block32, kQ8Block256 };

// A matrix kernel is one entry: the packing and the product that reads it. The matrix is packed in
// groups of `group_rows` consecutive rows; the last group may hold fewer (`rows`), padded by pack.
// y[t][r] = sum over k of w[r][k] * x[t][k], for r in [0, rows), t in [0, tokens).
//
// The bits of one output element, independent of tokens, rows and tiling:
//  f32 f16 bf16  virtual lanes over k, fma(w, x, lane)
//  32-blocks     isum = exact integer dot of the block; acc = fma(d * dx, float(isum), acc) in
//  block
//                order from +0; types with a minimum then acc = fma(m * dx, float(sum), acc)
//  256-blocks    isum = sum over sub-blocks of scale * dot, exact in int32;
//                acc = fma(d * dx, float(isum), acc); types with a minimum then
//                acc = fma(-(dmin * dx), float(sum of min * sub-block sum), acc)
// with d, m, dmin converted exactly from f16 (MXFP4: d = 2^(e - 128); IQ1, IQ2, IQ3: times the unit
// of tensor/factored.h, so that the rest are integers), products with dx rounded to f32, float()
// rounding to nearest even. The integers of each type are those of
// kernels/reference/integer_block.cc. An output that is NaN is NaN everywhere; its sign and payload
// are not specified. x: `tokens` >= 1 rows. kF32: rows `x_stride` floats apart in `x`; else
// `quantised`.
using MatrixRun = void (*)(const void* group, int rows, int64_t cols, const float* x,
                           int64_t x_stride, const QuantisedRows* quantised, int tokens, float* y,
                           int64_t y_stride);
struct MatrixKernel {
  const char* isa;     // overlay that set the entry
  const char* format;  // name of the pack format; equal names mean equal bytes
  ActivationFormat activations;
  int group_rows;
  size_t (*group_bytes)(int64_t cols);  // a multiple of 64
  // `source` holds `rows` rows of the type's blocks, `source_stride` bytes apart. `group` is
  // aligned to 64 bytes, here and below.
  void (*pack)(const void* source, size_t source_stride, int rows, int64_t cols, void* group);
  // The values of one row of a group (embedding lookup): exactly the type's dequantisation.
  void (*unpack_row)(const void* group, int row, int64_t cols, float* out);
  MatrixRun run;
  // Null, or the same bits quicker from `many` tokens on.
  MatrixRun run_many;
  int many;
};

// Queries of one K/V head against one block of 64 tokens; see attend_f32 below. K is stored
// transposed, so that scores of neighbouring keys are neighbouring lanes and need no sum across
// lanes.
inline constexpr int kKeys = 64;
inline constexpr int kGroup = 32;  // channels of a scale of q8_0
struct AttentionTile {
  const float* q;  // [queries, head_dim], already scaled
  int queries;
  const int* first;    // [queries] the query sees keys [first, visible) of the block;
  const int* visible;  // [queries] none if first >= visible
  const void* k;  // [head_dim, 64] of the entry's type; columns that no query sees hold anything
  const void* v;  // [64, value_dim]; rows that a query does not see never touch its result.
                  // Null: v[j][c] is k[c][j], the first value_dim channels of the keys
  int head_dim;
  int value_dim;
  float softcap;  // 0: none; else s = softcap * tanh(s / softcap)
  // Keys like these that the same thread wants next, or null: they may be asked for meanwhile.
  const void* next_k = nullptr;
};

// The running softmax of each query over the blocks so far: at first max = -inf and sum = 0 (out is
// then not read).
struct AttentionState {
  float* max;  // [queries]
  float* sum;  // [queries]
  float* out;  // [queries, value_dim], not yet divided by sum
};

struct KernelTable {
  MatrixKernel matrix[32];  // by DType

  // One row of activations, as in QuantisedRows. REQUIRES: cols % block == 0.
  void (*quantise_32)(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);
  void (*quantise_256)(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);

  // y = x * rsqrt(mean(x^2) + eps) * weight: sum of squares in virtual lanes; r = 1 / sqrt(sum / n
  // + eps) with IEEE division and square root; y[i] = (x[i] * r) * weight[i].
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  // y[i] = (x[i] * r) * scale, r = 1 / sqrt(sum + eps), sum of squares in virtual lanes.
  void (*l2_norm)(const float* x, float eps, float scale, int64_t n, float* y);
  // mean = sum / n; d = x - mean; r = 1 / sqrt(sum of d^2 / n + eps), sums in virtual lanes;
  // y[i] = fma(d * r, weight[i], bias[i]), or (d * r) * weight[i] where bias is null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* y);

  // exp, silu and sigmoid are those of kernels/reference/math.h.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* y);  // silu(gate) * up
  // g = limit < gate ? limit : gate, u = limit < up ? limit : up < -limit ? -limit : up;
  // (u + 1) * (g * sigmoid(alpha * g)).
  void (*clamped_swiglu)(const float* gate, const float* up, float alpha, float limit, int64_t n,
                         float* y);
  void (*silu)(const float* x, int64_t n, float* y);
  void (*sigmoid_mul)(const float* gate, const float* x, int64_t n, float* y);  // sigmoid(gate) * x
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*mul)(const float* a, const float* b, int64_t n, float* y);
  void (*scale)(const float* x, float factor, int64_t n, float* y);
  void (*scale_add)(const float* x, float factor, int64_t n, float* y);  // y = fma(factor, x, y)
  // gelu(x) = (0.5 * x) * (1 + tanh(0.79788456 * fma(0.044715 * (x * x), x, x))); gelu(gate) * up.
  void (*geglu)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu)(const float* x, int64_t n, float* y);
  // (0.5 * x) * (1 + erf(x / sqrt 2)), erf as in reference/math.h.
  void (*gelu_erf)(const float* x, int64_t n, float* y);
  void (*relu_squared)(const float* x, int64_t n, float* y);        // r * r, r = x < 0 ? 0 : x
  void (*softcap)(const float* x, float cap, int64_t n, float* y);  // cap * tanh(x / cap)
  void (*softplus)(const float* x, const float* bias, int64_t n, float* y);  // of x + bias
  void (*sigmoid)(const float* x, const float* bias, int64_t n, float* y);   // of x + bias
  // y = fma(b - a, t, a): token shift, value residual.
  void (*lerp)(const float* a, const float* b, const float* t, int64_t n, float* y);
  // exp(-(0.606531 * sigmoid(x + bias))): decay of RWKV-7.
  void (*rwkv_decay)(const float* x, const float* bias, int64_t n, float* y);
  // y = fma(s, v, y), s = sum of (a * b) * w in virtual lanes (fma(a * b, w, lane)): bonus of
  // RWKV-7.
  void (*dot_scale_add)(const float* a, const float* b, const float* w, const float* v, int64_t n,
                        float* y);
  void (*exp)(const float* x, int64_t n, float* y);
  // y = e * (1 / sum), e = exp(x - max x), sum in virtual lanes.
  void (*softmax)(const float* x, int64_t n, float* y);

  // Rotates channel pairs (i, i + half) of one head: NeoX pairing. cos, sin: [half].
  // (a, b) becomes (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)).
  void (*rope)(float* x, const float* cos, const float* sin, int half);
  // cos and sin of position * inverse_frequency (rounded to f32), by SinCos of reference/math.h.
  void (*rope_angles)(float position, const float* inverse_frequency, int half, float* cos,
                      float* sin);

  // 16 * 16 * n multiply-adds in independent chains on registers: the float peak of the ISA, which
  // benchmarks compare with. The result only keeps the compiler from leaving them out.
  float (*multiply_adds)(int64_t n);
  // The same with products of bytes that are summed, as quantised products use them: n rounds on
  // registers. Tells how many multiply-adds that were. Null where no overlay says.
  int64_t (*byte_multiply_adds)(int64_t n);

  void (*f32_to_f16)(const float* x, int64_t n, uint16_t* y);
  void (*f16_to_f32)(const uint16_t* x, int64_t n, float* y);
  void (*bf16_to_f32)(const uint16_t* x, int64_t n, float* y);
  void (*f32_to_bf16)(const float* x, int64_t n, uint16_t* y);

  // One block of attention folded into the running softmax. For each query that sees a key: s_j =
  // fma chain of q[i] * k[i][j] over i ascending from +0, then softcap; m_b = max of visible s_j;
  // p_j = exp(s_j - m_b); l_b = visible p_j summed in virtual lanes (lane j % 16); o_b[c] = fma
  // chain of p_j * v[j][c] over visible j ascending from +0. The first block of a query (sum == 0
  // and max == -inf) is stored: max = m_b, sum = l_b, out = o_b; later ones are merged as
  // attend_merge does. A query that sees no key is left alone.
  // scratch: 64 * (head_dim + value_dim + queries) + 8 * queries floats.
  void (*attend_f32)(const AttentionTile* tile, const AttentionState* state, float* scratch);
  void (*attend_f16)(const AttentionTile* tile, const AttentionState* state, float* scratch);
  void (*attend_bf16)(const AttentionTile* tile, const AttentionState* state, float* scratch);
  // K/V of type q8_0: every channel has a code of 8 bits, every kGroup channels of a token (the
  // last group may be smaller) a scale, f16. Codes lie as elements of other types do, K [head_dim,
  // 64], V [64, value_dim]; behind them the scales, K [groups, 64], V [64, groups]. An element is d
  // * q rounded to f16, with its scale d. Rounding is to nearest even, here and where d and q come
  // from x (store_*_q8_0): d = f16(max|x| / 127) over the group, and
  //   d finite, not 0:           q = round(min(max(x * (1 / d), -127), 127))
  //   d = 0:                     q = 0
  //   d or an x is Inf or NaN:   d = NaN (0x7E00), q = 0
  void (*attend_q8_0)(const AttentionTile* tile, const AttentionState* state, float* scratch);
  // What the keys of one block weigh with queries whose softmax over all blocks is known (`state`:
  // max and sum; out is not read): for each query in order and each key that it sees, s_j as above;
  // weights[j] = weights[j] + exp(s_j - max) * (1 / sum). weights: [64]. The tile's v and value_dim
  // are not read. scratch: 64 * (head_dim + queries) floats.
  void (*weigh_keys_f32)(const AttentionTile* tile, const AttentionState* state, float* weights,
                         float* scratch);
  void (*weigh_keys_f16)(const AttentionTile* tile, const AttentionState* state, float* weights,
                         float* scratch);
  void (*weigh_keys_bf16)(const AttentionTile* tile, const AttentionState* state, float* weights,
                          float* scratch);
  void (*weigh_keys_q8_0)(const AttentionTile* tile, const AttentionState* state, float* weights,
                          float* scratch);
  // Writes keys of `tokens` rows of x to columns [slot, slot + tokens) of a block [head_dim, 64],
  // rounded to nearest even where it is f16 or bf16. REQUIRES: slot + tokens <= 64.
  void (*store_keys_f32)(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                         float* k);
  void (*store_keys_f16)(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                         uint16_t* k);
  void (*store_keys_bf16)(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                          uint16_t* k);
  void (*store_keys_q8_0)(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                          void* k);
  // The same of values, to rows [slot, slot + tokens) of a block [64, value_dim].
  void (*store_values_q8_0)(const float* x, int64_t x_stride, int tokens, int value_dim, int slot,
                            void* v);
  // Folds the softmax of one block (m_b, l_b, o_b) into the one of all blocks before it: m' =
  // max(m, m_b), a = exp(m - m'), b = exp(m_b - m'); sum = fma(sum, a, l_b * b); out[c] =
  // fma(out[c], a, o_b[c] * b); max = m'. A block with l_b == 0 is left out, the first is stored.
  void (*attend_merge)(const AttentionState* state, const AttentionState* block, int queries,
                       int value_dim);

  // Short causal convolution of one channel range: window [reach - 1, stride] holds the inputs
  // before the first row, oldest first, and is left holding the last reach - 1 inputs. y[t][c] =
  // act(bias[c] + sum over j ascending of fma(w[j][c], x[t - reach + 1 + j][c])), chain from
  // bias (or +0). weight: [reach, stride]. silu: apply silu.
  void (*short_conv)(const float* x, int64_t x_stride, int rows, const float* weight,
                     const float* bias, int reach, int64_t weight_stride, int channels, bool silu,
                     float* window, int64_t window_stride, float* y, int64_t y_stride);

  // decay = exp(-(exp_a * softplus(a + dt_bias))), beta = sigmoid(b).
  void (*delta_gates)(const float* a, const float* b, const float* exp_a, const float* dt_bias,
                      int64_t n, float* decay, float* beta);

  // Gated delta rule over `rows` tokens for columns [0, columns) of one head's state
  // [key_dim, state_stride]: sequential, per token and column c:
  //   S[i][c] *= decay; r = fma chain over i of S[i][c] * k[i] from +0; d = beta * (v[c] - r);
  //   S[i][c] = fma(k[i], d, S[i][c]); y[c] = fma chain over i of S[i][c] * q[i] from +0.
  // q, k, v, y: rows `*_stride` floats apart; decay, beta: `gate_stride` apart. `ahead`, or null: a
  // state like this one that is wanted next.
  void (*gated_delta)(float* state, int64_t state_stride, int key_dim, int columns, const float* q,
                      const float* k, int64_t qk_stride, const float* v, int64_t v_stride,
                      const float* decay, const float* beta, int64_t gate_stride, int rows,
                      float* y, int64_t y_stride, const float* ahead);

  ScanKernels scan;
};

// The overlays, slowest first; each overwrites the entries it improves: matrix kernels and
// activation quantisers in one function, the other ops in the second. Which exist depends on the
// architecture the program was built for.
void OverlayScalarMatrix(KernelTable* table);
void OverlayScalarFloat(KernelTable* table);
void OverlayNeonMatrix(KernelTable* table);
void OverlayNeonFloat(KernelTable* table);
void OverlayDotprodMatrix(KernelTable* table);
void OverlayI8mmMatrix(KernelTable* table);
void OverlayAvx2Matrix(KernelTable* table);
void OverlayAvx2Float(KernelTable* table);
void OverlayAvx512Matrix(KernelTable* table);
void OverlayAvx512Float(KernelTable* table);
void OverlayAvx512VnniMatrix(KernelTable* table);
void OverlayAmxMatrix(KernelTable* table);

}  // namespace reprise::cpu
