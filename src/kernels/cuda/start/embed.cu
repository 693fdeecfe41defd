// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/unit.cuh"
#include "kernels/cuda/rows/rope.cuh"
#include "kernels/cuda/start/embed.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float ToFloat(float value) { return value; }
__device__ float ToFloat(__half value) { return __half2float(value); }

// What the first kernel of a step does beside the rows, by blocks behind theirs.
struct Beside {
  const uint4* from = nullptr;  // arrays, at the host; null: they are there already
  uint4* to = nullptr;
  int count = 0;
  AngledRows angles;

  static constexpr int kBlocks = 2;  // one for the arrays, one for the angles
};

// Whether this block has rows; if not, it is done. Kernels behind read the arrays before they wait.
// So where those were brought in front of this one, none starts before they are there.
__device__ __forceinline__ bool BeginRows(const Beside& beside) {
  if (beside.from == nullptr) {
    WaitForInputs();
    LetNextStart();
    return true;
  }
  LetNextStart();
  if (blockIdx.x + Beside::kBlocks < gridDim.x) return true;
  if (blockIdx.y > 0) return false;
  if (blockIdx.x + 1 == gridDim.x) {
#pragma unroll 4
    for (int i = threadIdx.x; i < beside.count; i += kThreads) beside.to[i] = beside.from[i];
    return false;
  }
  const AngledRows& rows = beside.angles;
  for (int64_t i = threadIdx.x; i < rows.rows * rows.angles.half; i += kThreads) {
    Angle(rows, i).Store(rows, i);
  }
  return false;
}

struct TableRows {
  const int32_t* tokens;
  int32_t count;  // of the table
  __device__ int32_t operator[](int64_t t) const { return tokens[t] < count ? tokens[t] : 0; }
};

template <typename Value>
__global__ void __launch_bounds__(kThreads)
    WidenRows(const Value* table, int64_t stride, float scale, TableRows tokens, View out,
              Beside beside) {
  if (!BeginRows(beside)) return;
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
    DequantiseRows(QuantisedMatrix table, TableRows tokens, View out, Beside beside) {
  if (!BeginRows(beside)) return;
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

// A thread a value of packed weights: scale * q + shift in f32.
template <PackedForm kForm>
__global__ void __launch_bounds__(kThreads)
    UnpackRows(const uint8_t* table, int64_t units, TableRows tokens, View out, Beside beside) {
  if (!BeginRows(beside)) return;
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= out.cols) return;
  const int in_unit = column % kUnitCols;
  const int pair = in_unit / 8, t = in_unit % 8 / 2, which = in_unit % 2;
  for (int64_t i = blockIdx.y; i < out.rows; i += gridDim.y) {
    const int row = tokens[i], g = row % kUnitRows, lane = 4 * g + t;
    const int64_t place =
        (row / kPackedRows * units + column / kUnitCols) * 2 + row % kPackedRows / kUnitRows;
    const uint8_t* const unit = table + place * UnitBytes(kForm);
    const auto half = [&](int at) {
      return __half2float(*reinterpret_cast<const __half*>(unit + at));
    };
    float value;
    if constexpr (kForm == PackedForm::kBytes) {
      value = static_cast<float>(int(unit[lane * 16 + 2 * pair + which]) - 128) *
              half(512 + 4 * g + in_unit / 32 * 2);
    } else {
      const uint32_t word = reinterpret_cast<const uint32_t*>(unit)[2 * lane + pair / 4];
      const int low = static_cast<int>(word >> (16 * which + 4 * (pair % 4)) & 15);
      if constexpr (kForm == PackedForm::kNibbles || kForm == PackedForm::kFives) {
        const bool five = kForm == PackedForm::kFives;
        const int scales = (five ? 320 : 256) + 8 * g + in_unit / 32 * 4;
        const int fifth = five ? unit[256 + 2 * lane + which] >> pair & 1 : 0;
        value = static_cast<float>(low + 16 * fifth) * half(scales) + half(scales + 2);
      } else {
        const uint32_t upper = reinterpret_cast<const uint32_t*>(unit + 256)[lane];
        const int high = static_cast<int>(upper >> (16 * which + SixPlace(pair)) & 3);
        value = static_cast<float>(low + 16 * high - 32) * half(384 + 8 * g + in_unit / 16 * 2);
      }
    }
    out.data[i * out.stride + column] = value;
  }
}

// A kernel with a thread for each column of the rows.
template <typename... Parameters, typename... Arguments>
void LaunchRows(void (*kernel)(Parameters...), Stream stream, const EmbeddedRows& rows,
                const Beside& beside, const Arguments&... table) {
  const unsigned blocks = Blocks(rows.out.cols, kThreads);
  const unsigned height = RowBlocks(rows.out.rows);
  const TableRows tokens{rows.tokens, rows.table_rows};
  if (beside.from == nullptr) {
    return LaunchEarly(kernel, dim3(blocks, height), kThreads, 0, stream, table..., tokens,
                       rows.out, beside);
  }
  // Not early: what is in front may read the arrays of its own step.
  LaunchAs({.division = LaunchNeeds::Division::kShared}, kernel,
           dim3(blocks + Beside::kBlocks, height), kThreads, stream, table..., tokens, rows.out,
           beside);
}

struct EmbedFrom {
  Stream stream;
  const EmbeddedRows& rows;
  const Beside& beside;

  void operator()(const float* table) const {
    LaunchRows(WidenRows<float>, stream, rows, beside, table, rows.out.cols, 1.0f);
  }
  void operator()(const HalfMatrix& table) const {
    const auto* const units = reinterpret_cast<const uint8_t*>(table.data);
    const int64_t along = table.stride / kUnitCols;
    switch (table.packed) {
      case PackedForm::kNone:
        break;
      case PackedForm::kBytes:
        return LaunchRows(UnpackRows<PackedForm::kBytes>, stream, rows, beside, units, along);
      case PackedForm::kNibbles:
        return LaunchRows(UnpackRows<PackedForm::kNibbles>, stream, rows, beside, units, along);
      case PackedForm::kFives:
        return LaunchRows(UnpackRows<PackedForm::kFives>, stream, rows, beside, units, along);
      case PackedForm::kSixes:
        return LaunchRows(UnpackRows<PackedForm::kSixes>, stream, rows, beside, units, along);
    }
    LaunchRows(WidenRows<__half>, stream, rows, beside, reinterpret_cast<const __half*>(table.data),
               table.stride, table.scale);
  }
  void operator()(const QuantisedMatrix& table) const {
    switch (table.layout.dtype) {
#define REPRISE_EMBED(name) \
  case DType::k##name:      \
    return LaunchRows(DequantiseRows<DType::k##name>, stream, rows, beside, table)
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
      default:
        break;
    }
  }
};

}  // namespace

void Embed(Stream stream, const EmbeddedRows& rows) {
  if (rows.out.rows == 0 || rows.out.cols == 0) return;
  std::visit(EmbedFrom{stream, rows, {}}, rows.table);
}

void StartStep(Stream stream, const HostArrays& arrays, const EmbeddedRows& rows,
               const AngledRows& angles) {
  Beside beside = {reinterpret_cast<const uint4*>(arrays.from), reinterpret_cast<uint4*>(arrays.to),
                   int(arrays.bytes / sizeof(uint4)), angles};
  if (angles.rows > 0) beside.angles.positions = arrays.AtHost(angles.positions);
  EmbeddedRows from_host = rows;
  from_host.tokens = arrays.AtHost(rows.tokens);
  std::visit(EmbedFrom{stream, from_host, beside}, rows.table);
}

}  // namespace reprise::cuda
