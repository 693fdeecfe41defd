// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cuda/tensor/attention/one.cuh"

// Who has which pages of a row, and the launches.
namespace reprise::cuda {
namespace {

using namespace one_row;

template <KvType kStored, int kDim, bool kTeam>
__global__ void __launch_bounds__(kThreads, kBlocks<kDim>)
    OneRowAttention(const __grid_constant__ OneRowCall one) {
  if (!kForHopper) return;
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
  if (one.attention.partial == nullptr) work.Finish(results);
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
void Launch(Stream stream, const OneRowCall& one, int parts) {
  const auto kernel = OneRowAttention<kStored, kDim, kTeam>;
  const AttentionCall& call = one.attention;
  const int team = 1 << one.team_bits;
  const dim3 grid(unsigned(call.step.sequence_count * team), unsigned(call.kv.kv_heads),
                  unsigned(parts));
  const int64_t results = kTeam ? int64_t{call.page_count} * team : 1;
  LaunchTeamsEarly(team, kernel, grid, kThreads, SharedOf<kDim>(call.group, one.team_bits, results),
                   stream, one);
}
template <KvType kStored, int kDim>
void LaunchForm(Stream stream, const OneRowCall& one, int parts) {
  (one.team_bits > 0 ? Launch<kStored, kDim, true> : Launch<kStored, kDim, false>)(stream, one,
                                                                                   parts);
}
template <KvType kStored>
void LaunchDim(Stream stream, const OneRowCall& one, int parts) {
  const int dim = one.attention.kv.head_dim;
  (dim == 64    ? LaunchForm<kStored, 64>
   : dim == 128 ? LaunchForm<kStored, 128>
                : LaunchForm<kStored, 256>)(stream, one, parts);
}

// How the pages of a sequence are divided: among the blocks of a cluster, or as `pages` says.
struct OneRowParts {
  int team_bits = 0;
  PageParts pages;
};
// The quickest way, in units of a page: blocks run in waves, and a wave takes as long as the pages
// of a block, and about one more to begin with. A cluster joins them on the way; a kernel of its
// own for it takes about as long as two pages. So the blocks of a cluster have two pages at most,
// but where the GPU has no more blocks at once.
OneRowParts PartsOfOneRow(const StepView& step, int64_t longest, const KvView& kv,
                          const AttentionView& params) {
  constexpr int64_t kJoin = 2;
  const int group = params.q_heads / kv.kv_heads;
  // Pages that a window touches.
  const int64_t seen = params.window > 0
                           ? std::min<int64_t>(longest, (params.window + kKeys - 2) / kKeys + 1)
                           : longest;
  const auto blocks_of = kv.head_dim == 64    ? BlocksOf<64>
                         : kv.head_dim == 128 ? BlocksOf<128>
                                              : BlocksOf<256>;
  const auto cost = [&](int64_t parts, int64_t pages, int64_t each) {
    return CeilDiv(step.sequence_count * kv.kv_heads * parts, ThisGpu().multiprocessors * each) *
           (pages + 1);
  };
  const int64_t alone = blocks_of(group, 0, 1);
  OneRowParts best;
  int64_t least = cost(1, seen, alone);
  const auto take = [&](const OneRowParts& parts, int64_t with) {
    if (with < least) least = with, best = parts;
  };
  if (const PageParts pages = PartsOfPages(step, longest, kv, params); pages.page_count > 0) {
    take({0, pages}, cost(pages.parts, pages.page_count, alone) + kJoin);
  }
  for (int bits = 1; bits <= kTeamBits && (1 << bits) < 2 * seen; ++bits) {
    const int64_t pages = CeilDiv<int64_t>(seen, 1 << bits);
    const int64_t each = blocks_of(group, bits, pages << bits);
    if (each > 0) take({bits, {int(pages), 1}}, cost(1 << bits, pages, each));
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
  return ThisGpu().hopper && step.rows == step.sequence_count &&
         (kv.type == KvType::kF16 || kv.type == KvType::kBF16) && !kv.value_in_key &&
         kv.value_dim == dim && (dim == 64 || dim == 128 || dim == 256) && turns &&
         heads.inputs.q_heads / kv.kv_heads <= kTileQueries;
}

void AttendOneRow(Stream stream, const StepView& step, int64_t longest, const KvView& kv,
                  const AttentionView& params, const HeadRowsView& heads, const View& out,
                  void* workspace) {
  CHECK(Even(params.gate) && Even(out));
  const OneRowParts parts = PartsOfOneRow(step, longest, kv, params);
  AttentionCall call{step,    kv,      params,
                     heads.q, out,     params.q_heads / kv.kv_heads,
                     nullptr, longest, parts.pages.page_count};
  const bool divided = parts.team_bits == 0 && parts.pages.page_count > 0;
  if (divided) call.partial = static_cast<float*>(workspace);
  const OneRowCall one{call, heads.inputs, heads.k, heads.v, parts.team_bits};
  (kv.type == KvType::kF16 ? LaunchDim<KvType::kF16> : LaunchDim<KvType::kBF16>)(stream, one,
                                                                                 parts.pages.parts);
  if (divided) JoinPages(stream, call);
}

}  // namespace reprise::cuda
