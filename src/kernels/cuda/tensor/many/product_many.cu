// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "kernels/cuda/tensor/many/outputs.cuh"
#include "kernels/cuda/tensor/many/product_many.h"

// Blocks that stay: each takes tile after tile, over all of K. One warpgroup asks for the operands,
// stage by stage, weights of the first stages before the kernel in front has ended; the others
// compute 64 rows each. After every slice of 512 along K the accumulators are added to the totals
// and begin anew. Slices are added in order: where K is divided among blocks, the sums of all
// slices have to meet, which takes longer than to read x more often.
namespace reprise::cuda {
namespace {

// Asks for part `rank` of an operand's tile of a stage, for all `blocks` that have it in common.
// The tile begins at `row` of the map; at(i) is where its box number i lies in shared memory.
template <typename Parts, int kBlocks, typename At>
__device__ __forceinline__ void AskForPart(const CUtensorMap& map, int row, int first_box, int rank,
                                           uint16_t blocks, uint32_t barrier, const At& at) {
  const int skipped = Parts::kByBoxes ? 0 : rank * Parts::kRowsEach;
#pragma unroll
  for (int i = 0; i < Parts::kBoxesEach; ++i) {
    const int box = kBlocks > 1 && Parts::kByBoxes ? rank * Parts::kBoxesEach + i : i;
    const uint32_t to = at(box) + skipped * kBox * 2;
    const int column = (first_box + box) * kBox;
    if constexpr (kBlocks > 1) {
      CopyBoxTo(blocks, to, &map, column, row + skipped, barrier);
    } else {
      CopyBox(to, &map, column, row + skipped, barrier);
    }
  }
}

// Asks for the operands of this block's tiles, by one warp.
template <typename Layout>
__device__ void AskForTiles(const Maps& maps, const Call& call, Ring<Layout> ring) {
  const int teams = call.row_teams * call.column_teams;
  const int first = static_cast<int>(blockIdx.x) / Layout::kTeam;
  const int grid = static_cast<int>(gridDim.x) / Layout::kTeam;
  const bool asks = threadIdx.x % kWarp == 0;
  const auto ask_for_weights = [&](int at, const TilePlace& place, const Tile& tile, int stage) {
    const int row = tile.matrix * call.matrix[place.matrix].rows + place.column;
    ExpectBytes(ring.full(at), call.stage_bytes);
    AskForPart<OutputParts<Layout>, Layout::kTeamTokens>(
        maps.weight[place.matrix], row, stage * Layout::kBoxes, TokenRank<Layout>(),
        SameOutputs<Layout>(), ring.full(at), [&](int box) { return ring.outputs(at, box); });
  };
  const auto ask_for_rows = [&](const Tile& tile, int stage) {
    AskForPart<TokenParts<Layout>, Layout::kTeamOutputs>(
        maps.x, static_cast<int>(tile.begin), stage * Layout::kBoxes, OutputRank<Layout>(),
        SameTokens<Layout>(), ring.full(ring.at),
        [&](int box) { return ring.tokens(ring.at, box); });
  };
  int asked = 0;  // stages whose weights were asked for before x was there
  if (!Layout::kForGroups || call.groups.count == 0) {
    for (int index = first; index < teams && asked < Layout::kStages; index += grid) {
      const TilePlace place = PlaceOf<Layout>(call, index);
      for (int stage = 0; stage < call.stages && asked < Layout::kStages; ++stage, ++asked) {
        if (asks) ask_for_weights(asked, place, {0, 0, 0}, stage);
      }
    }
  }
  WaitForInputs();
  int turn = 0;
  for (int index = first; index < teams; index += grid) {
    const TilePlace place = PlaceOf<Layout>(call, index);
    const Tile tile = RowsOf<Layout>(call, place.row);
    if (tile.matrix < 0 || tile.begin >= tile.end) continue;
    for (int stage = 0; asks && stage < call.stages; ++stage, ++turn, ring.Next()) {
      if (turn >= Layout::kStages) WaitBarrier(ring.empty(ring.at), ring.parity ^ 1);
      if (turn >= asked) ask_for_weights(ring.at, place, tile, stage);
      ask_for_rows(tile, stage);
    }
    __syncwarp();
  }
}

// Computes 64 rows of this block's tiles, by a warpgroup.
template <typename Layout>
__device__ void RunTiles(const Maps& maps, const Call& call, int warpgroup, float* staged,
                         Ring<Layout> ring) {
  constexpr int kColumns = Layout::kColumns;
  const int row = warpgroup * 64 + threadIdx.x / kWarp % 4 * 16 + threadIdx.x % kWarp / 4;
  const int teams = call.row_teams * call.column_teams;
  const uint64_t first_a = TileDescriptor(ring.rows(0, 0) + warpgroup * 64 * kBox * 2);
  const uint64_t first_b = TileDescriptor(ring.columns(0, 0));
  // For all that write to the stage.
  const auto release = [&](int stage) {
    const int rank = static_cast<int>(threadIdx.x % 128);
    if constexpr (Layout::kTeam > 1) {
      if (rank < Layout::kBeside) ArriveAt(ring.empty(stage), BlockBeside<Layout>(rank));
    } else {
      if (rank == 0) Arrive(ring.empty(stage));
    }
  };
  const int grid = static_cast<int>(gridDim.x) / Layout::kTeam;
  for (int index = blockIdx.x / Layout::kTeam; index < teams; index += grid) {
    if (Layout::kForGroups && call.groups.count > 0) {
      const Tile tile = RowsOf<Layout>(call, PlaceOf<Layout>(call, index).row);
      if (tile.matrix < 0 || tile.begin >= tile.end) continue;
    }
    OutputsOf<Layout> outputs;
    float acc[kColumns / 2];
    float total[kColumns / 2];
#pragma unroll
    for (float& sum : total) sum = -0.0f;  // which changes nothing that is added to it
    for (int slice = 0; slice * Layout::kSliceStages < call.stages; ++slice) {
      const int count = min(Layout::kSliceStages, call.stages - slice * Layout::kSliceStages);
      int previous = 0;
      for (int s = 0; s < count; ++s) {
        WaitBarrier(ring.full(ring.at), ring.parity);
        WarpgroupFence();
#pragma unroll
        for (int box = 0; box < Layout::kBoxes; ++box) {
          const int stage_at = ring.at * Layout::kStageBytes;
          const uint64_t a = first_a + (stage_at + box * Layout::kRowsBytes) / 16;
          const uint64_t b = first_b + (stage_at + box * Layout::kColumnsBytes) / 16;
#pragma unroll
          for (int k = 0; k < kBox / 16; ++k) {
            WarpgroupMmaF16(acc, a + 2 * k, b + 2 * k, s == 0 && box == 0 && k == 0);
          }
        }
        WarpgroupCommit();
        if (s > 0) {
          WarpgroupWait<1>();
          release(previous);
        } else if (slice == 0) {
          // Meanwhile: it takes as long as a stage.
          const TilePlace place = PlaceOf<Layout>(call, index);
          outputs.Find(call, place, RowsOf<Layout>(call, place.row), row);
        }
        previous = ring.at;
        ring.Next();
      }
      WarpgroupWait<0>();
      release(previous);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) total[i] += acc[i];
    }
    outputs.Store(maps, call, total, warpgroup, staged);
  }
  if (Layout::kStaged && threadIdx.x % 128 == 0) WaitStoresRead();
}

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads, 1)
    ManyKernel(const __grid_constant__ Maps maps, const __grid_constant__ Call call) {
  if (!kForWgmma) return;
  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (-SharedAddress(raw) & 1023);  // known to be shared memory
  __shared__ uint64_t barriers[2 * Layout::kStages];     // full ones, then empty ones
  if (threadIdx.x == 0) {
    for (int s = 0; s < Layout::kStages; ++s) {
      InitBarrier(&barriers[s], 1);
      InitBarrier(&barriers[Layout::kStages + s], Layout::kBeside * Layout::kConsumers);
    }
    FenceBarriers();
  }
  __syncthreads();
  if constexpr (Layout::kTeam > 1) MeetCluster();
  LetNextStart();
  const Ring<Layout> ring(stages, barriers);
  // Registers: what asking threads give up, computing ones take.
  constexpr bool kGiveUp = Layout::kConsumers > 1;
  constexpr bool kThree = Layout::kConsumers == 3, kWide = Layout::kColumns > 104;
  constexpr int kAsking = !kThree ? 40 : kWide ? 32 : 56;
  constexpr int kComputing = !kThree ? 232 : kWide ? 160 : 152;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == Layout::kConsumers) {
    if constexpr (kGiveUp) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kAsking));
    if (threadIdx.x / kWarp % 4 == 0) AskForTiles<Layout>(maps, call, ring);
  } else {
    if constexpr (kGiveUp) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kComputing));
    WaitForInputs();
    float* staged = reinterpret_cast<float*>(stages + Layout::kStages * Layout::kStageBytes) +
                    warpgroup * 64 * Layout::kStagedColumns;
    RunTiles<Layout>(maps, call, warpgroup, staged, ring);
  }
  if constexpr (Layout::kTeam > 1) {
    __syncwarp();
    MeetCluster();  // nobody arrives at the barriers of a block that has gone
  }
}

template <typename Layout>
void Launch(Stream stream, const HalfRows& x, const HalfGroups& groups,
            std::span<const HalfProduct> products) {
  // Rows of x that are asked for at once. Where that is all of a tile, those behind the last one
  // are left out: they are whatever lies there, and nobody's.
  int64_t box_rows = TokenParts<Layout>::kRowsEach;
  const int64_t boxes = Layout::kTokens / box_rows;
  if (boxes == 1 && groups.count == 0) box_rows = std::min(box_rows, (x.rows + 7) / 8 * 8);
  Maps maps = {};
  maps.x = MakeTensorMap(x.data, x.rows, x.stride, x.stride, static_cast<int>(box_rows));
  Call call = {};
  call.x = x;
  call.groups = groups;
  const int64_t matrices = std::max(1, groups.count);
  for (size_t i = 0; i < kMatricesMost; ++i) {
    Matrix& matrix = call.matrix[i];
    matrix.begin = call.column_tiles;
    if (i >= products.size()) continue;
    const HalfProduct& product = products[i];
    const HalfMatrix& weight = product.weight;
    const View& out = product.out;
    matrix.scale = weight.scale;
    matrix.bias = product.bias;
    matrix.out = out;
    matrix.boxes = Layout::kStaged && Aligned16(out.data, out.stride) && weight.rows % 4 == 0;
    matrix.pairs = reinterpret_cast<uintptr_t>(out.data) % 8 == 0 && out.stride % 2 == 0;
    matrix.rows = static_cast<int>(weight.rows);
    call.column_tiles += CeilDiv(matrix.rows, Layout::kOutputs);
    maps.weight[i] = MakeTensorMap(weight.data, matrices * weight.rows, weight.stride,
                                   weight.stride, OutputParts<Layout>::kRowsEach);
    if (matrix.boxes) maps.out[i] = MakeFloatMap(out.data, out.rows, weight.rows, out.stride, 64);
  }
  call.row_tiles = static_cast<int>(TileBound(products[0].out.rows, Layout::kTokens, groups));
  call.row_teams = CeilDiv(call.row_tiles, Layout::kTeamTokens);
  call.column_teams = CeilDiv(call.column_tiles, Layout::kTeamOutputs);
  call.stages =
      static_cast<int>(CeilDiv<int64_t>(products[0].weight.stride, Layout::kBoxes * kBox));
  call.stage_bytes =
      Layout::kBoxes * static_cast<int>(box_rows * boxes + Layout::kOutputs) * kBox * 2;
  const auto kernel = ManyKernel<Layout>;
  const int64_t teams = std::min<int64_t>(int64_t{call.row_teams} * call.column_teams,
                                          ThisGpu().multiprocessors / Layout::kTeam);
  LaunchTeamsEarly(Layout::kTeam, kernel, unsigned(teams * Layout::kTeam), Layout::kThreads,
                   Layout::kShared, stream, maps, call);
}

using Launcher = void (*)(Stream, const HalfRows&, const HalfGroups&, std::span<const HalfProduct>);

template <size_t... kForm>
constexpr std::array<Launcher, sizeof...(kForm)> Launchers(std::index_sequence<kForm...>) {
  return {&Launch<FormLayout<kForm>>...};
}
constexpr auto kLaunchers = Launchers(std::make_index_sequence<kProductForms.size()>());

// The first `outputs` rows of the matrix, and the others.
std::pair<HalfProduct, HalfProduct> Divided(const HalfProduct& product, int64_t outputs) {
  HalfProduct first = product, rest = product;
  first.weight.rows = first.out.cols = outputs;
  rest.weight.rows -= outputs;
  rest.weight.data += outputs * product.weight.stride;
  if (rest.bias != nullptr) rest.bias += outputs;
  rest.out.data += outputs;
  rest.out.cols -= outputs;
  return {first, rest};
}

}  // namespace

void ManyRowsProducts(Stream stream, const HalfRows& x, const HalfGroups& groups,
                      std::span<const HalfProduct> products, std::optional<size_t> form) {
  for (size_t i = 0; i < products.size(); i += kMatricesMost) {
    const auto some = products.subspan(i, std::min<size_t>(kMatricesMost, products.size() - i));
    ProductPlan plan;
    if (groups.count == 0) plan = form ? ProductPlan{*form} : PlanOf(x.rows, some);
    if (plan.outputs == 0) {
      kLaunchers[plan.form](stream, x, groups, some);
      continue;
    }
    const auto [first, rest] = Divided(some[0], plan.outputs);
    kLaunchers[plan.form](stream, x, groups, {&first, 1});
    kLaunchers[plan.rest](stream, x, groups, {&rest, 1});
  }
}

}  // namespace reprise::cuda
