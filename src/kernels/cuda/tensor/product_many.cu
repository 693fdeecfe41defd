// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/product_many.h"
#include "kernels/cuda/tensor/tensor_map.h"
#include "kernels/cuda/tensor/tiles.cuh"

// Blocks that stay: each takes tile after tile, over all of K. One warpgroup asks for the operands,
// stage by stage, weights of the first stages before the kernel in front has ended; the others
// compute 64 rows each. After every slice of 512 along K the accumulators are added to the totals
// and begin anew. Slices are added in order: where K is divided among blocks, the sums of all
// slices have to meet, which takes longer than to read x more often.
//
// Blocks of large tiles are in teams of two neighbours, which have the same rows of x: each asks
// for half of them, and the copy engine brings them to both.
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kBox = 64;         // along K: rows of 128 bytes in shared memory
constexpr int kMost = 4;         // matrices of one launch
constexpr int kBandRows = 2048;  // of x whose tiles run together: they stay in the L2 cache
constexpr int kSharedMost = 226 << 10;

template <int kRows_, int kColumns_>
struct Form {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kBand = kBandRows / kRows;
  static constexpr int kConsumers = kRows / 64;  // warpgroups
  static constexpr int kThreads = (1 + kConsumers) * 128;
  static constexpr int kTeam = kRows * kColumns == 128 * 128 ? 2 : 1;  // blocks
  // Boxes along K in a stage. Where one warpgroup computes, nothing hides that it waits.
  static constexpr int kBoxes = kConsumers == 1 && kColumns <= 96 ? 2 : 1;
  static constexpr int kSliceStages = kTensorSlice / (kBoxes * kBox);
  static constexpr int kRowsBytes = kRows * kBox * 2;  // of a box
  static constexpr int kColumnsBytes = kColumns * kBox * 2;
  static constexpr int kStageBytes = kBoxes * (kRowsBytes + kColumnsBytes);
  static constexpr int kOutBytes = kRows * kColumns * 4;
  static constexpr int kStages = std::min(16, (kSharedMost - kOutBytes - 1024) / kStageBytes);
  static constexpr int kShared = kStages * kStageBytes + kOutBytes + 1024;  // and room to align
};

struct Matrix {
  float scale;
  const float* bias;
  View out;
  bool boxes;  // results leave through the copy engine, which writes four of them or none
  int rows;
  int begin;  // its first column of tiles
};
struct Call {
  Matrix matrix[kMost];
  HalfRows x;
  HalfGroups groups;
  int row_tiles;     // at most
  int column_tiles;  // of all matrices
  int column_teams;  // of those tiles
  int stages;        // along K
  int stage_bytes;   // that are copied
};
struct Maps {
  CUtensorMap x;
  CUtensorMap weight[kMost];
  CUtensorMap out[kMost];
};

// Which block of its team this is.
template <typename Form>
__device__ __forceinline__ int Rank() {
  return static_cast<int>(blockIdx.x) % Form::kTeam;
}

// The tile of team number `index`: bands of rows, inside a band column by column.
struct TilePlace {
  int row;     // of tiles
  int matrix;  // of the launch
  int column;  // of the matrix, the first of the tile
};
template <typename Form>
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, int index) {
  const int band = index / (Form::kBand * call.column_teams);
  const int first = band * Form::kBand;
  const int width = min(Form::kBand, call.row_tiles - first);
  const int inside = index - band * Form::kBand * call.column_teams;
  // Where the last team has no tile for its last block, that computes what its neighbour does.
  const int column = min(inside / width * Form::kTeam + Rank<Form>(), call.column_tiles - 1);
  int matrix = 0;
  while (matrix + 1 < kMost && column >= call.matrix[matrix + 1].begin) ++matrix;
  return {first + inside % width, matrix, (column - call.matrix[matrix].begin) * Form::kColumns};
}

// The rows of a tile. The last one has as many as the others, some of them those of its neighbour:
// rows that are not there would be made by the copy engine, which takes longer than to read them.
template <typename Form>
__device__ __forceinline__ Tile RowsOf(const Call& call, int index) {
  Tile tile = TileOf<Form::kRows>(call.x, call.groups, index);
  if (call.groups.count == 0) {
    tile.begin = min(tile.begin, max(int64_t{0}, call.x.rows - Form::kRows));
  }
  return tile;
}

// A ring of stages in shared memory, and where one is in it. Addresses are numbers, said by one
// thread for its warp: else each is made anew for every use, which takes longer than the use.
template <typename Form>
struct Ring {
  uint32_t stages;
  uint32_t barriers;  // full ones, then empty ones
  int at = 0;
  int parity = 0;

  __device__ Ring(const void* stages_at, const void* barriers_at)
      : stages(__shfl_sync(~0u, SharedAddress(stages_at), 0)),
        barriers(__shfl_sync(~0u, SharedAddress(barriers_at), 0)) {}

  __device__ __forceinline__ uint32_t rows(int stage, int box) const {
    return stages + stage * Form::kStageBytes + box * Form::kRowsBytes;
  }
  __device__ __forceinline__ uint32_t columns(int stage, int box) const {
    return rows(stage, Form::kBoxes) + box * Form::kColumnsBytes;
  }
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(Form::kStages + stage); }
  __device__ __forceinline__ void Next() {
    if (++at == Form::kStages) at = 0, parity ^= 1;
  }
};

// Asks for the operands of this block's tiles, by one warp.
template <typename Form>
__device__ void AskForTiles(const Maps& maps, const Call& call, Ring<Form> ring) {
  constexpr int kTeam = Form::kTeam;
  const int teams = call.row_tiles * call.column_teams;
  const int grid = static_cast<int>(gridDim.x) / kTeam;
  const bool asks = threadIdx.x % kWarp == 0;
  const auto ask_for_weights = [&](int at, const TilePlace& place, const Tile& tile, int stage) {
    const int row = tile.matrix * call.matrix[place.matrix].rows + place.column;
    ExpectBytes(ring.full(at), call.stage_bytes);
#pragma unroll
    for (int box = 0; box < Form::kBoxes; ++box) {
      CopyBox(ring.columns(at, box), &maps.weight[place.matrix],
              (stage * Form::kBoxes + box) * kBox, row, ring.full(at));
    }
  };
  const auto ask_for_rows = [&](const Tile& tile, int stage) {
    const int row = static_cast<int>(tile.begin) + Rank<Form>() * (Form::kRows / kTeam);
#pragma unroll
    for (int box = 0; box < Form::kBoxes; ++box) {
      const uint32_t to = ring.rows(ring.at, box) + Rank<Form>() * (Form::kRowsBytes / kTeam);
      const int column = (stage * Form::kBoxes + box) * kBox;
      if constexpr (kTeam > 1) {
        CopyBoxTo(kTeam, to, &maps.x, column, row, ring.full(ring.at));
      } else {
        CopyBox(to, &maps.x, column, row, ring.full(ring.at));
      }
    }
  };
  int asked = 0;  // stages whose weights were asked for before x was there
  if (call.groups.count == 0) {
    for (int index = blockIdx.x / kTeam; index < teams && asked < Form::kStages; index += grid) {
      const TilePlace place = PlaceOf<Form>(call, index);
      for (int stage = 0; stage < call.stages && asked < Form::kStages; ++stage, ++asked) {
        if (asks) ask_for_weights(asked, place, {0, 0, 0}, stage);
      }
    }
  }
  WaitForInputs();
  int turn = 0;
  for (int index = blockIdx.x / kTeam; index < teams; index += grid) {
    const TilePlace place = PlaceOf<Form>(call, index);
    const Tile tile = RowsOf<Form>(call, place.row);
    if (tile.matrix < 0 || tile.begin >= tile.end) continue;
    for (int stage = 0; asks && stage < call.stages; ++stage, ++turn, ring.Next()) {
      if (turn >= Form::kStages) WaitBarrier(ring.empty(ring.at), ring.parity ^ 1);
      if (turn >= asked) ask_for_weights(ring.at, place, tile, stage);
      ask_for_rows(tile, stage);
    }
    __syncwarp();
  }
}

template <int kColumns>
__device__ __forceinline__ void Multiply(float (&acc)[kColumns / 2], uint64_t a, uint64_t b,
                                         bool first) {
  if constexpr (kColumns == 128) WarpgroupMma128<Half::kF16>(acc, a, b, first);
  if constexpr (kColumns == 96) WarpgroupMma96<Half::kF16>(acc, a, b, first);
  if constexpr (kColumns == 64) WarpgroupMma64<Half::kF16>(acc, a, b, first);
  if constexpr (kColumns == 32) WarpgroupMma32<Half::kF16>(acc, a, b, first);
}

// What becomes of the sums of a tile: of rows `row` and `row` + 8 of it a thread has two in each
// group of eight columns.
template <int kColumns>
struct Outputs {
  static constexpr int kEach = kColumns / 2;

  Tile tile;
  int matrix;
  int column;  // the thread's first
  float scale[2];

  // REQUIRES: tile is known.
  __device__ __forceinline__ void Find(const Call& call, const TilePlace& place, int row) {
    matrix = place.matrix;
    column = place.column + threadIdx.x % 4 * 2;
    const float matrix_scale =
        call.groups.scale != nullptr ? call.groups.scale[tile.matrix] : call.matrix[matrix].scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = tile.begin + row + 8 * half;
      scale[half] = at < tile.end ? call.x.scale[at] * matrix_scale : 0.0f;
    }
  }
  __device__ __forceinline__ void Finish(const Matrix& to, float (&total)[kEach]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) total[i] *= scale[i % 4 / 2];
    if (to.bias == nullptr) return;
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) {  // columns that are not there are nobody's
      const float bias = to.bias[min(column + j / 2 * 8 + j % 2, to.rows - 1)];
      total[j / 2 * 4 + j % 2] += bias;
      total[j / 2 * 4 + j % 2 + 2] += bias;
    }
  }
  // To shared memory: boxes of 64 rows of 32 floats, chunks of 16 bytes swizzled.
  __device__ __forceinline__ void Stage(const float (&total)[kEach], int row, float* boxes) const {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const int j = i / 2, at = (row + i % 2 * 8) % 64;
      const int chunk = (j % 4 * 2 + t / 2) ^ (at & 7);
      *reinterpret_cast<float2*>(boxes + (j / 4 * 64 + at) * 32 + chunk * 4 + t % 2 * 2) =
          make_float2(total[2 * i], total[2 * i + 1]);
    }
  }
  __device__ __forceinline__ void Store(const Matrix& to, const float (&total)[kEach],
                                        int row) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t at = tile.begin + row + i % 4 / 2 * 8;
      const int c = column + i / 4 * 8 + i % 2;
      if (at < tile.end && c < to.rows) to.out.data[at * to.out.stride + c] = total[i];
    }
  }
};

// Computes 64 rows of this block's tiles, by a warpgroup. `staged`: its results on their way out.
template <typename Form>
__device__ void RunTiles(const Maps& maps, const Call& call, int warpgroup, float* staged,
                         Ring<Form> ring) {
  constexpr int kColumns = Form::kColumns, kTeam = Form::kTeam;
  const int row = warpgroup * 64 + threadIdx.x / kWarp % 4 * 16 + threadIdx.x % kWarp / 4;
  const bool speaks = threadIdx.x % 128 == 0;
  const int teams = call.row_tiles * call.column_teams;
  const uint64_t first_a = TileDescriptor(ring.rows(0, 0) + warpgroup * 64 * kBox * 2);
  const uint64_t first_b = TileDescriptor(ring.columns(0, 0));
  // For all that write to the stage.
  const auto release = [&](int stage) {
    const int rank = static_cast<int>(threadIdx.x % 128);
    if constexpr (kTeam > 1) {
      if (rank < kTeam) ArriveAt(ring.empty(stage), rank);
    } else {
      if (rank == 0) Arrive(ring.empty(stage));
    }
  };
  for (int index = blockIdx.x / kTeam; index < teams; index += gridDim.x / kTeam) {
    Outputs<kColumns> outputs;
    if (call.groups.count > 0) {
      outputs.tile = RowsOf<Form>(call, PlaceOf<Form>(call, index).row);
      if (outputs.tile.matrix < 0 || outputs.tile.begin >= outputs.tile.end) continue;
    }
    float acc[kColumns / 2];
    float total[kColumns / 2];
#pragma unroll
    for (float& sum : total) sum = -0.0f;  // which changes nothing that is added to it
    for (int slice = 0; slice * Form::kSliceStages < call.stages; ++slice) {
      const int count = min(Form::kSliceStages, call.stages - slice * Form::kSliceStages);
      int previous = 0;
      for (int s = 0; s < count; ++s) {
        WaitBarrier(ring.full(ring.at), ring.parity);
        WarpgroupFence();
#pragma unroll
        for (int box = 0; box < Form::kBoxes; ++box) {
          const uint64_t a = first_a + (ring.at * Form::kStageBytes + box * Form::kRowsBytes) / 16;
          const uint64_t b =
              first_b + (ring.at * Form::kStageBytes + box * Form::kColumnsBytes) / 16;
#pragma unroll
          for (int k = 0; k < kBox / 16; ++k) {
            Multiply<kColumns>(acc, a + 2 * k, b + 2 * k, s == 0 && box == 0 && k == 0);
          }
        }
        WarpgroupCommit();
        if (s > 0) {
          WarpgroupWait<1>();
          release(previous);
        } else if (slice == 0) {
          // Meanwhile: it takes as long as a stage.
          const TilePlace place = PlaceOf<Form>(call, index);
          if (call.groups.count == 0) {
            outputs.tile = RowsOf<Form>(call, place.row);
          }
          outputs.Find(call, place, row);
        }
        previous = ring.at;
        ring.Next();
      }
      WarpgroupWait<0>();
      release(previous);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) total[i] += acc[i];
    }
    const Matrix& to = call.matrix[outputs.matrix];
    outputs.Finish(to, total);
    // A tile that ends before the next group's rows must not write to those.
    const int64_t rows = outputs.tile.end - outputs.tile.begin;
    if (!to.boxes || (call.groups.count > 0 && rows < Form::kRows)) {
      outputs.Store(to, total, row);
      continue;
    }
    if (speaks) WaitStoresRead();
    WarpgroupBarrier(1 + warpgroup);
    outputs.Stage(total, row, staged);
    FenceCopies();
    WarpgroupBarrier(1 + warpgroup);
    if (speaks) {
      for (int box = 0; box < kColumns / 32; ++box) {
        StoreBox(&maps.out[outputs.matrix], staged + box * 64 * 32, outputs.column + 32 * box,
                 static_cast<int>(outputs.tile.begin) + warpgroup * 64);
      }
      CommitStores();
    }
  }
  if (speaks) WaitStoresRead();
}

template <typename Form>
__global__ void __launch_bounds__(Form::kThreads, 1)
    ManyKernel(const __grid_constant__ Maps maps, const __grid_constant__ Call call) {
  if (!kForHopper) return;
  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (-SharedAddress(raw) & 1023);  // known to be shared memory
  __shared__ uint64_t barriers[2 * Form::kStages];       // full ones, then empty ones
  if (threadIdx.x == 0) {
    for (int s = 0; s < Form::kStages; ++s) {
      InitBarrier(&barriers[s], 1);
      InitBarrier(&barriers[Form::kStages + s], Form::kTeam * Form::kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if constexpr (Form::kTeam > 1) MeetCluster();
  LetNextStart();
  const Ring<Form> ring(stages, barriers);
  // Registers: what asking threads give up, computing ones take.
  constexpr bool kTwo = Form::kConsumers == 2;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == Form::kConsumers) {
    if constexpr (kTwo) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x / kWarp % 4 == 0) AskForTiles<Form>(maps, call, ring);
  } else {
    if constexpr (kTwo) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    WaitForInputs();
    float* staged = reinterpret_cast<float*>(stages + Form::kStages * Form::kStageBytes) +
                    warpgroup * 64 * Form::kColumns;
    RunTiles<Form>(maps, call, warpgroup, staged, ring);
  }
  if constexpr (Form::kTeam > 1) {
    __syncwarp();
    MeetCluster();  // nobody arrives at the barriers of a block that has gone
  }
}

template <typename Form>
void Launch(Stream stream, const HalfRows& x, const HalfGroups& groups,
            std::span<const HalfProduct> products) {
  constexpr int kTeam = Form::kTeam;
  // Rows of x that a block asks for. Those behind the last one are left out: they are whatever lies
  // there, and nobody's.
  int64_t box_rows = Form::kRows / kTeam;
  if (kTeam == 1 && groups.count == 0) box_rows = std::min(box_rows, (x.rows + 7) / 8 * 8);
  Maps maps = {};
  maps.x = MakeTensorMap(x.data, x.rows, x.stride, x.stride, static_cast<int>(box_rows));
  Call call = {};
  call.x = x;
  call.groups = groups;
  const int64_t matrices = std::max(1, groups.count);
  for (size_t i = 0; i < kMost; ++i) {
    Matrix& matrix = call.matrix[i];
    matrix.begin = call.column_tiles;
    if (i >= products.size()) continue;
    const HalfProduct& product = products[i];
    const HalfMatrix& weight = product.weight;
    matrix.scale = weight.scale;
    matrix.bias = product.bias;
    matrix.out = product.out;
    matrix.boxes = Aligned16(product.out.data, product.out.stride) && weight.rows % 4 == 0;
    matrix.rows = static_cast<int>(weight.rows);
    call.column_tiles += CeilDiv(matrix.rows, Form::kColumns);
    maps.weight[i] = MakeTensorMap(weight.data, matrices * weight.rows, weight.stride,
                                   weight.stride, Form::kColumns);
    if (!matrix.boxes) continue;
    const View& out = product.out;
    maps.out[i] = MakeFloatMap(out.data, out.rows, weight.rows, out.stride, 64);
  }
  call.row_tiles = static_cast<int>(TileBound(products[0].out.rows, Form::kRows, groups));
  call.column_teams = CeilDiv(call.column_tiles, kTeam);
  call.stages = static_cast<int>(CeilDiv<int64_t>(products[0].weight.stride, Form::kBoxes * kBox));
  call.stage_bytes =
      Form::kBoxes * (static_cast<int>(box_rows) * kTeam * kBox * 2 + Form::kColumnsBytes);
  const auto kernel = ManyKernel<Form>;
  static const bool allowed = (AllowShared(kernel, Form::kShared), true);
  (void)allowed;
  const int64_t teams = std::min<int64_t>(int64_t{call.row_tiles} * call.column_teams,
                                          ThisGpu().multiprocessors / kTeam);
  LaunchTeamsEarly(kTeam, kernel, unsigned(teams * kTeam), Form::kThreads, Form::kShared, stream,
                   maps, call);
}

using Launcher = decltype(&Launch<Form<128, 128>>);

// The form for groups is the first. Of two that take as long the first is chosen.
template <typename... All>
struct Forms {
  static constexpr std::array<ProductForm, sizeof...(All)> kForms = {
      ProductForm{All::kRows, All::kColumns, All::kTeam}...};
  static constexpr std::array<Launcher, sizeof...(All)> kLaunchers = {&Launch<All>...};
};
using Known = Forms<Form<128, 128>, Form<128, 96>, Form<64, 128>, Form<128, 64>, Form<64, 96>,
                    Form<64, 64>, Form<64, 32>>;

// What a form takes, in units of 14 ps: turns of the multiprocessors, each of steps of 64 along K.
// A step takes what a warpgroup waits for it and what it computes, or what all multiprocessors can
// compute together (measured: 4.9 TFLOP/s each). All are bound by the device's memory in the end.
int64_t Cost(const ProductForm& form, int64_t rows, std::span<const HalfProduct> products) {
  int64_t column_tiles = 0;
  for (const HalfProduct& one : products) {
    column_tiles += CeilDiv<int64_t>(one.weight.rows, form.columns);
  }
  const int64_t teams =
      CeilDiv<int64_t>(rows, form.rows) * CeilDiv<int64_t>(column_tiles, form.team);
  const int64_t turns = CeilDiv<int64_t>(teams, ThisGpu().multiprocessors / form.team);
  const int64_t work = int64_t{form.rows} * form.columns;
  const int64_t step = std::max(7'500 + work, work * 19 / 10);
  constexpr int64_t kTileCost = 110'000;
  return turns * (CeilDiv<int64_t>(products[0].weight.stride, kBox) * step + kTileCost);
}

size_t Cheapest(int64_t rows, std::span<const HalfProduct> products) {
  size_t best = 0;
  for (size_t i = 1; i < Known::kForms.size(); ++i) {
    if (Cost(Known::kForms[i], rows, products) < Cost(Known::kForms[best], rows, products)) {
      best = i;
    }
  }
  return best;
}

void RunUpToMost(Stream stream, const HalfRows& x, const HalfGroups& groups,
                 std::span<const HalfProduct> products, const ProductForm* form) {
  size_t of = groups.count > 0 ? 0 : Cheapest(x.rows, products);
  if (form != nullptr) of = static_cast<size_t>(form - Known::kForms.data());
  Known::kLaunchers[of](stream, x, groups, products);
}

}  // namespace

std::span<const ProductForm> ProductForms() { return Known::kForms; }

const ProductForm& FormOf(int64_t rows, std::span<const HalfProduct> products) {
  return Known::kForms[Cheapest(rows, products)];
}

void ManyRowsProducts(Stream stream, const HalfRows& x, const HalfGroups& groups,
                      std::span<const HalfProduct> products, const ProductForm* form) {
  for (size_t i = 0; i < products.size(); i += kMost) {
    RunUpToMost(stream, x, groups,
                products.subspan(i, std::min<size_t>(kMost, products.size() - i)), form);
  }
}

}  // namespace reprise::cuda
