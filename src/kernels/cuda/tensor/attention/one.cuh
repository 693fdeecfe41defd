// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/attention/one.h"
#include "kernels/cuda/tensor/attention/weigh_row.cuh"
#include "kernels/cuda/tensor/hopper.cuh"

// A block has one sequence, one K/V head and the queries that share it: one tile. It norms and
// turns them and its key itself, while what earlier steps have stored of its first page arrives.
// Warps divide the keys of a page for the scores, which meet in shared memory, the queries for the
// weights, and the channels for the values.
//
// Where there are several pages, the blocks of a cluster take them side by side. Each sends every
// page's top, sum and values to those that join them: every block has a share of the channels, for
// which it does what one block would, page by page in their order. Who has the results of all pages
// knows that nobody writes to its shared memory any more, so that it may go.
// Where there are many pages, others divide them among more blocks than a cluster has (deep.cu).
namespace reprise::cuda::one_row {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTeams = kThreads / kNormLanes;
constexpr int kTeamBits = 3;  // clusters of up to 8 blocks: what every GPU with clusters has

struct OneRowCall {
  AttentionCall attention;
  HeadsView inputs;
  View k, v;
  int team_bits;  // 2^team_bits blocks of a cluster have page_count pages each
};

// Blocks of a multiprocessor, for which their registers suffice.
template <int kDim>
inline constexpr int kBlocks = kDim == 64    ? 4
                               : kDim == 128 ? 3
                                             : 2;

// Rows of shared memory are kDim values and 8 more, so that ldmatrix meets no bank twice.
template <int kDim>
inline constexpr int kPitch = kDim + 8;
inline constexpr int kScorePitch = kKeys + 8;

// Rows of q, scores and tops that are no query's hold anything: rows of products do not meet.
// Behind it: gates [group, share] of the channels that the block joins, and results of pages
// (ResultFloats).
template <int kDim>
struct Room {
  alignas(128) uint16_t q[kTileQueries][kPitch<kDim>];
  alignas(16) uint16_t k[kKeys][kPitch<kDim>];
  alignas(16) uint16_t v[kKeys][kPitch<kDim>];
  alignas(16) float scores[kTileQueries][kScorePitch];  // weights of 16 bit in their place, later
  float tops[kTileQueries];
  uint64_t arrived;  // the results of all pages
};
// Of a page: top and sum [group, 2], then values [group, share].
__host__ __device__ constexpr int ResultFloats(int group, int share) { return group * (2 + share); }

// Rows [0, end) of a page without row `other`; those behind `held` are zeros. The code of this
// kernel runs once, and comes from memory: the fewer instructions it has, the sooner they are here.
template <int kDim>
__device__ __forceinline__ void CopyRows(uint16_t (*to)[kPitch<kDim>], const uint16_t* from,
                                         int end, int held, int other) {
  constexpr int kChunks = kDim / 8;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < end * kChunks; i += kThreads) {
    const int row = i / kChunks, c = i % kChunks * 8;
    if (row != other) CopyAsync16(&to[row][c], from + row * kDim + c, row < held);
  }
}

// One head of the row as 16 threads have it: every sixteenth channel, so that a thread has all
// links of its chain of the norm and both channels of every rotation.
template <int kDim>
struct LaneHead {
  static constexpr int kEach = kDim / kNormLanes;
  float x[kEach];

  __device__ __forceinline__ void Load(const float* head, int lane) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = head[i * kNormLanes + lane];
  }
  // By whole warps.
  __device__ __forceinline__ void Norm(const float (&weight)[kEach], float eps) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = fmaf(x[i], x[i], sum);
    const float r = InverseRoot(SumLanes(sum) / static_cast<float>(kDim), eps);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = (x[i] * r) * weight[i];
  }
  // Returns whether all are finite.
  template <Half kType>
  __device__ __forceinline__ bool Round(uint16_t* to, int lane) const {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint16_t rounded = Round16<kType>(x[i]);
      to[i * kNormLanes + lane] = rounded;
      finite &= IsFinite16<kType>(rounded);
    }
    return finite;
  }
  template <int kPairs>
  __device__ __forceinline__ void Turn(const float (&cos)[kEach / 2],
                                       const float (&sin)[kEach / 2]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float a = x[i], b = x[i + kPairs];
      x[i] = fmaf(a, cos[i], -(b * sin[i]));
      x[i + kPairs] = fmaf(b, cos[i], a * sin[i]);
    }
  }
};

// Rotations that there is code for: of all channels and of a quarter of them.
template <int kDim>
inline constexpr int kAllTurned = kDim / kNormLanes / 2;
template <int kDim>
inline constexpr int kFewTurned = kDim / kNormLanes / 8;

// Two channels of pages, or of groups, that were joined.
struct JoinedPair {
  float2 mark = {kMinusInfinity, 0};  // top, sum
  float2 out = {0, 0};

  __device__ __forceinline__ void Join(float2 next_mark, float2 next) {
    const Joint joint = JointOf(mark.x, next_mark.x);
    mark = make_float2(joint.rises ? next_mark.x : mark.x, joint.Join(mark.y, next_mark.y));
    out = make_float2(joint.Join(out.x, next.x), joint.Join(out.y, next.y));
  }
};

// The work of a block. kTeam: pages are divided in a cluster.
template <KvType kStored, int kDim, bool kTeam>
class OneRow {
 public:
  __device__ __forceinline__ OneRow(const OneRowCall& one, std::byte* shared)
      : one_(one), room_(*reinterpret_cast<Room<kDim>*>(shared)) {
    const int bits = kTeam ? one.team_bits : 0;
    share_bits_ = kDimBits - bits;
    rank_ = static_cast<int>(blockIdx.x) & ((1 << bits) - 1);
    gates_ = reinterpret_cast<float*>(shared + sizeof(Room<kDim>));
    results_ = gates_ + (call_.group << share_bits_);
    // Where things are, the step said before its first kernel.
    const SequenceView& sequence = call_.step.sequences[blockIdx.x >> bits];
    row_ = sequence.row_begin;
    position_ = sequence.position;
    blocks_ = call_.step.blocks + sequence.block_begin;
    last_ = position_ / kKeys;
    first_ = page_ = FirstSeen(call_.params, position_) / kKeys;
    end_ = last_ + 1;
    if (kTeam) {
      page_ += rank_ * call_.page_count;
      end_ = min(end_, page_ + call_.page_count);
    }
  }

  __device__ __forceinline__ bool has_pages() const { return page_ < end_; }
  __device__ __forceinline__ int pages_of_all() const { return last_ + 1 - first_; }
  // That a team sends to each of its blocks.
  __device__ __forceinline__ int result_bytes() const {
    return pages_of_all() * ResultFloats(call_.group, 1 << share_bits_) * int{sizeof(float)};
  }

  // What no kernel of the step writes: norms, and of the first page what earlier steps have stored.
  __device__ __forceinline__ void AskEarly() {
    Load<false>(page_, call_.kv.k_offset, room_.k, true);
    Load<true>(page_, call_.kv.v_offset, room_.v, true);
    own_ = Stored(last_, 0) + position_ % kKeys * kDim;
    if (has_pages() && Normed()) {
      const float* norm = Team() < call_.group ? one_.inputs.q_norm : one_.inputs.k_norm;
#pragma unroll
      for (int i = 0; i < kEach; ++i) norm_[i] = LoadEarly(norm + i * kNormLanes + Lane());
    }
  }

  // Gates are needed last: each thread asks for those that it will want.
  __device__ __forceinline__ void AskForGates() {
    const View& gates = call_.params.gate;
    if (gates.data != nullptr) {
      const float* from = gates.data + row_ * gates.stride;
#pragma unroll 1
      for (int pair = threadIdx.x; pair < Pairs(); pair += kThreads) {
        CopyAsync8(gates_ + 2 * pair, from + ColumnOf(pair));
      }
    }
    CommitAsync();
  }

  // Heads of q, then the one of k, and the value: rounded, in their places.
  __device__ __forceinline__ void MakeHeads() {
    const HeadsView& inputs = one_.inputs;
    const int group = call_.group, lane = Lane();
    const bool has_row = end_ == last_ + 1;
    const int64_t head_channel = int64_t{Head()} * kDim;
    const auto from = [&](int index) {
      return index < group ? call_.q.data + row_ * call_.q.stride + (Head() * group + index) * kDim
                           : one_.k.data + row_ * one_.k.stride + head_channel;
    };
    // Everything is asked for at once.
    LaneHead<kDim> mine;
    mine.Load(from(Team()), lane);
    const int turned = inputs.half / kNormLanes;
    float cos[kEach / 2], sin[kEach / 2];
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      if (i >= turned) break;
      cos[i] = inputs.cos[row_ * inputs.half + i * kNormLanes + lane];
      sin[i] = inputs.sin[row_ * inputs.half + i * kNormLanes + lane];
    }
    const bool has_value = has_row && threadIdx.x < kDim;
    float value = 0;
    if (has_value) value = one_.v.data[row_ * one_.v.stride + head_channel + threadIdx.x];
    AskForGates();
    const int slot = position_ % kKeys;
    bool finite = true;
#pragma unroll 1
    for (int index = Team(); index - Team() <= group; index += kTeams) {
      if (index >= kTeams) {  // the key of sixteen queries
        mine.Load(from(index), lane);
        if (Normed()) {
#pragma unroll
          for (int i = 0; i < kEach; ++i) norm_[i] = inputs.k_norm[i * kNormLanes + lane];
        }
      }
      if (Normed()) mine.Norm(norm_, inputs.eps);
      if (turned == kAllTurned<kDim>) {
        mine.template Turn<kAllTurned<kDim>>(cos, sin);
      } else if (turned > 0) {
        mine.template Turn<kFewTurned<kDim>>(cos, sin);
      }
      if (index < group) {
        finite &= mine.template Round<kType>(room_.q[index], lane);
      } else if (index == group && has_row) {
        finite &= mine.template Round<kType>(own_ + call_.kv.k_offset / 2, lane);
        if (page_ == last_) mine.template Round<kType>(room_.k[slot], lane);
      }
    }
    if (has_value) {
      const uint16_t rounded = Round16<kType>(value);
      own_[call_.kv.v_offset / 2 + threadIdx.x] = rounded;
      if (page_ == last_) room_.v[slot][threadIdx.x] = rounded;
      finite &= IsFinite16<kType>(rounded);
    }
    if (!finite) SpoilRow(call_.step, row_);
  }

  __device__ __forceinline__ void Attend() {
    Running<kPart> running, all;
#pragma unroll 1
    for (; page_ < end_; ++page_) {
      WaitAsync<2>();
      __syncthreads();
      ScorePage();
      __syncthreads();  // all have read the keys, and the scores are there
      Load<false>(page_ + 1, call_.kv.k_offset, room_.k, false);
#pragma unroll 1
      for (int row = Warp(); row < call_.group; row += kWarps) {
        float* scores = room_.scores[row];
        room_.tops[row] = WeighRow<kType>(call_.params, position_, page_, scores,
                                          reinterpret_cast<uint32_t*>(scores));
      }
      WaitAsync<2>();
      __syncthreads();
      JoinValues(running);
      if (page_ + 1 < end_) {
        __syncthreads();  // all have read the values
        Load<true>(page_ + 1, call_.kv.v_offset, room_.v, false);
        CommitAsync();  // where the first page has its gates
      }
      if (kTeam) {
        Leave(page_ - first_, running);
      } else if ((page_ + 1) % kGroupPages == 0 || page_ + 1 == end_) {
        JoinRunning(running, all);
        running = {};
      }
    }
    if (kTeam) return;
    Leave(0, all);
    __syncthreads();
  }

  // Joins `count` results in order, of the channels that this block has a share of.
  __device__ __forceinline__ void Finish(int count) {
    const int group = call_.group;
    const int stride = ResultFloats(group, 1 << share_bits_);
    float* out = call_.out.data + row_ * call_.out.stride;
    WaitAsync<0>();
    __syncwarp();  // for the compiler: gates are read behind the wait
#pragma unroll 1
    for (int pair = threadIdx.x; pair < Pairs(); pair += kThreads) {
      float2 gate = make_float2(1, 1);
      if (call_.params.gate.data != nullptr) {
        gate = reinterpret_cast<const float2*>(gates_)[pair];
        gate = make_float2(reference::Sigmoid(gate.x), reference::Sigmoid(gate.y));
      }
      if (kTeam) WaitBarrier(&room_.arrived, 0);
      const float* mark = results_ + 2 * (2 * pair >> share_bits_);
      const float* values = results_ + 2 * group + 2 * pair;
      JoinedPair all, group;
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        if (kTeam && (first_ + i) % kGroupPages == 0) {
          all.Join(group.mark, group.out);
          group = {};
        }
        group.Join(*reinterpret_cast<const float2*>(mark + i * stride),
                   *reinterpret_cast<const float2*>(values + i * stride));
      }
      all.Join(group.mark, group.out);
      if (!IsFinite(all.mark.x)) SpoilRow(call_.step, row_);
      const int head = Head() * call_.group + (2 * pair >> share_bits_);
      const float inverse = 1.0f / WithSink(call_.params, head, all.mark.x, all.mark.y);
      *reinterpret_cast<float2*>(out + ColumnOf(pair)) =
          make_float2(gate.x * (all.out.x * inverse + 0.0f), gate.y * (all.out.y * inverse + 0.0f));
    }
  }

 private:
  static constexpr Half kType = kHalfOf<kStored>;
  static constexpr int kEach = kDim / kNormLanes;
  static constexpr int kPart = kDim / kWarps;  // channels of a warp
  static constexpr int kDimBits = std::countr_zero(unsigned{kDim});

  __device__ __forceinline__ int Head() const { return static_cast<int>(blockIdx.y); }
  __device__ __forceinline__ int Warp() const { return static_cast<int>(threadIdx.x) / kWarp; }
  // Threads as they have heads.
  __device__ __forceinline__ int Team() const { return static_cast<int>(threadIdx.x) / kNormLanes; }
  __device__ __forceinline__ int Lane() const { return static_cast<int>(threadIdx.x) % kNormLanes; }
  __device__ __forceinline__ bool Normed() const { return one_.inputs.q_norm != nullptr; }

  // Two channels each of what this block has a share of, query by query.
  __device__ __forceinline__ int Pairs() const { return call_.group << share_bits_ >> 1; }
  __device__ __forceinline__ int ColumnOf(int pair) const {
    const int row = 2 * pair >> share_bits_, c = 2 * pair & ((1 << share_bits_) - 1);
    return (Head() * call_.group + row) * kDim + (rank_ << share_bits_) + c;
  }

  __device__ __forceinline__ uint16_t* Stored(int page, int64_t offset) const {
    std::byte* block = call_.step.block_memory + int64_t{blocks_[page]} * call_.step.block_bytes;
    return reinterpret_cast<uint16_t*>(block + offset) + int64_t{Head()} * kKeys * kDim;
  }

  // Of a page what is stored. `early`: that of earlier steps, which nothing in this one touches;
  // the row's own, this block brings itself. kPad: rows that are not there are zeros. Of keys they
  // may be anything, as nobody looks at their scores.
  template <bool kPad>
  __device__ __forceinline__ void Load(int page, int64_t offset, uint16_t (*to)[kPitch<kDim>],
                                       bool early) {
    if (page < end_) {
      const int slot = position_ % kKeys;
      const int held = page == last_ ? slot + (early ? 0 : 1) : kKeys;
      CopyRows<kDim>(to, Stored(page, offset), kPad ? kKeys : held, held,
                     kPad && early && page == last_ ? slot : -1);
    }
    CommitAsync();
  }

  // Eight keys a warp.
  __device__ __forceinline__ void ScorePage() {
    const int lane = threadIdx.x % kWarp, warp = Warp();
    float acc[4] = {0, 0, 0, 0};
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
      uint32_t b[4];
      LoadMatrix4(b, &room_.k[8 * warp + lane % 8][32 * step + lane / 8 * 8]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        LoadMatrix4(a, &room_.q[lane % 16][32 * step + 16 * half + lane / 16 * 8]);
        Mma<kType>(acc, a, b[2 * half], b[2 * half + 1]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      *reinterpret_cast<float2*>(&room_.scores[lane / 4 + 8 * h][8 * warp + 2 * (lane % 4)]) =
          make_float2(acc[2 * h], acc[2 * h + 1]);
    }
  }

  // A warp's channels of a page, which join those before it; in a team they stay for themselves.
  __device__ __forceinline__ void JoinValues(Running<kPart>& running) {
    const int lane = threadIdx.x % kWarp;
    const float top[2] = {room_.tops[lane / 4], room_.tops[lane / 4 + 8]};
    uint32_t p[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto* weights = reinterpret_cast<const uint16_t*>(room_.scores[lane % 16]);
      LoadMatrix4(p[k], weights + 16 * k + lane / 16 * 8);
    }
    float fresh[kPart / 8][4] = {};
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
#pragma unroll
      for (int j = 0; j < kPart / 8; ++j) {
        uint32_t b[4];
        LoadMatrix4Transposed(b, &room_.v[16 * k + lane][Warp() * kPart + 8 * j]);
        Mma<kType>(fresh[j], p[k], b[0], b[1]);
        Mma<kType>(fresh[j], p[k + 1], b[2], b[3]);
      }
    }
    Joint joint[2];
    if (kTeam) {
      SumWeights<kType>(p, running.sum);
      running.top[0] = top[0], running.top[1] = top[1];
    } else {
      JoinPacked<kType>(top, p, running, joint);
    }
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        running.out[j][e] = kTeam ? fresh[j][e] : joint[e / 2].Join(running.out[j][e], fresh[j][e]);
      }
    }
  }

  // What this thread has, to result `index` of the block that joins these channels.
  __device__ __forceinline__ void Leave(int index, const Running<kPart>& running) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
    const int share = 1 << share_bits_, group = call_.group;
    const int channel = Warp() * kPart, to = channel >> share_bits_;
    const int first = index * ResultFloats(group, share);
    const uint32_t there = kTeam ? PlaceIn(to, results_) : 0;
    const uint32_t barrier = kTeam ? PlaceIn(to, &room_.arrived) : 0;
    const auto leave = [&](int at, float2 two) {
      if constexpr (kTeam) {
        Send(there + 4 * at, two, barrier);
      } else {
        *reinterpret_cast<float2*>(results_ + at) = two;
      }
    };
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h;
      if (row >= group) break;
      if (t == 0 && channel == to << share_bits_) {
        leave(first + 2 * row, make_float2(running.top[h], running.sum[h]));
      }
      const int at = first + 2 * group + row * share + channel - (to << share_bits_) + 2 * t;
#pragma unroll
      for (int j = 0; j < kPart / 8; ++j) {
        leave(at + 8 * j, make_float2(running.out[j][2 * h], running.out[j][2 * h + 1]));
      }
    }
  }

  const OneRowCall& one_;
  const AttentionCall& call_ = one_.attention;
  Room<kDim>& room_;
  float* gates_;
  float* results_;
  int share_bits_;  // 2^share_bits_ channels of every query are joined by this block
  int rank_;        // of it in its cluster
  int64_t row_;     // of the step
  int position_;
  const uint32_t* blocks_;
  uint16_t* own_;      // the row's place in its block, but for the offset of K or V
  int first_, last_;   // pages that the row sees
  int page_, end_;     // of them this block's, from the next one on
  float norm_[kEach];  // this thread's, of the head that it has first
};

}  // namespace reprise::cuda::one_row
