// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/keep.h"
#include "kernels/cuda/tensor/attention/kv_q8.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/reference/math.h"

// Weights of keys in three kernels: the softmax of every query over every page alone; its maximum
// and sum over all of them, in order; then, for every key, what it weighs with all queries, in
// order. Scores are computed twice: [queries, keys] of a long prompt are too many to keep.
namespace reprise::cuda {
namespace {

constexpr int kKeys = 64;      // of a page
constexpr int kTile = 32;      // queries
constexpr int kThreads = 256;  // 8 warps: of 4 queries each, a thread has two keys
constexpr int kWarpQueries = kTile / (kThreads / 32);
constexpr int kChannels = 128;             // at a time
constexpr int kKeyStride = kChannels + 1;  // neighbouring keys in neighbouring banks

struct Scoring {
  KvView kv;
  int group;  // query heads of a K/V head
  float scale;
  float softcap;
  ScoredView rows;
  const uint32_t* blocks;  // of the sequence
  const std::byte* block_memory;
  int64_t block_bytes;
  int pages;

  __host__ __device__ int queries() const { return rows.row_count * group; }
};

// Channel `channel` of row `row` of a head, whose keys begin at `base`.
__device__ float Element(KvType type, const std::byte* base, int channels, int row, int channel) {
  const int64_t index = int64_t{row} * channels + channel;
  if (type == KvType::kQ8) {
    const int64_t scale = row * KvGroups(channels) + channel / kKvGroup;
    return ElementOfQ8(ScalesOfHead(base, channels)[scale], static_cast<int8_t>(base[index]));
  }
  if (type == KvType::kF32) return reinterpret_cast<const float*>(base)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(base)[index];
  return type == KvType::kF16 ? __half2float(__ushort_as_half(bits))
                              : __uint_as_float(uint32_t{bits} << 16);
}

// All rows of a head lie together.
__host__ __device__ int64_t HeadBytes(KvType type, int channels) {
  const DType dtype = type == KvType::kF32  ? DType::kF32
                      : type == KvType::kQ8 ? DType::kQ8_0
                                            : DType::kF16;
  return kKeys * int64_t(KvRowBytes(dtype, channels));
}

// Channels [first, first + count) of a page's keys, and of the queries of a tile.
__device__ void LoadKeys(const Scoring& call, int kv_head, int page, int first, int count,
                         float* keys) {
  const std::byte* base = call.block_memory + int64_t{call.blocks[page]} * call.block_bytes +
                          call.kv.k_offset + kv_head * HeadBytes(call.kv.type, call.kv.head_dim);
  for (int i = threadIdx.x; i < kKeys * count; i += kThreads) {
    const int key = i / count, channel = i % count;
    keys[key * kKeyStride + channel] =
        Element(call.kv.type, base, call.kv.head_dim, key, first + channel);
  }
}

__device__ void LoadQueries(const Scoring& call, int kv_head, int begin, int first, int count,
                            float* queries) {
  for (int i = threadIdx.x; i < kTile * count; i += kThreads) {
    const int query = begin + i / count, channel = i % count;
    float x = 0;
    if (query < call.queries()) {
      const int64_t row = call.rows.row_begin + query / call.group;
      const int64_t head = int64_t{kv_head} * call.group + query % call.group;
      x = call.rows.q.data[row * call.rows.q.stride + head * call.kv.head_dim + first + channel];
    }
    queries[i / count * kChannels + channel] = x * call.scale;
  }
}

// Keys [0, seen) of the page are seen by the query.
__device__ int Seen(const Scoring& call, int query, int page) {
  const int position = call.rows.position + query / call.group;
  return min(max(position + 1 - page * kKeys, 0), kKeys);
}

struct Shared {
  float keys[kKeys * kKeyStride];
  float queries[kTile * kChannels];
};

// Scores of the warp's queries of the tile at `begin` with keys `lane` and `lane` + 32. All threads
// of the block call; keys of few channels stay from one tile to the next.
__device__ void Score(const Scoring& call, int kv_head, int page, int begin, bool keys_are_there,
                      Shared* shared, float (&scores)[kWarpQueries][2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* q = shared->queries + warp * kWarpQueries * kChannels;
  const float* k0 = shared->keys + lane * kKeyStride;
  const float* k1 = k0 + 32 * kKeyStride;
#pragma unroll
  for (int i = 0; i < kWarpQueries; ++i) scores[i][0] = scores[i][1] = 0;
  for (int first = 0; first < call.kv.head_dim; first += kChannels) {
    const int count = min(kChannels, call.kv.head_dim - first);
    __syncthreads();
    if (!keys_are_there || call.kv.head_dim > kChannels) {
      LoadKeys(call, kv_head, page, first, count, shared->keys);
    }
    LoadQueries(call, kv_head, begin, first, count, shared->queries);
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < count; ++c) {
      const float a = k0[c], b = k1[c];
#pragma unroll
      for (int i = 0; i < kWarpQueries; ++i) {
        const float x = q[i * kChannels + c];
        scores[i][0] = fmaf(x, a, scores[i][0]);
        scores[i][1] = fmaf(x, b, scores[i][1]);
      }
    }
  }
  if (call.softcap == 0) return;
#pragma unroll
  for (int i = 0; i < kWarpQueries; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      scores[i][h] = call.softcap * reference::Tanh(scores[i][h] / call.softcap);
    }
  }
}

// sums: [kv_heads, pages, queries] of (maximum, sum).
__global__ void __launch_bounds__(kThreads) PageSums(Scoring call, float2* sums) {
  extern __shared__ float memory[];
  Shared* const shared = reinterpret_cast<Shared*>(memory);
  const int page = blockIdx.x, kv_head = blockIdx.y;
  const int begin = blockIdx.z * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float scores[kWarpQueries][2];
  Score(call, kv_head, page, begin, false, shared, scores);
  float2* out = sums + (int64_t{kv_head} * call.pages + page) * call.queries();
#pragma unroll
  for (int i = 0; i < kWarpQueries; ++i) {
    const int query = begin + warp * kWarpQueries + i;
    const int seen = query < call.queries() ? Seen(call, query, page) : 0;
    float most = -INFINITY;
    if (lane < seen) most = scores[i][0];
    if (lane + 32 < seen && scores[i][1] > most) most = scores[i][1];
    for (int half = 16; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(kFullWarp, most, half);
      most = other > most ? other : most;
    }
    const float low = lane < seen ? reference::Exp(scores[i][0] - most) : 0;
    const float high = lane + 32 < seen ? reference::Exp(scores[i][1] - most) : 0;
    // Lane l of the sum has keys l, l + 16, l + 32, l + 48, in this order.
    const float next_low = __shfl_xor_sync(kFullWarp, low, 16);
    const float next_high = __shfl_xor_sync(kFullWarp, high, 16);
    const float first = lane < 16 ? low : next_low, second = lane < 16 ? next_low : low;
    const float third = lane < 16 ? high : next_high, fourth = lane < 16 ? next_high : high;
    const float sum = SumLanes(((first + second) + third) + fourth);
    if (lane == 0 && query < call.queries()) out[query] = make_float2(most, seen > 0 ? sum : 0);
  }
}

// whole: [kv_heads, queries] of (maximum, 1 / sum).
__global__ void JoinSums(Scoring call, const float2* sums, float2* whole) {
  const int query = blockIdx.x * blockDim.x + threadIdx.x, kv_head = blockIdx.y;
  if (query >= call.queries()) return;
  const float2* pages = sums + int64_t{kv_head} * call.pages * call.queries() + query;
  float2 all = pages[0];  // every query sees the first key
  int next = 1;
  if (call.rows.sinks != nullptr) {
    all = make_float2(call.rows.sinks[kv_head * call.group + query % call.group], 1);
    next = 0;
  }
  for (int page = next; page < call.pages; ++page) {
    const float2 one = pages[int64_t{page} * call.queries()];
    if (one.y == 0) continue;
    const float most = one.x > all.x ? one.x : all.x;
    const float a = reference::Exp(all.x - most), b = reference::Exp(one.x - most);
    all = make_float2(most, fmaf(all.y, a, one.y * b));
  }
  whole[int64_t{kv_head} * call.queries() + query] = make_float2(all.x, 1.0f / all.y);
}

__global__ void __launch_bounds__(kThreads) WeighKeys(Scoring call, const float2* whole) {
  extern __shared__ float memory[];
  Shared* const shared = reinterpret_cast<Shared*>(memory);
  float* const parts = memory + sizeof(Shared) / sizeof(float);  // [kTile, kKeys]
  const int page = blockIdx.x, kv_head = blockIdx.y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t key = int64_t{page} * kKeys + threadIdx.x;
  const bool mine = threadIdx.x < kKeys && key < call.rows.position + call.rows.row_count;
  float* const out = call.rows.weights + kv_head * call.rows.stride + key;
  float weight = mine ? *out : 0;
  for (int begin = 0; begin < call.queries(); begin += kTile) {
    float scores[kWarpQueries][2];
    Score(call, kv_head, page, begin, begin > 0, shared, scores);
#pragma unroll
    for (int i = 0; i < kWarpQueries; ++i) {
      const int query = min(begin + warp * kWarpQueries + i, call.queries() - 1);
      const float2 all = whole[int64_t{kv_head} * call.queries() + query];
      float* row = parts + (warp * kWarpQueries + i) * kKeys;
      row[lane] = reference::Exp(scores[i][0] - all.x) * all.y;
      row[lane + 32] = reference::Exp(scores[i][1] - all.x) * all.y;
    }
    __syncthreads();
    if (!mine) continue;
    const int count = min(kTile, call.queries() - begin);
    for (int i = 0; i < count; ++i) {
      if (threadIdx.x < Seen(call, begin + i, page))
        weight = weight + parts[i * kKeys + threadIdx.x];
    }
  }
  if (mine) *out = weight;
}

// Columns of `Chunk` of the rows of one head, K or V, 64 rows at a time: all are read before any is
// written, and row i comes from row i or a later one, so that blocks may stay where they are.
template <typename Chunk>
__global__ void __launch_bounds__(kThreads)
    MoveRows(KeptView kept, int64_t offset, int64_t head_bytes, int64_t row_chunks) {
  constexpr int kColumns = kThreads / kKeys;
  const int slot = threadIdx.x / kColumns;
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x % kColumns;
  const int64_t head = blockIdx.y;
  const auto at = [&](const uint32_t* ids, int64_t row) {
    std::byte* block = kept.block_memory + int64_t{ids[row / kKeys]} * kept.block_bytes + offset +
                       head * head_bytes;
    return reinterpret_cast<Chunk*>(block) + row % kKeys * row_chunks + column;
  };
  for (int64_t begin = 0; begin < kept.count; begin += kKeys) {
    const bool moves = begin + slot < kept.count && column < row_chunks;
    Chunk chunk{};
    if (moves) chunk = *at(kept.from, kept.rows[head * kept.count + begin + slot]);
    __syncthreads();
    if (moves) *at(kept.to, begin + slot) = chunk;
  }
}

// Rows of `row_bytes` that lie `offset` into a block, those of a head `head_bytes` further.
void Move(Stream stream, const KeptView& kept, int heads, int64_t offset, int64_t head_bytes,
          int64_t row_bytes) {
  constexpr int64_t kColumns = kThreads / kKeys;
  const auto launch = [&]<typename Chunk>(Chunk) {
    const int64_t chunks = row_bytes / int64_t(sizeof(Chunk));
    const dim3 grid(Blocks(chunks, kColumns), unsigned(heads));
    LaunchInTurn(MoveRows<Chunk>, grid, kThreads, 0, stream, kept, offset, head_bytes, chunks);
  };
  const int64_t all = row_bytes | offset | head_bytes | kept.block_bytes;
  if (all % 16 == 0) return launch(uint4{});
  if (all % 2 == 0) return launch(uint16_t{});
  launch(uint8_t{});
}

// K or V of all heads.
void MoveHeads(Stream stream, const KeptView& kept, const KvView& kv, int64_t offset,
               int channels) {
  const int64_t head_bytes = HeadBytes(kv.type, channels);
  if (kv.type != KvType::kQ8) {
    return Move(stream, kept, kv.kv_heads, offset, head_bytes, head_bytes / kKeys);
  }
  Move(stream, kept, kv.kv_heads, offset, head_bytes, channels);
  Move(stream, kept, kv.kv_heads, offset + int64_t{kKeys} * channels, head_bytes,
       2 * KvGroups(channels));
}

int PageCount(const ScoredView& rows) { return CeilDiv(rows.position + rows.row_count, kKeys); }

}  // namespace

size_t ScoreWorkspace(const KvView& kv, int q_heads, const ScoredView& rows) {
  const int64_t queries = int64_t{rows.row_count} * (q_heads / kv.kv_heads);
  return size_t(kv.kv_heads * queries * (PageCount(rows) + 1)) * sizeof(float2);
}

void ScoreKeys(Stream stream, const StepView& step, const KvView& kv, int q_heads, float scale,
               float softcap, const ScoredView& rows, void* workspace) {
  const Scoring call{kv,
                     q_heads / kv.kv_heads,
                     scale,
                     softcap,
                     rows,
                     step.blocks + rows.block_begin,
                     step.block_memory,
                     step.block_bytes,
                     PageCount(rows)};
  float2* const sums = static_cast<float2*>(workspace);
  float2* const whole = sums + int64_t{kv.kv_heads} * call.pages * call.queries();
  const unsigned pages = unsigned(call.pages), heads = unsigned(kv.kv_heads);
  constexpr size_t kShared = sizeof(Shared), kMore = kShared + kTile * kKeys * sizeof(float);
  static_assert(kMore <= kBlockSharedLeast);
  LaunchInTurn(PageSums, dim3(pages, heads, Blocks(call.queries(), kTile)), kThreads, kShared,
               stream, call, sums);
  LaunchInTurn(JoinSums, dim3(Blocks(call.queries(), 128), heads), 128, 0, stream, call, sums,
               whole);
  LaunchInTurn(WeighKeys, dim3(pages, heads), kThreads, kMore, stream, call, whole);
}

void KeepRows(Stream stream, const KvView& kv, const KeptView& kept) {
  MoveHeads(stream, kept, kv, kv.k_offset, kv.head_dim);
  if (!kv.value_in_key) MoveHeads(stream, kept, kv, kv.v_offset, kv.value_dim);
}

}  // namespace reprise::cuda
