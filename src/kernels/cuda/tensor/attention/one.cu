// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cuda/tensor/attention/deep.h"
#include "kernels/cuda/tensor/attention/one.cuh"

// Who has which pages of a row, and the launches.
namespace reprise::cuda {
namespace {

using namespace one_row;

template <KvType kStored, int kDim, bool kTeam>
__global__ void __launch_bounds__(kThreads, kBlocks<kDim>)
    OneRowAttention(const __grid_constant__ OneRowCall one) {
  if (!kSinceHopper) return;
  extern __shared__ __align__(128) std::byte shared[];
  uint64_t* arrived = &reinterpret_cast<Room<kDim>*>(shared)->arrived;
  LetNextStart();
  if (kTeam) {
    if (threadIdx.x == 0) InitBarrier(arrived, 1);
    SayBegun();
  }
  OneRow<kStored, kDim, kTeam> work(one, shared);
  work.AskEarly();
  const int results = kTeam ? work.pages_of_all() : 1;
  if (kTeam) {
    WaitForCluster();
    if (threadIdx.x == 0) ExpectBytes(arrived, work.result_bytes());
  }
  WaitForInputs();
  if (work.has_pages()) {
    work.MakeHeads();
    work.Attend();
  } else {
    work.AskForGates();
  }
  work.Finish(results);
}

// Bytes of shared memory of a block that joins `pages` results.
template <int kDim>
size_t SharedOf(int group, int bits, int64_t pages) {
  const int share = kDim >> bits;
  return sizeof(Room<kDim>) +
         (size_t(group) * share + size_t(pages) * ResultFloats(group, share)) * sizeof(float);
}
// Such blocks that a multiprocessor has room for.
template <int kDim>
int64_t BlocksOf(int group, int bits, int64_t pages) {
  constexpr size_t kReserved = 1024;  // bytes of shared memory that every block has besides
  const size_t each = SharedOf<kDim>(group, bits, pages) + kReserved;
  return std::min<int64_t>(kBlocks<kDim>, int64_t((ThisGpu().block_shared + kReserved) / each));
}

template <KvType kStored, int kDim, bool kTeam>
void Launch(Stream stream, const OneRowCall& one) {
  const auto kernel = OneRowAttention<kStored, kDim, kTeam>;
  const AttentionCall& call = one.attention;
  const int team = 1 << one.team_bits;
  const dim3 grid(unsigned(call.step.sequence_count * team), unsigned(call.kv.kv_heads));
  const int64_t results = kTeam ? int64_t{call.page_count} * team : 1;
  LaunchTeamsEarly(team, kernel, grid, kThreads, SharedOf<kDim>(call.group, one.team_bits, results),
                   stream, one);
}
template <KvType kStored, int kDim>
void LaunchForm(Stream stream, const OneRowCall& one) {
  (one.team_bits > 0 ? Launch<kStored, kDim, true> : Launch<kStored, kDim, false>)(stream, one);
}
template <KvType kStored>
void LaunchDim(Stream stream, const OneRowCall& one) {
  const int dim = one.attention.kv.head_dim;
  (dim == 64    ? LaunchForm<kStored, 64>
   : dim == 128 ? LaunchForm<kStored, 128>
                : LaunchForm<kStored, 256>)(stream, one);
}

// How the pages of a sequence are divided: each of the 2^team_bits blocks of a cluster has `pages`.
struct OneRowParts {
  int team_bits = 0;
  int64_t pages = 0;
  int64_t cost = 0;
};
int64_t BlocksOf(const KvView& kv, int group, int bits, int64_t pages) {
  const auto of = kv.head_dim == 64    ? BlocksOf<64>
                  : kv.head_dim == 128 ? BlocksOf<128>
                                       : BlocksOf<256>;
  return of(group, bits, pages);
}

// The quickest way, in units of a page: blocks run in waves, and a wave takes as long as the pages
// of a block, and about one more to begin with.
OneRowParts PartsOfOneRow(const StepView& step, const DepthView& depth, const KvView& kv,
                          const AttentionView& params) {
  const int group = params.q_heads / kv.kv_heads;
  // Pages that a window touches.
  const int64_t seen =
      params.window > 0 ? std::min<int64_t>(depth.longest, (params.window + kKeys - 2) / kKeys + 1)
                        : depth.longest;
  const auto cost = [&](int64_t parts, int64_t pages, int64_t each) {
    return CeilDiv(step.sequence_count * kv.kv_heads * parts, ThisGpu().multiprocessors * each) *
           (pages + 1);
  };
  OneRowParts best{0, seen, cost(1, seen, BlocksOf(kv, group, 0, 1))};
  for (int bits = 1; bits <= kTeamBits && (1 << bits) < 2 * seen; ++bits) {
    const int64_t pages = CeilDiv<int64_t>(seen, 1 << bits);
    const int64_t each = BlocksOf(kv, group, bits, pages << bits);
    if (each == 0) continue;
    const OneRowParts parts{bits, pages, cost(1 << bits, pages, each)};
    if (parts.cost < best.cost) best = parts;
  }
  return best;
}

// Whether pairs of its values may be read and written.
bool Even(const View& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 8 == 0 && rows.stride % 2 == 0;
}

}  // namespace

bool HasOneRowAttention(const StepView& step, const KvView& kv, const HeadRowsView& heads) {
  const int dim = kv.head_dim, half = heads.inputs.half;
  const bool turns = half == 0 || half == dim / 2 || (half == dim / 8 && dim > 64);
  return ThisGpu().clusters && step.rows == step.sequence_count &&
         (kv.type == KvType::kF16 || kv.type == KvType::kBF16) && !kv.value_in_key &&
         kv.value_dim == dim && (dim == 64 || dim == 128 || dim == 256) && turns &&
         heads.inputs.q_heads / kv.kv_heads <= kTileQueries &&
         BlocksOf(kv, heads.inputs.q_heads / kv.kv_heads, 0, 1) > 0;
}

namespace {

// What a page takes a block, on an H200, in tenths of a microsecond; longer where all
// multiprocessors read: memory brings no more. `deep`: of AttendDeep.
struct PageCosts {
  int64_t page, page_of_all;
  int64_t deep, deep_of_all;
};
PageCosts CostsOf(int dim) {
  if (dim == 64) return {16, 21, 8, 20};
  if (dim == 128) return {20, 32, 9, 21};
  return {28, 42, 12, 21};
}

}  // namespace

bool PrefersOneRow(const StepView& step, const DepthView& depth, const KvView& kv,
                   const AttentionView& params) {
  constexpr int64_t kKernels = 90;  // the two more that AttendDeep comes with
  const PageCosts costs = CostsOf(kv.head_dim);
  const OneRowParts one = PartsOfOneRow(step, depth, kv, params);
  const int64_t rows = int64_t{step.sequence_count} * kv.kv_heads;
  const bool all = rows << one.team_bits > ThisGpu().multiprocessors * 3 / 4;
  const int64_t seen = one.pages << one.team_bits;
  const int64_t tasks = rows * CeilDiv<int64_t>(seen, kGroupPages);
  const int64_t at_once = DeepBlocks(kv);
  const int64_t deep = CeilDiv(tasks, at_once) * std::min<int64_t>(seen, kGroupPages) *
                       (2 * tasks > at_once ? costs.deep_of_all : costs.deep);
  return one.cost * (all ? costs.page_of_all : costs.page) <= kKernels + deep;
}

void AttendOneRow(Stream stream, const StepView& step, const DepthView& depth, const KvView& kv,
                  const AttentionView& params, const HeadRowsView& heads, const View& out) {
  CHECK(Even(params.gate) && Even(out));
  const OneRowParts parts = PartsOfOneRow(step, depth, kv, params);
  const AttentionCall call{
      step, kv, params, heads.q, out, params.q_heads / kv.kv_heads, {}, int(parts.pages)};
  const OneRowCall one{call, heads.inputs, heads.k, heads.v, parts.team_bits};
  (kv.type == KvType::kF16 ? LaunchDim<KvType::kF16> : LaunchDim<KvType::kBF16>)(stream, one);
}

}  // namespace reprise::cuda
