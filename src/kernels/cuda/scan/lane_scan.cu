// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/scan/lane_scan.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/tensor/mma.cuh"

// Eight threads share a column of the state: thread l has keys 32j + 4l .. 32j + 4l + 3. A block
// has a range of columns of one head of one sequence. Operands of the next tokens are copied to
// shared memory while those before them are run.
namespace reprise::cuda {
namespace {

constexpr int kLanes = 8;
constexpr int kThreads = 128;
constexpr int kTokens = 16;  // of a stage

enum class Rule { kDelta, kKeyDecay, kSsd, kWkv7 };

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

// Sums over the keys that threads of a column have between them.
template <int kCount>
__device__ __forceinline__ void Join(float (&sum)[kCount]) {
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) sum[c] += __shfl_xor_sync(~0u, sum[c], d);
  }
}

template <int kCells>
__device__ __forceinline__ float Chain(const float (&a)[kCells], const float (&b)[kCells]) {
  float lane[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kCells; ++i) lane[i % 4] = fmaf(a[i], b[i], lane[i % 4]);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

template <int kCells>
__device__ __forceinline__ void LoadCells(float (&cells)[kCells], const float* keys, int lane) {
#pragma unroll
  for (int i = 0; i < kCells; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(keys + i * kLanes + 4 * lane);
    cells[i] = four.x, cells[i + 1] = four.y, cells[i + 2] = four.z, cells[i + 3] = four.w;
  }
}

// One token: `keys` are its operands along keys, each kTokens * kKeys floats behind the last.
template <Rule kRule, int kKeys, int kColumns>
__device__ __forceinline__ void RunToken(float (&s)[kColumns][kKeys / kLanes], const float* keys,
                                         const float (&scalar)[2], const float (&in)[kColumns],
                                         float skip, int lane, float (&out)[kColumns]) {
  constexpr int kCells = kKeys / kLanes;
  if constexpr (kRule == Rule::kDelta) {
    float k[kCells], q[kCells];
    LoadCells(k, keys, lane);
    LoadCells(q, keys + kTokens * kKeys, lane);
    const float decay = scalar[0], beta = scalar[1];
    float read[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) read[c] = Chain(s[c], k);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] *= decay;
    }
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float delta = beta * (in[c] - decay * read[c]);
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(k[i], delta, s[c][i]);
      out[c] = Chain(s[c], q);
    }
  } else if constexpr (kRule == Rule::kKeyDecay) {
    float k[kCells], q[kCells], decay[kCells];
    LoadCells(k, keys, lane);
    LoadCells(q, keys + kTokens * kKeys, lane);
    LoadCells(decay, keys + 2 * kTokens * kKeys, lane);
    float read[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] *= decay[i];
      read[c] = Chain(s[c], k);
    }
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float delta = scalar[0] * (in[c] - read[c]);
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(k[i], delta, s[c][i]);
      out[c] = Chain(s[c], q);
    }
  } else if constexpr (kRule == Rule::kSsd) {
    float b[kCells], c_keys[kCells];
    LoadCells(b, keys, lane);
    LoadCells(c_keys, keys + kTokens * kKeys, lane);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float u = scalar[0] * in[c];
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(b[i], u, s[c][i] * scalar[1]);
      out[c] = Chain(s[c], c_keys);
    }
  } else {
    float a[kCells], b[kCells], k[kCells], w[kCells], r[kCells];
    LoadCells(a, keys, lane);
    LoadCells(b, keys + kTokens * kKeys, lane);
    LoadCells(k, keys + 2 * kTokens * kKeys, lane);
    LoadCells(w, keys + 3 * kTokens * kKeys, lane);
    LoadCells(r, keys + 4 * kTokens * kKeys, lane);
    float read[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) read[c] = Chain(s[c], a);
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        s[c][i] = fmaf(s[c][i], w[i], fmaf(read[c], b[i], in[c] * k[i]));
      }
      out[c] = Chain(s[c], r);
    }
  }
  Join(out);
  if constexpr (kRule == Rule::kSsd) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[c] = fmaf(skip, in[c], out[c]);
  }
}

template <Rule kRule, int kKeys, int kColumns>
__global__ void __launch_bounds__(kThreads) ScanKernel(Call call) {
  using P = Places<kRule>;
  constexpr int kCells = kKeys / kLanes;
  constexpr int kBlockColumns = kThreads / kLanes * kColumns;
  constexpr int kStageFloats = kTokens * (P::kAlongKeys * kKeys + kBlockColumns + 2);
  extern __shared__ __align__(16) float stages[];
  const LaneScanShape& shape = call.shape;
  const int parts = CeilDiv(shape.columns, kBlockColumns);
  const int head = blockIdx.x / parts;
  const int first = blockIdx.x % parts * kBlockColumns;
  const int key_head =
      shape.tiled ? head % shape.key_heads : head / (shape.heads / shape.key_heads);
  const SequenceView sequence = call.step.sequences[blockIdx.y];
  const int lane = threadIdx.x % kLanes;
  const int mine = first + threadIdx.x / kLanes * kColumns;  // its first column

  const int64_t state_at = call.state_offset + int64_t{head} * shape.keys * shape.columns * 4;
  const auto state_of = [&](uint32_t id) {
    return reinterpret_cast<float*>(call.step.state_memory + int64_t{id} * call.step.state_bytes +
                                    state_at);
  };
  float s[kColumns][kCells];
  const float* state = state_of(sequence.state);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      const int key = i / 4 * 4 * kLanes + 4 * lane + i % 4;
      const bool held = key < shape.keys && mine + c < shape.columns;
      s[c][i] = held ? state[int64_t{key} * shape.columns + mine + c] : 0.0f;
    }
  }
  const auto save = [&](float* to) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const int key = i / 4 * 4 * kLanes + 4 * lane + i % 4;
        if (key < shape.keys && mine + c < shape.columns) {
          to[int64_t{key} * shape.columns + mine + c] = s[c][i];
        }
      }
    }
  };

  // Copies the operands of rows [t, t + kTokens) of the sequence; zeros beyond keys and columns.
  const auto load = [&](int buffer, int t) {
    float* stage = stages + buffer * kStageFloats;
    const int count = min(kTokens, sequence.row_count - t);
    const int words = call.row_words;
    const auto copy = [&](float* to, const HeadRows& from, int from_head, int offset, int width,
                          int real) {
      for (int i = threadIdx.x * words; i < count * width; i += kThreads * words) {
        const int token = i / width;
        const int at = i % width;
        const bool valid = at < real;
        const float* source = from.data + (sequence.row_begin + t + token) * from.stride +
                              from_head * from.head_stride + (valid ? offset + at : 0);
        if (words == 4) {
          CopyAsync16(to + i, source, valid);
        } else {
          CopyAsync4(to + i, source, valid);
        }
      }
    };
    // Tokens are kAlongKeys * kKeys apart in shared memory: operand by operand.
#pragma unroll
    for (int o = 0; o < P::kAlongKeys; ++o) {
      copy(stage + o * kTokens * kKeys, call.in.along_keys[o], key_head, 0, kKeys, shape.keys);
    }
    float* columns = stage + P::kAlongKeys * kTokens * kKeys;
    copy(columns, call.in.column, head, first, kBlockColumns,
         min(kBlockColumns, shape.columns - first));
    float* scalars = columns + kTokens * kBlockColumns;
    for (int i = threadIdx.x; i < P::kScalars * count; i += kThreads) {
      const HeadRows& from = call.in.scalars[i / count];
      const int token = i % count;
      CopyAsync4(scalars + i / count * kTokens + token,
                 from.data + (sequence.row_begin + t + token) * from.stride +
                     head * from.head_stride,
                 true);
    }
    CommitAsync();
  };

  int tap = sequence.tap_begin;
  const int tap_end = sequence.tap_begin + sequence.tap_count;
  const float skip = kRule == Rule::kSsd ? call.in.skip[head] : 0.0f;
  load(0, 0);
  for (int t = 0, buffer = 0; t < sequence.row_count; t += kTokens, buffer ^= 1) {
    if (t + kTokens < sequence.row_count) {
      load(buffer ^ 1, t + kTokens);
      WaitAsync<1>();
    } else {
      WaitAsync<0>();
    }
    __syncthreads();
    const float* stage = stages + buffer * kStageFloats;
    const float* columns = stage + P::kAlongKeys * kTokens * kKeys;
    const float* scalars = columns + kTokens * kBlockColumns;
    const int count = min(kTokens, sequence.row_count - t);
    for (int i = 0; i < count; ++i) {
      float in[kColumns], out[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) in[c] = columns[i * kBlockColumns + mine - first + c];
      const float scalar[2] = {P::kScalars > 0 ? scalars[i] : 0.0f,
                               P::kScalars > 1 ? scalars[kTokens + i] : 0.0f};
      // The operands of a token, gathered by their distance in shared memory.
      RunToken<kRule, kKeys, kColumns>(s, stage + i * kKeys, scalar, in, skip, lane, out);
      const int row = sequence.row_begin + t + i;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (lane == c % kLanes && mine + c < shape.columns) {
          call.y.data[row * call.y.stride + int64_t{head} * shape.columns + mine + c] = out[c];
        }
      }
      if (tap < tap_end && call.step.taps[tap].row == row) {
        save(state_of(call.step.taps[tap].state));
        ++tap;
      }
    }
    __syncthreads();
  }
  save(state_of(sequence.state));
}

template <Rule kRule, int kKeys, int kColumns>
void Launch(Stream stream, const Call& call) {
  using P = Places<kRule>;
  constexpr int kBlockColumns = kThreads / kLanes * kColumns;
  constexpr size_t kShared =
      2 * sizeof(float) * kTokens * (P::kAlongKeys * kKeys + kBlockColumns + 2);
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
  const int64_t columns =
      int64_t{call.shape.heads} * call.shape.columns * call.step.sequence_count;
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
