// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/attention/page_tiles.cuh"
#include "kernels/cuda/tensor/hopper.cuh"

// Attention of many queries: two or three warpgroups have 64 queries each and read pages that the
// copy engine brings ahead, at the word of a thread of one more. Scores are 64 x 64 products of
// queries and keys; weights stay in registers as the left operand of products with 64 channels of
// the values at a time. While one warpgroup weighs or joins, another has the tensor cores; but both
// take registers' bandwidth, so that every instruction of a score counts (power2.h).
//
// There are registers for the group of pages at hand only. What was joined before it waits in the
// workspace, and is read and written once a group.
namespace reprise::cuda {
namespace {

constexpr int kGroupThreads = 128;
constexpr int kGroupQueries = 64;
// Warpgroups that compute: as many as there are registers for.
template <int kHead>
constexpr int kGroups = kHead <= 128 ? 3 : 2;
template <int kHead>
constexpr int kThreads = (kGroups<kHead> + 1) * kGroupThreads;
template <int kHead>
constexpr int kQueries = kGroups<kHead>* kGroupQueries;
// Pages in shared memory.
template <int kHead>
constexpr int kStages = kHead <= 128 ? 4 : 2;

// Registers: what a copying thread gives up, computing ones take. Together they must not be more
// than the block began with (which is a multiple of 8 for all of its threads, and may be less than
// there are): who asks for more waits for ever.
template <KvType kStored, int kHead>
constexpr int kFewRegisters = kGroups<kHead> == 3 && kStored != KvType::kQ8 ? 32 : 40;
template <KvType kStored, int kHead>
constexpr int kManyRegisters = kGroups<kHead> == 2      ? 232
                               : kStored != KvType::kQ8 ? 160
                                                        : 152;
template <KvType kStored, int kHead>
constexpr bool kRegistersSuffice = kGroups<kHead>* kManyRegisters<kStored, kHead> +
                                       kFewRegisters<kStored, kHead> <=
                                   65536 / kThreads<kHead> / 8 * 8 * (kGroups<kHead> + 1);

template <KvType kStored, int kHead, int kValue>
struct Room {
  uint16_t q[kGroups<kHead>][kHead / 64][kTileValues];
  uint16_t k[kStages<kHead>][kHead / 64][kTileValues];
  uint16_t v[kStages<kHead>][kValue / 64][kTileValues];
  uint16_t ones[8 * 16];  // what sums of weights are products with
  uint64_t keys_full[kStages<kHead>];
  uint64_t keys_empty[kStages<kHead>];
  uint64_t values_full[kStages<kHead>];
  uint64_t values_empty[kStages<kHead>];
};

// With the next page as it is stored.
template <int kHead, int kValue>
struct Room<KvType::kQ8, kHead, kValue> : Room<KvType::kF16, kHead, kValue> {
  alignas(16) std::byte staged_keys[PartBytes(kHead)];
  alignas(16) std::byte staged_values[PartBytes(kValue)];
};

// Copies a page, of which rows [0, rows) are held; zeros from `width` on and in other rows.
template <int kWidth>
__device__ __forceinline__ void CopyPage(uint16_t* tiles, const uint16_t* from, int width,
                                         int rows) {
#pragma unroll 1
  for (int i = threadIdx.x % kGroupThreads; i < kKeys * (kWidth / 8); i += kGroupThreads) {
    const int row = i / (kWidth / 8);
    const int chunk = i % (kWidth / 8);
    const bool valid = row < rows && chunk * 8 < width;
    CopyAsync16(PlaceOf(tiles, row, chunk), valid ? from + row * width + chunk * 8 : from, valid);
  }
}

// Division of queries by the size of a group, exact while query * size < 2^32.
class Division {
 public:
  __device__ explicit Division(int size)
      : factor_(size == 1 ? 0 : 0xFFFFFFFFu / unsigned(size) + 1) {}
  __device__ int operator()(int query) const {
    return factor_ == 0 ? query : int(__umulhi(unsigned(query), factor_));
  }

 private:
  unsigned factor_;
};

// The queries of a warpgroup, rounded, by its threads.
template <Half kType, int kHead>
__device__ __forceinline__ void LoadQueries(const AttentionCall& call, const SequenceView& sequence,
                                            const QueryRange& range, int kv_head, int group,
                                            const Division& divide, uint16_t* tiles) {
  constexpr int kChunks = kHead / 8;
  constexpr int kRows = kGroupThreads / kChunks;
  constexpr int kAtOnce = std::min(8, kGroupQueries / kRows);  // are asked for together
  const int thread = threadIdx.x % kGroupThreads;
  const int first = thread / kChunks, chunk = thread % kChunks;
#pragma unroll 1
  for (int i = 0; i < kGroupQueries / kRows; i += kAtOnce) {
    float4 low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int query = range.begin + group * kGroupQueries + first + (i + n) * kRows;
      low[n] = high[n] = {};
      if (query < range.end && chunk * 8 < call.kv.head_dim) {
        const int of = divide(query);
        const int64_t row = sequence.row_begin + of;
        const int head = kv_head * call.group + query - of * call.group;
        const auto* from = reinterpret_cast<const float4*>(
            call.q.data + row * call.q.stride + int64_t{head} * call.kv.head_dim + chunk * 8);
        low[n] = from[0], high[n] = from[1];
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      *reinterpret_cast<uint4*>(PlaceOf(tiles, first + (i + n) * kRows, chunk)) =
          make_uint4(Pack2<kType>(low[n].x, low[n].y), Pack2<kType>(low[n].z, low[n].w),
                     Pack2<kType>(high[n].x, high[n].y), Pack2<kType>(high[n].z, high[n].w));
    }
  }
}

// 16 rows of a tile of values: K runs over its rows, eight of which are 1024 bytes.
__device__ __forceinline__ uint64_t ValueDescriptor(const uint16_t* rows) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  return uint64_t((SharedAddress(rows) & 0x3FFFF) >> 4) | kEightRows << 16 | kEightRows << 32 |
         uint64_t{1} << 62;
}

// 8 x 16 values that are all the same: how they lie does not matter.
__device__ __forceinline__ uint64_t OnesDescriptor(const uint16_t* ones) {
  constexpr uint64_t kMatrix = 128 >> 4;
  return uint64_t((SharedAddress(ones) & 0x3FFFF) >> 4) | kMatrix << 16 | kMatrix << 32;
}

// The pages that a block reads.
struct Pages {
  int begin;
  int end;
  int held;  // positions up to the last query
};

template <KvType kStored, int kHead, int kValue>
__device__ void CopyPages(const AttentionCall& call, const PageMaps& maps,
                          const SequenceView& sequence, const Pages& pages, int head,
                          Room<kStored, kHead, kValue>& room) {
  const uint32_t* blocks = call.step.blocks + sequence.block_begin;
  const bool one = threadIdx.x % kGroupThreads == 0;
  const int full = pages.held / kKeys;
  int stage = 0, parity = 1;
  int page = pages.begin;
#pragma unroll 1
  for (; page < full; ++page) {
    if (one) {
      const int id = static_cast<int>(blocks[page]);
      const auto copy = [&](const CUtensorMap& map, auto& tiles, uint64_t* barrier) {
        ExpectBytes(barrier, sizeof(tiles));
#pragma unroll
        for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); ++i) {
          CopyBox(SharedAddress(tiles[i]), &map, int(i) * 64, head * kKeys, id,
                  SharedAddress(barrier));
        }
      };
      WaitBarrier(&room.keys_empty[stage], parity);
      copy(maps.keys, room.k[stage], &room.keys_full[stage]);
      WaitBarrier(&room.values_empty[stage], parity);
      copy(maps.values, room.v[stage], &room.values_full[stage]);
    }
    if (++stage == kStages<kHead>) stage = 0, parity ^= 1;
  }
  if (page == pages.end) return;
  // The last page may not be full: what lies behind is anything, and counts as 0. It has its turn
  // when the others were asked for.
  __syncwarp();
  WarpgroupBarrier(1);
  const std::byte* block = call.step.block_memory + int64_t{blocks[page]} * call.step.block_bytes;
  const KvView& kv = call.kv;
  static_assert(kHead == kValue);
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const bool values = part == 1;
    WaitBarrier(values ? &room.values_empty[stage] : &room.keys_empty[stage], parity);
    const int width = values ? kv.value_dim : kv.head_dim;
    const auto* from =
        reinterpret_cast<const uint16_t*>(block + (values ? kv.v_offset : kv.k_offset));
    CopyPage<kHead>(values ? room.v[stage][0] : room.k[stage][0],
                    from + int64_t{head} * kKeys * width, width, pages.held - page * kKeys);
    CommitAsync();
    WaitAsync<0>();
    FenceCopies();
    WarpgroupBarrier(1);
    if (one) Arrive(values ? &room.values_full[stage] : &room.keys_full[stage]);
  }
}

// The same of pages of q8_0: the next one arrives while this one is widened.
template <int kHead, int kValue>
__device__ void WidenPages(const AttentionCall& call, const SequenceView& sequence,
                           const Pages& pages, int head, Room<KvType::kQ8, kHead, kValue>& room) {
  const KvView& kv = call.kv;
  const int thread = threadIdx.x % kGroupThreads;
  const auto part = [&](int page, int64_t offset, int channels) {
    const uint32_t id = call.step.blocks[sequence.block_begin + page];
    const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
    return CodesOfHead(block + offset, head, channels);
  };
  const auto stage_keys = [&](int page) {
    if (page < pages.end) {
      StagePart(room.staged_keys, part(page, kv.k_offset, kv.head_dim), kv.head_dim, thread,
                kGroupThreads);
    }
    CommitAsync();
  };
  const auto stage_values = [&](int page) {
    if (page < pages.end) {
      StagePart(room.staged_values, part(page, kv.v_offset, kv.value_dim), kv.value_dim, thread,
                kGroupThreads);
    }
    CommitAsync();
  };
  // What all threads of the group have copied is there for all, or was read by all.
  const auto together = [] { WarpgroupBarrier(1); };
  stage_keys(pages.begin);
  stage_values(pages.begin);
  for (int page = pages.begin; page < pages.end; ++page) {
    const int turn = page - pages.begin;
    const int stage = turn % kStages<kHead>;
    const int parity = turn / kStages<kHead> % 2 ^ 1;
    const int rows = min(kKeys, pages.held - page * kKeys);
    WarpWaitBarrier(&room.keys_empty[stage], parity);
    WaitAsync<1>();
    together();
    WidenPage<kHead>(room.k[stage][0], room.staged_keys, kv.head_dim, rows, thread, kGroupThreads);
    FenceCopies();
    Arrive(&room.keys_full[stage]);
    together();
    stage_keys(page + 1);
    WarpWaitBarrier(&room.values_empty[stage], parity);
    WaitAsync<1>();
    together();
    WidenPage<kValue>(room.v[stage][0], room.staged_values, kv.value_dim, rows, thread,
                      kGroupThreads);
    FenceCopies();
    Arrive(&room.values_full[stage]);
    together();
    stage_values(page + 1);
  }
}

enum class Rising { kNone, kSome };

// Joins channels 64 part .. of a page, of rows g + 8 h.
template <Rising kRising, int kValue>
__device__ __forceinline__ void JoinPart(int part, int h, const PageScores& fresh,
                                         const Joint& joint, Running<kValue>& running) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 2 * h; e < 2 * h + 2; ++e) {
      float& o = running.out[8 * part + j][e];
      o = kRising == Rising::kNone ? fmaf(fresh[j][e], joint.factor, o)
                                   : joint.Join(o, fresh[j][e]);
    }
  }
}

// reference::Sigmoid of some values, by a whole warp: the reciprocal of what is not almost infinite
// has no special cases.
template <int kCount>
__device__ __forceinline__ void Sigmoids(float (&x)[kCount]) {
  float y[kCount];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    y[i] = 1.0f + reference::Exp(-x[i]);
    largest = fmaxf(largest, y[i]);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(x[i]) : "f"(y[i]));
    x[i] = fmaf(x[i], fmaf(-y[i], x[i], 1.0f), x[i]);
  }
  if (__any_sync(~0u, largest > 0x1p126f)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = 1.0f / y[i];
  }
}

// The results of a warp's 16 queries, the first of which is `first`. They go through shared memory,
// eight at a time, so that a row's gates and results lie side by side and the code is a short loop.
template <int kValue>
__device__ __forceinline__ void StoreRows(const AttentionCall& call, const SequenceView& sequence,
                                          const QueryRange& range, int kv_head, int first,
                                          const Division& divide, const Running<kValue>& running,
                                          float* room) {
  constexpr int kFours = kValue / 4;                // of a row
  constexpr int kAtOnce = 4;                        // of a thread
  constexpr int kBatch = kAtOnce * kWarp / kFours;  // rows
  const int lane = threadIdx.x % kWarp;
  const bool gated = call.params.gate.data != nullptr;
  // Eights of a row lie in an order that depends on the row, so that no bank is met twice.
  const auto place = [&](int row, int eight) { return room + row * kValue + (eight ^ row) * 8; };
  // Where four channels of a query are in `view`; null where there are none.
  const auto find = [&](const View& view, int query, int channel) -> float4* {
    if (query >= range.end || channel >= call.kv.value_dim) return nullptr;
    const int of = divide(query);
    const int64_t head = kv_head * call.group + query - of * call.group;
    return reinterpret_cast<float4*>(view.data + (sequence.row_begin + of) * view.stride +
                                     head * call.kv.value_dim + channel);
  };
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float4 asked[kAtOnce];
    const auto ask = [&](int row) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = i * kWarp + lane;
        const float4* from =
            find(call.params.gate, first + 8 * h + row + at / kFours, at % kFours * 4);
        asked[i] = from == nullptr ? float4{} : *from;
      }
    };
    if (gated) ask(0);
    __syncwarp();
    if (first + 8 * h + lane / 4 < range.end && !IsFinite(running.top[h])) {
      Spoil(call.step, range.sequence);
    }
    float sum = running.sum[h];
    if (call.params.sinks != nullptr) {
      const int query = min(first + 8 * h + lane / 4, range.end - 1);
      const int head = kv_head * call.group + query - divide(query) * call.group;
      sum = WithSink(call.params, head, running.top[h], sum);
    }
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < kValue / 8; ++j) {
      *reinterpret_cast<float2*>(place(lane / 4, j) + lane % 4 * 2) = {
          running.out[j][2 * h] * inverse + 0.0f, running.out[j][2 * h + 1] * inverse + 0.0f};
    }
    __syncwarp();
#pragma unroll 1
    for (int row = 0; row < 8; row += kBatch) {
      float gates[kAtOnce][4];
      if (gated) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          gates[i][0] = asked[i].x, gates[i][1] = asked[i].y;
          gates[i][2] = asked[i].z, gates[i][3] = asked[i].w;
        }
        if (row + kBatch < 8) ask(row + kBatch);
        Sigmoids(reinterpret_cast<float(&)[kAtOnce * 4]>(gates));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = i * kWarp + lane;
        const int mine = row + at / kFours, four = at % kFours;
        float4 o = *reinterpret_cast<const float4*>(place(mine, four / 2) + four % 2 * 4);
        if (gated) {
          o = {gates[i][0] * o.x, gates[i][1] * o.y, gates[i][2] * o.z, gates[i][3] * o.w};
        }
        float4* to = find(call.out, first + 8 * h + mine, four * 4);
        if (to != nullptr) *to = o;
      }
    }
  }
}

// A warpgroup that computes: its queries against all pages, in order.
template <KvType kStored, int kHead, int kValue>
class Warpgroup {
 public:
  static constexpr Half kType = kHalfOf<kStored>;
  // As many sixteens of the queries' channels as there are registers for stay there: shared memory
  // has more to do.
  static constexpr int kHeld = kHead > 128 || kStored == KvType::kQ8 ? 0 : std::min(7, kHead / 16);
  static constexpr int kParts = kValue / 64;
  static constexpr int kTile = kTileValues * 2 >> 4;  // in descriptors

  __device__ Warpgroup(const AttentionCall& call, const SequenceView& sequence,
                       const QueryRange& range, const Pages& pages, int head, int group,
                       Room<kStored, kHead, kValue>& room)
      : call_(call),
        sequence_(sequence),
        range_(range),
        pages_(pages),
        head_(head),
        group_(group),
        room_(room),
        divide_(call.group) {}

  __device__ void Run() {
    LoadQueries<kType, kHead>(call_, sequence_, range_, head_, group_, divide_, room_.q[group_][0]);
    FenceCopies();
    WarpgroupBarrier(2 + group_);
    rows_ = RowsOfTile(call_, sequence_, range_, head_, int(threadIdx.x / kWarp));
    const int first = range_.begin + group_ * kGroupQueries;
    const int last = min(range_.end, first + kGroupQueries) - 1;
    const int last_position = EndSeen(call_, sequence_, divide_(last)) - 1;
    end_ = first <= last ? last_position / kKeys + 1 : pages_.begin;
    whole_ = CeilDiv(FirstSeen(call_.params, last_position), kKeys);
    whole_end_ = EndSeen(call_, sequence_, divide_(first)) / kKeys;
    queries_ = TileDescriptor(room_.q[group_][0]);
    const int lane = threadIdx.x % kWarp;
    const int warp = int(threadIdx.x % kGroupThreads) / kWarp;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      LoadMatrix4(held_[i],
                  PlaceOf(room_.q[group_][0], warp * kTileQueries + lane % 16, 2 * i + lane / 16));
    }
    JoinPages();
    if (end_ > pages_.begin && HasBefore(end_ - 1)) JoinBefore<false, false>();
    // Where the queries were there is room for half of the results. What was said about the
    // sequence is read again: meanwhile registers were scarce.
    WarpgroupBarrier(2 + group_);
    const SequenceView sequence = call_.step.sequences[range_.sequence];
    StoreRows(call_, sequence, range_, head_,
              range_.begin + group_ * kGroupQueries + warp * kTileQueries, Division(call_.group),
              running_, reinterpret_cast<float*>(room_.q[group_][0]) + warp * 8 * kValue);
  }

 private:
  __device__ __forceinline__ void Leave(uint64_t* barrier) {
    if (threadIdx.x % kWarp == 0) Arrive(barrier);
  }

  __device__ __forceinline__ void StartScores(int stage, PageScores& score) {
    const uint64_t keys = TileDescriptor(room_.k[stage][0]);
    WarpgroupFence();
#pragma unroll
    for (int chunk = 0; chunk < kHead / 64; ++chunk) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int on = chunk * kTile + 2 * k;
        if (4 * chunk + k < kHeld) {
          WarpgroupMmaRows64<kType, true>(reinterpret_cast<float(&)[32]>(score),
                                          held_[4 * chunk + k], keys + on, chunk == 0 && k == 0);
        } else {
          WarpgroupMma64<kType>(reinterpret_cast<float(&)[32]>(score), queries_ + on, keys + on,
                                chunk == 0 && k == 0);
        }
      }
    }
    WarpgroupCommit();
  }
  // Weights of a page times 1, and times 64 channels of its values.
  __device__ __forceinline__ void StartSums(const uint32_t (&p)[4][4], float (&sums)[4]) {
    const uint64_t ones = OnesDescriptor(room_.ones);
    WarpgroupFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) WarpgroupMmaRows8<kType>(sums, p[k], ones, k == 0);
  }
  __device__ __forceinline__ void StartValues(const uint32_t (&p)[4][4], uint64_t values,
                                              PageScores& fresh) {
    WarpgroupFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      WarpgroupMmaRows64<kType>(reinterpret_cast<float(&)[32]>(fresh), p[k],
                                values + k * (2048 >> 4), k == 0);
    }
    WarpgroupCommit();
  }

  __device__ __forceinline__ void WeighPage(int page, PageScores& score, float (&top)[2]) {
    if (page >= whole_ && page < whole_end_) {
      Weigh<true, false>(call_.params, rows_, page, score, top);
    } else {
      Weigh<false, false>(call_.params, rows_, page, score, top);
    }
  }

  // The group joins what was joined before it. kFirst: there is nothing. kStore: and more follow.
  template <bool kFirst, bool kStore>
  __device__ __forceinline__ void JoinBefore() {
    constexpr int kAtOnce = 8;  // are asked for together
    constexpr int kComputing = kGroups<kHead> * kGroupThreads;
    // A thread reads what it wrote itself, side by side with its neighbours': values, then tops and
    // sums.
    float4* const before = reinterpret_cast<float4*>(call_.left.out) +
                           int64_t{blockIdx.x} * (kValue / 8 + 1) * kComputing + threadIdx.x;
    float4& marks = before[kValue / 8 * kComputing];
    const float4 mark = kFirst ? make_float4(kMinusInfinity, kMinusInfinity, 0, 0) : marks;
    const Joint joint[2] = {JointOf(mark.x, running_.top[0]), JointOf(mark.y, running_.top[1])};
    running_.sum[0] = joint[0].Join(mark.z, running_.sum[0]);
    running_.sum[1] = joint[1].Join(mark.w, running_.sum[1]);
    if (!joint[0].rises) running_.top[0] = mark.x;
    if (!joint[1].rises) running_.top[1] = mark.y;
    if (kStore) {
      marks = make_float4(running_.top[0], running_.top[1], running_.sum[0], running_.sum[1]);
    }
#pragma unroll
    for (int first = 0; first < kValue / 8; first += kAtOnce) {
      float4 x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        x[i] = kFirst ? float4{} : before[(first + i) * kComputing];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        float(&group)[4] = running_.out[first + i];
        group[0] = joint[0].Join(x[i].x, group[0]), group[1] = joint[0].Join(x[i].y, group[1]);
        group[2] = joint[1].Join(x[i].z, group[2]), group[3] = joint[1].Join(x[i].w, group[3]);
        if (kStore) {
          before[(first + i) * kComputing] = make_float4(group[0], group[1], group[2], group[3]);
        }
      }
    }
  }
  __device__ __forceinline__ bool HasBefore(int page) const {
    return page / kGroupPages > pages_.begin / kGroupPages;
  }
  // The group is complete, and more follow: it joins those before it, and the next one begins.
  __device__ __forceinline__ void EndGroup(int page) {
    if (HasBefore(page)) {
      JoinBefore<false, true>();
    } else {
      JoinBefore<true, true>();
    }
    running_ = {};
  }

  __device__ __forceinline__ void JoinPages() {
    // Where there are registers for it, 64 channels are joined while the next are computed.
    constexpr int kAhead = kGroups<kHead> == 2 ? 1 : 0;
    int stage = 0, parity = 0;
    for (int page = pages_.begin; page < pages_.end; ++page) {
      WarpWaitBarrier(&room_.keys_full[stage], parity);
      if (page < end_) {
        PageScores score;
        StartScores(stage, score);
        WarpgroupWait<0>();
        Leave(&room_.keys_empty[stage]);
        float top[2];
        WeighPage(page, score, top);
        uint32_t p[4][4];
        PackWeights<kType>(score, p);
        Joint joint[2];
        JoinTops(top, running_, joint);
        // Most pages of a long context hold nobody's largest score, and some that of few rows.
        const bool rising[2] = {__any_sync(~0u, joint[0].rises) != 0,
                                __any_sync(~0u, joint[1].rises) != 0};
        WarpWaitBarrier(&room_.values_full[stage], parity);
        float sums[4];
        PageScores fresh[1 + kAhead];
        const uint64_t values = ValueDescriptor(room_.v[stage][0]);
        StartSums(p, sums);
        if (kAhead == 1) StartValues(p, values, fresh[0]);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const int next = part + kAhead;
          if (next < kParts) StartValues(p, values + next * kTile, fresh[next % (1 + kAhead)]);
          if (next < kParts) {
            WarpgroupWait<kAhead>();
          } else {
            WarpgroupWait<0>();
          }
          const PageScores& done = fresh[part % (1 + kAhead)];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            if (rising[h]) {
              JoinPart<Rising::kSome>(part, h, done, joint[h], running_);
            } else {
              JoinPart<Rising::kNone>(part, h, done, joint[h], running_);
            }
          }
        }
        running_.sum[0] = joint[0].Join(running_.sum[0], sums[0]);
        running_.sum[1] = joint[1].Join(running_.sum[1], sums[2]);
        if ((page + 1) % kGroupPages == 0 && page + 1 < end_) EndGroup(page);
      } else {
        Leave(&room_.keys_empty[stage]);
        WarpWaitBarrier(&room_.values_full[stage], parity);
      }
      Leave(&room_.values_empty[stage]);
      if (++stage == kStages<kHead>) stage = 0, parity ^= 1;
    }
  }

  const AttentionCall& call_;
  const SequenceView& sequence_;
  const QueryRange& range_;
  const Pages& pages_;
  const int head_;
  const int group_;
  Room<kStored, kHead, kValue>& room_;
  const Division divide_;
  TileRows rows_;
  int end_;    // behind the last page that a query of this warpgroup sees
  int whole_;  // pages [whole_, whole_end_) all of them see from end to end
  int whole_end_;
  uint64_t queries_;
  uint32_t held_[kHeld + 1][4];
  Running<kValue> running_;
};

template <KvType kStored, int kHead, int kValue>
__global__ void __launch_bounds__(kThreads<kHead>, 1)
    ManyQueries(const __grid_constant__ AttentionCall call, const __grid_constant__ PageMaps maps) {
  if (!kForWgmma) return;
  extern __shared__ __align__(1024) std::byte shared[];
  auto& room = *reinterpret_cast<Room<kStored, kHead, kValue>*>(shared);
  WaitForInputs();
  LetNextStart();
  // The last parts of a prompt have the most pages: they come first, of all heads.
  const int heads = call.kv.kv_heads;
  const int index = static_cast<int>((gridDim.x - 1 - blockIdx.x) / heads);
  const int head = static_cast<int>(blockIdx.x % heads);
  const QueryRange range = FindQueries(call.step, call.group, kQueries<kHead>, index);
  if (range.sequence < 0) return;
  const SequenceView sequence = call.step.sequences[range.sequence];
  if (threadIdx.x < 8 * 16) {
    room.ones[threadIdx.x] = kHalfOf<kStored> == Half::kBF16 ? 0x3F80 : 0x3C00;
    FenceCopies();
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kHead>; ++i) {
      constexpr int kCopied = kStored == KvType::kQ8 ? kGroupThreads : 1;
      InitBarrier(&room.keys_full[i], kCopied);
      InitBarrier(&room.values_full[i], kCopied);
      InitBarrier(&room.keys_empty[i], kGroups<kHead> * kGroupThreads / kWarp);
      InitBarrier(&room.values_empty[i], kGroups<kHead> * kGroupThreads / kWarp);
    }
    FenceBarriers();
  }
  __syncthreads();
  const int last = EndSeen(call, sequence, (range.end - 1) / call.group) - 1;
  const int first = FirstSeen(call.params, sequence.position + range.begin / call.group);
  const Pages pages{first / kKeys, last / kKeys + 1, last + 1};
  // Said by one thread for all, so that the compiler knows that no warp is divided here.
  const int group = __shfl_sync(~0u, threadIdx.x / kGroupThreads, 0);
  if (group == kGroups<kHead>) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFewRegisters<kStored, kHead>));
    if constexpr (kStored == KvType::kQ8) {
      WidenPages(call, sequence, pages, head, room);
    } else {
      CopyPages(call, maps, sequence, pages, head, room);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kManyRegisters<kStored, kHead>));
    Warpgroup<kStored, kHead, kValue>(call, sequence, range, pages, head, group, room).Run();
  }
}

// Parts of `size` queries. Every sequence may end inside a part.
int64_t PartsOfQueries(const AttentionCall& call, int size) {
  const int64_t queries = int64_t{call.step.rows} * call.group;
  return std::min(queries, CeilDiv<int64_t>(queries, size) + call.step.sequence_count);
}

template <KvType kStored, int kHead, int kValue>
void Launch(Stream stream, const AttentionCall& call) {
  const auto kernel = ManyQueries<kStored, kHead, kValue>;
  constexpr size_t kShared = sizeof(Room<kStored, kHead, kValue>);
  static_assert(kShared <= 227 << 10);
  static_assert(kRegistersSuffice<kStored, kHead>);
  const int64_t parts = PartsOfQueries(call, kQueries<kHead>);
  const PageMaps maps = kStored != KvType::kQ8 ? MapsOf(call) : PageMaps{};
  LaunchEarly(kernel, dim3(unsigned(parts * call.kv.kv_heads)), kThreads<kHead>, kShared, stream,
              call, maps);
}

template <KvType kStored>
void LaunchByShape(Stream stream, const AttentionCall& call) {
  const int dim = std::max(call.kv.head_dim, call.kv.value_dim);
  if (dim <= 64) return Launch<kStored, 64, 64>(stream, call);
  if (dim <= 128) return Launch<kStored, 128, 128>(stream, call);
  Launch<kStored, 256, 256>(stream, call);
}

}  // namespace

bool HasManyQueries(const AttentionCall& call) {
  const KvView& kv = call.kv;
  const int chunk = kv.type == KvType::kQ8 ? 16 : 8;  // channels that are copied together
  const bool shaped = kv.head_dim <= 256 && kv.value_dim <= 256 && kv.head_dim % chunk == 0 &&
                      kv.value_dim % chunk == 0 && !kv.value_in_key && kv.type != KvType::kF32 &&
                      call.params.softcap == 0 &&
                      (call.params.ends == nullptr || call.params.window == 0);
  const View& gate = call.params.gate;
  const bool aligned = Aligned16(call.q.data, call.q.stride) &&
                       Aligned16(call.out.data, call.out.stride) &&
                       (gate.data == nullptr || Aligned16(gate.data, gate.stride));
  return shaped && aligned && ThisGpu().wgmma &&
         int64_t{call.step.rows} * call.group >= int64_t{kGroupQueries} * call.step.sequence_count;
}

size_t ManyWorkspace(const AttentionCall& call) {
  const int dim = std::max(call.kv.head_dim, call.kv.value_dim);
  const auto floats = [&](int queries, int channels) {
    return PartsOfQueries(call, queries) * call.kv.kv_heads * queries * (channels + 8);
  };
  return sizeof(float) * size_t(dim <= 64    ? floats(kQueries<64>, 64)
                                : dim <= 128 ? floats(kQueries<128>, 128)
                                             : floats(kQueries<256>, 256));
}

void AttendMany(Stream stream, const AttentionCall& call) {
  const auto launch = call.kv.type == KvType::kF16    ? LaunchByShape<KvType::kF16>
                      : call.kv.type == KvType::kBF16 ? LaunchByShape<KvType::kBF16>
                                                      : LaunchByShape<KvType::kQ8>;
  launch(stream, call);
}

}  // namespace reprise::cuda
