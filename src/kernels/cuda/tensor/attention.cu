// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/attention.h"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/reference/math.h"

// A tile is 16 queries of one K/V head: rows of a sequence times the query heads that share the K/V
// head, in that order. A block has several tiles of one sequence and reads each page once for all.
// With few tiles and a long context the pages are divided among blocks, each page's softmax is kept
// in the workspace, and a second kernel joins them in order: the same operations in the same order.
namespace reprise::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kKeys = 64;
constexpr int kTileQueries = 16;
constexpr float kMinusInfinity = -INFINITY;

// --- What blocks share ---------------------------------------------------------------------

struct Call {
  StepView step;
  KvView kv;
  AttentionView params;
  View q;
  View out;
  int group;       // query heads per K/V head
  float* partial;  // null: no division; else [query, page, 2 + value_dim] (max, sum, out)
  int64_t pages;   // of a query in `partial`
  int page_count;  // pages of a block where they are divided
};

// An output at column `at` of its row.
__device__ __forceinline__ float Gated(const Call& call, int64_t row, int64_t at, float x) {
  const View& gate = call.params.gate;
  return gate.data == nullptr ? x : reference::Sigmoid(gate.data[row * gate.stride + at]) * x;
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
__device__ QueryRange FindQueries(const StepView& step, int group, int size, int index) {
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

// --- 16-bit K/V on tensor cores ------------------------------------------------------------

// Rows of shared memory are kWidth values and 8 more, so that ldmatrix meets no bank twice.
template <int kWidth>
inline constexpr int kPitch = kWidth + 8;

// Copies rows [0, 64) of a page, `width` values each, zeros from `width` to kWidth and in rows that
// are not held yet (`rows`).
template <int kWidth>
__device__ void LoadPage(uint16_t* to, const uint16_t* from, int width, int rows) {
  if (width % 8 == 0) {
    for (int i = threadIdx.x; i < kKeys * (kWidth / 8); i += blockDim.x) {
      const int row = i / (kWidth / 8);
      const int c = i % (kWidth / 8) * 8;
      const bool valid = row < rows && c < width;
      CopyAsync16(to + row * kPitch<kWidth> + c, valid ? from + row * width + c : from, valid);
    }
  } else {
    for (int i = threadIdx.x; i < kKeys * kWidth; i += blockDim.x) {
      const int row = i / kWidth;
      const int c = i % kWidth;
      to[row * kPitch<kWidth> + c] = row < rows && c < width ? from[row * width + c] : uint16_t{0};
    }
  }
}

// One warp's 16 queries; a thread has rows g and g + 8 of the tile (h = 0 and 1 below).
struct TileRows {
  int64_t row[2];  // of the step; -1: none
  int head[2];     // query head
  int position[2];
};

__device__ TileRows RowsOfTile(const Call& call, const SequenceView& sequence,
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
  }
  return rows;
}

// The queries of a block, rounded, to shared memory [count, kHead].
template <Half kType, int kHead>
__device__ void LoadQueries(const Call& call, const SequenceView& sequence, const QueryRange& range,
                            int kv_head, int count, uint16_t* to) {
  for (int i = threadIdx.x; i < count * (kHead / 2); i += blockDim.x) {
    const int place = i / (kHead / 2);
    const int query = range.begin + place;
    const int c = i % (kHead / 2) * 2;
    float value[2] = {0, 0};
    if (query < range.end) {
      const int64_t row = sequence.row_begin + query / call.group;
      const float* from = call.q.data + row * call.q.stride +
                          int64_t(kv_head * call.group + query % call.group) * call.kv.head_dim;
      if (c < call.kv.head_dim) value[0] = from[c];
      if (c + 1 < call.kv.head_dim) value[1] = from[c + 1];
    }
    *reinterpret_cast<uint32_t*>(to + place * kPitch<kHead> + c) = Pack2<kType>(value[0], value[1]);
  }
}

// Columns 8j + 2t + e of row g + 8h of the tile stand in [j][2h + e].
using PageScores = float[8][4];

template <Half kType, int kHead>
__device__ __forceinline__ void Score(const uint16_t* q, const uint16_t* k, PageScores& score) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll 4
  for (int step = 0; step < kHead / 16; ++step) {
    uint32_t a[4];
    LoadMatrix4(a, q + lane % 16 * kPitch<kHead> + 16 * step + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t b[4];
      const int row = 16 * j + lane % 8 + lane / 16 * 8;
      LoadMatrix4(b, k + row * kPitch<kHead> + 16 * step + lane / 8 % 2 * 8);
      Mma<kType>(score[2 * j], a, b[0], b[1]);
      Mma<kType>(score[2 * j + 1], a, b[2], b[3]);
    }
  }
}

// What a page's softmax has besides its weights.
struct PageSoftmax {
  float max[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0, 0};
  bool any[2];  // a position of the page is visible
};

// Rare: its code stays out of the way of others'.
__device__ __noinline__ float Softcap(float s, float cap) { return cap * reference::Tanh(s / cap); }

// Scores become weights; those of positions that are not visible 0.
__device__ __forceinline__ PageSoftmax Weigh(const AttentionView& params, const TileRows& rows,
                                             int page, PageScores& score) {
  PageSoftmax softmax;
  const int t = threadIdx.x % 4;
  int first[2], end[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    first[h] = FirstSeen(params, rows.position[h]) - page * kKeys;
    end[h] = rows.position[h] + 1 - page * kKeys;
    softmax.any[h] = max(first[h], 0) < min(end[h], kKeys);
  }
  const auto visible = [&](int j, int e) {
    const int column = 8 * j + 2 * t + e % 2;
    return column >= first[e / 2] && column < end[e / 2];
  };
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float s = score[j][e] * params.scale;
      if (params.softcap != 0) s = Softcap(s, params.softcap);
      score[j][e] = s;
      float& largest = softmax.max[e / 2];
      if (visible(j, e)) largest = s > largest ? s : largest;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    for (int d = 1; d < 4; d *= 2) {
      const float other = __shfl_xor_sync(~0u, softmax.max[h], d);
      softmax.max[h] = other > softmax.max[h] ? other : softmax.max[h];
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool seen = visible(j, e);
      score[j][e] = seen ? reference::Exp(score[j][e] - softmax.max[e / 2]) : 0.0f;
      if (seen) softmax.sum[e / 2] += score[j][e];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    for (int d = 1; d < 4; d *= 2) softmax.sum[h] += __shfl_xor_sync(~0u, softmax.sum[h], d);
  }
  return softmax;
}

// The pages so far, of a part of kPart channels of the values.
template <int kPart>
struct Running {
  float out[kPart / 8][4];
  float max[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0, 0};
  bool seen[2] = {false, false};  // a page before this one had a visible position
};

// Joins a page: its weights times its values, `v` the first channel of the part.
template <Half kType, int kPart>
__device__ __forceinline__ void JoinPage(const PageSoftmax& page, const PageScores& weight,
                                         const uint16_t* v, int v_pitch, Running<kPart>& running) {
  float before[2], after[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool both = running.seen[h] && page.any[h];
    const float together =
        running.seen[h] && running.max[h] > page.max[h] ? running.max[h] : page.max[h];
    before[h] = both ? reference::Exp(running.max[h] - together) : 1.0f;
    after[h] = both ? reference::Exp(page.max[h] - together) : 1.0f;
    if (!page.any[h]) continue;
    running.sum[h] = both ? fmaf(running.sum[h], before[h], page.sum[h] * after[h]) : page.sum[h];
    running.max[h] = together;
  }
  uint32_t p[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    p[k][0] = Pack2<kType>(weight[2 * k][0], weight[2 * k][1]);
    p[k][1] = Pack2<kType>(weight[2 * k][2], weight[2 * k][3]);
    p[k][2] = Pack2<kType>(weight[2 * k + 1][0], weight[2 * k + 1][1]);
    p[k][3] = Pack2<kType>(weight[2 * k + 1][2], weight[2 * k + 1][3]);
  }
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kPart / 16; ++j) {
    float fresh[2][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t b[4];
      LoadMatrix4Transposed(b, v + (16 * k + lane % 16) * v_pitch + 16 * j + lane / 16 * 8);
      Mma<kType>(fresh[0], p[k], b[0], b[1]);
      Mma<kType>(fresh[1], p[k], b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int h = e / 2;
        float& o = running.out[2 * j + i][e];
        if (page.any[h]) {
          o = running.seen[h] ? fmaf(o, before[h], fresh[i][e] * after[h]) : fresh[i][e];
        }
      }
    }
  }
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

// One page for itself, to the workspace.
template <int kPart>
__device__ __forceinline__ void StorePage(const Call& call, const TileRows& rows,
                                          const PageSoftmax& softmax, int page, int first,
                                          Running<kPart>& running) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row[h] < 0 || !softmax.any[h]) continue;
    const int64_t query = rows.row[h] * call.params.q_heads + rows.head[h];
    float* to = call.partial + (query * call.pages + page) * (2 + call.kv.value_dim);
    if (threadIdx.x % 4 == 0 && first == 0) {
      to[0] = running.max[h];
      to[1] = running.sum[h];
    }
    ForChannels(running, h, first, call.kv.value_dim, [&](int c, float o) { to[2 + c] = o; });
  }
}

template <int kPart>
__device__ __forceinline__ void StoreResult(const Call& call, const TileRows& rows, int first,
                                            Running<kPart>& running) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row[h] < 0) continue;
    const float inverse = 1.0f / running.sum[h];
    const int64_t head = int64_t(rows.head[h]) * call.kv.value_dim;
    // All gates are asked for before the first result is stored.
    ForChannels(running, h, first, call.kv.value_dim,
                [&](int c, float& o) { o = Gated(call, rows.row[h], head + c, o * inverse); });
    float* to = call.out.data + rows.row[h] * call.out.stride + head;
    ForChannels(running, h, first, call.kv.value_dim, [&](int c, float o) { to[c] = o; });
  }
}

// kSplit warps share a tile of queries and divide the channels of the values.
template <Half kType, int kHead, int kValue, int kWarps, int kSplit>
__global__ void __launch_bounds__(kWarps* kWarp) TensorAttention(Call call) {
  constexpr int kTiles = kWarps / kSplit;
  constexpr int kPart = kValue / kSplit;
  extern __shared__ __align__(128) uint16_t shared[];
  WaitForInputs();
  LetNextStart();
  const KvView& kv = call.kv;
  uint16_t* q_tile = shared;                                // [kTiles * 16, kHead]
  uint16_t* k_page = q_tile + kTiles * 16 * kPitch<kHead>;  // [64, kHead]
  uint16_t* v_page = kv.value_in_key ? k_page : k_page + kKeys * kPitch<kHead>;  // [64, kValue]
  const int v_pitch = kv.value_in_key ? kPitch<kHead> : kPitch<kValue>;

  const QueryRange range = FindQueries(call.step, call.group, kTiles * kTileQueries, blockIdx.x);
  if (range.sequence < 0) return;
  const SequenceView sequence = call.step.sequences[range.sequence];
  const int head = blockIdx.y;
  const int tile = threadIdx.x / kWarp / kSplit;
  const int first_channel = threadIdx.x / kWarp % kSplit * kPart;
  const TileRows rows = RowsOfTile(call, sequence, range, head, tile);
  LoadQueries<kType, kHead>(call, sequence, range, head, kTiles * kTileQueries, q_tile);

  const int last = sequence.position + (range.end - 1) / call.group;
  int page = FirstSeen(call.params, sequence.position + range.begin / call.group) / kKeys;
  int page_end = last / kKeys + 1;
  if (call.partial != nullptr) {
    page = max(page, int(blockIdx.z) * call.page_count);
    page_end = min(page_end, int(blockIdx.z + 1) * call.page_count);
  }
  // Keys of the next page arrive while the weights of this one are computed, values while the
  // scores of the next are; where they are one, both wait for the next page.
  const auto load = [&](int64_t offset, auto width, uint16_t* to, int dim, int of) {
    if (of >= page_end) return CommitAsync();
    const uint32_t id = call.step.blocks[sequence.block_begin + of];
    const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
    const auto* from = reinterpret_cast<const uint16_t*>(block + offset);
    LoadPage<decltype(width)::value>(to, from + int64_t{head} * kKeys * dim, dim,
                                     min(kKeys, last + 1 - of * kKeys));
    CommitAsync();
  };
  const auto load_keys = [&](int of) {
    load(kv.k_offset, std::integral_constant<int, kHead>{}, k_page, kv.head_dim, of);
  };
  const auto load_values = [&](int of) {
    if (kv.value_in_key) return CommitAsync();
    load(kv.v_offset, std::integral_constant<int, kValue>{}, v_page, kv.value_dim, of);
  };
  load_keys(page);
  load_values(page);
  Running<kPart> running;
  for (; page < page_end; ++page) {
    WaitAsync<1>();
    __syncthreads();
    PageScores score = {};
    Score<kType, kHead>(q_tile + tile * 16 * kPitch<kHead>, k_page, score);
    if (!kv.value_in_key) {
      __syncthreads();  // all have read the keys
      load_keys(page + 1);
    }
    const PageSoftmax softmax = Weigh(call.params, rows, page, score);
    if (!kv.value_in_key) {
      WaitAsync<1>();
      __syncthreads();
    }
    JoinPage<kType, kPart>(softmax, score, v_page + first_channel, v_pitch, running);
    __syncthreads();  // all have read the values
    if (kv.value_in_key) load_keys(page + 1);
    load_values(page + 1);
    if (call.partial != nullptr) {
      StorePage(call, rows, softmax, page, first_channel, running);
      continue;
    }
    running.seen[0] = running.seen[0] || softmax.any[0];
    running.seen[1] = running.seen[1] || softmax.any[1];
  }
  if (call.partial == nullptr) StoreResult(call, rows, first_channel, running);
}

// Joins the pages of one query of the workspace, in order. The running maximum is known ahead (a
// maximum has no order), and with it the factors of every page; what is left of the order is one
// fma a page.
constexpr int kJoinThreads = 128;
constexpr int kJoinPages = 1024;  // at a time

__global__ void __launch_bounds__(kJoinThreads) JoinKernel(Call call) {
  WaitForInputs();
  LetNextStart();
  __shared__ float page_max[kJoinPages], before[kJoinPages], after[kJoinPages], sums[kJoinPages];
  const int row = blockIdx.x;
  const int head = blockIdx.y;
  const int width = call.kv.value_dim;
  const SequenceView& sequence = call.step.sequences[call.step.row_sequence[row]];
  const int position = sequence.position + row - sequence.row_begin;
  const int first = FirstSeen(call.params, position) / kKeys;
  const int end = position / kKeys + 1;
  const float* pages =
      call.partial + (int64_t{row} * call.params.q_heads + head) * call.pages * (2 + width);
  float* to = call.out.data + row * call.out.stride + int64_t{head} * width;
  constexpr int kChannels = 4;  // of a thread, at most: value_dim <= 512
  float out[kChannels];
  float sum = 0;
  float max = kMinusInfinity;  // of all pages before this part
  for (int begin = first; begin < end; begin += kJoinPages) {
    const int count = min(kJoinPages, end - begin);
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kJoinThreads) {
      const float* page = pages + int64_t{begin + i} * (2 + width);
      page_max[i] = page[0];
      sums[i] = page[1];
    }
    __syncthreads();
    // Maxima up to each page, by the first warp.
    if (threadIdx.x < kWarp) {
      float carried = max;
      for (int i = 0; i < count; i += kWarp) {
        const int at = i + static_cast<int>(threadIdx.x);
        float upto = at < count ? page_max[at] : kMinusInfinity;
        for (int d = 1; d < kWarp; d *= 2) {
          const float other = __shfl_up_sync(~0u, upto, d);
          if (static_cast<int>(threadIdx.x) >= d && other > upto) upto = other;
        }
        upto = carried > upto ? carried : upto;
        if (at < count) after[at] = upto;
        carried = __shfl_sync(~0u, upto, kWarp - 1);
      }
    }
    __syncthreads();
    const float last = after[count - 1];
    float mine[CeilDiv(kJoinPages, kJoinThreads)][2];
    for (int i = threadIdx.x, n = 0; i < count; i += kJoinThreads, ++n) {
      const float together = after[i];
      mine[n][0] = reference::Exp((i == 0 ? max : after[i - 1]) - together);
      mine[n][1] = reference::Exp(page_max[i] - together);
    }
    __syncthreads();
    for (int i = threadIdx.x, n = 0; i < count; i += kJoinThreads, ++n) {
      before[i] = mine[n][0];
      after[i] = mine[n][1];
    }
    __syncthreads();
    const float* from = pages + int64_t{begin} * (2 + width) + 2;
    for (int i = 0; i < count; ++i) {
      const bool store = begin + i == first;
      sum = store ? sums[i] : fmaf(sum, before[i], sums[i] * after[i]);
    }
#pragma unroll
    for (int n = 0; n < kChannels; ++n) {
      const int c = threadIdx.x + n * kJoinThreads;
      if (c >= width) break;
      float o = out[n];
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const float page_out = from[int64_t{i} * (2 + width) + c];
        o = begin + i == first ? page_out : fmaf(o, before[i], page_out * after[i]);
      }
      out[n] = o;
    }
    max = last;
  }
#pragma unroll
  for (int n = 0; n < kChannels; ++n) {
    const int c = threadIdx.x + n * kJoinThreads;
    if (c < width) to[c] = Gated(call, row, int64_t{head} * width + c, out[n] * (1.0f / sum));
  }
}

// --- f32 K/V: the arithmetic of the CPU ----------------------------------------------------

// One block of 64 threads is one query. Shared: q [head_dim], scores [64].
__global__ void __launch_bounds__(kKeys) FloatAttention(Call call) {
  extern __shared__ float floats[];
  const KvView& kv = call.kv;
  float* q = floats;
  float* weight = floats + kv.head_dim;
  const int row = blockIdx.x;
  const int head = blockIdx.y;
  const int kv_head = head / call.group;
  const SequenceView sequence = call.step.sequences[call.step.row_sequence[row]];
  const int position = sequence.position + row - sequence.row_begin;
  for (int i = threadIdx.x; i < kv.head_dim; i += kKeys) {
    q[i] = call.q.data[row * call.q.stride + int64_t{head} * kv.head_dim + i] * call.params.scale;
  }
  const int seen_from = FirstSeen(call.params, position);
  float max = kMinusInfinity, sum = 0;
  float* to = call.out.data + row * call.out.stride + int64_t{head} * kv.value_dim;
  for (int page = seen_from / kKeys; page <= position / kKeys; ++page) {
    const uint32_t id = call.step.blocks[sequence.block_begin + page];
    const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
    const float* k = reinterpret_cast<const float*>(block + kv.k_offset) +
                     int64_t{kv_head} * kKeys * kv.head_dim;
    const float* v = kv.value_in_key ? k
                                     : reinterpret_cast<const float*>(block + kv.v_offset) +
                                           int64_t{kv_head} * kKeys * kv.value_dim;
    const int v_stride = kv.value_in_key ? kv.head_dim : kv.value_dim;
    const int first = ::max(0, seen_from - page * kKeys);
    const int end = ::min(kKeys, position + 1 - page * kKeys);
    const int j = threadIdx.x;
    __syncthreads();
    if (j >= first && j < end) {
      float s = 0;
      for (int i = 0; i < kv.head_dim; ++i) s = fmaf(q[i], k[j * kv.head_dim + i], s);
      if (call.params.softcap != 0) {
        s = call.params.softcap * reference::Tanh(s / call.params.softcap);
      }
      weight[j] = s;
    }
    __syncthreads();
    float page_max = kMinusInfinity;
    for (int i = first; i < end; ++i) page_max = weight[i] > page_max ? weight[i] : page_max;
    __syncthreads();
    if (j >= first && j < end) weight[j] = reference::Exp(weight[j] - page_max);
    __syncthreads();
    float lanes[16] = {};
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (i >= first && i < end) lanes[i % 16] += weight[i];
    }
#pragma unroll
    for (int width = 8; width >= 1; width /= 2) {
#pragma unroll
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    const bool store = sum == 0 && max == kMinusInfinity;
    const float together = !store && max > page_max ? max : page_max;
    const float a = store ? 0.0f : reference::Exp(max - together);
    const float b = store ? 0.0f : reference::Exp(page_max - together);
    for (int c = threadIdx.x; c < kv.value_dim; c += kKeys) {
      float o = 0;
      for (int i = first; i < end; ++i) o = fmaf(weight[i], v[i * v_stride + c], o);
      to[c] = store ? o : fmaf(to[c], a, o * b);
    }
    sum = store ? lanes[0] : fmaf(sum, a, lanes[0] * b);
    max = together;
  }
  const float inverse = 1.0f / sum;
  for (int c = threadIdx.x; c < kv.value_dim; c += kKeys) {
    to[c] = Gated(call, row, int64_t{head} * kv.value_dim + c, to[c] * inverse);
  }
}

// --- Choice of a form ----------------------------------------------------------------------

constexpr int kBlocksWanted = 264;    // two for every multiprocessor
constexpr int64_t kRowsDivided = 64;  // more rows than this fill the device without division
constexpr int64_t kWorkspaceFloats = int64_t{1} << 27;

struct Division {
  int page_count = 0;  // of a block; 0: not divided
  int parts = 1;
};

Division Divide(int64_t rows, int64_t longest, const KvView& kv, const AttentionView& params) {
  if (kv.type == KvType::kF32 || longest <= 2 || rows > kRowsDivided) return {};
  const int64_t blocks = rows * kv.kv_heads;
  const int64_t floats = rows * params.q_heads * longest * (2 + kv.value_dim);
  if (blocks >= kBlocksWanted || floats > kWorkspaceFloats) return {};
  const int64_t parts = std::min<int64_t>(longest, CeilDiv<int64_t>(kBlocksWanted, blocks));
  const int64_t pages = CeilDiv(longest, parts);
  return {int(pages), int(CeilDiv(longest, pages))};
}

template <Half kType, int kHead, int kValue, int kWarps, int kSplit>
void LaunchTensor(Stream stream, Call call, const Division& division) {
  constexpr int kTiles = kWarps / kSplit;
  const size_t values = kTiles * 16 * kPitch<kHead> + kKeys * kPitch<kHead> +
                        (call.kv.value_in_key ? 0 : kKeys * kPitch<kValue>);
  const auto kernel = TensorAttention<kType, kHead, kValue, kWarps, kSplit>;
  static const bool allowed =
      (AllowShared(kernel, 2 * (kTiles * 16 * kPitch<kHead> + kKeys * kPitch<kHead> +
                                kKeys * kPitch<kValue>)),
       true);
  (void)allowed;
  // Every sequence may end inside a part.
  const int64_t queries = int64_t{call.step.rows} * call.group;
  const int64_t blocks = std::min(
      queries, CeilDiv<int64_t>(queries, kTiles * kTileQueries) + call.step.sequence_count);
  const dim3 grid(unsigned(blocks), unsigned(call.kv.kv_heads), unsigned(division.parts));
  LaunchEarly(kernel, grid, kWarps * kWarp, 2 * values, stream, call);
}

template <Half kType>
void LaunchByShape(Stream stream, const Call& call, const Division& division) {
  const int head = call.kv.head_dim;
  const int value = call.kv.value_dim;
  // One tile of queries a sequence: its warps divide the values instead.
  const bool brief = call.step.rows == call.step.sequence_count && call.group <= kTileQueries;
  if (head <= 64 && value <= 64) return LaunchTensor<kType, 64, 64, 4, 1>(stream, call, division);
  if (head <= 128 && value <= 128) {
    return brief ? LaunchTensor<kType, 128, 128, 4, 4>(stream, call, division)
                 : LaunchTensor<kType, 128, 128, 4, 1>(stream, call, division);
  }
  if (head <= 256 && value <= 256) {
    return brief ? LaunchTensor<kType, 256, 256, 4, 4>(stream, call, division)
                 : LaunchTensor<kType, 256, 256, 8, 2>(stream, call, division);
  }
  LaunchTensor<kType, 576, 512, 4, 4>(stream, call, division);
}

}  // namespace

size_t AttendWorkspace(int64_t rows, int64_t longest, const KvView& kv,
                       const AttentionView& params) {
  if (Divide(rows, longest, kv, params).page_count == 0) return 0;
  return size_t(rows * params.q_heads * longest * (2 + kv.value_dim)) * sizeof(float);
}

void Attend(Stream stream, const StepView& step, int64_t longest, const KvView& kv,
            const AttentionView& params, const View& q, const View& out, void* workspace) {
  Call call{step, kv, params, q, out, params.q_heads / kv.kv_heads, nullptr, longest, 0};
  if (kv.type == KvType::kF32) {
    const dim3 grid(unsigned(step.rows), unsigned(params.q_heads));
    const size_t shared = size_t(kv.head_dim + kKeys) * sizeof(float);
    FloatAttention<<<grid, kKeys, shared, stream>>>(call);
    return;
  }
  const Division division = Divide(step.rows, longest, kv, params);
  if (division.page_count > 0) {
    call.partial = static_cast<float*>(workspace);
    call.page_count = division.page_count;
  }
  (kv.type == KvType::kF16 ? LaunchByShape<Half::kF16> : LaunchByShape<Half::kBF16>)(stream, call,
                                                                                     division);
  if (division.page_count > 0) {
    const dim3 grid(unsigned(step.rows), unsigned(params.q_heads));
    LaunchEarly(JoinKernel, grid, kJoinThreads, 0, stream, call);
  }
}

}  // namespace reprise::cuda
