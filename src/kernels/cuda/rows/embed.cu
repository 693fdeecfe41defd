// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/unit.cuh"
#include "kernels/cuda/rows/embed.h"
#include "kernels/cuda/rows/finite.cuh"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float ToFloat(float value) { return value; }
__device__ float ToFloat(__half value) { return __half2float(value); }

// In front of the first kernel that has rows the arrays of the step are brought. Those behind it
// read them before they wait, so none of them starts before the arrays are there.
__device__ __forceinline__ void BeginRows() {
  WaitForInputs();
  LetNextStart();
}

template <typename Value>
__global__ void __launch_bounds__(kThreads)
    WidenRows(const Value* table, int64_t stride, float scale, const int32_t* tokens, View out) {
  BeginRows();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= out.cols) return;
  for (int64_t t = blockIdx.y; t < out.rows; t += gridDim.y) {
    out.data[t * out.stride + column] = ToFloat(table[tokens[t] * stride + column]) * scale;
  }
}

// Value `q` of one half of a unit, with the block's f16 scales.
template <DType kType>
__device__ float Dequantise(float q, uint32_t scales, const HalfScales& sub, int half) {
  const float d = FromHalf(scales & 0xFFFF);
  if constexpr (kType == DType::kIQ2_XXS) {
    // sub.scale is 2 s + 1: s + 0.5, as in the file, is half of it.
    return (d * (0.5f * static_cast<float>(sub.scale[half])) * 0.25f) * q;
  }
  if constexpr (!UnitTraits<kType>::kBlock256) {
    return UnitTraits<kType>::kMinimum ? q * d + BlockMinimum(scales) : q * d;
  }
  const float scale = d * static_cast<float>(sub.scale[half]);
  if constexpr (!UnitTraits<kType>::kMinimum) return scale * q;
  return scale * q - BlockMinimum(scales) * static_cast<float>(sub.min[half]);
}

// A warp a unit, a thread a value.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    DequantiseRows(QuantisedMatrix table, const int32_t* tokens, View out) {
  BeginRows();
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (unit >= out.cols / 32) return;
  const int lane = threadIdx.x % 32;
  const int half = lane / 16;
  for (int64_t t = blockIdx.y; t < out.rows; t += gridDim.y) {
    const RowPlanes<kType> row(table, tokens[t]);
    const UnitWords<kType> words = row.Words(unit, lane / 4 % 4);
    const uint2 pair = WordPair<kType>(words, GridOf(table), lane / 4 % 4);
    const uint32_t word = half == 0 ? pair.x : pair.y;
    const float q = static_cast<float>(static_cast<int8_t>(word >> (8 * (lane % 4))));
    HalfScales sub = {};
    if constexpr (UnitTraits<kType>::kBlock256) {
      const uint32_t signs = words.quants[UnitWords<kType>::kQuants - 1];
      sub = SubScalesOf<kType>(row.Sub(unit / 8), signs, static_cast<int>(unit % 8));
    }
    out.data[t * out.stride + unit * 32 + lane] =
        Dequantise<kType>(q, row.Scales(unit / UnitTraits<kType>::kBlockUnits), sub, half);
  }
}

__global__ void __launch_bounds__(kThreads) CopyRows(View x, const int32_t* index, View out) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= out.cols) return;
  for (int64_t i = blockIdx.y; i < out.rows; i += gridDim.y) {
    out.data[i * out.stride + column] = x.data[index[i] * x.stride + column];
  }
}

__global__ void __launch_bounds__(kThreads) FiniteOfRows(View x, uint8_t* finite) {
  const bool all = AreFinite(x, blockIdx.x, 1);
  if (threadIdx.x == 0) finite[blockIdx.x] = all ? 1 : 0;
}

__global__ void __launch_bounds__(kThreads) SetFlags(int count, uint8_t* flags) {
  WaitForInputs();
  LetNextStart();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < count) flags[i] = 1;
}

__global__ void __launch_bounds__(kThreads)
    ClearFlags(const int32_t* row_sequence, View x, uint8_t* finite) {
  WaitForInputs();
  LetNextStart();
  const bool all = AreFinite(x, blockIdx.x, 1);
  if (threadIdx.x == 0 && !all) finite[row_sequence[blockIdx.x]] = 0;  // by whoever comes
}

// One block a sequence.
__global__ void __launch_bounds__(kThreads)
    FlagSequences(const SequenceView* sequences, View x, uint8_t* finite) {
  LetNextStart();  // few blocks: there is room beside them
  const SequenceView sequence = sequences[blockIdx.x];
  WaitForInputs();
  const bool all = AreFinite(x, sequence.row_begin, sequence.row_count);
  if (threadIdx.x == 0) finite[blockIdx.x] = all ? 1 : 0;
}

// A value and its place as one number that grows with the value and falls with the place; 0 is
// below all. -0 counts as +0.
__device__ uint64_t Rank(float value, uint32_t index) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t ordered = (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
  return uint64_t{ordered} << 32 | ~index;
}

__global__ void __launch_bounds__(kThreads) ArgMaxOfRows(View x, int32_t* index) {
  __shared__ uint64_t ranks[kThreads / 32];
  const float* row = x.data + blockIdx.x * x.stride;
  uint64_t best = 0;
  bool finite = true;
  for (int64_t i = threadIdx.x; i < x.cols; i += kThreads) {
    const uint64_t rank = Rank(row[i], static_cast<uint32_t>(i));
    best = rank > best ? rank : best;
    finite &= IsFinite(row[i]);
  }
  for (int half = 16; half > 0; half /= 2) {
    const uint64_t other = __shfl_xor_sync(kFullWarp, best, half);
    best = other > best ? other : best;
  }
  if (threadIdx.x % 32 == 0) ranks[threadIdx.x / 32] = best;
  if (__syncthreads_and(finite) == 0) best = 0;
  if (threadIdx.x != 0) return;
  for (const uint64_t rank : ranks) best = best != 0 && rank > best ? rank : best;
  index[blockIdx.x] = best == 0 ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(best));
}

template <DType kType>
void LaunchDequantise(Stream stream, const QuantisedMatrix& table, const int32_t* tokens,
                      const View& out) {
  const dim3 grid(Blocks(out.cols, kThreads), RowBlocks(out.rows));
  LaunchEarly(DequantiseRows<kType>, grid, kThreads, 0, stream, table, tokens, out);
}

}  // namespace

void EmbedF32(Stream stream, const float* table, const int32_t* tokens, const View& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 grid(Blocks(out.cols, kThreads), RowBlocks(out.rows));
  LaunchEarly(WidenRows<float>, grid, kThreads, 0, stream, table, out.cols, 1.0f, tokens, out);
}

void EmbedHalf(Stream stream, const HalfMatrix& table, const int32_t* tokens, const View& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 grid(Blocks(out.cols, kThreads), RowBlocks(out.rows));
  LaunchEarly(WidenRows<__half>, grid, kThreads, 0, stream,
              reinterpret_cast<const __half*>(table.data), table.stride, table.scale, tokens, out);
}

void EmbedQuantised(Stream stream, const QuantisedMatrix& table, const int32_t* tokens,
                    const View& out) {
  if (out.rows == 0 || out.cols == 0) return;
  switch (table.layout.dtype) {
#define REPRISE_EMBED(name) \
  case DType::k##name:      \
    return LaunchDequantise<DType::k##name>(stream, table, tokens, out)
    REPRISE_EMBED(Q8_0);
    REPRISE_EMBED(Q4_0);
    REPRISE_EMBED(Q4_1);
    REPRISE_EMBED(Q5_0);
    REPRISE_EMBED(Q5_1);
    REPRISE_EMBED(Q2_K);
    REPRISE_EMBED(Q3_K);
    REPRISE_EMBED(Q4_K);
    REPRISE_EMBED(Q5_K);
    REPRISE_EMBED(Q6_K);
    REPRISE_EMBED(IQ4_NL);
    REPRISE_EMBED(IQ4_XS);
    REPRISE_EMBED(IQ2_XXS);
#undef REPRISE_EMBED
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
      break;
  }
}

void GatherRows(Stream stream, const View& x, const int32_t* index, const View& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 grid(Blocks(out.cols, kThreads), RowBlocks(out.rows));
  LaunchEarly(CopyRows, grid, kThreads, 0, stream, x, index, out);
}

bool FewPerSequence(const StepView& step) { return step.rows <= 2 * step.sequence_count; }

void FiniteSequences(Stream stream, const StepView& step, const View& x, uint8_t* finite) {
  if (step.sequence_count == 0) return;
  const auto rows = static_cast<unsigned>(step.rows);
  const auto sequences = static_cast<unsigned>(step.sequence_count);
  if (FewPerSequence(step)) {  // a decoded token waits for one kernel
    return LaunchEarly(FlagSequences, sequences, kThreads, 0, stream, step.sequences, x, finite);
  }
  const unsigned blocks = Blocks(step.sequence_count, kThreads);
  LaunchEarly(SetFlags, blocks, kThreads, 0, stream, step.sequence_count, finite);
  if (step.rows == 0) return;
  LaunchEarly(ClearFlags, rows, kThreads, 0, stream, step.row_sequence, x, finite);
}

void FiniteRows(Stream stream, const View& x, uint8_t* finite) {
  if (x.rows == 0) return;
  FiniteOfRows<<<static_cast<unsigned>(x.rows), kThreads, 0, stream>>>(x, finite);
}

void ArgMaxRows(Stream stream, const View& x, int32_t* index) {
  if (x.rows == 0) return;
  ArgMaxOfRows<<<static_cast<unsigned>(x.rows), kThreads, 0, stream>>>(x, index);
}

}  // namespace reprise::cuda
