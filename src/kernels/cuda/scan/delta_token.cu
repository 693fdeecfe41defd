// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/scan/delta_token.h"
#include "kernels/cuda/scan/run_token.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/reference/math.h"

// A cluster has one key head of one sequence and the value heads that share it; each of its blocks
// has a range of columns of all of them, and two teams of threads, a head each, in turns. What no
// kernel of the step in front changes (states, windows, weights) is read before it has ended.
// Blocks of a cluster send each other their columns of the outputs, of which every norm needs the
// whole. Who has them all knows that windows are read no more, and may change them; and that nobody
// writes to its shared memory any more, so that it may go.
namespace reprise::cuda {
namespace {

constexpr int kDim = 128;  // keys and columns of a head
constexpr int kReach = 4;
constexpr int kCluster = 4;             // blocks
constexpr int kPart = kDim / kCluster;  // columns of a block
constexpr int kColumns = 2;             // of a thread
constexpr int kTeam = kPart / kColumns * kLanes;
constexpr int kTeams = 2;
constexpr int kThreads = kTeams * kTeam;
constexpr int kHeadsMost = 4;                       // that share a key head
constexpr int kChannels = (2 + kHeadsMost) * kDim;  // of a block, at most: k, q, values

struct Call {
  StepView step;
  DeltaTokenLayer layer;
  int heads;  // value heads that share a key head
  View qkv, a, b, z, y;
};

__device__ float* StateOf(const StepView& step, uint32_t id, int64_t offset) {
  return reinterpret_cast<float*>(step.state_memory + int64_t{id} * step.state_bytes + offset);
}

// Value head `index` of those that share key head `key_head`.
__device__ int HeadOf(const Call& call, int key_head, int index) {
  const LaneScanShape& shape = call.layer.shape;
  return shape.tiled ? key_head + shape.key_heads * index : key_head * call.heads + index;
}

// The cells of a thread, two columns at once.
__device__ __forceinline__ float2* CellsAt(float* state, int i) {
  const int column =
      static_cast<int>(blockIdx.x) % kCluster * kPart + threadIdx.x % kTeam / kLanes * kColumns;
  const int key = i / 4 * 4 * kLanes + 4 * (threadIdx.x % kLanes) + i % 4;
  return reinterpret_cast<float2*>(state + key * kDim + column);
}
__device__ __forceinline__ void LoadState(float (&s)[kColumns][kDim / kLanes], float* state) {
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    const float2 two = *CellsAt(state, i);
    s[0][i] = two.x, s[1][i] = two.y;
  }
}
__device__ __forceinline__ void SaveState(const float (&s)[kColumns][kDim / kLanes], float* state,
                                          Finite& finite) {
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    *CellsAt(state, i) = make_float2(s[0][i], s[1][i]);
    finite.Look(s[0][i]);
    finite.Look(s[1][i]);
  }
}

__device__ float* DeltaOf(const Call& call, uint32_t id, int head) {
  return StateOf(call.step, id, call.layer.delta_offset) + int64_t{head} * kDim * kDim;
}

// What the value heads of a block share. Channels of the convolution: k, q, then the values.
struct Shared {
  float outputs[kHeadsMost][kDim];  // of all blocks of the cluster
  uint64_t arrived;                 // the outputs
  float decay[kHeadsMost];
  float beta[kHeadsMost];
};

constexpr size_t kSharedBytes = (sizeof(Shared) + 15) / 16 * 16;

// As many as there are: beside the blocks of two products there is little room.
struct Channels {
  float* weights;  // [kReach, channels]
  float* windows;  // the same; the last: the token's input
  float* mixed;    // k, q, values

  __device__ Channels(std::byte* room, int heads)
      : weights(reinterpret_cast<float*>(room)),
        windows(weights + kReach * Count(heads)),
        mixed(windows + kReach * Count(heads)) {}
  static __host__ __device__ constexpr int Count(int heads) { return (2 + heads) * kDim; }
  static constexpr size_t Bytes(int heads) { return size_t((2 * kReach + 1) * Count(heads)) * 4; }
};

// The channel of the step's rows that is channel c of a block.
__device__ int ChannelOf(const Call& call, int key_head, int c) {
  const int part = c / kDim;
  const int keys = call.layer.shape.key_heads;
  const int head = part == 0   ? keys + key_head
                   : part == 1 ? key_head
                               : 2 * keys + HeadOf(call, key_head, part - 2);
  return head * kDim + c % kDim;
}

// L2 norm of q or k by one warp.
__device__ void NormKeys(float* keys, float eps, float scale) {
  const float sum =
      SumOfSquares([&](int64_t i) { return keys[i]; }, threadIdx.x % kNormLanes, kDim);
  const float r = InverseRoot(sum, eps);
  for (int i = threadIdx.x % 32; i < kDim; i += 32) keys[i] = (keys[i] * r) * scale;
}

#if REPRISE_SINCE_HOPPER
#define REPRISE_CLUSTER __cluster_dims__(kCluster, 1, 1)
#else
#define REPRISE_CLUSTER
#endif
__global__ void REPRISE_CLUSTER __launch_bounds__(kThreads)
    DeltaTokenKernel(const __grid_constant__ Call call) {
  if (!kSinceHopper) return;
  extern __shared__ __align__(16) std::byte room[];
  Shared& shared = *reinterpret_cast<Shared*>(room);
  const Channels of(room + kSharedBytes, call.heads);
  if (threadIdx.x == 0) InitBarrier(&shared.arrived, 1);
  SayBegun();
  const DeltaTokenLayer& layer = call.layer;
  const int key_head = static_cast<int>(blockIdx.x) / kCluster;
  const int part = static_cast<int>(blockIdx.x) % kCluster;
  const int heads = call.heads;
  const int channels = Channels::Count(heads);
  const SequenceView sequence = call.step.sequences[blockIdx.y];
  const int64_t row = sequence.row_begin;
  const int team = threadIdx.x / kTeam;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float s[kColumns][kDim / kLanes];
  if (team < heads) LoadState(s, DeltaOf(call, sequence.state, HeadOf(call, key_head, team)));
  const int c4 = 4 * threadIdx.x;  // channels that this thread copies
  static_assert(kChannels <= 4 * kThreads);
  const int channel4 = ChannelOf(call, key_head, c4);
  float* window = StateOf(call.step, sequence.state, layer.conv_offset);
  if (c4 < channels) {
    for (int j = 0; j < kReach; ++j) {
      CopyAsync16(of.weights + j * channels + c4, layer.conv + j * call.qkv.cols + channel4, true);
    }
    for (int j = 0; j + 1 < kReach; ++j) {
      CopyAsync16(of.windows + j * channels + c4, window + j * call.qkv.cols + channel4, true);
    }
  }
  float exp_a = 0, dt_bias = 0;
  if (lane < heads) {
    const int head = HeadOf(call, key_head, lane);
    exp_a = LoadEarly(layer.exp_a + head);
    dt_bias = LoadEarly(layer.dt_bias + head);
  }
  const float norm = LoadEarly(layer.norm + part * kPart + lane);
  WaitForInputs();
  LetNextStart();
  if (c4 < channels) {
    CopyAsync16(of.windows + (kReach - 1) * channels + c4,
                call.qkv.data + row * call.qkv.stride + channel4, true);
  }
  CommitAsync();
  // What is needed late is asked for now.
  float gate_a = 0, gate_b = 0, z = 0;
  if (lane < heads) {
    const int head = HeadOf(call, key_head, lane);
    gate_a = call.a.data[row * call.a.stride + head];
    gate_b = call.b.data[row * call.b.stride + head];
  }
  const auto output_at = [&](int index) {
    return int64_t{HeadOf(call, key_head, index)} * kDim + part * kPart + lane;
  };
  if (warp < heads) z = call.z.data[row * call.z.stride + output_at(warp)];
  WaitAsync<0>();
  __syncthreads();
#pragma unroll 1
  for (int c = threadIdx.x; c < channels; c += kThreads) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kReach; ++j)
      sum = fmaf(of.weights[j * channels + c], of.windows[j * channels + c], sum);
    of.mixed[c] = reference::Silu(sum);
  }
  __syncthreads();
  if (warp < 2) NormKeys(of.mixed + warp * kDim, layer.l2_eps, warp == 0 ? 1.0f : layer.q_scale);
  if (warp == 2 && lane < heads) {
    shared.decay[lane] = reference::Exp(-(exp_a * reference::Softplus(gate_a + dt_bias)));
    shared.beta[lane] = reference::Sigmoid(gate_b);
  }
  __syncthreads();

  WaitForCluster();
  if (threadIdx.x == 0) ExpectBytes(&shared.arrived, heads * kDim * 4);
  const int column = threadIdx.x % kTeam / kLanes * kColumns;
  Finite finite;
#pragma unroll 1
  for (int index = team; index < heads; index += kTeams) {
    const int head = HeadOf(call, key_head, index);
    if (index >= kTeams) {
      SaveState(s, DeltaOf(call, sequence.state, HeadOf(call, key_head, index - kTeams)), finite);
      LoadState(s, DeltaOf(call, sequence.state, head));
    }
    Token<Rule::kDelta, kDim, kColumns> token;
    token.LoadKeys(SharedAddress(of.mixed) + 16 * (threadIdx.x % kLanes), kDim);
    token.scalar[0] = shared.decay[index];
    token.scalar[1] = shared.beta[index];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      token.in[c] = of.mixed[(2 + index) * kDim + part * kPart + column + c];
    }
    float none[kColumns] = {}, out[kColumns];
    RunToken(s, token, none, [] {});
    ReadOut(s, token, out);
    Join(out);
    // Of the eight threads of two columns each has one column and one block to tell.
    static_assert(kLanes == kColumns * kCluster);
    const int c = threadIdx.x % kColumns;
    const int block = threadIdx.x % kLanes / kColumns;
    Send(PlaceIn(block, &shared.outputs[index][part * kPart + column + c]),
         c == 0 ? out[0] : out[1], PlaceIn(block, &shared.arrived));
  }
  WaitBarrier(&shared.arrived, 0);
  // Norms: a warp a head, 16 lanes each, as everywhere.
  if (warp < heads) {
    const float* outputs = shared.outputs[warp];
    const float sum =
        SumOfSquares([&](int64_t i) { return outputs[i]; }, threadIdx.x % kNormLanes, kDim);
    const float r = InverseRoot(sum / static_cast<float>(kDim), layer.norm_eps);
    static_assert(kPart == 32 && kHeadsMost <= kThreads / 32);
    const float normal = (outputs[part * kPart + lane] * r) * norm;
    call.y.data[row * call.y.stride + output_at(warp)] = reference::Silu(z) * normal;
  }
  // The states go last: nobody waits for them.
  if (team < heads) {
    const int last = team + (heads - 1 - team) / kTeams * kTeams;
    SaveState(s, DeltaOf(call, sequence.state, HeadOf(call, key_head, last)), finite);
  }
  if (part == 0 && c4 < channels) {  // one block leaves the windows
    for (int j = 0; j + 1 < kReach; ++j) {
      const float4 inputs = *reinterpret_cast<const float4*>(of.windows + (j + 1) * channels + c4);
      *reinterpret_cast<float4*>(window + j * call.qkv.cols + channel4) = inputs;
      finite.Look(inputs.x), finite.Look(inputs.y), finite.Look(inputs.z), finite.Look(inputs.w);
    }
  }
  if (!finite.all()) Spoil(call.step, blockIdx.y);
}

}  // namespace

bool HasDeltaToken(const DeltaTokenLayer& layer) {
  const LaneScanShape& shape = layer.shape;
  return ThisGpu().clusters && layer.reach == kReach && shape.keys == kDim &&
         shape.columns == kDim && shape.heads / shape.key_heads <= kHeadsMost &&
         layer.conv_offset % 16 == 0 && layer.delta_offset % 16 == 0;
}

void DeltaToken(Stream stream, const StepView& step, const DeltaTokenLayer& layer, const View& qkv,
                const View& a, const View& b, const View& z, const View& y) {
  static_assert(kSharedBytes + Channels::Bytes(kHeadsMost) <= kBlockSharedLeast);
  const int heads = layer.shape.heads / layer.shape.key_heads;
  const dim3 grid(unsigned(layer.shape.key_heads * kCluster), unsigned(step.sequence_count));
  LaunchEarly(DeltaTokenKernel, grid, kThreads, kSharedBytes + Channels::Bytes(heads), stream,
              Call{step, layer, heads, qkv, a, b, z, y});
}

}  // namespace reprise::cuda
