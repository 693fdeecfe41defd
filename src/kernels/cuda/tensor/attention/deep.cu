// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/attention/deep.h"
#include "kernels/cuda/tensor/attention/page_tiles.cuh"
#include "kernels/cuda/tensor/attention/weigh_row.cuh"

// Attention of few queries over many pages, at the rate at which memory brings them. A task is one
// tile of queries and one group of pages of one K/V head; blocks stay and take one task after
// another, so that a sequence has as many as it has groups, whatever else is in the step. Pages
// come into a ring, two pages ahead over all tasks of the block.
//
// Eight warps divide the keys of a page for the scores, the queries for the weights, the channels
// for the values. Scores of the next page are products between those with the values of this one:
// both are chains that wait for themselves. Pages of q8_0 come as they are stored and are widened
// while others weigh.
namespace reprise::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kGroupKeys = kKeys * kGroupPages;
constexpr int kSlots = 3;  // pages in shared memory
constexpr int kAhead = kSlots - 1;

// Blocks of a multiprocessor.
template <int kDim>
constexpr int kBlocks = kDim == 64    ? 3
                        : kDim == 128 ? 2
                                      : 1;

// Keys and values of pages as they come, and where those of q8_0 are widened.
template <KvType kStored, int kDim>
struct Ring {
  alignas(1024) uint16_t part[kSlots][2][kDim / 64 * kTileValues];
};
template <int kDim>
struct Ring<KvType::kQ8, kDim> {
  alignas(1024) uint16_t wide[2][kDim / 64 * kTileValues];
  alignas(128) std::byte part[kSlots][2][PartBytes(kDim)];
};

// Rows of q, scores, weights and tops that are no query's hold anything: rows of products do not
// meet.
template <KvType kStored, int kDim>
struct Room {
  Ring<kStored, kDim> ring;
  alignas(16) uint16_t q[kTileQueries][kDim + 8];  // 8 more, so that ldmatrix meets no bank twice
  alignas(16) float scores[kTileQueries][kKeys + 8];
  alignas(16) uint16_t weights[kTileQueries][kKeys + 8];
  float tops[kTileQueries];
};

struct Task {
  QueryRange queries;  // .sequence -1: there is no such task
  int head = 0;        // of K/V
  int group = 0;       // of pages
  int page = 0;        // those that the queries see
  int page_end = 0;
  int held = 0;  // positions up to the last query
};

// LoadMatrix4 and LoadMatrix4Transposed (mma.cuh) from an address of shared memory.
__device__ __forceinline__ void LoadRows(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}
__device__ __forceinline__ void LoadColumns(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}

// By a whole warp.
__device__ inline Task FindTask(const AttentionCall& call, int index) {
  const StepView& step = call.step;
  const int lane = threadIdx.x % kWarp;
  int before = 0;
  for (int first = 0; first < step.sequence_count; first += kWarp) {
    int parts = 0, begin = 0, tasks = 0;
    if (first + lane < step.sequence_count) {
      const SequenceView& sequence = step.sequences[first + lane];
      parts = CeilDiv(sequence.row_count * call.group, kTileQueries);
      begin = FirstSeen(call.params, sequence.position) / kGroupKeys;
      tasks = parts * (GroupsOf(sequence) - begin) * call.kv.kv_heads;
    }
    int upto = tasks;
    for (int d = 1; d < kWarp; d *= 2) {
      const int other = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += other;
    }
    const int mine = before + upto - tasks;
    const unsigned found = __ballot_sync(~0u, index >= mine && index < mine + tasks);
    if (found != 0) {
      const int owner = __ffs(found) - 1;
      const int rest = index - __shfl_sync(~0u, mine, owner);
      parts = __shfl_sync(~0u, parts, owner);
      const SequenceView& sequence = step.sequences[first + owner];
      Task task;
      task.head = rest / parts % call.kv.kv_heads;
      task.group = __shfl_sync(~0u, begin, owner) + rest / parts / call.kv.kv_heads;
      const int query = rest % parts * kTileQueries;
      const int end = min(query + kTileQueries, sequence.row_count * call.group);
      task.queries = {first + owner, query, end};
      task.held = sequence.position + (end - 1) / call.group + 1;
      const int seen = FirstSeen(call.params, sequence.position + query / call.group);
      task.page = max(seen / kKeys, task.group * kGroupPages);
      task.page_end = min(CeilDiv(task.held, kKeys), (task.group + 1) * kGroupPages);
      return task;
    }
    before += __shfl_sync(~0u, upto, kWarp - 1);
  }
  return {};
}

// What a block reads: the pages of its tasks, one after another.
template <KvType kStored, int kDim>
class Pages {
 public:
  __device__ Pages(const AttentionCall& call, Ring<kStored, kDim>& ring)
      : call_(call), ring_(ring) {
    Find(blockIdx.x);
  }

  // Whether earlier steps have stored all that Begin asks for: nothing in this one touches it.
  __device__ bool AreOld() const {
    return task_.queries.sequence >= 0 && task_.page + kAhead + 1 <= task_.page_end &&
           (task_.page + kAhead + 1) * kKeys <=
               call_.step.sequences[task_.queries.sequence].position;
  }

  // Keys of the first page, and then as often as there is room for it
  __device__ __forceinline__ void Begin() {
    Take();
    Copy<false>(0);
    CommitAsync();
    for (int i = 0; i < kAhead; ++i) Ask();
  }
  // the values of a page and the keys of the next one: what was copied in order is waited for in
  // order.
  __device__ __forceinline__ void Ask() {
    Copy<true>(slot_);
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    Take();
    Copy<false>(slot_);
    CommitAsync();
  }

 private:
  __device__ __forceinline__ void Find(int index) {
    index_ = index;
    task_ = FindTask(call_, index);
    if (task_.queries.sequence < 0) return;
    blocks_ = call_.step.blocks + call_.step.sequences[task_.queries.sequence].block_begin;
    id_ = task_.page < task_.page_end ? blocks_[task_.page] : 0;
  }
  // Goes on to the next page.
  __device__ __forceinline__ void Take() {
    while (task_.queries.sequence >= 0 && task_.page == task_.page_end) {
      Find(index_ + int(gridDim.x));
    }
    block_ = nullptr;
    if (task_.queries.sequence < 0) return;
    block_ = call_.step.block_memory + int64_t{id_} * call_.step.block_bytes;
    head_ = task_.head;
    held_ = task_.held - task_.page * kKeys;
    ++task_.page;
    if (task_.page < task_.page_end) id_ = blocks_[task_.page];  // before it is needed
  }

  // Keys or values of the page to their place in a slot; rows that are not held are zeros.
  template <bool kValues>
  __device__ __forceinline__ void Copy(int slot) {
    if (block_ == nullptr) return;
    const KvView& kv = call_.kv;
    const int width = kValues ? kv.value_dim : kv.head_dim;
    const std::byte* part = block_ + (kValues ? kv.v_offset : kv.k_offset);
    if constexpr (kStored == KvType::kQ8) {
      StagePart(ring_.part[slot][kValues], CodesOfHead(part, head_, width), width, int(threadIdx.x),
                kThreads);
    } else {
      constexpr int kChunks = kDim / 8;
      constexpr int kRows = kThreads / kChunks;  // at once
      const int row = int(threadIdx.x) / kChunks, chunk = int(threadIdx.x) % kChunks;
      const bool valid = chunk * 8 < width;
      const auto* from = reinterpret_cast<const uint16_t*>(part) +
                         (int64_t{head_} * kKeys + row) * width + (valid ? chunk * 8 : 0);
      uint16_t* to = PlaceOf(ring_.part[slot][kValues], row, chunk);
      static_assert(kRows % 8 == 0);  // rows are swizzled by their place among eight
#pragma unroll
      for (int i = 0; i < kKeys / kRows; ++i) {
        CopyAsync16(to + i * kRows * 64, from + i * kRows * width,
                    valid && row + i * kRows < held_);
      }
    }
  }

  const AttentionCall& call_;
  Ring<kStored, kDim>& ring_;
  int index_;  // of the task
  Task task_;  // with the next page to take
  const uint32_t* blocks_;
  uint32_t id_;             // of that page's block
  int slot_ = 0;            // of the page whose keys were asked for last
  const std::byte* block_;  // where it is; null: there is none
  int head_;
  int held_;
};

template <KvType kStored, int kDim>
class DeepWarp {
 public:
  __device__ DeepWarp(const AttentionCall& call, Room<kStored, kDim>& room)
      : call_(call), room_(room), pages_(call, room.ring) {}

  __device__ void Run() {
    const bool old = pages_.AreOld();
    if (!old) WaitForInputs();
    pages_.Begin();
    if (old) WaitForInputs();
    WaitAsync<kAhead>();  // the first keys; all meet before they are read
    for (int index = blockIdx.x;; index += gridDim.x) {
      const Task task = FindTask(call_, index);
      if (task.queries.sequence < 0) break;
      if (task.page < task.page_end) Attend(task);
    }
    WaitAsync<0>();
  }

 private:
  static constexpr Half kType = kHalfOf<kStored>;
  static constexpr int kPart = kDim / kWarps;  // channels of a warp
  static constexpr bool kWiden = kStored == KvType::kQ8;
  static constexpr int kRowsEach = kTileQueries / kWarps;  // that a warp weighs

  __device__ __forceinline__ int NextSlot() const { return slot_ + 1 == kSlots ? 0 : slot_ + 1; }
  __device__ __forceinline__ const uint16_t* Keys(int slot) {
    if constexpr (kWiden)
      return room_.ring.wide[0];
    else
      return room_.ring.part[slot][0];
  }
  __device__ __forceinline__ const uint16_t* Values(int slot) {
    if constexpr (kWiden)
      return room_.ring.wide[1];
    else
      return room_.ring.part[slot][1];
  }

  // Queries, rounded.
  __device__ __forceinline__ void LoadQueries(const Task& task, int row_begin) {
    constexpr int kPairs = kDim / 2;
    const int dim = call_.kv.head_dim, count = task.queries.end - task.queries.begin;
#pragma unroll 4
    for (int i = threadIdx.x; i < count * kPairs; i += kThreads) {
      const int place = i / kPairs, c = i % kPairs * 2;
      const int query = task.queries.begin + place;
      const int64_t row = row_begin + query / call_.group;
      const float* from = call_.q.data + row * call_.q.stride +
                          int64_t{task.head * call_.group + query % call_.group} * dim;
      const float low = c < dim ? from[c] : 0.0f, high = c < dim ? from[c + 1] : 0.0f;
      const uint32_t two = Pack2<kType>(low, high);
      *reinterpret_cast<uint32_t*>(&room_.q[place][c]) = two;
      // A soft cap would hide what comes of them.
      if (!IsFinite16<kType>(uint16_t(two)) || !IsFinite16<kType>(uint16_t(two >> 16))) {
        Spoil(call_.step, task.queries.sequence);
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      LoadMatrix4(q_[i], &room_.q[lane_ % 16][16 * i + lane_ / 16 * 8]);
    }
  }

  // Scores of eight keys of a page, and, one product with each of theirs, the values of this warp's
  // channels of the page before it, times its weights p_.
  template <bool kScores, bool kValues>
  __device__ __forceinline__ void Multiply(const uint16_t* keys, const uint16_t* values) {
    // Chunks of a row differ in bits that say where it lies in no other way.
    constexpr uint32_t kChunk = 16, kTile = kTileValues * 2, kRow = 128;
    const auto place = [](const uint16_t* tiles, int row, int chunk) {
      return SharedAddress(PlaceOf(const_cast<uint16_t*>(tiles), row, chunk));
    };
    const uint32_t key = place(keys, 8 * warp_ + lane_ % 8, lane_ / 8);
    const uint32_t value = place(values, lane_, warp_ * (kPart / 8));
    float acc[4] = {0, 0, 0, 0};
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
      const int half = step % 2, j = step / 2;
      uint32_t k[4], v[4];
      if (kScores) LoadRows(k, (key ^ half * 4 * kChunk) + j * kTile);
      if (kValues) LoadColumns(v, (value ^ j * kChunk) + half * 32 * kRow);
      if (kValues && half == 0) fresh_[j][0] = fresh_[j][1] = fresh_[j][2] = fresh_[j][3] = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (kScores) Mma<kType>(acc, q_[2 * step + i], k[2 * i], k[2 * i + 1]);
        if (kValues) Mma<kType>(fresh_[j], p_[2 * half + i], v[2 * i], v[2 * i + 1]);
      }
    }
    if (kScores) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(&room_.scores[lane_ / 4 + 8 * h][8 * warp_ + 2 * (lane_ % 4)]) =
            make_float2(acc[2 * h], acc[2 * h + 1]);
      }
    }
  }

  // The rows of this warp.
  __device__ __forceinline__ void WeighRows(int count, int page) {
#pragma unroll
    for (int n = 0; n < kRowsEach; ++n) {
      const int i = warp_ + n * kWarps;
      if (i >= count) break;
      const float top = WeighRow<kType>(call_.params, position_[n], page, room_.scores[i],
                                        reinterpret_cast<uint32_t*>(room_.weights[i]));
      if (lane_ == 0) room_.tops[i] = top;
    }
  }
  __device__ __forceinline__ void WidenParts(const Task& task, int page) {
    if constexpr (kWiden) {
      const KvView& kv = call_.kv;
      WidenPage<kDim>(room_.ring.wide[1], room_.ring.part[slot_][1], kv.value_dim,
                      task.held - page * kKeys, int(threadIdx.x), kThreads);
      if (page + 1 < task.page_end) WidenKeys(NextSlot());
    }
  }
  __device__ __forceinline__ void WidenKeys(int slot) {
    if constexpr (kWiden) {
      WidenPage<kDim>(room_.ring.wide[0], room_.ring.part[slot][0], call_.kv.head_dim, kKeys,
                      int(threadIdx.x), kThreads);
    }
  }

  // Takes the products with the page before this one in, those that there are, and brings the
  // weights of this one and what it needs.
  template <bool kFirst>
  __device__ __forceinline__ void Weigh(const Task& task, int page, Running<kPart>& running) {
    if (kWiden) WaitAsync<kAhead - 1>();
    __syncthreads();  // the scores are there, and all have read weights and pages
    if (!kWiden) pages_.Ask();
    WeighRows(task.queries.end - task.queries.begin, page);
    WidenParts(task, page);
    if (!kFirst) Join(running);
    if (!kWiden) WaitAsync<kAhead>();
    __syncthreads();
    if (kWiden) pages_.Ask();
      // What the next products need of the weights.
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      LoadMatrix4(p_[k], &room_.weights[lane_ % 16][16 * k + lane_ / 16 * 8]);
    }
    top_[0] = room_.tops[lane_ / 4], top_[1] = room_.tops[lane_ / 4 + 8];
  }

  __device__ __forceinline__ void Join(Running<kPart>& running) {
    Joint joint[2];
    JoinTops(top_, running, joint);
    if (warp_ == kWarps - 1) {  // sums are every warp's
      float sum[2];
      SumWeights<kType>(p_, sum);
#pragma unroll
      for (int h = 0; h < 2; ++h) running.sum[h] = joint[h].Join(running.sum[h], sum[h]);
    }
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        running.out[j][e] = joint[e / 2].Join(running.out[j][e], fresh_[j][e]);
      }
    }
  }

  __device__ __forceinline__ void Attend(const Task& task) {
    const SequenceView& sequence = call_.step.sequences[task.queries.sequence];
#pragma unroll
    for (int n = 0; n < kRowsEach; ++n) {
      position_[n] = sequence.position + (task.queries.begin + warp_ + n * kWarps) / call_.group;
    }
    LoadQueries(task, sequence.row_begin);
    if (kWiden) {
      WidenKeys(slot_);
      __syncthreads();
    }
    Running<kPart> running;
    Multiply<true, false>(Keys(slot_), nullptr);
    Weigh<true>(task, task.page, running);
    int page = task.page;
#pragma unroll 1
    for (; page + 1 < task.page_end; ++page) {
      Multiply<true, true>(Keys(NextSlot()), Values(slot_));
      slot_ = NextSlot();
      Weigh<false>(task, page + 1, running);
    }
    Multiply<false, true>(nullptr, Values(slot_));
    slot_ = NextSlot();
    Join(running);
    const int place = FirstPlace(call_.step, task.queries.sequence);
    const TileRows rows = RowsOfTile(call_, sequence, task.queries, task.head, 0);
    StoreGroup(call_, sequence, place, rows, task.group, warp_ * kPart, warp_ == kWarps - 1,
               running);
  }

  const AttentionCall& call_;
  Room<kStored, kDim>& room_;
  Pages<kStored, kDim> pages_;
  const int warp_ = static_cast<int>(threadIdx.x) / kWarp;
  const int lane_ = static_cast<int>(threadIdx.x) % kWarp;
  int slot_ = 0;  // of the page
  int position_[kRowsEach];
  uint32_t q_[kDim / 16][4];
  uint32_t p_[4][4];
  float top_[2];
  float fresh_[kPart / 8][4];
};

template <KvType kStored, int kDim>
__global__ void __launch_bounds__(kThreads, kBlocks<kDim>)
    DeepAttention(const __grid_constant__ AttentionCall call) {
  extern __shared__ __align__(1024) std::byte shared[];
  LetNextStart();
  DeepWarp<kStored, kDim>(call, *reinterpret_cast<Room<kStored, kDim>*>(shared)).Run();
}

template <KvType kStored, int kDim>
void Launch(Stream stream, const AttentionCall& call, const DepthView& depth) {
  const auto kernel = DeepAttention<kStored, kDim>;
  constexpr size_t kShared = sizeof(Room<kStored, kDim>);
  static_assert((kShared + 1024) * kBlocks<kDim> <= 228 << 10);
  const int64_t tasks = depth.row_groups * call.kv.kv_heads;
  LaunchEarly(kernel, dim3(unsigned(std::min(tasks, DeepBlocks(call.kv)))), kThreads, kShared,
              stream, call);
}

// Bytes of shared memory of a block.
size_t SharedOf(const KvView& kv) {
  const int dim = std::max(kv.head_dim, kv.value_dim);
  const auto of = [&]<KvType kStored>() {
    return dim <= 64    ? sizeof(Room<kStored, 64>)
           : dim <= 128 ? sizeof(Room<kStored, 128>)
                        : sizeof(Room<kStored, 256>);
  };
  return kv.type == KvType::kQ8 ? of.template operator()<KvType::kQ8>()
                                : of.template operator()<KvType::kF16>();
}

template <KvType kStored>
void LaunchByShape(Stream stream, const AttentionCall& call, const DepthView& depth) {
  const int dim = std::max(call.kv.head_dim, call.kv.value_dim);
  (dim <= 64    ? Launch<kStored, 64>
   : dim <= 128 ? Launch<kStored, 128>
                : Launch<kStored, 256>)(stream, call, depth);
}

}  // namespace

int64_t DeepBlocks(const KvView& kv) {
  constexpr size_t kReserved = 1024;  // bytes of shared memory that every block has besides
  const int dim = std::max(kv.head_dim, kv.value_dim);
  const size_t room = (ThisGpu().block_shared + kReserved) / (SharedOf(kv) + kReserved);
  const int64_t most = dim <= 64 ? kBlocks<64> : dim <= 128 ? kBlocks<128> : kBlocks<256>;
  return int64_t{ThisGpu().multiprocessors} * std::clamp<int64_t>(int64_t(room), 1, most);
}

bool HasDeepRows(const AttentionCall& call, const DepthView& depth) {
  const KvView& kv = call.kv;
  const int chunk = kv.type == KvType::kQ8 ? 16 : 8;  // channels that are copied together
  const bool shaped = kv.head_dim <= 256 && kv.value_dim <= 256 && kv.head_dim % chunk == 0 &&
                      kv.value_dim % chunk == 0 && !kv.value_in_key && kv.type != KvType::kF32;
  return shaped && SharedOf(kv) <= ThisGpu().block_shared && depth.longest > 2;
}

void AttendDeep(Stream stream, const AttentionCall& call, const DepthView& depth) {
  const auto launch = call.kv.type == KvType::kF16    ? LaunchByShape<KvType::kF16>
                      : call.kv.type == KvType::kBF16 ? LaunchByShape<KvType::kBF16>
                                                      : LaunchByShape<KvType::kQ8>;
  launch(stream, call, depth);
}

}  // namespace reprise::cuda
