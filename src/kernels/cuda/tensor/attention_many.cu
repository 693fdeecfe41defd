// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/tensor/attention.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/kv_q8.cuh"

// Attention of many queries: two or three warpgroups have 64 queries each and read pages that one
// more copies, a page ahead. Scores are 64 x 64 products from shared memory; weights stay in
// registers as the left operand of products with 64 channels of the values at a time. While one
// warpgroup weighs or joins, another has the tensor cores.
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
constexpr int kStages = 2;
constexpr int kTileValues = 64 * 64;  // rows of 64 values, swizzled by 128 bytes

// Registers: what a copying thread gives up, computing ones take.
template <int kHead>
constexpr int kFewRegisters = kHead <= 128 ? 56 : 40;
template <int kHead>
constexpr int kManyRegisters = kHead <= 128 ? 152 : 232;

template <KvType kStored, int kHead, int kValue>
struct Room {
  uint16_t q[kGroups<kHead>][kHead / 64][kTileValues];
  uint16_t k[kStages][kHead / 64][kTileValues];
  uint16_t v[kStages][kValue / 64][kTileValues];
  uint64_t keys_full[kStages];
  uint64_t values_full[kStages];
  uint64_t empty[kStages];
};

// With the next page as it is stored.
template <int kHead, int kValue>
struct Room<KvType::kQ8, kHead, kValue> : Room<KvType::kF16, kHead, kValue> {
  alignas(16) std::byte staged_keys[PartBytes(kHead)];
  alignas(16) std::byte staged_values[PartBytes(kValue)];
};

// The place of 8 values, chunk `chunk` of a row of kWidth, in tiles of 64 x 64.
__device__ __forceinline__ uint16_t* PlaceOf(uint16_t* tiles, int row, int chunk) {
  return tiles + chunk / 8 * kTileValues + row * 64 + ((chunk % 8) ^ (row % 8)) * 8;
}

// Copies rows [0, 64) of a page; zeros from `width` on and in rows that are not held yet.
template <int kWidth>
__device__ __forceinline__ void CopyPage(uint16_t* tiles, const uint16_t* from, int width,
                                         int rows) {
#pragma unroll 4
  for (int i = threadIdx.x % kGroupThreads; i < kKeys * (kWidth / 8); i += kGroupThreads) {
    const int row = i / (kWidth / 8);
    const int chunk = i % (kWidth / 8);
    const bool valid = row < rows && chunk * 8 < width;
    CopyAsync16(PlaceOf(tiles, row, chunk), valid ? from + row * width + chunk * 8 : from, valid);
  }
}

// The same of a page of q8_0 that lies in shared memory, `staged`.
template <int kWidth>
__device__ __forceinline__ void WidenPage(uint16_t* tiles, const std::byte* staged, int width,
                                          int rows) {
  constexpr int kChunks = kWidth / 16;
#pragma unroll 1
  for (int i = threadIdx.x % kGroupThreads; i < kKeys * kChunks; i += kGroupThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const CodesOf16 read = row < rows ? ReadCodes(staged, width, row, 16 * chunk) : CodesOf16{};
    Widen(read, [&](int half, uint4 eight) {
      *reinterpret_cast<uint4*>(PlaceOf(tiles, row, 2 * chunk + half)) = eight;
    });
  }
}

// All queries of the block, rounded, by all threads.
template <Half kType, int kHead>
__device__ void LoadQueries(const AttentionCall& call, const SequenceView& sequence,
                            const QueryRange& range, int kv_head, uint16_t* to) {
  for (int i = threadIdx.x; i < kQueries<kHead> * (kHead / 8); i += kThreads<kHead>) {
    const int place = i / (kHead / 8);
    const int chunk = i % (kHead / 8);
    const int query = range.begin + place;
    float4 low = {}, high = {};
    if (query < range.end && chunk * 8 < call.kv.head_dim) {
      const int64_t row = sequence.row_begin + query / call.group;
      const int head = kv_head * call.group + query % call.group;
      const auto* from = reinterpret_cast<const float4*>(
          call.q.data + row * call.q.stride + int64_t{head} * call.kv.head_dim + chunk * 8);
      low = from[0], high = from[1];
    }
    uint16_t* tiles = to + place / kGroupQueries * (kHead / 64) * kTileValues;
    *reinterpret_cast<uint4*>(PlaceOf(tiles, place % kGroupQueries, chunk)) =
        make_uint4(Pack2<kType>(low.x, low.y), Pack2<kType>(low.z, low.w),
                   Pack2<kType>(high.x, high.y), Pack2<kType>(high.z, high.w));
  }
}

// 16 rows of a tile of values: K runs over its rows, eight of which are 1024 bytes.
__device__ __forceinline__ uint64_t ValueDescriptor(const uint16_t* rows) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  return uint64_t((SharedAddress(rows) & 0x3FFFF) >> 4) | kEightRows << 16 | kEightRows << 32 |
         uint64_t{1} << 62;
}

// The pages that a block reads.
struct Pages {
  int begin;
  int end;
  int held;  // positions up to the last query
};

template <KvType kStored, int kHead, int kValue>
__device__ void CopyPages(const AttentionCall& call, const SequenceView& sequence,
                          const Pages& pages, int head, Room<kStored, kHead, kValue>& room) {
  const KvView& kv = call.kv;
  for (int page = pages.begin; page < pages.end; ++page) {
    const int turn = page - pages.begin;
    const int stage = turn % kStages;
    WarpWaitBarrier(&room.empty[stage], turn / kStages % 2 ^ 1);
    const uint32_t id = call.step.blocks[sequence.block_begin + page];
    const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
    const int rows = min(kKeys, pages.held - page * kKeys);
    CopyPage<kHead>(room.k[stage][0],
                    reinterpret_cast<const uint16_t*>(block + kv.k_offset) +
                        int64_t{head} * kKeys * kv.head_dim,
                    kv.head_dim, rows);
    CommitAsync();
    CopyPage<kValue>(room.v[stage][0],
                     reinterpret_cast<const uint16_t*>(block + kv.v_offset) +
                         int64_t{head} * kKeys * kv.value_dim,
                     kv.value_dim, rows);
    CommitAsync();
    WaitAsync<1>();
    FenceCopies();
    Arrive(&room.keys_full[stage]);
    WaitAsync<0>();
    FenceCopies();
    Arrive(&room.values_full[stage]);
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
    const int stage = turn % kStages;
    const int rows = min(kKeys, pages.held - page * kKeys);
    WarpWaitBarrier(&room.empty[stage], turn / kStages % 2 ^ 1);
    WaitAsync<1>();
    together();
    WidenPage<kHead>(room.k[stage][0], room.staged_keys, kv.head_dim, rows);
    FenceCopies();
    Arrive(&room.keys_full[stage]);
    together();
    stage_keys(page + 1);
    WaitAsync<1>();
    together();
    WidenPage<kValue>(room.v[stage][0], room.staged_values, kv.value_dim, rows);
    FenceCopies();
    Arrive(&room.values_full[stage]);
    together();
    stage_values(page + 1);
  }
}

// Joins channels 64 part .. of a page. What was there before the first page is 0, with factor 1.
template <bool kAll, int kValue>
__device__ __forceinline__ void JoinPart(const PageSoftmax& page, int part, const PageScores& fresh,
                                         const float (&before)[2], const float (&after)[2],
                                         Running<kValue>& running) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int h = e / 2;
      float& o = running.out[8 * part + j][e];
      const float joined = fmaf(o, before[h], fresh[j][e] * after[h]);
      o = kAll || page.any[h] ? joined : o;
    }
  }
}

// Weights of a page times all its values, 64 channels at a time.
template <Half kType, bool kAll, int kValue>
__device__ __forceinline__ void JoinValues(const PageSoftmax& page, const uint32_t (&p)[4][4],
                                           const uint16_t (&tiles)[kValue / 64][kTileValues],
                                           const float (&before)[2], const float (&after)[2],
                                           Running<kValue>& running) {
#pragma unroll
  for (int part = 0; part < kValue / 64; ++part) {
    PageScores fresh;
    const uint64_t values = ValueDescriptor(tiles[part]);
    WarpgroupFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      WarpgroupMmaRows64<kType>(reinterpret_cast<float(&)[32]>(fresh), p[k],
                                values + k * (2048 >> 4), k == 0);
    }
    WarpgroupCommit();
    WarpgroupWait<0>();
    JoinPart<kAll>(page, part, fresh, before, after, running);
  }
}

template <KvType kStored, int kHead, int kValue>
__device__ void Compute(const AttentionCall& call, const SequenceView& sequence,
                        const QueryRange& range, const Pages& pages, int head, int group,
                        Room<kStored, kHead, kValue>& room) {
  constexpr Half kType = kHalfOf<kStored>;
  const int tile = threadIdx.x / kWarp;
  const TileRows rows = RowsOfTile(call, sequence, range, head, tile);
  Running<kValue> running;
#pragma unroll
  for (int i = 0; i < kValue / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) running.out[i][e] = 0.0f;
  }
  for (int page = pages.begin; page < pages.end; ++page) {
    const int turn = page - pages.begin;
    const int stage = turn % kStages;
    const int parity = turn / kStages % 2;
    PageScores score;
    WarpWaitBarrier(&room.keys_full[stage], parity);
    WarpgroupFence();
#pragma unroll
    for (int chunk = 0; chunk < kHead / 64; ++chunk) {
      const uint64_t a = TileDescriptor(room.q[group][chunk]);
      const uint64_t b = TileDescriptor(room.k[stage][chunk]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        WarpgroupMma64<kType>(reinterpret_cast<float(&)[32]>(score), a + 2 * k, b + 2 * k,
                              chunk == 0 && k == 0);
      }
    }
    WarpgroupCommit();
    WarpgroupWait<0>();
    bool all = true;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      all = all && rows.position[h] >= (page + 1) * kKeys - 1 &&
            FirstSeen(call.params, rows.position[h]) <= page * kKeys;
    }
    all = __all_sync(~0u, all);
    const auto join = [&](auto whole) {
      constexpr bool kAll = decltype(whole)::value;
      const PageSoftmax softmax = Weigh<kAll, false>(call.params, rows, page, score);
      float before[2], after[2];
      JoinSums(softmax, running, before, after);
      uint32_t p[4][4];
      PackWeights<kType>(score, p);
      WarpWaitBarrier(&room.values_full[stage], parity);
      JoinValues<kType, kAll>(softmax, p, room.v[stage], before, after, running);
      running.seen[0] = running.seen[0] || softmax.any[0];
      running.seen[1] = running.seen[1] || softmax.any[1];
    };
    if (all) {
      join(std::true_type{});
    } else {
      join(std::false_type{});
    }
    if (threadIdx.x % kWarp == 0) Arrive(&room.empty[stage]);
  }
  StoreResult(call, rows, 0, running);
}

template <KvType kStored, int kHead, int kValue>
__global__ void __launch_bounds__(kThreads<kHead>, 1)
    ManyQueries(const __grid_constant__ AttentionCall call) {
  if (!kForHopper) return;
  constexpr Half kType = kHalfOf<kStored>;
  extern __shared__ __align__(1024) std::byte shared[];
  auto& room = *reinterpret_cast<Room<kStored, kHead, kValue>*>(shared);
  WaitForInputs();
  LetNextStart();
  // The last parts of a prompt have the most pages: they come first.
  const int index = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const QueryRange range = FindQueries(call.step, call.group, kQueries<kHead>, index);
  if (range.sequence < 0) return;
  const SequenceView sequence = call.step.sequences[range.sequence];
  const int head = blockIdx.y;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&room.keys_full[i], kGroupThreads);
      InitBarrier(&room.values_full[i], kGroupThreads);
      InitBarrier(&room.empty[i], kGroups<kHead> * kGroupThreads / kWarp);
    }
  }
  LoadQueries<kType, kHead>(call, sequence, range, head, room.q[0][0]);
  FenceCopies();
  __syncthreads();
  const int last = sequence.position + (range.end - 1) / call.group;
  const int first = FirstSeen(call.params, sequence.position + range.begin / call.group);
  const Pages pages{first / kKeys, last / kKeys + 1, last + 1};
  // Said by one thread for all, so that the compiler knows that no warp is divided here.
  const int group = __shfl_sync(~0u, threadIdx.x / kGroupThreads, 0);
  if (group == kGroups<kHead>) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFewRegisters<kHead>));
    if constexpr (kStored == KvType::kQ8) {
      WidenPages(call, sequence, pages, head, room);
    } else {
      CopyPages(call, sequence, pages, head, room);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kManyRegisters<kHead>));
    Compute(call, sequence, range, pages, head, group, room);
  }
}

template <KvType kStored, int kHead, int kValue>
void Launch(Stream stream, const AttentionCall& call) {
  const auto kernel = ManyQueries<kStored, kHead, kValue>;
  constexpr size_t kShared = sizeof(Room<kStored, kHead, kValue>);
  static_assert(kShared <= 227 << 10);
  static const bool allowed = (AllowShared(kernel, kShared), true);
  (void)allowed;
  // Every sequence may end inside a part.
  const int64_t queries = int64_t{call.step.rows} * call.group;
  const int64_t parts =
      std::min(queries, CeilDiv<int64_t>(queries, kQueries<kHead>) + call.step.sequence_count);
  LaunchEarly(kernel, dim3(unsigned(parts), unsigned(call.kv.kv_heads)), kThreads<kHead>, kShared,
              stream, call);
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
                      call.params.softcap == 0;
  const bool aligned = Aligned16(call.q.data, call.q.stride);
  return shaped && aligned && ThisGpu().hopper &&
         int64_t{call.step.rows} * call.group >= int64_t{kGroupQueries} * call.step.sequence_count;
}

void AttendMany(Stream stream, const AttentionCall& call) {
  const auto launch = call.kv.type == KvType::kF16    ? LaunchByShape<KvType::kF16>
                      : call.kv.type == KvType::kBF16 ? LaunchByShape<KvType::kBF16>
                                                      : LaunchByShape<KvType::kQ8>;
  launch(stream, call);
}

}  // namespace reprise::cuda
