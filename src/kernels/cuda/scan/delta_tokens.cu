// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/scan/delta_token.h"
#include "kernels/cuda/scan/run_token.cuh"
#include "kernels/reference/math.h"

// With many sequences a token is bound by reading and writing their states: no thread of the kernel
// that does it waits for another but those of its column, so that as much as registers hold is on
// its way at any time. What comes before and behind it has kernels of its own.
namespace reprise::cuda {
namespace {

constexpr int kDim = 128;  // keys and columns of a head
constexpr int kReach = 4;
constexpr int kWarps = 4;                      // of a block
constexpr int kColumns = 4;                    // of a thread
constexpr int kPart = 32 / kLanes * kColumns;  // columns of a warp
constexpr int kParts = kDim / kPart;

struct MixCall {
  StepView step;
  DeltaTokenLayer layer;
  View qkv, a, b;
  View mixed;
};

__device__ float* StateOf(const StepView& step, uint32_t id, int64_t offset) {
  return reinterpret_cast<float*>(step.state_memory + int64_t{id} * step.state_bytes + offset);
}

__device__ __forceinline__ float4 Load4(const float* at) {
  return *reinterpret_cast<const float4*>(at);
}

// Convolution, SiLU and norm of one head of q, k or v of one sequence by a warp, four channels a
// thread; the gates of a value head beside it.
__global__ void __launch_bounds__(kWarps * 32)
    DeltaMixKernel(const __grid_constant__ MixCall call) {
  __shared__ __align__(16) float heads[kWarps][kDim];
  const DeltaTokenLayer& layer = call.layer;
  const LaneScanShape& shape = layer.shape;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head = static_cast<int>(blockIdx.x) * kWarps + warp;  // of q, then k, then v
  const bool real = head < 2 * shape.key_heads + shape.heads;
  const SequenceView sequence = call.step.sequences[blockIdx.y];
  const int64_t row = sequence.row_begin;
  const int channel = head * kDim + 4 * lane;
  float* window = StateOf(call.step, sequence.state, layer.conv_offset) + channel;
  float4 weights[kReach], inputs[kReach];
  if (real) {
#pragma unroll
    for (int j = 0; j < kReach; ++j) weights[j] = Load4(layer.conv + j * call.qkv.cols + channel);
#pragma unroll
    for (int j = 0; j + 1 < kReach; ++j) inputs[j] = Load4(window + j * call.qkv.cols);
  }
  WaitForInputs();
  LetNextStart();
  if (!real) return;
  inputs[kReach - 1] = Load4(call.qkv.data + row * call.qkv.stride + channel);
  float4 mixed = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kReach; ++j) {
    mixed.x = fmaf(weights[j].x, inputs[j].x, mixed.x);
    mixed.y = fmaf(weights[j].y, inputs[j].y, mixed.y);
    mixed.z = fmaf(weights[j].z, inputs[j].z, mixed.z);
    mixed.w = fmaf(weights[j].w, inputs[j].w, mixed.w);
  }
  mixed = {reference::Silu(mixed.x), reference::Silu(mixed.y), reference::Silu(mixed.z),
           reference::Silu(mixed.w)};
#pragma unroll
  for (int j = 0; j + 1 < kReach; ++j) {
    *reinterpret_cast<float4*>(window + j * call.qkv.cols) = inputs[j + 1];
  }
  Finite finite;
  const float4 last = inputs[kReach - 1];
  finite.Look(last.x), finite.Look(last.y), finite.Look(last.z), finite.Look(last.w);
  if (!finite.all()) Spoil(call.step, blockIdx.y);
  if (head < 2 * shape.key_heads) {
    *reinterpret_cast<float4*>(&heads[warp][4 * lane]) = mixed;
    __syncwarp();
    const float sum =
        SumOfSquares([&](int64_t i) { return heads[warp][i]; }, lane % kNormLanes, kDim);
    const float r = InverseRoot(sum, layer.l2_eps);
    const float scale = head < shape.key_heads ? layer.q_scale : 1.0f;
    mixed = {(mixed.x * r) * scale, (mixed.y * r) * scale, (mixed.z * r) * scale,
             (mixed.w * r) * scale};
  } else if (lane == 0) {
    const int value_head = head - 2 * shape.key_heads;
    float& a = call.a.data[row * call.a.stride + value_head];
    float& b = call.b.data[row * call.b.stride + value_head];
    a = reference::Exp(
        -(layer.exp_a[value_head] * reference::Softplus(a + layer.dt_bias[value_head])));
    b = reference::Sigmoid(b);
  }
  *reinterpret_cast<float4*>(call.mixed.data + row * call.mixed.stride + channel) = mixed;
}

struct ScanCall {
  StepView step;
  int64_t delta_offset;
  LaneScanShape shape;
  View mixed, decay, beta;
  View y;
};

// A warp has kPart columns of one head of one sequence.
__global__ void __launch_bounds__(kWarps * 32, 4)
    DeltaTokensKernel(const __grid_constant__ ScanCall call) {
  const LaneScanShape& shape = call.shape;
  const int piece = static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int head = piece / kParts;
  const int lane = threadIdx.x % kLanes;
  const int column = piece % kParts * kPart + threadIdx.x % 32 / kLanes * kColumns;
  const SequenceView sequence = call.step.sequences[blockIdx.y];
  const int64_t row = sequence.row_begin;
  float* state = StateOf(call.step, sequence.state, call.delta_offset) +
                 int64_t{head} * kDim * kDim + 4 * lane * kDim + column;
  const auto at = [](int i) { return (i / 4 * 4 * kLanes + i % 4) * kDim; };
  float s[kColumns][kDim / kLanes];
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    const float4 cells = Load4(state + at(i));
    s[0][i] = cells.x, s[1][i] = cells.y, s[2][i] = cells.z, s[3][i] = cells.w;
  }
  const int key_head =
      shape.tiled ? head % shape.key_heads : head / (shape.heads / shape.key_heads);
  const float* mixed = call.mixed.data + row * call.mixed.stride;
  Token<Rule::kDelta, kDim, kColumns> token;
#pragma unroll
  for (int o = 0; o < 2; ++o) {  // k, q
    const float* keys = mixed + ((1 - o) * shape.key_heads + key_head) * kDim + 4 * lane;
#pragma unroll
    for (int i = 0; i < kDim / kLanes; i += 4) {
      const float4 four = Load4(keys + i * kLanes);
      token.along[o][i] = four.x, token.along[o][i + 1] = four.y;
      token.along[o][i + 2] = four.z, token.along[o][i + 3] = four.w;
    }
  }
  token.scalar[0] = call.decay.data[row * call.decay.stride + head];
  token.scalar[1] = call.beta.data[row * call.beta.stride + head];
  const float4 in = Load4(mixed + (2 * shape.key_heads + head) * kDim + column);
  token.in[0] = in.x, token.in[1] = in.y, token.in[2] = in.z, token.in[3] = in.w;
  float none[kColumns] = {}, out[kColumns];
  RunToken(s, token, none, [] {});
  Finite finite;
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    *reinterpret_cast<float4*>(state + at(i)) = {s[0][i], s[1][i], s[2][i], s[3][i]};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) finite.Look(s[c][i]);
  }
  if (!finite.all()) Spoil(call.step, blockIdx.y);
  ReadOut(s, token, out);
  Join(out);
  if (lane == 0) {
    *reinterpret_cast<float4*>(call.y.data + row * call.y.stride + head * kDim + column) = {
        out[0], out[1], out[2], out[3]};
  }
}

}  // namespace

void DeltaTokens(Stream stream, const StepView& step, const DeltaTokenLayer& layer, const View& qkv,
                 const View& a, const View& b, const View& z, const View& mixed, const View& y) {
  const LaneScanShape& shape = layer.shape;
  const auto grid = [&](int64_t pieces) {
    return dim3(Blocks(pieces, kWarps), unsigned(step.sequence_count));
  };
  LaunchEarly(DeltaMixKernel, grid(2 * shape.key_heads + shape.heads), kWarps * 32, 0, stream,
              MixCall{step, layer, qkv, a, b, mixed});
  static_assert(kParts % kWarps == 0);
  // What is on its way to registers passes the first cache, which has to be as large as it can be:
  // a kernel that starts early would leave it little.
  LaunchAs({.division = LaunchNeeds::Division::kCache}, DeltaTokensKernel,
           grid(int64_t{shape.heads} * kParts), kWarps * 32, stream,
           ScanCall{step, layer.delta_offset, shape, mixed, a, b, y});
  RmsNormGated(stream, y, z, layer.norm, shape.heads, layer.norm_eps, y);
}

}  // namespace reprise::cuda
