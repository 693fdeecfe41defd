// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/conv.h"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/reference/math.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
// Rows of a sequence that one thread of a convolution takes. At least kMaxConvReach - 1, so that
// only the first strip of a sequence sees its stored window.
constexpr int kStrip = 16;

__device__ float* StateOf(const StepView& step, uint32_t id, int64_t offset) {
  return reinterpret_cast<float*>(step.state_memory + int64_t{id} * step.state_bytes + offset);
}

// A channel of one sequence under a convolution of reach kReach.
template <int kReach>
struct Channel {
  const float* x;  // of the sequence's first row
  int64_t stride;
  const float* window;  // [kReach - 1], `channels` apart
  int64_t channels;

  // The input of row t of the sequence; rows before the first one are in the window.
  __device__ float Input(int t) const {
    return t >= 0 ? x[t * stride] : window[(t + kReach - 1) * channels];
  }
  // Writes the window after row t of the sequence. `to` may be the window: it moves to lower
  // places only.
  __device__ void Leave(int t, float* to) const {
#pragma unroll
    for (int j = 0; j + 1 < kReach; ++j) to[j * channels] = Input(t - (kReach - 2) + j);
  }
};

// Strips of kStrip rows run side by side. The first strip of a sequence is the only reader of its
// window, and so also writes what replaces it, last.
template <int kReach>
__global__ void __launch_bounds__(kThreads)
    ConvStrips(StepView step, int64_t state_offset, const float* weight, const float* bias,
               bool silu, View x, View y) {
  const SequenceView sequence = step.sequences[blockIdx.z];
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= x.cols) return;
  float w[kReach];
#pragma unroll
  for (int j = 0; j < kReach; ++j) w[j] = weight[j * x.cols + c];
  const float first = bias != nullptr ? bias[c] : 0.0f;
  float* window = StateOf(step, sequence.state, state_offset) + c;
  const Channel<kReach> channel = {x.data + sequence.row_begin * x.stride + c, x.stride, window,
                                   x.cols};
  int tap = 0;
  Finite finite;
  for (int begin = blockIdx.y * kStrip; begin < sequence.row_count; begin += gridDim.y * kStrip) {
    const int end = min(begin + kStrip, sequence.row_count);
    // All inputs are asked for before the first output is stored.
    float inputs[kReach - 1 + kStrip];
#pragma unroll
    for (int j = 0; j < kReach - 1 + kStrip; ++j) {
      const int t = begin - (kReach - 1) + j;
      inputs[j] = t < end ? channel.Input(t) : 0.0f;
      finite.Look(inputs[j]);
    }
    float* to = y.data + (sequence.row_begin + begin) * y.stride + c;
#pragma unroll
    for (int t = 0; t < kStrip; ++t, to += y.stride) {
      float sum = first;
#pragma unroll
      for (int j = 0; j < kReach; ++j) sum = fmaf(w[j], inputs[t + j], sum);
      if (begin + t < end) *to = silu ? reference::Silu(sum) : sum;
    }
    for (; tap < sequence.tap_count; ++tap) {
      const TapView to = step.taps[sequence.tap_begin + tap];
      const int t = to.row - 1 - sequence.row_begin;
      if (t >= end) break;
      if (t >= begin) channel.Leave(t, StateOf(step, to.state, state_offset) + c);
    }
    if (begin == 0) channel.Leave(sequence.row_count - 1, window);
  }
  if (!finite.all()) Spoil(step, blockIdx.z);
}

__global__ void __launch_bounds__(kThreads)
    ShiftRows(StepView step, int64_t state_offset, View x, ShiftedOutputs outs) {
  const SequenceView sequence = step.sequences[blockIdx.z];
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= x.cols) return;
  float* state = StateOf(step, sequence.state, state_offset) + c;
  const float* column = x.data + sequence.row_begin * x.stride + c;
  for (int t = blockIdx.y; t < sequence.row_count; t += gridDim.y) {
    const float current = column[t * x.stride];
    const float before = t == 0 ? *state : column[(t - 1) * x.stride];
    if (!IsFinite(current)) Spoil(step, blockIdx.z);
    for (int i = 0; i < outs.count; ++i) {
      outs.out[i].data[(sequence.row_begin + t) * outs.out[i].stride + c] =
          fmaf(before - current, outs.mix[i][c], current);
    }
    if (t != 0) continue;
    // The first row alone reads the state: its thread leaves the new one.
    for (int tap = 0; tap < sequence.tap_count; ++tap) {
      const TapView to = step.taps[sequence.tap_begin + tap];
      StateOf(step, to.state, state_offset)[c] =
          column[(to.row - 1 - sequence.row_begin) * x.stride];
    }
    *state = column[(sequence.row_count - 1) * x.stride];
  }
}

// The taps of a sequence as a scan walks over its rows.
struct TapWalk {
  const TapView* next;
  const TapView* end;

  __device__ TapWalk(const StepView& step, const SequenceView& sequence)
      : next(step.taps + sequence.tap_begin), end(next + sequence.tap_count) {}
  // Calls leave(state id) for every tap after `row` of the step.
  template <typename Leave>
  __device__ void After(int row, const Leave& leave) {
    for (; next != end && next->row == row + 1; ++next) leave(next->state);
  }
};

__global__ void __launch_bounds__(kThreads)
    RgLruChannels(StepView step, int64_t state_offset, const float* rate, View x, View r, View i,
                  View y) {
  const SequenceView sequence = step.sequences[blockIdx.y];
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= x.cols || sequence.row_count == 0) return;
  float* kept = StateOf(step, sequence.state, state_offset) + c;
  float state = *kept;
  TapWalk taps(step, sequence);
  const int end = sequence.row_begin + sequence.row_count;
  for (int row = sequence.row_begin; row < end; ++row) {
    const float l = -(rate[c] * reference::Sigmoid(r.data[row * r.stride + c]));
    const float gated = x.data[row * x.stride + c] * reference::Sigmoid(i.data[row * i.stride + c]);
    const float root = sqrtf(1.0f - reference::Exp(l + l));
    const float next = fmaf(reference::Exp(l), state, gated * root);
    state = sequence.position == 0 && row == sequence.row_begin ? gated : next;
    y.data[row * y.stride + c] = state;
    taps.After(row, [&](uint32_t id) { StateOf(step, id, state_offset)[c] = state; });
  }
  *kept = state;
  if (!IsFinite(state)) Spoil(step, blockIdx.y);
}

constexpr int kScanThreads = kSelectiveThreads;

// A thread a channel, its state in shared memory.
__global__ void __launch_bounds__(kScanThreads)
    SelectiveChannels(StepView step, int64_t state_offset, const float* a, const float* skip,
                      View x, View dt, View b, View c, View y) {
  extern __shared__ float states[];  // [keys, kScanThreads]
  const SequenceView sequence = step.sequences[blockIdx.y];
  const int64_t channel = int64_t{blockIdx.x} * kScanThreads + threadIdx.x;
  if (channel >= x.cols || sequence.row_count == 0) return;
  const int keys = static_cast<int>(b.cols);
  float* state = states + threadIdx.x;
  float* kept = StateOf(step, sequence.state, state_offset) + channel;
  for (int k = 0; k < keys; ++k) state[k * kScanThreads] = kept[k * x.cols];
  TapWalk taps(step, sequence);
  const int end = sequence.row_begin + sequence.row_count;
  for (int row = sequence.row_begin; row < end; ++row) {
    const float input = x.data[row * x.stride + channel];
    const float delta = dt.data[row * dt.stride + channel];
    const float u = delta * input;
    float out = 0;
#pragma unroll 4
    for (int k = 0; k < keys; ++k) {
      const float decay = reference::Exp(delta * a[k * x.cols + channel]);
      const float s = fmaf(decay, state[k * kScanThreads], u * b.data[row * b.stride + k]);
      state[k * kScanThreads] = s;
      out = fmaf(s, c.data[row * c.stride + k], out);
    }
    y.data[row * y.stride + channel] = fmaf(skip[channel], input, out);
    taps.After(row, [&](uint32_t id) {
      float* to = StateOf(step, id, state_offset) + channel;
      for (int k = 0; k < keys; ++k) to[k * x.cols] = state[k * kScanThreads];
    });
  }
  Finite finite;
  for (int k = 0; k < keys; ++k) {
    kept[k * x.cols] = state[k * kScanThreads];
    finite.Look(state[k * kScanThreads]);
  }
  if (!finite.all()) Spoil(step, blockIdx.y);
}

bool Empty(const StepView& step, const View& x) {
  return step.rows == 0 || step.sequence_count == 0 || x.cols == 0;
}

template <int kReach>
void LaunchConv(Stream stream, const StepView& step, int64_t state_offset, const float* weight,
                const float* bias, int reach, bool silu, const View& x, const View& y) {
  if constexpr (kReach > kMaxConvReach) {
    return;
  } else if (reach != kReach) {
    LaunchConv<kReach + 1>(stream, step, state_offset, weight, bias, reach, silu, x, y);
  } else {
    const dim3 grid(Blocks(x.cols, kThreads), RowBlocks(Blocks(step.rows, kStrip)),
                    static_cast<unsigned>(step.sequence_count));
    LaunchInTurn(ConvStrips<kReach>, grid, kThreads, 0, stream, step, state_offset, weight, bias,
                 silu, x, y);
  }
}

}  // namespace

void ShortConv(Stream stream, const StepView& step, int64_t state_offset, const float* weight,
               const float* bias, int reach, bool silu, const View& x, const View& y) {
  if (Empty(step, x)) return;
  LaunchConv<2>(stream, step, state_offset, weight, bias, reach, silu, x, y);
}

void TokenShift(Stream stream, const StepView& step, int64_t state_offset, const View& x,
                const ShiftedOutputs& outs) {
  if (Empty(step, x)) return;
  const dim3 grid(Blocks(x.cols, kThreads), RowBlocks(step.rows),
                  static_cast<unsigned>(step.sequence_count));
  LaunchInTurn(ShiftRows, grid, kThreads, 0, stream, step, state_offset, x, outs);
}

void RgLru(Stream stream, const StepView& step, int64_t state_offset, const float* rate,
           const View& x, const View& r, const View& i, const View& y) {
  if (Empty(step, x)) return;
  const dim3 grid(Blocks(x.cols, kThreads), static_cast<unsigned>(step.sequence_count));
  LaunchInTurn(RgLruChannels, grid, kThreads, 0, stream, step, state_offset, rate, x, r, i, y);
}

void SelectiveScan(Stream stream, const StepView& step, int64_t state_offset, const float* a,
                   const float* skip, const View& x, const View& dt, const View& b, const View& c,
                   const View& y) {
  if (Empty(step, x)) return;
  const dim3 grid(Blocks(x.cols, kScanThreads), static_cast<unsigned>(step.sequence_count));
  const size_t bytes = size_t(b.cols) * kScanThreads * sizeof(float);
  LaunchInTurn(SelectiveChannels, grid, kScanThreads, bytes, stream, step, state_offset, a, skip, x,
               dt, b, c, y);
}

}  // namespace reprise::cuda
