// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/joined/riders.cuh"
#include "kernels/cuda/packed/instructions.cuh"
#include "kernels/cuda/packed/product_packed.h"
#include "kernels/cuda/packed/small.h"
#include "kernels/cuda/packed/unit.cuh"
#include "kernels/cuda/tensor/few/floats.cuh"
#include "kernels/cuda/tensor/few/inputs.cuh"

// A tile is 16 rows of weights, on the left of the products; rows of x are the columns on the
// right. Warps stand in a grid, as in tensor/few: kAlong of them divide the slices of K of one
// tile, `beside` tiles lie side by side in a block. Each warp has a ring of its own that the copy
// engine fills, where there is one, else the warp's lanes; the first stages before the kernel in
// front has ended, where that can be. Sums of slices meet in shared memory and are added in order.
// Rows of F32 come last, a tile of them in the rings of a block that has few others.
namespace reprise::cuda {
namespace {

using few::Call;
using few::kHold;
using few::kWarpsMost;

constexpr int kTile = kPackedRows;
constexpr int kStageUnits = 4;  // pairs of units
// Stages of a warp on their way before the kernel in front has ended: behind more, what that one
// still writes would have to wait.
constexpr int kFirstStages = 1;
constexpr int kSliceUnits = few::kTensorSlice / kUnitCols;
constexpr int kSliceStages = kSliceUnits / kStageUnits;
constexpr int kOutputs = kFloatRows * kTile;

// The forms that the weights of a launch have: one, or two that files mix.
template <PackedForm kFirst, PackedForm kSecond = PackedForm::kNone>
struct Forms {
  static constexpr PackedForm kForm = kFirst;
  static constexpr PackedForm kOther = kSecond;
  static constexpr bool kTwo = kSecond != PackedForm::kNone;
  static constexpr int kStageBytes =
      kStageUnits * 2 * std::max(UnitBytes(kFirst), UnitBytes(kSecond));
  // As many stages as fit where two blocks share a multiprocessor and inputs have the room that
  // tensor/few leaves them.
  static constexpr int kRingBytes = 8704;
  static constexpr int kStages = kRingBytes / kStageBytes;

  static __device__ __forceinline__ int PairBytes(PackedForm form) {
    return kTwo && form == kSecond ? 2 * UnitBytes(kSecond) : 2 * UnitBytes(kFirst);
  }
};

size_t BlockShared() { return ThisGpu().half_shared(); }
// That run at once, on all of the GPU. A multiprocessor has what one block may have and 1 KiB more,
// and every block takes as much.
int Blocks() {
  const size_t fit = (ThisGpu().block_shared + (1 << 10)) / (BlockShared() + (1 << 10));
  return int(std::clamp<size_t>(fit, 1, 2)) * ThisGpu().multiprocessors;
}
int64_t InputBytes() {
  return static_cast<int64_t>(
      BlockShared() - kWarpsMost * (Forms<PackedForm::kBytes>::kRingBytes + 2 * kOutputs * 4));
}

// The ring of a warp, which the copy engine fills: a barrier a stage counts its bytes.
template <typename F>
class EngineRing {
 public:
  using Forms = F;
  static constexpr bool kRuns = kSinceHopper;
  static constexpr bool kTuned = true;

  __device__ explicit EngineRing(uint8_t* stages) : stages_(stages) {
    __shared__ uint64_t full[kWarpsMost][F::kStages];
    full_ = full[threadIdx.x / kWarp];
    if (threadIdx.x % kWarp == 0) {
      for (int s = 0; s < F::kStages; ++s) InitBarrier(&full_[s], 1);
      FenceBarriers();
    }
    __syncwarp();
  }
  // By the whole warp. No bytes: there is nothing to ask for.
  __device__ __forceinline__ void Ask(int stage, const uint8_t* from, int bytes) {
    if (bytes == 0 || threadIdx.x % kWarp != 0) return;
    ExpectBytes(&full_[stage], bytes);
    CopyBytes(SharedAddress(stages_ + stage * F::kStageBytes), from, bytes,
              SharedAddress(&full_[stage]));
  }
  // Of those that were asked for in the beginning.
  __device__ __forceinline__ void WaitFirst(int stage) const { WaitBarrier(&full_[stage], 0); }
  __device__ __forceinline__ const uint8_t* Wait(int stage) {
    WaitBarrier(&full_[stage], parities_ >> stage & 1);
    parities_ ^= 1 << stage;
    return stages_ + stage * F::kStageBytes;
  }

 private:
  uint8_t* const stages_;
  uint64_t* full_;
  int parities_ = 0;
};

// The same, filled by the lanes. Every Ask counts, also one for nothing: a stage is there when so
// many are on their way as were asked for since.
template <typename F>
class LaneRing {
 public:
  using Forms = F;
  static constexpr bool kRuns = true;
  static constexpr bool kTuned = false;

  __device__ explicit LaneRing(uint8_t* stages) : stages_(stages) {}
  __device__ __forceinline__ void Ask(int stage, const uint8_t* from, int bytes) {
    uint8_t* const to = stages_ + stage * F::kStageBytes;
    const int first = static_cast<int>(threadIdx.x) % kWarp * 16;
#pragma unroll
    for (int i = 0; i < F::kStageBytes; i += 16 * kWarp) {
      if (i + first < bytes) CopyAsync16(to + i + first, from + i + first, true);
    }
    CommitAsync();
  }
  __device__ __forceinline__ void WaitFirst(int) const {}
  __device__ __forceinline__ const uint8_t* Wait(int stage) {
    WaitAsync<F::kStages - 1>();
    __syncwarp();
    return stages_ + stage * F::kStageBytes;
  }

 private:
  uint8_t* const stages_;
};

// The weights of one warp, stage by stage: tiles of its block, and of each its slices.
template <typename Ring, bool kGated, int kAlong>
class Weights {
 public:
  using F = typename Ring::Forms;

  __device__ Weights(const Call& call, Ring& ring)
      : call_(call),
        ring_(ring),
        units_(static_cast<int>(call.product[0].weight.stride) / kUnitCols),
        stages_(kSliceStages * CeilDiv(CeilDiv(units_, kSliceUnits), kAlong)),
        block_tile_(blockIdx.x) {
    FindTile();
  }

  // Asks for the next stage, if there is one; returns whether there is. By the whole warp.
  __device__ bool Load() {
    const int first = FirstUnit(at_ / kSliceStages, at_ % kSliceStages);
    const int count = min(kStageUnits, units_ - first);
    const bool real = from_ != nullptr && count > 0;
    ring_.Ask(stage_, real ? from_ + first * pair_bytes_ : nullptr, real ? count * pair_bytes_ : 0);
    if (++stage_ == F::kStages) stage_ = 0;
    if (++at_ < stages_) return real;
    at_ = 0;
    block_tile_ += gridDim.x;
    FindTile();
    return real;
  }

  // The first pair of units of this warp's part of a wave of slices.
  static __device__ __forceinline__ int FirstUnit(int wave, int part) {
    return (wave * kAlong + threadIdx.x / kWarp % kAlong) * kSliceUnits + part * kStageUnits;
  }
  // Tile of a block's group; kGated: tiles of two matrices lie side by side.
  static __device__ int TileOfWarp(int block_tile, int beside) {
    const int width = blockDim.x / (kWarp * kAlong);
    return kGated ? block_tile * (width / 2) + beside / 2 : block_tile * width + beside;
  }
  static __device__ int ProductOf(const Call& call, int tile, int beside) {
    if (kGated) return beside % 2;
    int which = 0;
    while (which + 1 < int(FewProducts::kMost) && tile >= call.begin[which + 1]) ++which;
    return which;
  }
  __device__ int units() const { return units_; }

 private:
  __device__ void FindTile() {
    from_ = nullptr;
    if (block_tile_ >= call_.block_tiles) return;
    const int beside = threadIdx.x / (kWarp * kAlong);
    const int tile = TileOfWarp(block_tile_, beside);
    const int which = ProductOf(call_, tile, beside);
    const HalfMatrix& weight = call_.product[which].weight;
    const int in_matrix = tile - (kGated ? 0 : call_.begin[which]);
    if (int64_t{in_matrix} * kTile >= weight.rows) return;
    pair_bytes_ = F::PairBytes(weight.packed);
    from_ =
        reinterpret_cast<const uint8_t*>(weight.data) + int64_t{in_matrix} * units_ * pair_bytes_;
  }

  const Call& call_;
  Ring& ring_;
  const int units_;   // pairs of them along K
  const int stages_;  // of a tile
  int block_tile_;
  int at_ = 0;  // the stage of the tile that is asked for next
  int stage_ = 0;
  const uint8_t* from_ = nullptr;  // the tile; null: this warp has none
  int pair_bytes_ = 0;             // of two units of it
};

// Steps along K over a stage. x: the row of lane / 4, at its 2t.
template <PackedForm kForm>
__device__ __forceinline__ void MultiplyStage(float (&acc)[4], const uint8_t* stage, int count,
                                              const uint16_t* x) {
  constexpr int kPair = 2 * UnitBytes(kForm);
  const int lane = threadIdx.x % kWarp;
  const auto multiply = [&](const UnitPair<kForm>& units, const uint16_t* from) {
    uint32_t a[16];
    units.Fragments(a);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t step[4] = {a[4 * j], a[4 * j + 1], a[4 * j + 2], a[4 * j + 3]};
      Mma<Half::kF16>(acc, step, *reinterpret_cast<const uint32_t*>(from + 16 * j),
                      *reinterpret_cast<const uint32_t*>(from + 16 * j + 8));
    }
  };
  UnitPair<kForm> units;
  if (count == kStageUnits) {
#pragma unroll
    for (int u = 0; u < kStageUnits; ++u) {
      units.Load(stage + u * kPair, lane);
      multiply(units, x + u * kUnitCols);
    }
    return;
  }
#pragma unroll 1
  for (int u = 0; u < count; ++u) {
    units.Load(stage + u * kPair, lane);
    multiply(units, x + u * kUnitCols);
  }
}

__device__ __forceinline__ float Finish(const HalfProduct& product, float scale, int64_t column,
                                        float total) {
  const float y = total * (scale * product.weight.scale);
  return product.bias != nullptr ? y + product.bias[column] : y;
}

template <bool kGated, int kTotals>
__device__ __forceinline__ void StoreOutput(const Call& call, const HalfProduct& product,
                                            int64_t row, int64_t column, float scale, float before,
                                            const float (&total)[kTotals]) {
  const float y = Finish(product, scale, column, total[0]);
  product.out.data[row * product.out.stride + column] = y;
  if constexpr (kGated) {
    const HalfProduct& gated = call.product[1];
    const float gate = Finish(gated, scale, column, total[1]);
    gated.out.data[row * gated.out.stride + column] = Gated(call.op, gate, y);
  } else if (call.op == OutputOp::kAdd) {
    call.sum.data[row * call.sum.stride + column] = before + y;
  }
}

constexpr int Pitch(int64_t cols) {
  return static_cast<int>((cols + kPackedCols - 1) / kPackedCols * kPackedCols + 16);
}

// The rows, rounded, with zeros behind their columns; gives that of this lane.
__device__ __forceinline__ const uint16_t* FindInputs(const Call& call, float* room,
                                                      float* scales) {
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int rows = static_cast<int>(call.x.rows), cols = static_cast<int>(call.x.cols);
  few::Inputs inputs = {reinterpret_cast<uint16_t*>(room), nullptr, scales, Pitch(cols)};
  inputs.floats = reinterpret_cast<float*>(inputs.rounded + rows * inputs.pitch);
  if (call.normed_row) {
    float* weights = room + LaneRow::Floats(cols);
    inputs.floats = room;
    if (threadIdx.x == 0) scales[0] = 1.0f;
    if (cols <= static_cast<int>(4 * blockDim.x)) {
      few::ReadNormed<1, 0>(call, inputs, weights);
    } else {
      few::ReadNormed<kHold, 0>(call, inputs, weights);
    }
  } else {
    few::ReadInputs(call, {0, 0, call.x.rows}, inputs);
  }
  if (cols % kPackedCols != 0) {
    __syncthreads();
    const int more = inputs.pitch - cols;
    for (int i = threadIdx.x; i < rows * more; i += blockDim.x) {
      inputs.rounded[i / more * inputs.pitch + cols + i % more] = 0;
    }
    __syncthreads();
  }
  return inputs.rounded + (g < rows ? g * inputs.pitch : 0) + 2 * t;
}

template <typename Ring, bool kGated, int kAlong>
__global__ void __launch_bounds__(kWarpsMost* kWarp, 2)
    PackedFewKernel(const __grid_constant__ Call call) {
  if (!Ring::kRuns) return;
  using F = typename Ring::Forms;
  constexpr int kTotals = kGated ? 2 : 1;
  constexpr int kEach = CeilDiv(kOutputs, kAlong * kWarp);
  constexpr int kDepth = F::kStages;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ float scales[kFloatRows];
  using Weights = Weights<Ring, kGated, kAlong>;
  const int warps = blockDim.x / kWarp;
  const int warp = threadIdx.x / kWarp;
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  float* sums = reinterpret_cast<float*>(shared + warps * kDepth * F::kStageBytes);
  float* room = sums + 2 * warps * kOutputs;  // behind [2, warps, kOutputs]
  Ring ring(shared + warp * kDepth * F::kStageBytes);
  // What the next kernel does before it waits takes 2 to 3 us.
  if (!call.hold_next) LetNextStart();
  Weights weights(call, ring);
  bool asked[kDepth];
#pragma unroll
  for (int s = 0; s < kDepth; ++s) {
    if (s >= kFirstStages && asked[s - kFirstStages]) ring.WaitFirst(s - kFirstStages);
    asked[s] = weights.Load();
  }
  if (call.normed_row) {
    const int cols = static_cast<int>(call.x.cols);
    float* norm = room + LaneRow::Floats(cols);
    for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
      CopyAsync16(norm + i, call.norm.weight + i, true);
    }
    CommitAsync();
  }
  WaitForInputs();
  if (call.hold_next) LetNextStart();
  const uint16_t* const x = FindInputs(call, room, scales);

  const int units = weights.units();
  const int slices = CeilDiv(units, kSliceUnits);
  const int waves = CeilDiv(slices, kAlong);
  const int beside = warp / kAlong;
  const int in_tile = threadIdx.x % kTile;
  const auto row_of = [&](int i) {
    return (static_cast<int>(threadIdx.x) % (kAlong * kWarp) + i * kAlong * kWarp) / kTile;
  };
  const int rows = static_cast<int>(call.x.rows);
  int stage = 0, turn = 0;
  int block_tile = blockIdx.x;
#pragma unroll 1
  for (; block_tile < call.block_tiles; block_tile += gridDim.x) {
    const int tile = Weights::TileOfWarp(block_tile, beside);
    const int which = Weights::ProductOf(call, tile, beside);
    const HalfProduct& product = call.product[which];
    const int64_t column = int64_t{tile - (kGated ? 0 : call.begin[which])} * kTile + in_tile;
    const bool real = column - in_tile < product.weight.rows;
    float total[kEach][kTotals], before[kEach];
    if (call.op == OutputOp::kAdd) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (row_of(i) >= rows || column >= product.weight.rows) break;
        before[i] = call.sum.data[row_of(i) * call.sum.stride + column];
      }
    }
#pragma unroll 1
    for (int wave = 0; wave < waves; ++wave, ++turn) {
      float acc[4] = {0, 0, 0, 0};
#pragma unroll 1
      for (int part = 0; part < kSliceStages; ++part) {
        const int first = Weights::FirstUnit(wave, part);
        const int count = real ? min(kStageUnits, units - first) : 0;
        if (count > 0) {
          const uint8_t* const at = ring.Wait(stage);
          if (F::kTwo && product.weight.packed == F::kOther) {
            if constexpr (F::kTwo) MultiplyStage<F::kOther>(acc, at, count, x + first * kUnitCols);
          } else {
            MultiplyStage<F::kForm>(acc, at, count, x + first * kUnitCols);
          }
          __syncwarp();
        }
        weights.Load();
        if (++stage == kDepth) stage = 0;
      }
      float* buffer = sums + turn % 2 * warps * kOutputs;
      if (t < kFloatRows / 2) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          buffer[warp * kOutputs + (2 * t + e % 2) * kTile + g + e / 2 * 8] = acc[e];
        }
      }
      __syncthreads();
      const int here = min(kAlong, slices - wave * kAlong);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int output = threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp;
        if (output >= kOutputs || row_of(i) >= rows) break;
#pragma unroll
        for (int j = 0; j < kTotals; ++j) {
          const int from = kGated ? beside / 2 * 2 + j : beside;
          float slice_sum[kAlong];
#pragma unroll
          for (int s = 0; s < kAlong; ++s) {
            slice_sum[s] = buffer[(from * kAlong + s) * kOutputs + output];
          }
          // A sum begins with its first slice.
          total[i][j] = wave == 0 ? slice_sum[0] : total[i][j] + slice_sum[0];
#pragma unroll
          for (int s = 1; s < kAlong; ++s) {
            if (s < here) total[i][j] = total[i][j] + slice_sum[s];
          }
        }
      }
    }
    if (kGated && beside % 2 != 0) continue;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int output = threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp;
      if (output >= kOutputs || row_of(i) >= rows || column >= product.weight.rows) break;
      StoreOutput<kGated>(call, product, row_of(i), column, scales[row_of(i)], before[i], total[i]);
    }
  }
  if (!kGated && block_tile < call.all_tiles) {
    auto* const floats = reinterpret_cast<float*>(shared);
    __syncthreads();  // all have read the rings
    few::LoadFloatTile(call, block_tile - call.block_tiles, floats);
    few::FloatTile(call, block_tile - call.block_tiles, floats,
                   room + LaneRow::Floats(static_cast<int>(call.x.cols)));
  }
}

template <typename Ring, bool kGated, int kAlong>
void Launch(Stream stream, const FewProducts& few) {
  using F = typename Ring::Forms;
  Call call = {};
  call.x = few.x;
  call.norm = few.norm;
  call.op = few.op;
  call.sum = few.sum;
  for (size_t i = 0; i < FewProducts::kMost; ++i) {
    const int64_t rows = i < few.products.size() ? few.products[i].weight.rows : 0;
    if (i < few.products.size()) call.product[i] = few.products[i];
    call.begin[i + 1] = call.begin[i] + int(CeilDiv<int64_t>(rows, kTile));
  }
  // As many tiles in a block as leave enough blocks.
  const int tiles = kGated ? 2 * call.begin[1] : call.begin[FewProducts::kMost];
  int beside = kWarpsMost / kAlong;
  while (beside > (kGated ? 2 : 1) && tiles / beside < ThisGpu().multiprocessors - 4) beside /= 2;
  const int warps = kAlong * beside;
  call.block_tiles = call.all_tiles = CeilDiv(tiles, beside);
  call.hold_next = few.hold_next;
  const int64_t cols = few.x.cols;
  call.normed_row = few.norm.weight != nullptr && few.x.rows == 1 &&
                    cols <= 4 * kHold * warps * kWarp && few::NormedRowBytes(cols) <= InputBytes();
  const bool joined =
      !few.floats.empty() && !kGated &&
      few::AddFloats(few.floats, size_t(warps * F::kStages * F::kStageBytes), &call);
  const auto kernel = PackedFewKernel<Ring, kGated, kAlong>;
  const dim3 grid(unsigned(std::min(call.all_tiles, Blocks())));
  LaunchEarly(kernel, grid, warps * kWarp, BlockShared(), stream, call);
  if (!few.floats.empty() && !joined) few::RunFloats(stream, few);
}

// Warps that divide the slices of K; of lanes' rings there are fewer forms, as they are not tuned.
template <typename Ring>
void LaunchRings(Stream stream, const FewProducts& few) {
  constexpr bool kAll = Ring::kTuned;
  const int64_t slices = CeilDiv<int64_t>(few.x.cols, few::kTensorSlice);
  if constexpr (!Ring::Forms::kTwo) {
    if (IsGate(few.op)) {
      return kAll && slices <= 1 ? Launch < Ring, true,
             kAll ? 1 : 2 > (stream, few)
         : slices <= 2 ? Launch<Ring, true, 2>(stream, few)
                       : Launch<Ring, true, 4>(stream, few);
    }
  }
  return kAll && slices <= 1 ? Launch < Ring, false,
         kAll ? 1 : 2 > (stream, few)
     : slices <= 2 ? Launch<Ring, false, 2>(stream, few)
                   : kAll && slices <= 4
         ? Launch < Ring,
         false, kAll ? 4 : 8 > (stream, few) : Launch<Ring, false, 8>(stream, few);
}
template <typename F>
void LaunchBySlices(Stream stream, const FewProducts& few) {
  const auto launch = ThisGpu().copy_engine ? LaunchRings<EngineRing<F>> : LaunchRings<LaneRing<F>>;
  launch(stream, few);
}

using Launcher = void (*)(Stream, const FewProducts&);
Launcher LauncherOf(PackedForm form) {
  return OfForm<Launcher>(form, [](auto of) { return LaunchBySlices<Forms<of()>>; });
}

// Rows of F32 ride along with the first launch.
void Run(Stream stream, FewProducts* few, std::span<const HalfProduct> products, Launcher launch) {
  for (size_t first = 0; first < products.size(); first += FewProducts::kMost) {
    few->products = products.subspan(first, std::min(FewProducts::kMost, products.size() - first));
    launch(stream, *few);
    few->floats = {};
  }
}

}  // namespace

void RunPackedFew(Stream stream, const FewProducts& call) {
  using enum PackedForm;
  const FormSet forms(call.products);
  if (RunSmallPacked(stream, call, forms)) return;
  FewProducts few = call;
  // Files mix Q6_K with Q4_K or Q5_K.
  if (forms == FormSet{kNibbles, kSixes}) {
    return Run(stream, &few, call.products, LaunchBySlices<Forms<kNibbles, kSixes>>);
  }
  if (forms == FormSet{kFives, kSixes}) {
    return Run(stream, &few, call.products, LaunchBySlices<Forms<kFives, kSixes>>);
  }
  ForEachForm(call.products, [&](std::span<const HalfProduct> alike) {
    Run(stream, &few, alike, LauncherOf(alike[0].weight.packed));
  });
}

}  // namespace reprise::cuda
