// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scan/lane_scan.h"
#include "kernels/cuda/scan/run_token.cuh"
#include "kernels/cuda/tensor/mma.cuh"

// A block has a range of columns of one head of one sequence. Operands of the next tokens are
// copied to shared memory while those before them are run.
namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTokens = 16;  // of a stage

// Which operands a rule has; names of their places below.
template <Rule kRule>
struct Places;
template <>
struct Places<Rule::kDelta> {
  static constexpr int kAlongKeys = 2, kScalars = 2;  // k q; decay beta
};
template <>
struct Places<Rule::kKeyDecay> {
  static constexpr int kAlongKeys = 3, kScalars = 1;  // k q decay; beta
};
template <>
struct Places<Rule::kSsd> {
  static constexpr int kAlongKeys = 2, kScalars = 2;  // b c; dt decay
};
template <>
struct Places<Rule::kWkv7> {
  static constexpr int kAlongKeys = 5, kScalars = 0;  // a b k w r
};

struct Operands {
  HeadRows along_keys[5];
  HeadRows scalars[2];
  HeadRows column;
  const float* skip = nullptr;
};

struct Call {
  StepView step;
  int64_t state_offset;
  LaneScanShape shape;
  Operands in;
  View y;
  int row_words;  // floats copied at once: 4 where everything is aligned, else 1
};

__device__ __forceinline__ void CopyAsync4(float* shared, const float* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 4 : 0));
}

// The place of a block: a range of columns of one head of one sequence.
struct BlockPlace {
  SequenceView sequence;
  int head;
  int key_head;
  int first;  // column
};
template <int kBlockColumns>
__device__ BlockPlace PlaceOfBlock(const Call& call) {
  const LaneScanShape& shape = call.shape;
  const int parts = CeilDiv(shape.columns, kBlockColumns);
  const int head = blockIdx.x / parts;
  return {call.step.sequences[blockIdx.y], head,
          shape.tiled ? head % shape.key_heads : head / (shape.heads / shape.key_heads),
          static_cast<int>(blockIdx.x) % parts * kBlockColumns};
}

// The cells of a column that a thread has; `move(cell, place in the state)` for each that exists.
template <int kCells, int kColumns, typename Move>
__device__ __forceinline__ void ForCells(const LaneScanShape& shape, int column,
                                         float (&s)[kColumns][kCells], const Move& move) {
  const int lane = threadIdx.x % kLanes;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      const int key = i / 4 * 4 * kLanes + 4 * lane + i % 4;
      const bool held = key < shape.keys && column + c < shape.columns;
      move(s[c][i], int64_t{key} * shape.columns + column + c, held);
    }
  }
}

__device__ float* StateOf(const Call& call, const BlockPlace& place, uint32_t id) {
  return reinterpret_cast<float*>(call.step.state_memory + int64_t{id} * call.step.state_bytes +
                                  call.state_offset) +
         int64_t{place.head} * call.shape.keys * call.shape.columns;
}

template <int kCells, int kColumns>
__device__ __forceinline__ void SaveState(const LaneScanShape& shape, int column,
                                          float (&s)[kColumns][kCells], float* to) {
  ForCells(shape, column, s, [&](float& cell, int64_t at, bool held) {
    if (held) to[at] = cell;
  });
}

// Copies `width` floats of each of `count` tokens from row `row` on; zeros from `real` on.
__device__ void CopyTokens(float* to, const HeadRows& from, int64_t row, int head, int offset,
                           int count, int width, int real, int words) {
  for (int i = threadIdx.x * words; i < count * width; i += kThreads * words) {
    const int token = i / width;
    const int at = i % width;
    const bool valid = at < real;
    const float* source = from.data + (row + token) * from.stride + head * from.head_stride +
                          (valid ? offset + at : 0);
    if (words == 4) {
      CopyAsync16(to + i, source, valid);
    } else {
      CopyAsync4(to + i, source, valid);
    }
  }
}

// Operands of kTokens tokens in shared memory: those along keys one behind another, [kTokens,
// kKeys] each; columns [kTokens, kBlockColumns]; scalars [2, kTokens].
template <Rule kRule, int kKeys, int kBlockColumns>
struct Stage {
  using P = Places<kRule>;
  static constexpr int kColumnsAt = kTokens * P::kAlongKeys * kKeys;
  static constexpr int kScalarsAt = kColumnsAt + kTokens * kBlockColumns;
  static constexpr int kFloats = kScalarsAt + kTokens * 2;

  // Asks for rows [t, t + kTokens) of the sequence.
  static __device__ void Load(const Call& call, const BlockPlace& place, int t, float* stage) {
    const LaneScanShape& shape = call.shape;
    const int count = min(kTokens, place.sequence.row_count - t);
    const int64_t row = place.sequence.row_begin + t;
#pragma unroll
    for (int o = 0; o < P::kAlongKeys; ++o) {
      CopyTokens(stage + o * kTokens * kKeys, call.in.along_keys[o], row, place.key_head, 0, count,
                 kKeys, shape.keys, call.row_words);
    }
    CopyTokens(stage + kColumnsAt, call.in.column, row, place.head, place.first, count,
               kBlockColumns, min(kBlockColumns, shape.columns - place.first), call.row_words);
    for (int i = threadIdx.x; i < P::kScalars * count; i += kThreads) {
      const HeadRows& from = call.in.scalars[i / count];
      CopyAsync4(stage + kScalarsAt + i / count * kTokens + i % count,
                 from.data + (row + i % count) * from.stride + place.head * from.head_stride, true);
    }
    CommitAsync();
  }
};

template <Rule kRule, int kKeys, int kColumns>
__global__ void __launch_bounds__(kThreads) ScanKernel(Call call) {
  constexpr int kBlockColumns = kThreads / kLanes * kColumns;
  using Operands = Stage<kRule, kKeys, kBlockColumns>;
  extern __shared__ __align__(16) float stages[];
  const BlockPlace place = PlaceOfBlock<kBlockColumns>(call);
  const SequenceView& sequence = place.sequence;
  const int column = place.first + threadIdx.x / kLanes * kColumns;  // this thread's first
  float s[kColumns][kKeys / kLanes];
  const float* state = StateOf(call, place, sequence.state);
  ForCells(call.shape, column, s,
           [&](float& cell, int64_t at, bool held) { cell = held ? state[at] : 0.0f; });

  int tap = sequence.tap_begin;
  const int tap_end = sequence.tap_begin + sequence.tap_count;
  const float skip = kRule == Rule::kSsd ? call.in.skip[place.head] : 0.0f;
  Operands::Load(call, place, 0, stages);
  for (int t = 0, buffer = 0; t < sequence.row_count; t += kTokens, buffer ^= 1) {
    if (t + kTokens < sequence.row_count) {
      Operands::Load(call, place, t + kTokens, stages + (buffer ^ 1) * Operands::kFloats);
      WaitAsync<1>();
    } else {
      WaitAsync<0>();
    }
    __syncthreads();
    const float* stage = stages + buffer * Operands::kFloats;
    const float* scalars = stage + Operands::kScalarsAt;
    const int count = min(kTokens, sequence.row_count - t);
    for (int i = 0; i < count; ++i) {
      float in[kColumns], out[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        in[c] = stage[Operands::kColumnsAt + i * kBlockColumns + column - place.first + c];
      }
      const float scalar[2] = {Places<kRule>::kScalars > 0 ? scalars[i] : 0.0f,
                               Places<kRule>::kScalars > 1 ? scalars[kTokens + i] : 0.0f};
      RunToken<kRule, kKeys, kColumns>(s, stage + i * kKeys, kTokens * kKeys, scalar, in, skip,
                                       threadIdx.x % kLanes, out);
      const int row = sequence.row_begin + t + i;
      float* y = call.y.data + row * call.y.stride + int64_t{place.head} * call.shape.columns;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (threadIdx.x % kLanes == c % kLanes && column + c < call.shape.columns) {
          y[column + c] = out[c];
        }
      }
      if (tap < tap_end && call.step.taps[tap].row == row + 1) {
        SaveState(call.shape, column, s, StateOf(call, place, call.step.taps[tap].state));
        ++tap;
      }
    }
    __syncthreads();
  }
  SaveState(call.shape, column, s, StateOf(call, place, sequence.state));
}

template <Rule kRule, int kKeys, int kColumns>
void Launch(Stream stream, const Call& call) {
  constexpr int kBlockColumns = kThreads / kLanes * kColumns;
  constexpr size_t kShared = 2 * sizeof(float) * Stage<kRule, kKeys, kBlockColumns>::kFloats;
  const auto kernel = ScanKernel<kRule, kKeys, kColumns>;
  static const bool allowed = (AllowShared(kernel, kShared), true);
  (void)allowed;
  const dim3 grid(unsigned(call.shape.heads * CeilDiv(call.shape.columns, kBlockColumns)),
                  unsigned(call.step.sequence_count));
  kernel<<<grid, kThreads, kShared, stream>>>(call);
}

// Few columns a thread make many blocks: right for few heads; more of them waste less on a short
// sequence, whose state is read and written in longer runs.
template <Rule kRule, int kKeys>
void LaunchByColumns(Stream stream, const Call& call) {
  const int64_t columns = int64_t{call.shape.heads} * call.shape.columns * call.step.sequence_count;
  const bool brief = call.step.rows < 4 * call.step.sequence_count;
  if constexpr (kKeys <= 128) {
    if (columns > 8192 || (brief && columns > 2048)) {
      return Launch<kRule, kKeys, 4>(stream, call);
    }
  }
  if (columns > 2048 || brief) return Launch<kRule, kKeys, 2>(stream, call);
  Launch<kRule, kKeys, 1>(stream, call);
}

bool Aligned(const HeadRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0 &&
         rows.head_stride % 4 == 0;
}

template <Rule kRule>
void Run(Stream stream, Call call) {
  bool aligned = call.shape.keys % 4 == 0 && call.shape.columns % 4 == 0 && Aligned(call.in.column);
  for (int o = 0; o < Places<kRule>::kAlongKeys; ++o) {
    aligned = aligned && Aligned(call.in.along_keys[o]);
  }
  call.row_words = aligned ? 4 : 1;
  if (call.shape.keys <= 32) return LaunchByColumns<kRule, 32>(stream, call);
  if (call.shape.keys <= 64) return LaunchByColumns<kRule, 64>(stream, call);
  if (call.shape.keys <= 128) return LaunchByColumns<kRule, 128>(stream, call);
  LaunchByColumns<kRule, 256>(stream, call);
}

}  // namespace

void GatedDelta(Stream stream, const StepView& step, int64_t state_offset,
                const LaneScanShape& shape, const DeltaOperands& in, const View& y) {
  Operands operands{{in.k, in.q}, {in.decay, in.beta}, in.v};
  Run<Rule::kDelta>(stream, Call{step, state_offset, shape, operands, y, 1});
}

void KeyDecayDelta(Stream stream, const StepView& step, int64_t state_offset,
                   const LaneScanShape& shape, const DeltaOperands& in, const View& y) {
  Operands operands{{in.k, in.q, in.decay}, {in.beta}, in.v};
  Run<Rule::kKeyDecay>(stream, Call{step, state_offset, shape, operands, y, 1});
}

void Ssd(Stream stream, const StepView& step, int64_t state_offset, const LaneScanShape& shape,
         const SsdOperands& in, const View& y) {
  Operands operands{{in.b, in.c}, {in.dt, in.decay}, in.x, in.skip};
  Run<Rule::kSsd>(stream, Call{step, state_offset, shape, operands, y, 1});
}

void Wkv7(Stream stream, const StepView& step, int64_t state_offset, const LaneScanShape& shape,
          const WkvOperands& in, const View& y) {
  Operands operands{{in.a, in.b, in.k, in.w, in.r}, {}, in.v};
  Run<Rule::kWkv7>(stream, Call{step, state_offset, shape, operands, y, 1});
}

}  // namespace reprise::cuda
