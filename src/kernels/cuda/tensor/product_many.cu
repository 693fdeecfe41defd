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
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kDepth = 64;
constexpr int kSliceStages = kTensorSlice / kDepth;
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
  static constexpr int kRowsBytes = kRows * kDepth * 2;
  static constexpr int kStageBytes = kRowsBytes + kColumns * kDepth * 2;
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
  int row_tiles;  // at most
  int column_tiles;
  int steps;  // of kDepth along K
};
struct Maps {
  CUtensorMap x;
  CUtensorMap weight[kMost];
  CUtensorMap out[kMost];
};

// Tile number `index`: bands of rows, inside a band column by column.
struct TilePlace {
  int row;     // of tiles
  int matrix;  // of the launch
  int column;  // of the matrix, the first of the tile
};
template <typename Form>
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, int index) {
  const int band = index / (Form::kBand * call.column_tiles);
  const int first = band * Form::kBand;
  const int width = min(Form::kBand, call.row_tiles - first);
  const int inside = index - band * Form::kBand * call.column_tiles;
  const int column = inside / width;
  int matrix = 0;
  while (matrix + 1 < kMost && column >= call.matrix[matrix + 1].begin) ++matrix;
  return {first + inside % width, matrix, (column - call.matrix[matrix].begin) * Form::kColumns};
}

template <int kStages>
struct Barriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Where a warpgroup, or the one that asks for it, is in the ring.
template <int kStages>
struct Ring {
  int stage = 0;
  int parity = 0;

  __device__ __forceinline__ void Next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Asks for the operands of this block's tiles, by one warp.
template <typename Form>
__device__ void AskForTiles(const Maps& maps, const Call& call, uint8_t* stages,
                            Barriers<Form::kStages>* barriers) {
  constexpr int kStages = Form::kStages;
  const int tiles = call.row_tiles * call.column_tiles;
  const bool asks = threadIdx.x % kWarp == 0;
  const auto ask_for_weights = [&](int stage, const TilePlace& place, const Tile& tile, int step) {
    const int row = tile.matrix * call.matrix[place.matrix].rows + place.column;
    ExpectBytes(&barriers->full[stage], Form::kStageBytes);
    CopyBox(stages + stage * Form::kStageBytes + Form::kRowsBytes, &maps.weight[place.matrix],
            step * kDepth, row, &barriers->full[stage]);
  };
  int asked = 0;  // stages whose weights were asked for before x was there
  if (call.groups.count == 0) {
    for (int index = blockIdx.x; index < tiles && asked < kStages; index += gridDim.x) {
      const TilePlace place = PlaceOf<Form>(call, index);
      for (int step = 0; step < call.steps && asked < kStages; ++step, ++asked) {
        if (asks) ask_for_weights(asked, place, {0, 0, 0}, step);
      }
    }
  }
  WaitForInputs();
  Ring<kStages> ring;
  int turn = 0;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const TilePlace place = PlaceOf<Form>(call, index);
    const Tile tile = TileOf<Form::kRows>(call.x, call.groups, place.row);
    if (tile.matrix < 0 || tile.begin >= tile.end) continue;
    for (int step = 0; asks && step < call.steps; ++step, ++turn, ring.Next()) {
      if (turn >= asked) {
        WaitBarrier(&barriers->empty[ring.stage], ring.parity ^ 1);
        ask_for_weights(ring.stage, place, tile, step);
      }
      CopyBox(stages + ring.stage * Form::kStageBytes, &maps.x, step * kDepth,
              static_cast<int>(tile.begin), &barriers->full[ring.stage]);
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
__device__ void RunTiles(const Maps& maps, const Call& call, const uint8_t* stages, float* staged,
                         Barriers<Form::kStages>* barriers) {
  constexpr int kColumns = Form::kColumns;
  const int warpgroup = threadIdx.x / 128;
  const int row = warpgroup * 64 + threadIdx.x / kWarp % 4 * 16 + threadIdx.x % kWarp / 4;
  const bool speaks = threadIdx.x % 128 == 0;
  const int tiles = call.row_tiles * call.column_tiles;
  Ring<Form::kStages> ring;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    Outputs<kColumns> outputs;
    if (call.groups.count > 0) {
      outputs.tile = TileOf<Form::kRows>(call.x, call.groups, PlaceOf<Form>(call, index).row);
      if (outputs.tile.matrix < 0 || outputs.tile.begin >= outputs.tile.end) continue;
    }
    float acc[kColumns / 2];
    float total[kColumns / 2];
#pragma unroll
    for (float& sum : total) sum = -0.0f;  // which changes nothing that is added to it
    for (int slice = 0; slice * kSliceStages < call.steps; ++slice) {
      const int count = min(kSliceStages, call.steps - slice * kSliceStages);
      int previous = 0;
      for (int s = 0; s < count; ++s) {
        WaitBarrier(&barriers->full[ring.stage], ring.parity);
        const uint8_t* at = stages + ring.stage * Form::kStageBytes;
        const uint64_t a = TileDescriptor(at + warpgroup * 64 * kDepth * 2);
        const uint64_t b = TileDescriptor(at + Form::kRowsBytes);
        WarpgroupFence();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          Multiply<kColumns>(acc, a + 2 * k, b + 2 * k, s == 0 && k == 0);
        }
        WarpgroupCommit();
        if (s > 0) {
          WarpgroupWait<1>();
          if (speaks) Arrive(&barriers->empty[previous]);
        } else if (slice == 0) {
          // Meanwhile: it takes as long as a stage.
          const TilePlace place = PlaceOf<Form>(call, index);
          if (call.groups.count == 0) {
            outputs.tile = TileOf<Form::kRows>(call.x, call.groups, place.row);
          }
          outputs.Find(call, place, row);
        }
        previous = ring.stage;
        ring.Next();
      }
      WarpgroupWait<0>();
      if (speaks) Arrive(&barriers->empty[previous]);
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
  __shared__ Barriers<Form::kStages> barriers;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Form::kStages; ++s) {
      InitBarrier(&barriers.full[s], 1);
      InitBarrier(&barriers.empty[s], Form::kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  LetNextStart();
  // Registers: what asking threads give up, computing ones take.
  constexpr bool kTwo = Form::kConsumers == 2;
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == Form::kConsumers) {
    if constexpr (kTwo) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x / kWarp % 4 == 0) AskForTiles<Form>(maps, call, stages, &barriers);
  } else {
    if constexpr (kTwo) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    WaitForInputs();
    float* staged = reinterpret_cast<float*>(stages + Form::kStages * Form::kStageBytes) +
                    warpgroup * 64 * Form::kColumns;
    RunTiles<Form>(maps, call, stages, staged, &barriers);
  }
}

template <typename Form>
void Launch(Stream stream, const HalfRows& x, const HalfGroups& groups,
            std::span<const HalfProduct> products) {
  Maps maps = {};
  maps.x = MakeTensorMap(x.data, x.rows, x.stride, x.stride, Form::kRows);
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
  call.steps = static_cast<int>(CeilDiv<int64_t>(products[0].weight.stride, kDepth));
  const auto kernel = ManyKernel<Form>;
  static const bool allowed = (AllowShared(kernel, Form::kShared), true);
  (void)allowed;
  const int64_t tiles = int64_t{call.row_tiles} * call.column_tiles;
  LaunchEarly(kernel, unsigned(std::min<int64_t>(tiles, ThisGpu().multiprocessors)), Form::kThreads,
              Form::kShared, stream, maps, call);
}

using Launcher = decltype(&Launch<Form<128, 128>>);

// The form for groups is the first.
template <typename... All>
struct Forms {
  static constexpr std::array<ProductForm, sizeof...(All)> kForms = {
      ProductForm{All::kRows, All::kColumns}...};
  static constexpr std::array<Launcher, sizeof...(All)> kLaunchers = {&Launch<All>...};
};
using Known = Forms<Form<128, 128>, Form<128, 96>, Form<128, 64>, Form<64, 128>, Form<64, 96>,
                    Form<64, 64>, Form<64, 32>>;

// What a form takes, in units of its own: turns of the multiprocessors, each the longer of what it
// loads and what it computes (measured: 73 GB/s and 4.9 TFLOP/s each), and what a tile costs beside
// that. All are bound by the device's memory in the end.
int64_t Cost(const ProductForm& form, int64_t rows, std::span<const HalfProduct> products) {
  int64_t column_tiles = 0;
  for (const HalfProduct& one : products) {
    column_tiles += CeilDiv<int64_t>(one.weight.rows, form.columns);
  }
  const int64_t tiles = CeilDiv<int64_t>(rows, form.rows) * column_tiles;
  const int64_t turns = CeilDiv<int64_t>(tiles, ThisGpu().multiprocessors);
  const int64_t loads = 66 * (std::min<int64_t>(rows, form.rows) + form.columns);
  const int64_t work = int64_t{form.rows} * form.columns;
  constexpr int64_t kTileCost = 2'000'000;
  return turns * (std::max(loads, work) * products[0].weight.stride + kTileCost);
}

void RunUpToMost(Stream stream, const HalfRows& x, const HalfGroups& groups,
                 std::span<const HalfProduct> products, const ProductForm* form) {
  size_t best = 0;
  for (size_t i = 0; i < Known::kForms.size() && groups.count == 0; ++i) {
    const ProductForm& one = Known::kForms[i];
    if (form != nullptr
            ? one.rows == form->rows && one.columns == form->columns
            : Cost(one, x.rows, products) < Cost(Known::kForms[best], x.rows, products)) {
      best = i;
    }
  }
  Known::kLaunchers[best](stream, x, groups, products);
}

}  // namespace

std::span<const ProductForm> ProductForms() { return Known::kForms; }

void ManyRowsProducts(Stream stream, const HalfRows& x, const HalfGroups& groups,
                      std::span<const HalfProduct> products, const ProductForm* form) {
  for (size_t i = 0; i < products.size(); i += kMost) {
    RunUpToMost(stream, x, groups,
                products.subspan(i, std::min<size_t>(kMost, products.size() - i)), form);
  }
}

}  // namespace reprise::cuda
