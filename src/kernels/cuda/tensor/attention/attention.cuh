// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/tensor/attention/attention.h"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/reference/gpu/paged_attention.h"
#include "kernels/reference/gpu/power2.h"
#include "kernels/reference/math.h"

// What the kernels for attention over 16-bit K/V have in common: which queries a block has, the
// softmax of a page, and how pages and groups of them are joined. A tile is 16 queries of one K/V
// head, one warp's: rows of a sequence times the query heads that share the K/V head, in order.
namespace reprise::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kKeys = 64;  // of a page
inline constexpr int kTileQueries = 16;
inline constexpr int kGroupPages = reference::kPagesOfGroup;
inline constexpr float kMinusInfinity = -INFINITY;

// What tensor cores take K and V of a type as.
template <KvType kStored>
inline constexpr Half kHalfOf = kStored == KvType::kBF16 ? Half::kBF16 : Half::kF16;

// Where groups of pages are left, for JoinGroups. A row has a place for each of its groups, from
// that of position 0 on; rows are one behind another.
struct GroupRoom {
  float* out = nullptr;    // [place, q_heads, value_dim]; null: no division
  float* marks = nullptr;  // [place, q_heads, 2]: top, sum
};

struct AttentionCall {
  StepView step;
  KvView kv;
  AttentionView params;
  View q;
  View out;
  int group;  // query heads per K/V head
  GroupRoom left;
  int page_count;  // pages of a block where they are divided
};

// An output at column `at` of its row.
__device__ __forceinline__ float Gated(const AttentionCall& call, int64_t row, int64_t at,
                                       float x) {
  const View& gate = call.params.gate;
  return gate.data == nullptr ? x : reference::Sigmoid(gate.data[row * gate.stride + at]) * x;
}

// The sum of a query's weights, with that of its head's sink.
__device__ __forceinline__ float WithSink(const AttentionView& params, int head, float top,
                                          float sum) {
  return params.sinks == nullptr ? sum : reference::SumWithSink(sum, params.sinks[head], top);
}

// Behind the last position that a row of a sequence sees.
__device__ __forceinline__ int EndSeen(const AttentionCall& call, const SequenceView& sequence,
                                       int row) {
  return call.params.ends != nullptr ? call.params.ends[sequence.row_begin + row]
                                     : sequence.position + row + 1;
}

// First position that a row at `position` sees.
__device__ __forceinline__ int FirstSeen(const AttentionView& params, int position) {
  return params.window > 0 ? max(0, position - params.window + 1) : 0;
}

// The queries of a sequence (its rows times the heads of a group) are cut into parts, so that no
// block has queries of two sequences: part `index` of the step, `size` queries each.
struct QueryRange {
  int sequence = -1;  // -1: there is no such part
  int begin = 0;
  int end = 0;
};
__device__ inline QueryRange FindQueries(const StepView& step, int group, int size, int index) {
  const int lane = threadIdx.x % kWarp;
  int before = 0;
  for (int first = 0; first < step.sequence_count; first += kWarp) {
    const int s = first + lane;
    const int count = s < step.sequence_count ? step.sequences[s].row_count * group : 0;
    const int parts = CeilDiv(count, size);
    int upto = parts;
    for (int d = 1; d < kWarp; d *= 2) {
      const int other = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += other;
    }
    const int mine = before + upto - parts;
    const unsigned found = __ballot_sync(~0u, index >= mine && index < mine + parts);
    if (found != 0) {
      const int owner = __ffs(found) - 1;
      const int begin = __shfl_sync(~0u, (index - mine) * size, owner);
      return {first + owner, begin, min(begin + size, __shfl_sync(~0u, count, owner))};
    }
    before += __shfl_sync(~0u, upto, kWarp - 1);
  }
  return {};
}

// One warp's 16 queries; a thread has rows g and g + 8 of the tile (h = 0 and 1 below).
struct TileRows {
  int64_t row[2];  // of the step; -1: none
  int head[2];     // query head
  int position[2];
};

// kAhead: rows with a window may see what is behind them, as Weigh looks up.
template <bool kAhead = false>
__device__ inline TileRows RowsOfTile(const AttentionCall& call, const SequenceView& sequence,
                                      const QueryRange& range, int kv_head, int tile) {
  TileRows rows;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = range.begin + tile * kTileQueries + threadIdx.x % kWarp / 4 + 8 * h;
    const bool real = query < range.end;
    const int row = query / call.group;
    rows.row[h] = real ? sequence.row_begin + row : -1;
    rows.head[h] = kv_head * call.group + query % call.group;
    rows.position[h] = real ? sequence.position + row : -1;
    if (call.params.ends == nullptr || !real || (kAhead && call.params.window > 0)) continue;
    // Without a window a row that sees more is one that stands further behind.
    rows.position[h] = EndSeen(call, sequence, row) - 1;
  }
  return rows;
}

// Columns 8j + 2t + e of row g + 8h of the tile stand in [j][2h + e].
using PageScores = float[8][4];

// Rare: its code stays out of the way of others'.
__device__ __noinline__ inline float Softcap(float s, float cap) {
  return cap * reference::Tanh(s / cap);
}

// Scores become weights; those of positions that are not visible 0. `top`: -infinity where none is.
// kAll: every position of the page is visible to every row. kRare: there may be
// a soft cap, and rows with a window that see what is behind them.
template <bool kAll, bool kRare>
__device__ __forceinline__ void Weigh(const AttentionView& params, const TileRows& rows, int page,
                                      PageScores& score, float (&top)[2]) {
  const float unit = reference::UnitOfScores(params.scale, kRare ? params.softcap : 0);
  const int t = threadIdx.x % 4;
  int first[2], end[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    first[h] = FirstSeen(params, rows.position[h]) - page * kKeys;
    // Looked up for every page: a register for it would be one too many.
    const bool ahead =
        kRare && params.window > 0 && params.ends != nullptr && rows.row[h] >= 0;
    end[h] = (ahead ? params.ends[rows.row[h]] : rows.position[h] + 1) - page * kKeys;
  }
  const auto visible = [&](int j, int e) {
    if (kAll) return true;
    const int column = 8 * j + 2 * t + e % 2;
    return column >= first[e / 2] && column < end[e / 2];
  };
  float largest[2][2] = {{kMinusInfinity, kMinusInfinity}, {kMinusInfinity, kMinusInfinity}};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& s = score[j][e];
      if (kRare && params.softcap != 0) s = Softcap(s * params.scale, params.softcap);
      float& most = largest[e / 2][e % 2];
      if (visible(j, e)) most = fmaxf(s, most);  // which of two zeros it is, nobody sees
    }
  }
  float shift[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = fmaxf(largest[h][0], largest[h][1]);
    for (int d = 1; d < 4; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    top[h] = reference::TopOfScores(most, unit);
    shift[h] = reference::ShiftOfTop(top[h]);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float weight = reference::WeightOfScore(score[j][e], unit, shift[e / 2]);
      score[j][e] = visible(j, e) ? weight : 0.0f;
    }
  }
}

// How a page joins those before it.
struct Joint {
  bool rises;    // the page's top is the new one: what was there before is scaled, not the page
  float factor;  // 1 or less

  __device__ __forceinline__ float Join(float before, float fresh) const {
    return rises ? fmaf(before, factor, fresh) : fmaf(fresh, factor, before);
  }
};
__device__ __forceinline__ Joint JointOf(float top, float page_top) {
  const bool rises = page_top > top;
  return {rises, reference::Power2OfInteger(rises ? top - page_top : page_top - top)};
}

// The pages so far, of a part of kPart channels of the values.
template <int kPart>
struct Running {
  float out[kPart / 8][4] = {};
  float top[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0, 0};
};

// Weights of a page as the left operand of a product with its values: step k has positions 16 k on.
template <Half kType>
__device__ __forceinline__ void PackWeights(const PageScores& weight, uint32_t (&p)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    p[k][0] = Pack2<kType>(weight[2 * k][0], weight[2 * k][1]);
    p[k][1] = Pack2<kType>(weight[2 * k][2], weight[2 * k][3]);
    p[k][2] = Pack2<kType>(weight[2 * k + 1][0], weight[2 * k + 1][1]);
    p[k][3] = Pack2<kType>(weight[2 * k + 1][2], weight[2 * k + 1][3]);
  }
}

// Sums of weights, of rows g and g + 8: a product with ones.
template <Half kType>
__device__ __forceinline__ void SumWeights(const uint32_t (&p)[4][4], float (&sum)[2]) {
  constexpr uint32_t kOnes = kType == Half::kBF16 ? 0x3F803F80 : 0x3C003C00;
  float sums[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) Mma<kType>(sums, p[k], kOnes, kOnes);
  sum[0] = sums[0], sum[1] = sums[2];
}

// Takes the tops of a page in.
template <int kPart>
__device__ __forceinline__ void JoinTops(const float (&top)[2], Running<kPart>& running,
                                         Joint (&joint)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    joint[h] = JointOf(running.top[h], top[h]);
    running.top[h] = joint[h].rises ? top[h] : running.top[h];
  }
}

// Takes the weights of a page in, their sums and tops: p has them as the left operand of their
// product with the values, and joint says how that joins.
template <Half kType, int kPart>
__device__ __forceinline__ void JoinPacked(const float (&top)[2], const uint32_t (&p)[4][4],
                                           Running<kPart>& running, Joint (&joint)[2]) {
  float sum[2];
  SumWeights<kType>(p, sum);
  JoinTops(top, running, joint);
#pragma unroll
  for (int h = 0; h < 2; ++h) running.sum[h] = joint[h].Join(running.sum[h], sum[h]);
}
template <Half kType, int kPart>
__device__ __forceinline__ void JoinWeights(const float (&top)[2], const PageScores& weight,
                                            Running<kPart>& running, uint32_t (&p)[4][4],
                                            Joint (&joint)[2]) {
  PackWeights<kType>(weight, p);
  JoinPacked<kType>(top, p, running, joint);
}

// Calls store(channel, value) for what this thread has of row h.
template <int kPart, typename Store>
__device__ __forceinline__ void ForChannels(Running<kPart>& running, int h, int first,
                                            int value_dim, const Store& store) {
#pragma unroll
  for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int c = first + 8 * j + 2 * int(threadIdx.x % 4) + e;
      if (c < value_dim) store(c, running.out[j][2 * h + e]);
    }
  }
}

template <int kPart>
__device__ __forceinline__ void StoreResult(const AttentionCall& call, const TileRows& rows,
                                            int first, Running<kPart>& running) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row[h] < 0) continue;
    if (!IsFinite(running.top[h])) SpoilRow(call.step, rows.row[h]);
    const float inverse =
        1.0f / WithSink(call.params, rows.head[h], running.top[h], running.sum[h]);
    const int64_t head = int64_t(rows.head[h]) * call.kv.value_dim;
    // All gates are asked for before the first result is stored.
    ForChannels(running, h, first, call.kv.value_dim, [&](int c, float& o) {
      o = Gated(call, rows.row[h], head + c, o * inverse + 0.0f);
    });
    float* to = call.out.data + rows.row[h] * call.out.stride + head;
    ForChannels(running, h, first, call.kv.value_dim, [&](int c, float o) { to[c] = o; });
  }
}

// Groups of pages that a row of the sequence has at most.
__device__ __forceinline__ int GroupsOf(const SequenceView& sequence) {
  return (sequence.position + sequence.row_count - 1) / (kKeys * kGroupPages) + 1;
}
// The first place in a GroupRoom of the sequence. By a whole warp.
__device__ inline int FirstPlace(const StepView& step, int sequence) {
  int places = 0;
  for (int s = threadIdx.x % kWarp; s < sequence; s += kWarp) {
    places += step.sequences[s].row_count * GroupsOf(step.sequences[s]);
  }
  return __reduce_add_sync(kFullWarp, places);
}

// One group for itself, to the workspace. `place`: the first of the sequence. `marks`: with its
// tops and sums, which one warp stores for all that have the queries.
template <int kPart>
__device__ __forceinline__ void StoreGroup(const AttentionCall& call, const SequenceView& sequence,
                                           int place, const TileRows& rows, int group, int first,
                                           bool marks, Running<kPart>& running) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row[h] < 0) continue;
    const int64_t at = place + (rows.row[h] - sequence.row_begin) * GroupsOf(sequence) + group;
    const int64_t query = at * call.params.q_heads + rows.head[h];
    if (marks && threadIdx.x % 4 == 0) {
      *reinterpret_cast<float2*>(call.left.marks + 2 * query) =
          make_float2(running.top[h], running.sum[h]);
    }
    float* to = call.left.out + query * call.kv.value_dim;
    ForChannels(running, h, first, call.kv.value_dim, [&](int c, float o) { to[c] = o; });
  }
}

// Joins a group, or what was joined before it, with the next one.
template <int kPart>
__device__ __forceinline__ void JoinRunning(const Running<kPart>& next, Running<kPart>& running) {
  Joint joint[2];
  JoinTops(next.top, running, joint);
#pragma unroll
  for (int h = 0; h < 2; ++h) running.sum[h] = joint[h].Join(running.sum[h], next.sum[h]);
#pragma unroll
  for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      running.out[j][e] = joint[e / 2].Join(running.out[j][e], next.out[j][e]);
    }
  }
}

// How the pages of a sequence are divided among blocks, where there are few queries.
struct PageParts {
  int page_count = 0;  // of a block, whole groups; 0: they are not
  int parts = 1;
};
PageParts PartsOfPages(const StepView& step, const DepthView& depth, const KvView& kv,
                       const AttentionView& params);
// Joins what StoreGroup has left.
void JoinGroups(Stream stream, const AttentionCall& call, const DepthView& depth);

// Attention of one tile of queries a sequence, or of some, over many pages; `HasDeepRows` says
// where. It leaves groups.
bool HasDeepRows(const AttentionCall& call, const DepthView& depth);
void AttendDeep(Stream stream, const AttentionCall& call, const DepthView& depth);

// Attention of many queries with products of whole warpgroups; `HasManyQueries` says where. Over
// several groups of pages it needs `ManyWorkspace` bytes at call.left.out.
bool HasManyQueries(const AttentionCall& call);
size_t ManyWorkspace(const AttentionCall& call);
void AttendMany(Stream stream, const AttentionCall& call);

}  // namespace reprise::cuda
