// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/scan/lane_scan.h"
#include "kernels/cuda/scan/run_token.cuh"
#include "kernels/cuda/tensor/hopper.cuh"

// A block has a range of columns of one head of one sequence. One of its warps copies operands of
// coming tokens to shared memory, through a ring of stages; the others run the tokens. What a token
// needs is in registers when the one before it has been run, and nothing but arithmetic and two
// loads stands between two tokens: every instruction there is paid for once a token.
namespace reprise::cuda {
namespace {

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

// Copies `width` floats of each of `count` tokens from row `row` on; zeros from `real` on. One
// warp.
__device__ __forceinline__ void CopyTokens(float* to, const HeadRows& from, int64_t row, int head,
                                           int offset, int count, int width, int real, int words) {
  const float* rows = from.data + row * from.stride + head * from.head_stride;
  for (int i = int(threadIdx.x % 32) * words; i < count * width; i += 32 * words) {
    const int at = i % width;
    const bool valid = at < real;
    const float* source = rows + i / width * from.stride + (valid ? offset + at : 0);
    if (words == 4) {
      CopyAsync16(to + i, source, valid);
    } else {
      CopyAsync4(to + i, source, valid);
    }
  }
}

// Operands of kTokens tokens in shared memory: those along keys one behind another, [kTokens,
// kKeys] each; columns [kTokens, kBlockColumns]; scalars [kTokens + 1, 2, 2], both twice: what
// lies at one address for all threads would be read into registers that a warp shares, which takes
// longer. Readers may read one token too far.
template <Rule kRule, int kKeys, int kBlockColumns>
struct Stage {
  // As many as leave room for all stages on every GPU.
  static constexpr int kTokens = kAlongKeys<kRule> * kKeys > 512 ? 8 : 16;
  static constexpr int kColumnsAt = kTokens * kAlongKeys<kRule> * kKeys;
  static constexpr int kScalarsAt = kColumnsAt + kTokens * kBlockColumns;
  static constexpr int kFloats = kScalarsAt + (kTokens + 1) * 4;
  static constexpr int kCount = kKeys > 128 ? 2 : 3;

  // Asks for rows [t, t + kTokens) of the sequence.
  static __device__ __forceinline__ void Ask(const Call& call, const BlockPlace& place, int t,
                                             float* stage) {
    const LaneScanShape& shape = call.shape;
    const int count = min(kTokens, place.sequence.row_count - t);
    const int64_t row = place.sequence.row_begin + t;
#pragma unroll
    for (int o = 0; o < kAlongKeys<kRule>; ++o) {
      CopyTokens(stage + o * kTokens * kKeys, call.in.along_keys[o], row, place.key_head, 0, count,
                 kKeys, shape.keys, call.row_words);
    }
    CopyTokens(stage + kColumnsAt, call.in.column, row, place.head, place.first, count,
               kBlockColumns, min(kBlockColumns, shape.columns - place.first), call.row_words);
    const int token = threadIdx.x % 16, twin = threadIdx.x % 32 / 16;
    if (token >= count) return;
#pragma unroll
    for (int o = 0; o < kScalars<kRule>; ++o) {
      const HeadRows& from = call.in.scalars[o];
      CopyAsync4(stage + kScalarsAt + 4 * token + 2 * twin + o,
                 from.data + (row + token) * from.stride + place.head * from.head_stride, true);
    }
  }
};

// What the warp that copies and those that run tell each other.
template <int kCount>
struct Ring {
  uint64_t full[kCount];
  uint64_t empty[kCount];
};

template <typename Operands>
__device__ void CopyAll(const Call& call, const BlockPlace& place, Ring<Operands::kCount>* ring,
                        float* stages) {
  int stage = 0, parity = 1;
  for (int t = 0; t < place.sequence.row_count; t += Operands::kTokens) {
    WaitBarrier(&ring->empty[stage], parity);
    Operands::Ask(call, place, t, stages + stage * Operands::kFloats);
    ArriveWhenCopied(&ring->full[stage]);
    if (++stage == Operands::kCount) stage = 0, parity ^= 1;
  }
}

// The tokens of a sequence, one after another, as a thread reads them.
template <Rule kRule, int kKeys, int kColumns, int kBlockColumns>
class TokenReader {
 public:
  using Operands = Stage<kRule, kKeys, kBlockColumns>;

  __device__ TokenReader(Ring<Operands::kCount>* ring, const float* stages, int count)
      : ring_(ring), stages_(SharedAddress(stages)), left_(count) {
    Turn();
  }

  // The next token; nothing that means anything behind the last one. The branch at its end keeps
  // the compiler from moving loads to where they are needed.
  __device__ __forceinline__ void Next(Token<kRule, kKeys, kColumns>* token) {
    token->LoadKeys(keys_, Operands::kTokens * kKeys);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) token->in[c] = LoadShared(columns_ + 4 * c);
    if constexpr (kScalars < kRule >> 0) {
      token->scalar[0] = LoadShared(scalars_);
      token->scalar[1] = LoadShared(scalars_ + 4);
    }
    keys_ += sizeof(float) * kKeys;
    columns_ += sizeof(float) * kBlockColumns;
    scalars_ += sizeof(float) * 4;
    if (--room_ == 0) Turn();
  }

 private:
  // To the next stage, where there is one; this thread has all of the last.
  __device__ __forceinline__ void Turn() {
    if (left_ == 0) return;
    room_ = min(left_, Operands::kTokens);
    left_ -= room_;
    if (stage_ >= 0) ArriveAsWarp(&ring_->empty[stage_]);
    if (++stage_ == Operands::kCount) stage_ = 0, parity_ ^= 1;
    WarpWaitBarrier(&ring_->full[stage_], parity_);
    const uint32_t stage = stages_ + sizeof(float) * stage_ * Operands::kFloats;
    keys_ = stage + 16 * (threadIdx.x % kLanes);
    columns_ = stage + sizeof(float) * (Operands::kColumnsAt + threadIdx.x / kLanes * kColumns);
    scalars_ = stage + sizeof(float) * (Operands::kScalarsAt + 2 * (threadIdx.x % 2));
  }

  Ring<Operands::kCount>* ring_;
  uint32_t stages_;  // this and the following: addresses in shared memory
  uint32_t keys_ = 0;
  uint32_t columns_ = 0;
  uint32_t scalars_ = 0;
  int left_;      // tokens behind this stage
  int room_ = 0;  // tokens left in it
  int stage_ = -1;
  int parity_ = 0;
};

// Outputs are joined and stored kLate tokens later. The first stores, of nothing, go to where the
// first output will be.
template <Rule kRule, int kColumns, int kLate>
struct Outputs {
  float last[kColumns] = {};       // to be joined next
  float in[kLate][kColumns] = {};  // of the tokens whose outputs are to be stored
  float* at;
  int64_t steps[kLate] = {};
  int64_t stride;
  float skip;
  bool mine;  // this thread stores column `lane` of its columns

  __device__ __forceinline__ void Store() {
    float value = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float joined = kRule == Rule::kSsd ? fmaf(skip, in[0][c], last[c]) : last[c];
      value = threadIdx.x % kLanes == c ? joined : value;
    }
    if (mine) *at = value;
    at += steps[0];
#pragma unroll
    for (int i = 0; i + 1 < kLate; ++i) steps[i] = steps[i + 1];
    steps[kLate - 1] = stride;
  }
  __device__ __forceinline__ void Keep(const float (&out)[kColumns], const float (&now)[kColumns]) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      last[c] = out[c];
#pragma unroll
      for (int i = 0; i + 1 < kLate; ++i) in[i][c] = in[i + 1][c];
      in[kLate - 1][c] = now[c];
    }
  }
};

template <Rule kRule, int kKeys, int kColumns, int kRunners>
__global__ void __launch_bounds__(kRunners + 32) ScanKernel(const __grid_constant__ Call call) {
  constexpr int kBlockColumns = kRunners / kLanes * kColumns;
  using Operands = Stage<kRule, kKeys, kBlockColumns>;
  extern __shared__ __align__(16) float stages[];
  __shared__ Ring<Operands::kCount> ring;
  const BlockPlace place = PlaceOfBlock<kBlockColumns>(call);
  const SequenceView& sequence = place.sequence;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Operands::kCount; ++i) {
      InitBarrier(&ring.full[i], 32);
      InitBarrier(&ring.empty[i], kRunners / 32 * kWarpArrivals);
    }
  }
  __syncthreads();
  // Said by one thread for all, so that the compiler knows that no warp is divided here.
  const bool copies = __shfl_sync(~0u, threadIdx.x >= kRunners, 0);
  if (copies) return CopyAll<Operands>(call, place, &ring, stages);

  const int column = place.first + threadIdx.x / kLanes * kColumns;  // this thread's first
  const int lane = threadIdx.x % kLanes;
  float s[kColumns][kKeys / kLanes];
  const float* state = StateOf(call, place, sequence.state);
  ForCells(call.shape, column, s,
           [&](float& cell, int64_t at, bool held) { cell = held ? state[at] : 0.0f; });

  // A token is read while the one before it is run, and the output of the one before that is
  // computed while threads wait for each other, where registers suffice.
  constexpr bool kAhead = (3 * kAlongKeys<kRule> + kColumns) * (kKeys / kLanes) <= 160;
  Outputs<kRule, kColumns, kAhead ? 2 : 1> outputs;
  outputs.stride = call.y.stride;
  outputs.at = call.y.data + sequence.row_begin * call.y.stride +
               int64_t{place.head} * call.shape.columns + column + lane;
  outputs.skip = kRule == Rule::kSsd ? call.in.skip[place.head] : 0.0f;
  outputs.mine = lane < kColumns && column + lane < call.shape.columns;
  using TokenType = Token<kRule, kKeys, kColumns>;
  const auto run = [&](const TokenType& now, const TokenType& before) {
    float out[kColumns];
    RunToken(s, now, outputs.last, [&] {
      if (kAhead) ReadOut(s, before, out);
    });
    if (!kAhead) ReadOut(s, now, out);
    outputs.Store();
    outputs.Keep(out, now.in);
  };

  TokenReader<kRule, kKeys, kColumns, kBlockColumns> reader(&ring, stages, sequence.row_count);
  TokenType a, b, c = {};
  if (kAhead) reader.Next(&a);
  int done = 0;
  for (int tap = 0; tap <= sequence.tap_count; ++tap) {
    const bool final = tap == sequence.tap_count;
    const TapView* view = call.step.taps + sequence.tap_begin + tap;
    const int stop = final ? sequence.row_count : view->row - sequence.row_begin;
    if constexpr (kAhead) {
#pragma unroll 1
      for (; done + 2 < stop; done += 3) {
        reader.Next(&b);
        run(a, c);
        reader.Next(&c);
        run(b, a);
        reader.Next(&a);
        run(c, b);
      }
    }
#pragma unroll 1
    for (; done < stop; ++done) {
      reader.Next(kAhead ? &b : &a);
      run(a, c);
      if (kAhead) c = a, a = b;
    }
    SaveState(call.shape, column, s, StateOf(call, place, final ? sequence.state : view->state));
  }
  // What is not finite stays so, from token to token.
  Finite finite;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (const float cell : s[c]) finite.Look(cell);
  }
  if (!finite.all()) Spoil(call.step, blockIdx.y);
  if (sequence.row_count == 0) return;
  Join(outputs.last);
  outputs.Store();
  if constexpr (kAhead) {
    float out[kColumns];
    ReadOut(s, c, out);
    Join(out);
    outputs.Keep(out, c.in);
    outputs.Store();
  }
}

template <Rule kRule, int kKeys, int kColumns, int kRunners>
void Launch(Stream stream, const Call& call) {
  constexpr int kBlockColumns = kRunners / kLanes * kColumns;
  using Operands = Stage<kRule, kKeys, kBlockColumns>;
  constexpr size_t kShared = sizeof(float) * Operands::kFloats * Operands::kCount;
  static_assert(kShared <= kBlockSharedLeast);
  const auto kernel = ScanKernel<kRule, kKeys, kColumns, kRunners>;
  const dim3 grid(unsigned(call.shape.heads * CeilDiv(call.shape.columns, kBlockColumns)),
                  unsigned(call.step.sequence_count));
  LaunchInTurn(kernel, grid, kRunners + 32, kShared, stream, call);
}

// Threads with two columns read a token's keys once for both, which counts: shared memory is what
// a token waits for. Few of them in a block make many blocks: right for few heads; with more of
// them less is wasted on a short sequence, whose state is read and written in longer runs.
template <Rule kRule, int kKeys>
void LaunchByColumns(Stream stream, const Call& call) {
  const int64_t columns = int64_t{call.shape.heads} * call.shape.columns * call.step.sequence_count;
  const bool brief = call.step.rows < 4 * call.step.sequence_count;
  if constexpr (kKeys <= 128) {
    if (columns > 8192 || (brief && columns > 2048)) {
      return Launch<kRule, kKeys, 4, 128>(stream, call);
    }
  }
  if (columns > 2048 || brief) return Launch<kRule, kKeys, 2, 128>(stream, call);
  Launch<kRule, kKeys, 2, 64>(stream, call);
}

bool Aligned(const HeadRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0 &&
         rows.head_stride % 4 == 0;
}

template <Rule kRule>
void Run(Stream stream, Call call) {
  bool aligned = call.shape.keys % 4 == 0 && call.shape.columns % 4 == 0 && Aligned(call.in.column);
  for (int o = 0; o < kAlongKeys<kRule>; ++o) {
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
