// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/check.h"
#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/attention/kv_q8.cuh"

// A block has several tiles of one sequence and reads each page once for all.
// With few tiles and a long context the pages are divided among blocks, the softmax of each group
// of pages is kept in the workspace, and a second kernel joins them in order: the same operations
// in the same order.
namespace reprise::cuda {
namespace {

// --- 16-bit K/V and q8_0 on tensor cores ---------------------------------------------------

// Rows of shared memory are kWidth values and 8 more, so that ldmatrix meets no bank twice.
template <int kWidth>
inline constexpr int kPitch = kWidth + 8;

// Rows [begin, end) of a page, of which [0, held) are held.
struct PageRows {
  int begin;
  int end;
  int held;
};
// Copies them, `width` values each, zeros from `width` to kWidth and in rows that are not held.
template <int kWidth>
__device__ void LoadPage(uint16_t* to, const uint16_t* from, int width, const PageRows& rows) {
  if (width % 8 == 0) {
    constexpr int kChunks = kWidth / 8;
    for (int i = rows.begin * kChunks + threadIdx.x; i < rows.end * kChunks; i += blockDim.x) {
      const int row = i / kChunks;
      const int c = i % kChunks * 8;
      const bool valid = row < rows.held && c < width;
      CopyAsync16(to + row * kPitch<kWidth> + c, valid ? from + row * width + c : from, valid);
    }
  } else {
    for (int i = rows.begin * kWidth + threadIdx.x; i < rows.end * kWidth; i += blockDim.x) {
      const int row = i / kWidth;
      const int c = i % kWidth;
      const bool valid = row < rows.held && c < width;
      to[row * kPitch<kWidth> + c] = valid ? from[row * width + c] : uint16_t{0};
    }
  }
}

// Widens a page of q8_0 that lies in shared memory, `staged`; rows from `rows` on are 0.
template <int kWidth>
__device__ void WidenPage(uint16_t* to, const std::byte* staged, int width, int rows) {
  constexpr int kChunks = kWidth / 16;  // of a row
#pragma unroll 2
  for (int i = threadIdx.x; i < kKeys * kChunks; i += blockDim.x) {
    const int row = i / kChunks;
    const int c = i % kChunks * 16;
    const CodesOf16 read = row < rows ? ReadCodes(staged, width, row, c) : CodesOf16{};
    auto* at = reinterpret_cast<uint4*>(to + row * kPitch<kWidth> + c);
    Widen(read, [&](int half, uint4 eight) { at[half] = eight; });
  }
}

// The queries of a block, rounded, to shared memory [count, kHead].
template <Half kType, int kHead>
__device__ void LoadQueries(const AttentionCall& call, const SequenceView& sequence,
                            const QueryRange& range, int kv_head, int count, uint16_t* to) {
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
    const uint32_t two = Pack2<kType>(value[0], value[1]);
    *reinterpret_cast<uint32_t*>(to + place * kPitch<kHead> + c) = two;
    // A soft cap would hide what comes of them.
    if (!IsFinite16<kType>(uint16_t(two)) || !IsFinite16<kType>(uint16_t(two >> 16))) {
      Spoil(call.step, range.sequence);
    }
  }
}

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

// Joins a page: its weights times its values, `v` the first channel of the part.
template <Half kType, int kPart>
__device__ __forceinline__ void JoinPage(const float (&top)[2], const PageScores& weight,
                                         const uint16_t* v, int v_pitch, Running<kPart>& running) {
  uint32_t p[4][4];
  Joint joint[2];
  JoinWeights<kType>(top, weight, running, p, joint);
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
        float& o = running.out[2 * j + i][e];
        o = joint[e / 2].Join(o, fresh[i][e]);
      }
    }
  }
}

// What a warp works on: its queries, and where pages lie in shared memory.
struct TileWork {
  const TileRows& rows;
  int place;          // of the sequence's groups (FirstPlace)
  int head;           // of K/V
  int first_channel;  // of its part of the values
  const uint16_t* q;  // [16, kHead]
  uint16_t* k_page;   // [64, kHead]
  uint16_t* v_page;
  int v_pitch;
};

struct PageRange {
  int begin;
  int end;
  int held;  // positions
};

// A page is joined. If it is the last of its group, the group joins those before it, or goes to the
// workspace, where the pages are divided; and the next one begins anew.
template <int kPart>
__device__ __forceinline__ void EndPage(const AttentionCall& call, const SequenceView& sequence,
                                        const TileWork& work, const PageRange& pages, int page,
                                        Running<kPart>& running, Running<kPart>& all) {
  if ((page + 1) % kGroupPages != 0 && page + 1 != pages.end) return;
  if (call.left.out != nullptr) {
    StoreGroup(call, sequence, work.place, work.rows, page / kGroupPages, work.first_channel,
               work.first_channel == 0, running);
  } else {
    JoinRunning(running, all);
  }
  running = {};
}

// Pages of q8_0: the next one arrives, as it is stored, while this one is computed.
template <int kHead, int kValue, int kPart>
__device__ __forceinline__ void AttendStaged(const AttentionCall& call,
                                             const SequenceView& sequence, const PageRange& pages,
                                             const TileWork& work, Running<kPart>& all) {
  const KvView& kv = call.kv;
  Running<kPart> running;
  uint16_t* const end =
      kv.value_in_key ? work.k_page + kKeys * kPitch<kHead> : work.v_page + kKeys * kPitch<kValue>;
  std::byte* const staged_keys = reinterpret_cast<std::byte*>(end);
  std::byte* const staged_values = staged_keys + PartBytes(kv.head_dim);
  const auto stage = [&](int page) {
    if (page < pages.end) {
      const uint32_t id = call.step.blocks[sequence.block_begin + page];
      const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
      StagePart(staged_keys, CodesOfHead(block + kv.k_offset, work.head, kv.head_dim), kv.head_dim,
                threadIdx.x, blockDim.x);
      if (!kv.value_in_key) {
        StagePart(staged_values, CodesOfHead(block + kv.v_offset, work.head, kv.value_dim),
                  kv.value_dim, threadIdx.x, blockDim.x);
      }
    }
    CommitAsync();
  };
  stage(pages.begin);
  for (int page = pages.begin; page < pages.end; ++page) {
    WaitAsync<0>();
    __syncthreads();  // it has arrived, and all have read the keys and values before it
    const int rows = min(kKeys, pages.held - page * kKeys);
    WidenPage<kHead>(work.k_page, staged_keys, kv.head_dim, rows);
    if (!kv.value_in_key) WidenPage<kValue>(work.v_page, staged_values, kv.value_dim, rows);
    __syncthreads();
    stage(page + 1);
    PageScores score = {};
    Score<Half::kF16, kHead>(work.q, work.k_page, score);
    float top[2];
    Weigh<false, true>(call.params, work.rows, page, score, top);
    JoinPage<Half::kF16, kPart>(top, score, work.v_page + work.first_channel, work.v_pitch,
                                running);
    EndPage(call, sequence, work, pages, page, running, all);
  }
}

// The same where a block has room for one part of a page: values come when the keys are not needed
// any more, and nothing arrives ahead.
template <KvType kStored, int kHead, int kValue, int kPart>
__device__ __forceinline__ void AttendTight(const AttentionCall& call, const SequenceView& sequence,
                                            const PageRange& pages, const TileWork& work,
                                            Running<kPart>& all) {
  constexpr Half kType = kHalfOf<kStored>;
  const KvView& kv = call.kv;
  Running<kPart> running;
  const auto load = [&](auto width, int page, int64_t offset, int dim) {
    constexpr int kWidth = decltype(width)::value;
    const uint32_t id = call.step.blocks[sequence.block_begin + page];
    const std::byte* part = call.step.block_memory + int64_t{id} * call.step.block_bytes + offset;
    const int rows = min(kKeys, pages.held - page * kKeys);
    __syncthreads();  // all have read what lies there
    if constexpr (kStored == KvType::kQ8) {
      WidenPage<kWidth>(work.k_page, CodesOfHead(part, work.head, dim), dim, rows);
    } else {
      const auto* from = reinterpret_cast<const uint16_t*>(part) + int64_t{work.head} * kKeys * dim;
      LoadPage<kWidth>(work.k_page, from, dim, {0, kKeys, rows});
      CommitAsync();
      WaitAsync<0>();
    }
    __syncthreads();
  };
  for (int page = pages.begin; page < pages.end; ++page) {
    load(std::integral_constant<int, kHead>{}, page, kv.k_offset, kv.head_dim);
    PageScores score = {};
    Score<kType, kHead>(work.q, work.k_page, score);
    float top[2];
    Weigh<false, true>(call.params, work.rows, page, score, top);
    if (!kv.value_in_key) {
      load(std::integral_constant<int, kValue>{}, page, kv.v_offset, kv.value_dim);
    }
    JoinPage<kType, kPart>(top, score, work.k_page + work.first_channel, work.v_pitch, running);
    EndPage(call, sequence, work, pages, page, running, all);
  }
}

// Where the pages of a block lie: keys and values beside each other, and those of q8_0 as they are
// stored, too; or one of them at a time.
enum class PageRoom { kAll, kTight };

// kSplit warps share a tile of queries and divide the channels of the values.
template <KvType kStored, int kHead, int kValue, int kWarps, int kSplit, PageRoom kRoom>
__global__ void __launch_bounds__(kWarps* kWarp) TensorAttention(AttentionCall call) {
  constexpr Half kType = kHalfOf<kStored>;
  constexpr int kTiles = kWarps / kSplit;
  constexpr int kPart = kValue / kSplit;
  extern __shared__ __align__(128) uint16_t shared[];
  const KvView& kv = call.kv;
  uint16_t* q_tile = shared;                                // [kTiles * 16, kHead]
  uint16_t* k_page = q_tile + kTiles * 16 * kPitch<kHead>;  // [64, kHead]
  uint16_t* v_page = kv.value_in_key ? k_page : k_page + kKeys * kPitch<kHead>;  // [64, kValue]
  const int v_pitch = kv.value_in_key ? kPitch<kHead> : kPitch<kValue>;

  // Where things are, the step said before its first kernel.
  const QueryRange range = FindQueries(call.step, call.group, kTiles * kTileQueries, blockIdx.x);
  const SequenceView sequence = call.step.sequences[max(0, range.sequence)];
  const int head = blockIdx.y;
  const int last = EndSeen(call, sequence, (range.end - 1) / call.group) - 1;
  int page = FirstSeen(call.params, sequence.position + range.begin / call.group) / kKeys;
  int page_end = last / kKeys + 1;
  if (call.left.out != nullptr) {
    page = max(page, int(blockIdx.z) * call.page_count);
    page_end = min(page_end, int(blockIdx.z + 1) * call.page_count);
  }
  const auto load = [&](int64_t offset, auto width, uint16_t* to, int dim, int of,
                        const PageRows& rows) {
    if (range.sequence < 0 || of >= page_end) return CommitAsync();
    const uint32_t id = call.step.blocks[sequence.block_begin + of];
    const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
    const auto* from = reinterpret_cast<const uint16_t*>(block + offset);
    LoadPage<decltype(width)::value>(to, from + int64_t{head} * kKeys * dim, dim, rows);
    CommitAsync();
  };
  const auto load_keys = [&](int of, const PageRows& rows) {
    load(kv.k_offset, std::integral_constant<int, kHead>{}, k_page, kv.head_dim, of, rows);
  };
  const auto load_values = [&](int of, const PageRows& rows) {
    if (kv.value_in_key) return CommitAsync();
    load(kv.v_offset, std::integral_constant<int, kValue>{}, v_page, kv.value_dim, of, rows);
  };
  const auto rows_of = [&](int of) { return PageRows{0, kKeys, last + 1 - of * kKeys}; };
  // Of the first page, what earlier steps have stored: nothing in this one touches it.
  constexpr bool kEarly = kStored != KvType::kQ8 && kRoom == PageRoom::kAll;
  const int stored = min(kKeys, max(0, sequence.position - page * kKeys));
  if constexpr (kEarly) {
    load_keys(page, {0, stored, stored});
    load_values(page, {0, stored, stored});
  }
  WaitForInputs();
  LetNextStart();
  if (range.sequence < 0) return;
  if constexpr (kEarly) {
    load_keys(page, {stored, kKeys, rows_of(page).held});
    load_values(page, {stored, kKeys, rows_of(page).held});
  }
  const int tile = threadIdx.x / kWarp / kSplit;
  const int first_channel = threadIdx.x / kWarp % kSplit * kPart;
  const TileRows rows = RowsOfTile<true>(call, sequence, range, head, tile);
  LoadQueries<kType, kHead>(call, sequence, range, head, kTiles * kTileQueries, q_tile);
  Running<kPart> all;
  const int place = call.left.out != nullptr ? FirstPlace(call.step, range.sequence) : 0;
  const TileWork work{rows,   place,  head,   first_channel, q_tile + tile * 16 * kPitch<kHead>,
                      k_page, v_page, v_pitch};
  const PageRange pages{page, page_end, last + 1};
  if constexpr (kRoom == PageRoom::kTight) {
    AttendTight<kStored, kHead, kValue>(call, sequence, pages, work, all);
  } else if constexpr (kStored == KvType::kQ8) {
    AttendStaged<kHead, kValue>(call, sequence, pages, work, all);
  } else {
    Running<kPart> running;
    // Keys of the next page arrive while the weights of this one are computed, values while the
    // scores of the next are; where they are one, both wait for the next page.
    for (; page < page_end; ++page) {
      WaitAsync<1>();
      __syncthreads();
      PageScores score = {};
      Score<kType, kHead>(work.q, k_page, score);
      if (!kv.value_in_key) {
        __syncthreads();  // all have read the keys
        load_keys(page + 1, rows_of(page + 1));
      }
      float top[2];
      Weigh<false, true>(call.params, rows, page, score, top);
      if (!kv.value_in_key) {
        WaitAsync<1>();
        __syncthreads();
      }
      JoinPage<kType, kPart>(top, score, v_page + first_channel, v_pitch, running);
      __syncthreads();  // all have read the values
      if (kv.value_in_key) load_keys(page + 1, rows_of(page + 1));
      load_values(page + 1, rows_of(page + 1));
      EndPage(call, sequence, work, pages, page, running, all);
    }
  }
  if (call.left.out == nullptr) StoreResult(call, rows, first_channel, all);
}

__device__ __forceinline__ void CopyAsync4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(shared)),
               "l"(global));
}

// Joins the groups of one query of the workspace, in order, a channel a thread. All values are
// asked for at once. The running top is known ahead (a maximum has no order), and with it the joint
// of every group; what is left of the order is one fma a group.
constexpr int kJoinThreads = 128;
constexpr int kJoinGroups = 256;  // at a time, at most

__global__ void __launch_bounds__(kJoinThreads) JoinKernel(AttentionCall call, int at_once) {
  extern __shared__ float fresh[];  // [at_once, kJoinThreads]
  __shared__ float sums[kJoinGroups];
  __shared__ Joint joints[kJoinGroups];
  __shared__ float last_top;  // of all groups, for a sink
  LetNextStart();
  const int row = blockIdx.x, head = blockIdx.y, heads = call.params.q_heads;
  const int width = call.kv.value_dim;
  const int channel = blockIdx.z * kJoinThreads + threadIdx.x;
  const int lane = threadIdx.x % kWarp;
  const int s = call.step.row_sequence[row];
  const SequenceView& sequence = call.step.sequences[s];
  const int position = sequence.position + row - sequence.row_begin;
  const int first = FirstSeen(call.params, position) / (kKeys * kGroupPages);
  const int end = position / (kKeys * kGroupPages) + 1;
  const int place = FirstPlace(call.step, s) + (row - sequence.row_begin) * GroupsOf(sequence);
  WaitForInputs();
  float out = 0, sum = 0;
  float top = kMinusInfinity;  // of all groups before, as the first warp knows
  for (int begin = first; begin < end; begin += at_once) {
    const int count = min(at_once, end - begin);
    const int64_t query = int64_t{place + begin} * heads + head;
    if (channel < width) {
      const float* from = call.left.out + query * width + channel;
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        CopyAsync4(fresh + i * kJoinThreads + threadIdx.x, from + int64_t{i} * heads * width);
      }
    }
    CommitAsync();
    __syncthreads();  // all have read the joints before
    if (threadIdx.x < kWarp) {
      for (int i = lane; i - lane < count; i += kWarp) {
        float2 mark = make_float2(kMinusInfinity, 0);
        if (i < count) {
          mark =
              *reinterpret_cast<const float2*>(call.left.marks + 2 * (query + int64_t{i} * heads));
        }
        float upto = mark.x;
        for (int d = 1; d < kWarp; d *= 2) {
          const float other = __shfl_up_sync(~0u, upto, d);
          if (lane >= d && other > upto) upto = other;
        }
        upto = top > upto ? top : upto;
        const float before = __shfl_up_sync(~0u, upto, 1);
        if (i < count) {
          sums[i] = mark.y;
          joints[i] = JointOf(lane == 0 ? top : before, mark.x);
        }
        top = __shfl_sync(~0u, upto, kWarp - 1);
      }
    }
    __syncthreads();
    WaitAsync<0>();
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      sum = joints[i].Join(sum, sums[i]);
      out = joints[i].Join(out, fresh[i * kJoinThreads + threadIdx.x]);
    }
  }
  if (threadIdx.x == 0 && !IsFinite(top)) SpoilRow(call.step, row);
  if (call.params.sinks != nullptr) {
    if (threadIdx.x == 0) last_top = top;
    __syncthreads();
    sum = WithSink(call.params, head, last_top, sum);
  }
  if (channel >= width) return;
  const float mean = out * (1.0f / sum) + 0.0f;
  const int64_t at = int64_t{head} * width + channel;
  call.out.data[row * call.out.stride + at] = Gated(call, row, at, mean);
}

// --- f32 K/V: the arithmetic of the CPU ----------------------------------------------------

// One block of 64 threads is one query. Shared: q [head_dim], scores [64].
__global__ void __launch_bounds__(kKeys) FloatAttention(AttentionCall call) {
  extern __shared__ float floats[];
  const KvView& kv = call.kv;
  float* q = floats;
  float* weight = floats + kv.head_dim;
  const int row = blockIdx.x;
  const int head = blockIdx.y;
  const int kv_head = head / call.group;
  const SequenceView sequence = call.step.sequences[call.step.row_sequence[row]];
  const int position = sequence.position + row - sequence.row_begin;
  const int end_seen = EndSeen(call, sequence, row - sequence.row_begin);
  for (int i = threadIdx.x; i < kv.head_dim; i += kKeys) {
    const float value = call.q.data[row * call.q.stride + int64_t{head} * kv.head_dim + i];
    if (!IsFinite(value)) SpoilRow(call.step, row);  // a soft cap would hide what comes of it
    q[i] = value * call.params.scale;
  }
  const int seen_from = FirstSeen(call.params, position);
  float max = kMinusInfinity, sum = 0;
  float* to = call.out.data + row * call.out.stride + int64_t{head} * kv.value_dim;
  if (call.params.sinks != nullptr) {
    max = call.params.sinks[head], sum = 1;
    for (int c = threadIdx.x; c < kv.value_dim; c += kKeys) to[c] = 0;
  }
  for (int page = seen_from / kKeys; page <= (end_seen - 1) / kKeys; ++page) {
    const uint32_t id = call.step.blocks[sequence.block_begin + page];
    const std::byte* block = call.step.block_memory + int64_t{id} * call.step.block_bytes;
    const float* k = reinterpret_cast<const float*>(block + kv.k_offset) +
                     int64_t{kv_head} * kKeys * kv.head_dim;
    const float* v = kv.value_in_key ? k
                                     : reinterpret_cast<const float*>(block + kv.v_offset) +
                                           int64_t{kv_head} * kKeys * kv.value_dim;
    const int v_stride = kv.value_in_key ? kv.head_dim : kv.value_dim;
    const int first = ::max(0, seen_from - page * kKeys);
    const int end = ::min(kKeys, end_seen - page * kKeys);
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
  if (threadIdx.x == 0 && !IsFinite(max)) SpoilRow(call.step, row);
  const float inverse = 1.0f / sum;
  for (int c = threadIdx.x; c < kv.value_dim; c += kKeys) {
    to[c] = Gated(call, row, int64_t{head} * kv.value_dim + c, to[c] * inverse);
  }
}

// --- Choice of a form ----------------------------------------------------------------------

constexpr int64_t kRowsDivided = 64;  // more rows than this fill the device without division
constexpr int64_t kWorkspaceFloats = kAttendWorkspaceMax / sizeof(float);

// Blocks that run at the same time: as many as have room for one tile of queries and a page each.
int64_t BlocksAtOnce(const KvView& kv) {
  constexpr int64_t kMost = 8;
  const int64_t values =
      int64_t{16 + kKeys} * (kv.head_dim + 8) + int64_t{kKeys} * (kv.value_dim + 8);
  const int64_t each = int64_t(ThisGpu().block_shared) / (2 * values + 1024);
  return ThisGpu().multiprocessors * std::clamp<int64_t>(each, 1, kMost);
}

// One tile of queries a sequence: a block has no more, and its warps divide the values instead.
bool IsBrief(const StepView& step, int group) {
  return step.rows == step.sequence_count && group <= kTileQueries;
}

// Blocks that have queries, of one K/V head; some more where sequences end inside of one.
int64_t BlocksOfQueries(const StepView& step, const KvView& kv, const AttentionView& params) {
  constexpr int64_t kTiles = 4;  // of a block, where it may have several (LaunchByShape)
  const int group = params.q_heads / kv.kv_heads;
  const bool one = IsBrief(step, group) || std::max(kv.head_dim, kv.value_dim) > 256;
  const int64_t queries = int64_t{step.rows} * group;
  return std::max<int64_t>(CeilDiv(queries, (one ? 1 : kTiles) * kTileQueries),
                           step.sequence_count);
}

// What groups leave in the workspace: the bound that attention.h names.
int64_t GroupFloats(const DepthView& depth, const KvView& kv, const AttentionView& params) {
  return depth.row_groups * params.q_heads * (2 + kv.value_dim);
}

// Few queries of each sequence, which AttendDeep takes.
bool IsDeep(const AttentionCall& call, const DepthView& depth) {
  constexpr int64_t kTiles = 4;
  return call.params.ends == nullptr && HasDeepRows(call, depth) &&
         GroupFloats(depth, call.kv, call.params) <= kWorkspaceFloats &&
         int64_t{call.step.rows} * call.group < kTiles * kTileQueries * call.step.sequence_count;
}

// Bytes of shared memory of a block.
template <KvType kStored, int kHead, int kValue, int kTiles>
constexpr size_t SharedOf(PageRoom room, int head_dim, int value_dim, bool value_in_key) {
  const bool values = room == PageRoom::kAll && !value_in_key;
  const size_t staged = kStored != KvType::kQ8 || room == PageRoom::kTight ? 0
                        : value_in_key                                     ? PartBytes(head_dim)
                                       : PartBytes(head_dim) + PartBytes(value_dim);
  return 2 * size_t(kTiles * 16 * kPitch<kHead> + kKeys * kPitch<kHead> +
                    (values ? kKeys * kPitch<kValue> : 0)) +
         staged;
}

template <KvType kStored, int kHead, int kValue, int kWarps, int kSplit,
          PageRoom kRoom = PageRoom::kAll>
void LaunchTensor(Stream stream, AttentionCall call, const PageParts& division) {
  constexpr int kTiles = kWarps / kSplit;
  constexpr auto kSharedOf = SharedOf<kStored, kHead, kValue, kTiles>;
  const KvView& kv = call.kv;
  const size_t shared = kSharedOf(kRoom, kv.head_dim, kv.value_dim, kv.value_in_key);
  // Of shapes that do not fit every GPU there are two forms.
  constexpr size_t kMost = kSharedOf(kRoom, kHead, kValue, false);
  if constexpr (kMost > kBlockSharedLeast) {
    static_assert(kRoom == PageRoom::kAll);
    if (shared > ThisGpu().block_shared) {
      return LaunchTensor<kStored, kHead, kValue, kWarps, kSplit, PageRoom::kTight>(stream, call,
                                                                                    division);
    }
  }
  const auto kernel = TensorAttention<kStored, kHead, kValue, kWarps, kSplit, kRoom>;
  // Every sequence may end inside a part.
  const int64_t queries = int64_t{call.step.rows} * call.group;
  const int64_t blocks = std::min(
      queries, CeilDiv<int64_t>(queries, kTiles * kTileQueries) + call.step.sequence_count);
  const dim3 grid(unsigned(blocks), unsigned(call.kv.kv_heads), unsigned(division.parts));
  LaunchEarly(kernel, grid, kWarps * kWarp, shared, stream, call);
}

template <KvType kStored>
void LaunchByShape(Stream stream, const AttentionCall& call, const PageParts& division) {
  const int head = call.kv.head_dim;
  const int value = call.kv.value_dim;
  const bool brief = IsBrief(call.step, call.group);
  if (head <= 64 && value <= 64) return LaunchTensor<kStored, 64, 64, 4, 1>(stream, call, division);
  if (head <= 128 && value <= 128) {
    return brief ? LaunchTensor<kStored, 128, 128, 4, 4>(stream, call, division)
                 : LaunchTensor<kStored, 128, 128, 4, 1>(stream, call, division);
  }
  if (head <= 256 && value <= 256) {
    return brief ? LaunchTensor<kStored, 256, 256, 4, 4>(stream, call, division)
                 : LaunchTensor<kStored, 256, 256, 8, 2>(stream, call, division);
  }
  LaunchTensor<kStored, kAttentionHeadMax, kAttentionValueMax, 4, 4>(stream, call, division);
}

}  // namespace

DepthView DepthOf(std::span<const StepSequence> sequences) {
  int64_t longest = 0, row_groups = 0;
  for (const StepSequence& sequence : sequences) {
    const int64_t last = sequence.position + sequence.row_count - 1;
    longest = std::max<int64_t>(longest, sequence.block_count);
    row_groups += sequence.row_count * (last / (kKeys * kGroupPages) + 1);
  }
  return {int64_t(std::bit_ceil(uint64_t(longest))), int64_t(std::bit_ceil(uint64_t(row_groups)))};
}

// In how many parts the pages of a sequence are taken: blocks run in waves, and a wave takes as
// long as the pages of a block, and about one more to begin with.
PageParts PartsOfPages(const StepView& step, const DepthView& depth, const KvView& kv,
                       const AttentionView& params) {
  const int64_t groups = CeilDiv<int64_t>(depth.longest, kGroupPages);
  // Where rows see what is behind them, groups end there: nobody divides those.
  const bool whole = kv.type == KvType::kF32 || params.ends != nullptr;
  if (whole || groups < 2 || step.rows > kRowsDivided) return {};
  if (GroupFloats(depth, kv, params) > kWorkspaceFloats) return {};
  const int64_t blocks = BlocksOfQueries(step, kv, params) * kv.kv_heads;
  const int64_t at_once = BlocksAtOnce(kv);
  const int64_t waves = CeilDiv(blocks, at_once);
  int64_t best = waves * (depth.longest + 1);
  PageParts division;
  for (int64_t w = waves; w < waves + 4; ++w) {
    const int64_t parts = std::min(groups, w * at_once / blocks);
    const int64_t pages = CeilDiv(groups, parts) * kGroupPages;
    if (parts == 1 || w * (pages + 1) >= best) continue;
    best = w * (pages + 1);
    division = {int(pages), int(CeilDiv(depth.longest, pages))};
  }
  return division;
}

void JoinGroups(Stream stream, const AttentionCall& call, const DepthView& depth) {
  const dim3 grid(unsigned(call.step.rows), unsigned(call.params.q_heads),
                  Blocks(call.kv.value_dim, kJoinThreads));
  const int at_once =
      int(std::min<int64_t>(CeilDiv<int64_t>(depth.longest, kGroupPages), kJoinGroups));
  const auto shared = [](int groups) { return size_t(groups) * kJoinThreads * sizeof(float); };
  LaunchEarly(JoinKernel, grid, kJoinThreads, shared(at_once), stream, call, at_once);
}

size_t AttendWorkspace(const StepView& step, const DepthView& depth, const KvView& kv,
                       const AttentionView& params) {
  const AttentionCall call{step, kv, params, {}, {}, params.q_heads / kv.kv_heads, {}, 0};
  if (IsDeep(call, depth) || PartsOfPages(step, depth, kv, params).page_count > 0) {
    return size_t(GroupFloats(depth, kv, params)) * sizeof(float);
  }
  return depth.longest > kGroupPages && HasManyQueries(call) ? ManyWorkspace(call) : 0;
}

void Attend(Stream stream, const StepView& step, const DepthView& depth, const KvView& kv,
            const AttentionView& params, const View& q, const View& out, void* workspace) {
  AttentionCall call{step, kv, params, q, out, params.q_heads / kv.kv_heads, {}, 0};
  if (kv.type == KvType::kF32) {
    const dim3 grid(unsigned(step.rows), unsigned(params.q_heads));
    const size_t shared = size_t(kv.head_dim + kKeys) * sizeof(float);
    LaunchInTurn(FloatAttention, grid, kKeys, shared, stream, call);
    return;
  }
  float* const room = static_cast<float*>(workspace);
  const GroupRoom groups{room, room + depth.row_groups * params.q_heads * kv.value_dim};
  if (IsDeep(call, depth)) {
    call.left = groups;
    AttendDeep(stream, call, depth);
    return JoinGroups(stream, call, depth);
  }
  const PageParts division = PartsOfPages(step, depth, kv, params);
  if (division.page_count == 0 && HasManyQueries(call)) {
    call.left.out = room;
    return AttendMany(stream, call);
  }
  if (division.page_count > 0) call.left = groups;
  call.page_count = division.page_count;
  const auto launch = kv.type == KvType::kF16    ? LaunchByShape<KvType::kF16>
                      : kv.type == KvType::kBF16 ? LaunchByShape<KvType::kBF16>
                                                 : LaunchByShape<KvType::kQ8>;
  launch(stream, call, division);
  if (division.page_count > 0) JoinGroups(stream, call, depth);
}

}  // namespace reprise::cuda
