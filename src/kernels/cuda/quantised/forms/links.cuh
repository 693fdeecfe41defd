// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/quantised/forms/copies.cuh"
#include "kernels/cuda/quantised/forms/mma.cuh"
#include "kernels/cuda/quantised/quantise.cuh"

// Products of a quantised row without tensor cores: a warp takes kTile rows of weights, which are
// on their way to a stage in shared memory, 32 / kTile quads of each. A lane has one quad, of which
// it makes all integer sums, and the chain of a row walks over the lanes that have it.
namespace reprise::cuda::links {

// Where pieces (16 bytes) of a quad lie in a stage: piece w where piece w ^ TurnOf(quad) would, so
// that eight lanes which read the same piece of neighbouring quads meet all banks. Nothing lies
// between quads, and stages begin with a line of 128 bytes: a line of weights stays one. Where
// lines are torn apart, copies take so much longer to ask for that a seventh of the bandwidth is
// lost. So shared memory says that it begins with a line, too: a single static float in front of it
// would shift all of it.
template <int kQuadBytes>
__device__ __forceinline__ constexpr int TurnOf(int quad) {
  return kQuadBytes == 128  ? quad % 8
         : kQuadBytes == 64 ? quad / 2 % 4
         : kQuadBytes == 32 ? quad / 4 % 2
                            : 0;
}
// Piece w of a quad whose first is at `at`; quads are multiples of kQuadBytes from where bytes are
// counted.
template <int kQuadBytes>
__device__ __forceinline__ int PieceAt(int at, int w) {
  return kQuadBytes == 16 ? at + 16 * w : at ^ (16 * w);
}

// What a stage holds: of each plane (layout.h) the part of kTile rows.
template <DType kType, int kTile>
struct Stage {
  using Traits = UnitTraits<kType>;
  static constexpr int kQuads = 32 / kTile;
  static constexpr int kBlocks = 4 * kQuads / Traits::kBlockUnits;  // of a row
  static constexpr int kQuantBytes = 16 * Traits::kQuantWords;      // of a quad
  static constexpr int kExtraBytes = 16 * Traits::kExtraWords;
  static constexpr int kSubBytes = kBlocks * Traits::kSubBytes;  // of a row
  static constexpr int kScaleBytes = kBlocks * (Traits::kMinimum ? 4 : 2);
  static constexpr int kExtra = kTile * kQuads * kQuantBytes;
  static constexpr int kSub = kExtra + kTile * kQuads * kExtraBytes;
  static constexpr int kScale = kSub + kTile * kSubBytes;
  static constexpr int kBytes = (kScale + kTile * kScaleBytes + 127) / 128 * 128;
};

// Values of an input whose sum is kept: those that share a scale and a minimum.
template <DType kType>
inline constexpr int kSummed = UnitTraits<kType>::kSub == SubScales::kByHalf ? 16 : 32;

// Rows of inputs as a block holds them, one behind another in whole quads.
struct Input {
  static constexpr int kPitch = 144;  // bytes of a quad: neighbours meet other banks
  std::byte* q;                       // [quads, kPitch]: as in layout.h
  float* scale;                       // [columns / block]
  int16_t* sum;                       // [columns / kSummed]

  // From a quad on, of 256-blocks an even one.
  template <DType kType>
  __device__ __forceinline__ Input From(int quad) const {
    return {q + quad * kPitch, scale + (UnitTraits<kType>::kBlock256 ? quad / 2 : 4 * quad),
            sum + quad * (128 / kSummed<kType>)};
  }
};
// Bytes of each.
struct InputBytes {
  int q, scale, sum;

  __host__ __device__ InputBytes(int quads, int block)
      : q(quads * Input::kPitch),
        scale((quads * 128 / block * 4 + 15) / 16 * 16),
        sum(quads * (block == 32 ? 8 : 16)) {}
  __host__ __device__ int all() const { return (q + scale + sum + 15) / 16 * 16; }
};

// What a lane copies of one plane: kRowBytes of each row of a tile for a stage, in quads of kGroup
// bytes. From one copy to the next it is a number of rows and bytes that all lanes share.
template <int kTile, int kRowBytes, int kGroup>
class PlaneCopies {
 public:
  // Rows [row, row + rows) of a plane; of kTile rows the others become zeros.
  // kInTurn: one copy of the lanes after another, two of them on their way at a time.
  template <bool kInTurn = false>
  static __device__ __forceinline__ void Ask(const std::byte* plane, int stride, int row, int rows,
                                             int lane, std::byte* to) {
    const int of_tile = kWide ? 0 : lane / kPieces, at = lane % (kWide ? 32 : kPieces) * kPiece;
    const std::byte* from = plane + int64_t{row + of_tile} * stride + at;
    const int quad = of_tile * kQuads + at / kGroup;
    const int first = quad * kGroup + (at % kGroup ^ Turn(quad));
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int more_rows = kWide ? i * 32 / kPieces : i * (32 / kPieces);
      const int more = kWide ? i * 32 % kPieces * kPiece : 0;
      if (!kWide && more_rows + of_tile >= kTile) break;
      const bool valid = more_rows + of_tile < rows && more + at < stride;
      const int quads = more_rows * kQuads + more / kGroup;
      CopyAsync<kPiece>(to + quads * kGroup + (first ^ Turn(quads)),
                        from + more_rows * stride + more, valid);
      if (kInTurn && i + 1 < kCopies) {
        CommitCopies();
        if (i > 0) WaitForCopies<1>();
      }
    }
  }

 private:
  static constexpr int kPiece = kRowBytes % 16 == 0 ? 16 : 8;
  static constexpr int kPieces = kRowBytes / kPiece;  // of a row
  static constexpr int kQuads = kRowBytes / kGroup;
  static constexpr bool kWide = kPieces >= 32;  // a copy of all lanes stays in one row
  static constexpr int kCopies = (kTile * kPieces + 31) / 32;
  static_assert(kWide ? kPieces % 32 == 0 && 32 * kPiece % kGroup == 0 : 32 % kPieces == 0);

  // In bytes; none where a row is one group. Of so many quads behind another one: that of both, for
  // numbers of quads that share no bit.
  static __device__ __forceinline__ constexpr int Turn(int quads) {
    return kQuads > 1 ? TurnOf<kGroup>(quads) * 16 : 0;
  }
};
// A plane that a type does not have.
template <int kTile, int kGroup>
class PlaneCopies<kTile, 0, kGroup> {
 public:
  template <bool kInTurn = false>
  static __device__ void Ask(const std::byte*, int, int, int, int, std::byte*) {}
};

__device__ __forceinline__ uint32_t PartOf(const uint4& four, int j) {
  return j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w;
}

// Byte k of a word.
__device__ __forceinline__ int ByteOf(uint32_t word, int k) {
  return static_cast<int>(__byte_perm(word, 0, 0x4440 + k));
}
__device__ __forceinline__ int SignedByteOf(uint32_t word, int k) {
  int byte;  // the others repeat its sign
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(byte) : "r"(word), "r"((8 + k) * 0x1110 + k));
  return byte;
}

// sum + the products of four unsigned with four signed bytes.
__device__ __forceinline__ int UnsignedDot(uint32_t a, uint32_t b, int sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}
// sum + the products of four int16 with four int8.
__device__ __forceinline__ int LongDot(uint2 a, uint32_t b, int sum) {
  sum = __dp2a_lo(static_cast<int>(a.x), static_cast<int>(b), sum);
  return __dp2a_hi(static_cast<int>(a.y), static_cast<int>(b), sum);
}

// Where a lane finds what it needs: bytes from the beginning of a stage, and of the input of it.
template <DType kType, int kTile>
struct Place {
  using Traits = UnitTraits<kType>;
  using S = Stage<kType, kTile>;

  int quants, extra, sub, scale;
  int x, x_scale, x_sum;

  // quad: of the input; of a stage lanes hold every kQuads-th the same.
  __device__ __forceinline__ explicit Place(int quad) {
    const int lane = threadIdx.x % 32, row = lane / S::kQuads, in_row = lane % S::kQuads;
    quants = lane * S::kQuantBytes + TurnOf<S::kQuantBytes>(lane) * 16;
    extra = S::kExtra + lane * S::kExtraBytes + TurnOf<S::kExtraBytes>(lane) * 16;
    const int block = Traits::kBlock256 ? in_row / 2 : 4 * in_row;
    const int half = QuadScales<kType>::kHalves ? 8 : 4;
    sub = S::kSub + row * S::kSubBytes + block * Traits::kSubBytes + in_row % 2 * half;
    scale = S::kScale + row * S::kScaleBytes + block * (Traits::kMinimum ? 4 : 2);
    x = quad * Input::kPitch;
    x_scale = Traits::kBlock256 ? quad / 2 * 4 : quad * 16;
    x_sum = quad * (256 / kSummed<kType>);
  }
  // In registers, not computed anew in every turn of a loop.
  __device__ __forceinline__ void Keep() {
    asm volatile(""
                 : "+r"(quants), "+r"(extra), "+r"(sub), "+r"(scale), "+r"(x), "+r"(x_scale),
                   "+r"(x_sum));
  }
};

// What a lane adds to the chain of its row: a link for each unit, or for a 256-block one, which two
// neighbours hold. kAtOnce: word pairs of a quad that are in registers, of four.
template <DType kType, int kTile, int kAtOnce = 4>
struct Links {
  using Traits = UnitTraits<kType>;
  using S = Stage<kType, kTile>;
  static constexpr int kQuads = S::kQuads;
  static constexpr int kCount = Traits::kBlock256 ? 1 : 4;
  static constexpr bool kHalves = QuadScales<kType>::kHalves;
  static constexpr int kStep = Traits::kBlock256 ? 2 : 1;     // quads of a link
  static constexpr float kSign = Traits::kBlock256 ? -1 : 1;  // of minima

  float scale[kCount], sum[kCount];
  float least_scale[kCount], least[kCount];  // of minima

  // The stage at shared + at, a multiple of 128. Lanes hold its quads row by row; `input` from the
  // stage's first on.
  __device__ __forceinline__ void Make(const std::byte* shared, int at, const uint2* grid,
                                       const Input& input, const Place<kType, kTile>& place) {
    const std::byte* stage = shared + at;
    const auto* x = reinterpret_cast<const uint4*>(input.q + place.x);
    int low[4] = {}, high[4] = {};
    QuadWords<kType> words;
#pragma unroll kAtOnce
    for (int i = 0; i < 4; ++i) {
      using Words = UnitWords<kType>;
#pragma unroll
      for (int k = 0; k < Words::kQuants; ++k) {
        const int piece = PieceAt<S::kQuantBytes>(at + place.quants, Words::Quant(i, k));
        words.quants[k] = *reinterpret_cast<const uint4*>(shared + piece);
      }
      if constexpr (Words::kExtras > 0) {
        const int piece = PieceAt<S::kExtraBytes>(at + place.extra, Words::Extra(i));
        words.extra = *reinterpret_cast<const uint4*>(shared + piece);
      }
      const uint4 x_low = x[i], x_high = x[4 + i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        AddPair(words.Unit(j), grid, i, PartOf(x_low, j), PartOf(x_high, j), low[j], high[j]);
      }
    }
    // Of bits, not yet of values: what kOffset makes of them follows from the sums of x.
    if constexpr (Traits::kPlainNibbles) {
#pragma unroll
      for (int j = 0; j < 4; ++j) high[j] >>= 4;
    }
    const auto* x_scale = reinterpret_cast<const std::byte*>(input.scale) + place.x_scale;
    const auto* x_sum = reinterpret_cast<const std::byte*>(input.sum) + place.x_sum;
    if constexpr (Traits::kBlock256) {
      MakeOne(stage + place.sub, stage + place.scale, x_scale, x_sum, low, high, words);
    } else {
      MakeFour(stage + place.scale, x_scale, x_sum, low, high);
    }
  }
  // The chain of a row over the quads of a stage; `left`: units of the row from there on. Every
  // lane of a row gets the sum.
  __device__ __forceinline__ float Chain(float total, int left) const {
    const auto walk = [&](int q) {
      float mine = total;
#pragma unroll
      for (int j = 0; j < kCount; ++j) mine = Add(j, mine);
      total = __shfl_sync(kFullWarp, mine, q, kQuads);
    };
    if (left >= 4 * kQuads) {
#pragma unroll
      for (int q = 0; q < kQuads; q += kStep) walk(q);
      return total;
    }
    int q = 0;
#pragma unroll 4
    for (; 4 * (q + kStep) <= left; q += kStep) walk(q);
    if (4 * q >= left) return total;
    float mine = total;  // of a quad that is not whole
#pragma unroll
    for (int j = 0; j + 1 < kCount; ++j) mine = 4 * q + j < left ? Add(j, mine) : mine;
    return __shfl_sync(kFullWarp, mine, q, kQuads);
  }
  // The same for a row of one stage, of 256-blocks, where nothing else is left to do meanwhile:
  // links meet in `room` (of the warp, aligned to 16; what was there is read), and every lane walks
  // over those of its row, instead of waiting for a shuffle between any two.
  __device__ __forceinline__ float ChainInRoom(std::byte* room, int units) const {
    static_assert(Traits::kBlock256);
    constexpr int kPairs = Traits::kMinimum ? 2 : 1;  // of factors, of a link
    constexpr int kRowPairs = kQuads / kStep * kPairs;
    constexpr int kBatch = std::min(8, kRowPairs);
    constexpr int kPitch = 2 * kRowPairs + 4;  // floats: rows begin with other banks
    static_assert(kTile * kPitch * 4 <= S::kBytes && kRowPairs % kBatch == 0);
    const int lane = threadIdx.x % 32;
    float* row = reinterpret_cast<float*>(room) + lane / kQuads * kPitch;
    if (lane % kStep == 0) {
      auto* mine = reinterpret_cast<float2*>(row) + lane % kQuads / kStep * kPairs;
      mine[0] = make_float2(scale[0], sum[0]);
      if (Traits::kMinimum) mine[1] = make_float2(kSign * least_scale[0], least[0]);
    }
    __syncwarp();
    float4 next[kBatch / 2];  // read while those before them are added
    const auto read = [&](int pair) {
#pragma unroll
      for (int j = 0; j < kBatch / 2; ++j) {
        next[j] = *reinterpret_cast<const float4*>(row + 2 * pair + 4 * j);
      }
    };
    read(0);
    const int pairs = units / Traits::kBlockUnits * kPairs;
    float total = 0;
    int i = 0;
#pragma unroll 1
    while (i + kBatch <= pairs) {
      float4 now[kBatch / 2];
#pragma unroll
      for (int j = 0; j < kBatch / 2; ++j) now[j] = next[j];
      i += kBatch;
      read(min(i, kRowPairs - kBatch));
#pragma unroll
      for (int j = 0; j < kBatch / 2; ++j) {
        total = fmaf(now[j].x, now[j].y, total);
        total = fmaf(now[j].z, now[j].w, total);
      }
    }
#pragma unroll 1
    for (; i < pairs; ++i) total = fmaf(row[2 * i], row[2 * i + 1], total);
    return total;
  }

 private:
  static __device__ __forceinline__ void AddPair(const UnitWords<kType>& unit, const uint2* grid,
                                                 int i, uint32_t x_low, uint32_t x_high, int& low,
                                                 int& high) {
    if constexpr (Traits::kPlainNibbles) {
      // High nibbles stay where they are, which makes them 16 times as large.
      const uint32_t word = unit.quants[0];
      low = UnsignedDot(word & 0x0F0F0F0F, x_low, low);
      high = UnsignedDot(word & 0xF0F0F0F0, x_high, high);
    } else {
      const uint2 pair = BitsPair<kType>(unit, grid, i);
      low = __dp4a(static_cast<int>(pair.x), static_cast<int>(x_low), low);
      high = __dp4a(static_cast<int>(pair.y), static_cast<int>(x_high), high);
    }
  }

  __device__ __forceinline__ float Add(int j, float total) const {
    total = fmaf(scale[j], sum[j], total);
    return Traits::kMinimum ? fmaf(kSign * least_scale[j], least[j], total) : total;
  }

  // x_scale, x_sum: of the quad.
  __device__ __forceinline__ void MakeFour(const std::byte* scales, const std::byte* x_scale,
                                           const std::byte* x_sum, const int (&low)[4],
                                           const int (&high)[4]) {
    const float4 four = *reinterpret_cast<const float4*>(x_scale);
    const float by[4] = {four.x, four.y, four.z, four.w};
    uint2 sums = {};
    if constexpr (Traits::kMinimum || Traits::kOffset != 0) {
      sums = *reinterpret_cast<const uint2*>(x_sum);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int of_x = static_cast<int16_t>((j < 2 ? sums.x : sums.y) >> (16 * (j % 2)));
      sum[j] = __int2float_rn(low[j] + high[j] - Traits::kOffset * of_x);
      if constexpr (Traits::kMinimum) {
        const uint32_t word = PartOf(*reinterpret_cast<const uint4*>(scales), j);
        scale[j] = BlockScale<kType>(word) * by[j];
        least_scale[j] = BlockMinimum(word) * by[j];
        least[j] = __int2float_rn(of_x);
      } else {
        const uint2 halves = *reinterpret_cast<const uint2*>(scales);
        const uint32_t word = (j < 2 ? halves.x : halves.y) >> (16 * (j % 2));
        scale[j] = BlockScale<kType>(word) * by[j];
      }
    }
  }

  // sub: of the quad, its scales and eight bytes behind them its minima.
  __device__ __forceinline__ void MakeOne(const std::byte* sub, const std::byte* scales,
                                          const std::byte* x_scale, const std::byte* x_sum,
                                          const int (&low)[4], const int (&high)[4],
                                          const QuadWords<kType>& words) {
    QuadScales<kType> of_units;
    of_units.Load(reinterpret_cast<const uint8_t*>(sub), 0);
    int all = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kHalves) {
        all += ScaleOf(of_units, j, 0, words) * low[j] + ScaleOf(of_units, j, 1, words) * high[j];
      } else {
        all += ScaleOf(of_units, j, 0, words) * (low[j] + high[j]);
      }
    }
    if constexpr (Traits::kOffset != 0) all -= Traits::kOffset * SumsTimes(of_units.bytes, x_sum);
    all += __shfl_xor_sync(kFullWarp, all, 1);
    const float by = *reinterpret_cast<const float*>(x_scale);
    uint32_t word;
    if constexpr (Traits::kMinimum) {
      word = *reinterpret_cast<const uint32_t*>(scales);
      uint32_t minima[kHalves ? 2 : 1];
      if constexpr (kHalves) {
        minima[0] = of_units.bytes[0] >> 4 & 0x0F0F0F0F;
        minima[1] = of_units.bytes[1] >> 4 & 0x0F0F0F0F;
      } else {
        minima[0] = reinterpret_cast<const uint32_t*>(sub)[2];
      }
      int all_least = SumsTimes(minima, x_sum);
      all_least += __shfl_xor_sync(kFullWarp, all_least, 1);
      least_scale[0] = BlockMinimum(word) * by;
      least[0] = __int2float_rn(all_least);
    } else {
      word = *reinterpret_cast<const uint16_t*>(scales);
    }
    scale[0] = BlockScale<kType>(word) * by;
    sum[0] = __int2float_rn(all);
  }

  // QuadScales::Of in one instruction; tiles have no registers for what it needs.
  static __device__ __forceinline__ int ScaleOf(const QuadScales<kType>& scales, int j, int h,
                                                const QuadWords<kType>& words) {
    if constexpr (Traits::kGrid) return scales.Of(j, h, words);
    const uint32_t word = scales.bytes[kHalves ? j / 2 : 0];
    const int byte = kHalves ? 2 * (j % 2) + h : j;
    if constexpr (kType == DType::kQ2_K) return ByteOf(word & 0x0F0F0F0F, byte);
    if constexpr (Traits::kMinimum) return ByteOf(word, byte);
    return SignedByteOf(word, byte);
  }

  // A factor for each sum of x that a quad has.
  template <size_t kWords>
  static __device__ __forceinline__ int SumsTimes(const uint32_t (&bytes)[kWords],
                                                  const std::byte* x_sum) {
    if constexpr (kWords == 1) {
      return LongDot(*reinterpret_cast<const uint2*>(x_sum), bytes[0], 0);
    } else {
      const uint4 sums = *reinterpret_cast<const uint4*>(x_sum);
      return LongDot({sums.z, sums.w}, bytes[1], LongDot({sums.x, sums.y}, bytes[0], 0));
    }
  }
};

struct EightFloats {
  float of[8];

  __device__ __forceinline__ void Load(const float* from) {
    const auto* fours = reinterpret_cast<const float4*>(from);
    const float4 a = fours[0], b = fours[1];
    of[0] = a.x, of[1] = a.y, of[2] = a.z, of[3] = a.w;
    of[4] = b.x, of[5] = b.y, of[6] = b.z, of[7] = b.w;
  }
  __device__ __forceinline__ void Store(float* to) const {
    auto* fours = reinterpret_cast<float4*>(to);
    fours[0] = Four(0);
    fours[1] = Four(1);
  }
  __device__ __forceinline__ float4 Four(int i) const {
    return make_float4(of[4 * i], of[4 * i + 1], of[4 * i + 2], of[4 * i + 3]);
  }
};

// Eight neighbours from `column` on, by whole warps; what lies behind the end of their row, at
// column `end`, is not stored.
template <DType kType>
__device__ __forceinline__ void QuantiseInto(const EightFloats& held, int column, int end,
                                             const Input& input) {
  constexpr int kBlock = UnitTraits<kType>::kBlock256 ? 256 : 32;
  EightQuantised eight = QuantiseEight<kBlock>(held.of);
  if (kBlock == 256 && kSummed<kType> == 32) {
    eight.sum += __shfl_xor_sync(kFullWarp, eight.sum, 2);
  }
  if (column >= end) return;
  const int unit = column / 32, word = column % 32 / 4;
  auto* to = reinterpret_cast<uint32_t*>(input.q + unit / 4 * Input::kPitch + unit % 4 * 4);
  to[4 * word] = eight.words[0];
  to[4 * word + 4] = eight.words[1];
  if (column % kSummed<kType> == 0) {
    input.sum[column / kSummed<kType>] = static_cast<int16_t>(eight.sum);
  }
  if (column % kBlock == 0) input.scale[column / kBlock] = eight.scale;
}

}  // namespace reprise::cuda::links
