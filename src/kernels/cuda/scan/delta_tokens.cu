// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packed/instructions.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/scan/delta_token.h"
#include "kernels/cuda/scan/run_token.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/reference/math.h"

// With many sequences a token is bound by reading and writing their states: the kernel that does it
// keeps them on their way through shared memory at any time. What comes before it has a kernel of
// its own.
namespace reprise::cuda {
namespace {

constexpr int kDim = 128;  // keys and columns of a head
constexpr int kReach = 4;
constexpr int kWarps = 4;    // of a block that mixes
constexpr int kColumns = 4;  // of a thread

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

// A state on its way, and the operands of its token. Eight threads that share columns read rows
// four apart: behind every four rows there is room, so that they read from all banks.
constexpr int kRowsTogether = 4;
struct Stage {
  float state[kDim / kRowsTogether][kRowsTogether * kDim + 4];
  float keys[2][kDim];  // k, q
  float values[kDim];
};
constexpr int kStages = 3;
constexpr int kItemThreads = kDim / kColumns * kLanes;
struct ScanShared {
  Stage stage[kStages];
  float outputs[2][kDim];  // of a head and of the one before it
  uint64_t full[kStages];
};
constexpr int kRunBytes = kRowsTogether * kDim * 4;
static_assert(kDim / kRowsTogether == 32);  // a run for each thread of a warp
constexpr int kTokenBytes = 3 * kDim * 4;

struct ScanCall {
  StepView step;
  int64_t delta_offset;
  LaneScanShape shape;
  const float* norm;
  float norm_eps;
  View mixed, decay, beta, z;
  View y;
};

// One head of one sequence.
struct Item {
  int sequence, head;
  int64_t row;
  float* state;

  __device__ __forceinline__ Item(const ScanCall& call, int index)
      : sequence(index / call.shape.heads), head(index % call.shape.heads) {
    const SequenceView view = call.step.sequences[sequence];
    row = view.row_begin;
    state = StateOf(call.step, view.state, call.delta_offset) + int64_t{head} * kDim * kDim;
  }
};

// Writes `bytes` bytes of shared memory to global memory, both at multiples of 16.
__device__ __forceinline__ void StoreBytes(void* global, uint32_t shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared), "r"(bytes)
               : "memory");
}
// Returns when the shared memory of all stores but the last has been read.
__device__ __forceinline__ void WaitStoresReadButOne() {
  asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}
// Returns when all stores have been written.
__device__ __forceinline__ void WaitStoresWritten() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// By one warp.
__device__ __forceinline__ void AskForState(const ScanCall& call, int index, Stage& stage,
                                            uint64_t* full) {
  const int lane = threadIdx.x;
  if (lane == 0) ExpectBytes(full, 32 * kRunBytes + kTokenBytes);
  __syncwarp();
  CopyBytes(SharedAddress(stage.state[lane]),
            Item(call, index).state + lane * (kRowsTogether * kDim), kRunBytes,
            SharedAddress(full));
}
// By one thread.
__device__ __forceinline__ void AskForToken(const ScanCall& call, int index, Stage& stage,
                                            uint64_t* full) {
  const LaneScanShape& shape = call.shape;
  const Item item(call, index);
  const int key_head =
      shape.tiled ? item.head % shape.key_heads : item.head / (shape.heads / shape.key_heads);
  const float* mixed = call.mixed.data + item.row * call.mixed.stride;
  const auto copy = [&](float* to, int head) {
    CopyBytes(SharedAddress(to), mixed + head * kDim, kDim * 4, SharedAddress(full));
  };
  copy(stage.keys[0], shape.key_heads + key_head);
  copy(stage.keys[1], key_head);
  copy(stage.values, 2 * shape.key_heads + item.head);
}

// Blocks that stay, one on a multiprocessor, each with a ring of states that the copy engine brings
// and takes away: two are on their way while the threads work on one. States are asked for before
// the kernel in front has ended, for nothing else in the step touches them.
__global__ void __launch_bounds__(kItemThreads, 1)
    DeltaTokensKernel(const __grid_constant__ ScanCall call) {
  if (!kSinceHopper) return;
  extern __shared__ __align__(128) std::byte room[];
  ScanShared& shared = *reinterpret_cast<ScanShared*>(room);
  const int count = static_cast<int>(call.step.sequence_count) * call.shape.heads;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) InitBarrier(&shared.full[s], 1);
    FenceBarriers();
  }
  if (threadIdx.x < 32) {
    __syncwarp();
    for (int s = 0; s < kStages - 1; ++s) {
      const int index = first + s * step;
      if (index < count) AskForState(call, index, shared.stage[s], &shared.full[s]);
    }
  }
  LetNextStart();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = threadIdx.x % kLanes;  // of the keys of a column
  const int column = threadIdx.x / kLanes * kColumns;
  __syncthreads();
  WaitForInputs();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages - 1; ++s) {
      const int index = first + s * step;
      if (index < count) AskForToken(call, index, shared.stage[s], &shared.full[s]);
    }
  }
  int stage = 0, parity = 0, turn = 0;
#pragma unroll 1
  for (int index = first; index < count; index += step, ++turn) {
    const Item item(call, index);
    Token<Rule::kDelta, kDim, kColumns> token;
    token.scalar[0] = call.decay.data[item.row * call.decay.stride + item.head];
    token.scalar[1] = call.beta.data[item.row * call.beta.stride + item.head];
    // A warp for the norm, another one for each item.
    const bool norms = warp == turn % (kItemThreads / 32);
    float z[4], weight[4];
    if (norms) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        z[i] = call.z.data[item.row * call.z.stride + item.head * kDim + 32 * i + lane];
        weight[i] = call.norm[32 * i + lane];
      }
    }
    Stage& here = shared.stage[stage];
    WaitBarrier(&shared.full[stage], parity);
    float s[kColumns][kDim / kLanes];
    const auto cells = [&](int i) {
      return reinterpret_cast<float4*>(
          &here.state[i / kRowsTogether * kLanes + part][i % kRowsTogether * kDim + column]);
    };
#pragma unroll
    for (int i = 0; i < kDim / kLanes; ++i) {
      const float4 four = *cells(i);
      s[0][i] = four.x, s[1][i] = four.y, s[2][i] = four.z, s[3][i] = four.w;
    }
    token.LoadKeys(SharedAddress(here.keys) + 16 * part, kDim);
    const float4 in = Load4(here.values + column);
    token.in[0] = in.x, token.in[1] = in.y, token.in[2] = in.z, token.in[3] = in.w;
    float none[kColumns] = {}, out[kColumns];
    RunToken(s, token, none, [] {});
    Finite finite;
#pragma unroll
    for (int i = 0; i < kDim / kLanes; ++i) {
      *cells(i) = {s[0][i], s[1][i], s[2][i], s[3][i]};
#pragma unroll
      for (int c = 0; c < kColumns; ++c) finite.Look(s[c][i]);
    }
    if (!finite.all()) Spoil(call.step, item.sequence);
    ReadOut(s, token, out);
    Join(out);
    float* const outputs = shared.outputs[turn % 2];
    if (part == 0) {
      *reinterpret_cast<float4*>(outputs + column) = {out[0], out[1], out[2], out[3]};
    }
    FenceCopies();
    __syncthreads();
    if (warp == 0) {
      StoreBytes(item.state + lane * (kRowsTogether * kDim), SharedAddress(here.state[lane]),
                 kRunBytes);
      CommitStores();
      const int next = index + (kStages - 1) * step;
      if (next < count) {
        // The stage of the item before this one is free when its state has left.
        WaitStoresReadButOne();
        __syncwarp();
        const int free = stage == 0 ? kStages - 1 : stage - 1;
        AskForState(call, next, shared.stage[free], &shared.full[free]);
        if (lane == 0) AskForToken(call, next, shared.stage[free], &shared.full[free]);
      }
    }
    if (norms) {
      const float sum =
          SumOfSquares([&](int64_t i) { return outputs[i]; }, lane % kNormLanes, kDim);
      const float r = InverseRoot(sum / static_cast<float>(kDim), call.norm_eps);
      float* y = call.y.data + item.row * call.y.stride + item.head * kDim;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float normal = (outputs[32 * i + lane] * r) * weight[i];
        y[32 * i + lane] = reference::Silu(z[i]) * normal;
      }
    }
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  if (warp == 0) WaitStoresWritten();
}

}  // namespace

bool HasDeltaTokens(const DeltaTokenLayer& layer) {
  return HasDeltaToken(layer) && ThisGpu().copy_engine &&
         sizeof(ScanShared) <= ThisGpu().block_shared;
}

void DeltaTokens(Stream stream, const StepView& step, const DeltaTokenLayer& layer, const View& qkv,
                 const View& a, const View& b, const View& z, const View& mixed, const View& y) {
  const LaneScanShape& shape = layer.shape;
  const auto grid = [&](int64_t pieces) {
    return dim3(Blocks(pieces, kWarps), unsigned(step.sequence_count));
  };
  LaunchEarly(DeltaMixKernel, grid(2 * shape.key_heads + shape.heads), kWarps * 32, 0, stream,
              MixCall{step, layer, qkv, a, b, mixed});
  const int items = shape.heads * static_cast<int>(step.sequence_count);
  LaunchEarly(
      DeltaTokensKernel, unsigned(std::min(items, ThisGpu().multiprocessors)), kItemThreads,
      sizeof(ScanShared), stream,
      ScanCall{step, layer.delta_offset, shape, layer.norm, layer.norm_eps, mixed, a, b, z, y});
}

}  // namespace reprise::cuda
