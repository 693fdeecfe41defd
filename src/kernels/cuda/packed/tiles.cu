// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packed/product_packed.h"
#include "kernels/cuda/packed/unit.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/tiles.cuh"

// Tiles by instructions that every GPU with code here has: mma.sync, cp.async. A block has one
// tile. Its warps have 32 rows of the matrix each and all of the tile's tokens, so that the weights
// of a unit are made f16 once. Warps with the same rows divide the slices of K, in turn; those
// that share a slice are a group, which has a ring of its own and waits for nobody else. The first
// group adds: its own slice, then those that the others leave in shared memory, in order.
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kMatrices = 4;  // of one launch, at most
constexpr int kSliceUnits = kTensorSlice / kUnitCols;
constexpr int kBandTokens = 2048;  // whose tiles run together: their rows stay in the L2 cache
constexpr int kRowTiles = 2;       // of 16 rows of the matrix, of a warp
constexpr int kChunk = 16;         // bytes of a copy
constexpr int kRowChunks = kUnitCols * 2 / kChunk;
// Where there is least, 100 KiB for a multiprocessor; every block takes one more.
constexpr int kHalfShared = 49 << 10;

template <PackedForm kPackedForm, int kTileTokens, int kRowWarps, int kGroups, int kTogether>
struct Shape {
  static constexpr PackedForm kForm = kPackedForm;
  static constexpr int kTokens = kTileTokens;
  static constexpr int kRows = kRowWarps * kRowTiles * kPackedRows;
  static constexpr int kAlong = kGroups;         // that divide the slices of K
  static constexpr int kBlocks = kTogether;      // on a multiprocessor
  static constexpr int kGroup = 32 * kRowWarps;  // threads
  static constexpr int kThreads = kGroup * kAlong;
  static constexpr int kPair = 2 * UnitBytes(kForm);
  static constexpr int kXBytes = kTokens * kUnitCols * 2;
  static constexpr int kWeightBytes = kRowWarps * kRowTiles * kPair;
  static constexpr int kStageBytes = kXBytes + kWeightBytes;
  static constexpr int kSums = kRowTiles * kTokens / 2;  // of a thread
  static constexpr int kSentBytes = (kAlong - 1) * kGroup * kSums * 4;
  static constexpr int kRoom = kBlocks == 1 ? int(kBlockSharedLeast) : kHalfShared;
  static constexpr int kStages = std::min(4, (kRoom - kSentBytes) / (kAlong * kStageBytes));
  static constexpr int kShared = kAlong * kStages * kStageBytes + kSentBytes;
  static_assert(kStages >= 2 && kStageBytes % 128 == 0 && kShared <= kRoom);
};

struct Matrix {
  const uint8_t* weight;
  const float* bias;
  View out;
  float scale;
  int rows;
  int begin;  // its first column of tiles
};
struct Call {
  Matrix matrix[kMatrices];
  HalfRows x;
  int token_tiles;
  int column_tiles;
  int units;  // pairs of them along K
};

struct TilePlace {
  int64_t token;
  int matrix;
  int row;  // of the matrix
};
template <typename S>
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, int index) {
  constexpr int kBand = kBandTokens / S::kTokens;
  const int band = index / (kBand * call.column_tiles);
  const int width = min(kBand, call.token_tiles - band * kBand);
  const int inside = index - band * kBand * call.column_tiles;
  const int column = inside / width;
  int matrix = 0;
  while (matrix + 1 < kMatrices && column >= call.matrix[matrix + 1].begin) ++matrix;
  return {int64_t{band * kBand + inside % width} * S::kTokens, matrix,
          (column - call.matrix[matrix].begin) * S::kRows};
}

// What a thread copies of the stages of its group: of weights and of rows of x, some chunks each.
template <typename S>
class Copies {
 public:
  __device__ Copies(const Call& call, const TilePlace& place)
      : left_(static_cast<int>(call.x.stride) - Column()) {
    const Matrix& matrix = call.matrix[place.matrix];
    const int tile_bytes = call.units * S::kPair;
    const int last = (matrix.rows - place.row + kPackedRows - 1) / kPackedRows - 1;
    weight_ = matrix.weight + int64_t{place.row / kPackedRows} * tile_bytes;
#pragma unroll
    for (int i = 0; i < kWeights; ++i) {
      const int chunk = Thread() + i * S::kGroup;
      from_weight_[i] = min(chunk / kPairChunks, last) * tile_bytes + chunk % kPairChunks * kChunk;
    }
    x_ = call.x.data + place.token * call.x.stride + Column();
    stride_ = static_cast<int>(call.x.stride);
    last_ = static_cast<int>(min(call.x.rows - place.token, int64_t{S::kTokens})) - 1;
  }

  __device__ __forceinline__ void AskForWeights(uint8_t* stage, int unit) const {
    const uint8_t* const from = weight_ + unit * S::kPair;
    uint8_t* const to = stage + S::kXBytes + Thread() * kChunk;
#pragma unroll
    for (int i = 0; i < kWeights; ++i) {
      if (kWholeWeights || Thread() + i * S::kGroup < kWeightChunks) {
        CopyAsync16(to + i * S::kGroup * kChunk, from + from_weight_[i], true);
      }
    }
  }
  __device__ __forceinline__ void AskForX(uint8_t* stage, int unit) const {
    const int column = unit * kUnitCols;
    const bool inside = column < left_;
#pragma unroll
    for (int i = 0; i < kXs; ++i) {
      CopyAsync16(
          stage + RowOf(i) * kRowChunks * kChunk + (Thread() ^ RowOf(i)) % kRowChunks * kChunk,
          inside ? x_ + min(RowOf(i), last_) * stride_ + column : x_, inside);
    }
  }

 private:
  static constexpr int kPairChunks = S::kPair / kChunk;
  static constexpr int kWeightChunks = S::kWeightBytes / kChunk;
  static constexpr int kWeights = CeilDiv(kWeightChunks, S::kGroup);
  static constexpr bool kWholeWeights = kWeightChunks % S::kGroup == 0;
  static constexpr int kXs = S::kTokens * kRowChunks / S::kGroup;
  static_assert(kXs * S::kGroup == S::kTokens * kRowChunks);

  static __device__ __forceinline__ int Thread() {
    return static_cast<int>(threadIdx.x) % S::kGroup;
  }
  static __device__ __forceinline__ int Column() { return Thread() % kRowChunks * (kChunk / 2); }
  static __device__ __forceinline__ int RowOf(int i) {
    return Thread() / kRowChunks + i * (S::kGroup / kRowChunks);
  }

  const uint8_t* weight_;  // the first 16 rows of the tile
  const uint16_t* x_;      // the first row of the tile, at the column of this thread's chunks
  const int left_;         // values of a row from there on
  int from_weight_[kWeights];
  int stride_;
  int last_;  // row of the tile; what is behind it is that one again: sums that nobody reads
};

template <typename S>
class Warp {
 public:
  using Sums = float[kRowTiles][S::kTokens / 8][4];

  __device__ Warp(const Call& call, uint8_t* shared)
      : call_(call),
        along_(S::kAlong == 1 ? 0 : static_cast<int>(threadIdx.x) / S::kGroup),
        warp_(static_cast<int>(threadIdx.x) % S::kGroup / kWarp),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        ring_(shared + along_ * (S::kStages * S::kStageBytes)),
        sent_(shared + S::kAlong * S::kStages * S::kStageBytes) {}

  __device__ void Run() {
    const TilePlace place = PlaceOf<S>(call_, static_cast<int>(blockIdx.x));
    const Copies<S> copies(call_, place);
    int next = along_ * kSliceUnits;  // the unit that is asked for next
    const auto behind = [](int unit) {
      return (unit + 1) % kSliceUnits == 0 ? unit + 1 + (S::kAlong - 1) * kSliceUnits : unit + 1;
    };
    int first[S::kStages - 1];
#pragma unroll
    for (int s = 0; s + 1 < S::kStages; ++s, next = behind(next)) {
      first[s] = next;
      if (next < call_.units) copies.AskForWeights(ring_ + s * S::kStageBytes, next);
    }
    WaitForInputs();
#pragma unroll
    for (int s = 0; s + 1 < S::kStages; ++s) {
      if (first[s] < call_.units) copies.AskForX(ring_ + s * S::kStageBytes, first[s]);
      CommitAsync();
    }
    Sums total;
    Fill(total, -0.0f);  // which changes nothing that is added to it
    const int slices = CeilDiv(call_.units, kSliceUnits);
    int stage = 0, free = S::kStages - 1;
#pragma unroll 1
    for (int begin = 0; begin < slices; begin += S::kAlong) {
      Sums acc;
      Fill(acc, 0.0f);
      const int count = min(kSliceUnits, call_.units - (begin + along_) * kSliceUnits);
#pragma unroll 1
      for (int s = 0; s < count; ++s) {
        WaitAsync<S::kStages - 2>();
        MeetGroup();
        if (next < call_.units) {
          uint8_t* const to = ring_ + free * S::kStageBytes;
          copies.AskForWeights(to, next);
          copies.AskForX(to, next);
        }
        CommitAsync();
        next = behind(next);
        Multiply(acc, ring_ + stage * S::kStageBytes);
        if (++stage == S::kStages) stage = 0;
        if (++free == S::kStages) free = 0;
      }
      AddSlices(begin, slices, acc, total);
    }
    if (along_ == 0) Store(place, total);
  }

 private:
  static __device__ __forceinline__ void Fill(Sums& sums, float value) {
#pragma unroll
    for (auto& row : sums) {
#pragma unroll
      for (auto& four : row) {
#pragma unroll
        for (float& sum : four) sum = value;
      }
    }
  }

  // All have what they copied, and have read the stage that is asked for next.
  __device__ __forceinline__ void MeetGroup() const {
    if constexpr (S::kAlong == 1) {
      __syncthreads();
    } else if constexpr (S::kGroup == kWarp) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(along_ + 1), "n"(S::kGroup) : "memory");
    }
  }

  // The rows of 16 values of x that steps j and, of few tokens, j + 1 read: those of eight tokens
  // each, at k and at k + 8.
  __device__ __forceinline__ const uint8_t* XPlace(const uint8_t* x, int j, int tokens) const {
    const int row = S::kTokens == 8 ? lane_ % 8 : tokens + lane_ % 8 + lane_ / 16 * 8;
    const int chunk = 2 * j + (S::kTokens == 8 ? lane_ / 8 : lane_ / 8 % 2);
    return x + row * (kRowChunks * kChunk) + ((chunk ^ row) % kRowChunks) * kChunk;
  }

  using Units = UnitPair<S::kForm>[kRowTiles];

  template <int j>
  __device__ __forceinline__ void Step(Sums& acc, const Units& units, const uint8_t* x,
                                       uint32_t (&of_two)[4]) const {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      units[i].row[0].template Weights<j>(a[i][0], a[i][2]);
      units[i].row[1].template Weights<j>(a[i][1], a[i][3]);
    }
    if constexpr (S::kTokens == 8) {
      if constexpr (j % 2 == 0) LoadMatrix4(of_two, XPlace(x, j, 0));
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        Mma<Half::kF16>(acc[i][0], a[i], of_two[j % 2 * 2], of_two[j % 2 * 2 + 1]);
      }
    } else {
#pragma unroll
      for (int n = 0; n < S::kTokens / 8; n += 2) {
        uint32_t b[4];
        LoadMatrix4(b, XPlace(x, j, 8 * n));
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          Mma<Half::kF16>(acc[i][n], a[i], b[0], b[1]);
          Mma<Half::kF16>(acc[i][n + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
  __device__ __forceinline__ void Multiply(Sums& acc, const uint8_t* stage) const {
    Units units;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      units[i].Load(stage + S::kXBytes + (kRowTiles * warp_ + i) * S::kPair, lane_);
    }
    uint32_t of_two[4];
    Step<0>(acc, units, stage, of_two);
    Step<1>(acc, units, stage, of_two);
    Step<2>(acc, units, stage, of_two);
    Step<3>(acc, units, stage, of_two);
  }

  // Slices [begin, begin + kAlong), in order, those that there are.
  __device__ __forceinline__ void AddSlices(int begin, int slices, const Sums& acc,
                                            Sums& total) const {
    const auto add = [&](int i, int n, const float4& four) {
      total[i][n][0] += four.x;
      total[i][n][1] += four.y;
      total[i][n][2] += four.z;
      total[i][n][3] += four.w;
    };
    const auto for_each = [&](const auto& do_it) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int n = 0; n < S::kTokens / 8; ++n) do_it(i, n);
      }
    };
    const auto own = [&](int i, int n) {
      return make_float4(acc[i][n][0], acc[i][n][1], acc[i][n][2], acc[i][n][3]);
    };
    if constexpr (S::kAlong == 1) {
      for_each([&](int i, int n) { add(i, n, own(i, n)); });
    } else {
      const auto place = [&](int along, int i, int n) {
        const int four = (along - 1) * (S::kSums / 4) + i * (S::kTokens / 8) + n;
        return reinterpret_cast<float4*>(sent_) + four * S::kGroup +
               static_cast<int>(threadIdx.x) % S::kGroup;
      };
      if (along_ > 0 && begin + along_ < slices) {
        for_each([&](int i, int n) { *place(along_, i, n) = own(i, n); });
      }
      __syncthreads();
      if (along_ == 0) {
        for_each([&](int i, int n) { add(i, n, own(i, n)); });
        const int others = min(S::kAlong, slices - begin);
#pragma unroll 1
        for (int other = 1; other < others; ++other) {
          for_each([&](int i, int n) { add(i, n, *place(other, i, n)); });
        }
      }
      if (begin + S::kAlong < slices) __syncthreads();  // before the next ones are left there
    }
  }

  // Of rows g and g + 8 of 16 a thread has the results of two tokens in each group of eight. Eight
  // threads write 32 bytes of a token.
  __device__ __forceinline__ void Store(const TilePlace& place, const Sums& total) const {
    const Matrix& to = call_.matrix[place.matrix];
    const int first_row = place.row + warp_ * (kRowTiles * kPackedRows) + lane_ / 4;
    const bool has_bias = to.bias != nullptr;
    float bias[2 * kRowTiles];
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      bias[r] = has_bias && first_row + 8 * r < to.rows ? to.bias[first_row + 8 * r] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < S::kTokens / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t token = place.token + 8 * n + lane_ % 4 * 2 + e;
        if (token >= call_.x.rows) continue;
        const float scale = call_.x.scale[token] * to.scale;
        float* const out = to.out.data + token * to.out.stride + first_row;
#pragma unroll
        for (int r = 0; r < 2 * kRowTiles; ++r) {
          float y = total[r / 2][n][r % 2 * 2 + e] * scale;
          if (has_bias) y += bias[r];
          if (first_row + 8 * r < to.rows) out[8 * r] = y;
        }
      }
    }
  }

  const Call& call_;
  const int along_, warp_, lane_;
  uint8_t* const ring_;
  uint8_t* const sent_;  // [kAlong - 1] sums of a slice
};

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    PackedTilesKernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  LetNextStart();
  Warp<S>(call, shared).Run();
}

// --- Choice of a tile -----------------------------------------------------------------------

template <typename S>
int64_t TilesOf(int64_t rows, std::span<const HalfProduct> products) {
  int64_t columns = 0;
  for (const HalfProduct& one : products) columns += CeilDiv<int64_t>(one.weight.rows, S::kRows);
  return columns * CeilDiv<int64_t>(rows, S::kTokens);
}

template <typename S>
void Launch(Stream stream, const HalfRows& x, std::span<const HalfProduct> products) {
  Call call = {};
  call.x = x;
  call.token_tiles = static_cast<int>(CeilDiv<int64_t>(x.rows, S::kTokens));
  call.units = static_cast<int>(products[0].weight.stride) / kUnitCols;
  for (size_t i = 0; i < kMatrices; ++i) {
    Matrix& matrix = call.matrix[i];
    matrix.begin = call.column_tiles;
    if (i >= products.size()) continue;
    const HalfProduct& product = products[i];
    matrix.weight = reinterpret_cast<const uint8_t*>(product.weight.data);
    matrix.bias = product.bias;
    matrix.out = product.out;
    matrix.scale = product.weight.scale;
    matrix.rows = static_cast<int>(product.weight.rows);
    call.column_tiles += CeilDiv(matrix.rows, S::kRows);
  }
  LaunchEarly(PackedTilesKernel<S>, unsigned(TilesOf<S>(x.rows, products)), S::kThreads, S::kShared,
              stream, call);
}

// What all tiles take, in ns: of each what its operands take to come, or its products.
template <typename S>
double Nanoseconds(int64_t rows, std::span<const HalfProduct> products) {
  // Of a multiprocessor.
  const bool large = ThisGpu().block_shared > size_t{128} << 10;
  const double bytes_per_ns = large ? 36 : 18, operations_per_ns = large ? 3000 : 900;
  const double tiles = double(TilesOf<S>(rows, products));
  const double turns = std::ceil(tiles / (ThisGpu().multiprocessors * S::kBlocks));
  // Blocks of a multiprocessor that all have something to do share it.
  const double share =
      std::min<double>(S::kBlocks, std::max(1.0, tiles / ThisGpu().multiprocessors));
  const double slices = double(CeilDiv<int64_t>(products[0].weight.stride, kTensorSlice));
  const double waves = std::ceil(slices / S::kAlong);
  const double bytes = double(kSliceUnits) * S::kStageBytes;
  const double operations = 2.0 * kTensorSlice * S::kRows * S::kTokens;
  const double slice_ns = std::max(bytes / bytes_per_ns, operations / operations_per_ns);
  return turns * (slices * slice_ns * share + waves * (S::kAlong > 1 ? 200 : 0) + 1500);
}

struct Form {
  PackedTile tile;
  void (*launch)(Stream, const HalfRows&, std::span<const HalfProduct>);
  double (*ns)(int64_t, std::span<const HalfProduct>);
};
template <typename S>
constexpr Form FormOf() {
  return {{S::kTokens, S::kRows, S::kAlong}, Launch<S>, Nanoseconds<S>};
}
template <PackedForm kForm>
constexpr std::array kForms = {
    FormOf<Shape<kForm, 8, 1, 4, 2>>(),  FormOf<Shape<kForm, 8, 1, 8, 1>>(),
    FormOf<Shape<kForm, 16, 1, 4, 2>>(), FormOf<Shape<kForm, 16, 1, 8, 1>>(),
    FormOf<Shape<kForm, 32, 2, 2, 2>>(), FormOf<Shape<kForm, 32, 2, 4, 1>>(),
    FormOf<Shape<kForm, 64, 2, 2, 1>>(), FormOf<Shape<kForm, 64, 4, 1, 2>>(),
    FormOf<Shape<kForm, 64, 8, 1, 1>>(),
};

std::span<const Form> FormsOf(PackedForm form) {
  return OfForm<std::span<const Form>>(form, [](auto of) { return std::span(kForms<of()>); });
}

}  // namespace

std::vector<PackedTile> PackedTiles() {
  std::vector<PackedTile> tiles;
  for (const Form& form : FormsOf(PackedForm::kBytes)) tiles.push_back(form.tile);
  return tiles;
}

void RunPackedTiles(Stream stream, const HalfRows& x, std::span<const HalfProduct> products,
                    std::optional<PackedTile> tile) {
  for (size_t i = 0; i < products.size(); i += kMatrices) {
    const auto some = products.subspan(i, std::min<size_t>(kMatrices, products.size() - i));
    const Form* best = nullptr;
    double least = 0;
    for (const Form& form : FormsOf(products[0].weight.packed)) {
      if (tile && *tile != form.tile) continue;
      const double ns = form.ns(x.rows, some);
      if (best == nullptr || ns < least) least = ns, best = &form;
    }
    if (best != nullptr) best->launch(stream, x, some);
  }
}

}  // namespace reprise::cuda
