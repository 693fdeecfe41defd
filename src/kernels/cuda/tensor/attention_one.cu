// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/attention.cuh"
#include "kernels/cuda/tensor/attention_one.h"

// A block has one sequence, one K/V head and the queries that share it: one tile. It norms and
// turns them and its key itself, while what earlier steps have stored of its first page arrives.
// Warps divide the keys of a page for the scores, which meet in shared memory, and the channels
// for the values.
namespace reprise::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTeams = kThreads / kNormLanes;

struct OneRowCall {
  AttentionCall attention;
  HeadsView inputs;
  View k, v;
};

// Rows of shared memory are kDim values and 8 more, so that ldmatrix meets no bank twice.
template <int kDim>
inline constexpr int kPitch = kDim + 8;
inline constexpr int kScorePitch = kKeys + 8;

template <int kDim>
struct Room {
  alignas(128) uint16_t q[kTileQueries][kPitch<kDim>];
  alignas(16) uint16_t k[kKeys][kPitch<kDim>];
  alignas(16) uint16_t v[kKeys][kPitch<kDim>];
  alignas(16) uint16_t new_k[kDim];  // the row's own, where its page comes later
  alignas(16) uint16_t new_v[kDim];
  alignas(16) float scores[kTileQueries][kScorePitch];
};

// Rows [begin, end) of a page; those behind `held` are zeros. The code of this kernel runs once,
// and comes from memory: the fewer instructions it has, the sooner they are here.
template <int kDim>
__device__ __forceinline__ void CopyRows(uint16_t (*to)[kPitch<kDim>], const uint16_t* from,
                                         int begin, int end, int held) {
  constexpr int kChunks = kDim / 8;
#pragma unroll 1
  for (int i = begin * kChunks + static_cast<int>(threadIdx.x); i < end * kChunks; i += kThreads) {
    const int row = i / kChunks, c = i % kChunks * 8;
    CopyAsync16(&to[row][c], from + row * kDim + c, row < held);
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

template <KvType kStored, int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    OneRowAttention(const __grid_constant__ OneRowCall one) {
  constexpr Half kType = kHalfOf<kStored>;
  constexpr int kEach = kDim / kNormLanes;
  constexpr int kPart = kDim / kWarps;  // channels of a warp
  extern __shared__ __align__(128) std::byte shared[];
  auto& room = *reinterpret_cast<Room<kDim>*>(shared);
  LetNextStart();
  const AttentionCall& call = one.attention;
  const KvView& kv = call.kv;
  const HeadsView& inputs = one.inputs;
  const int head = static_cast<int>(blockIdx.y), group = call.group;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  const int g = lane / 4, t = lane % 4;

  // Where things are, the step said before its first kernel.
  const SequenceView sequence = call.step.sequences[blockIdx.x];
  const int64_t row = sequence.row_begin;
  const int last_page = sequence.position / kKeys, slot = sequence.position % kKeys;
  int page = FirstSeen(call.params, sequence.position) / kKeys;
  int page_end = last_page + 1;
  if (call.partial != nullptr) {
    page = max(page, int(blockIdx.z) * call.page_count);
    page_end = min(page_end, int(blockIdx.z + 1) * call.page_count);
  }
  const bool has_row = page_end == last_page + 1 && page < page_end;
  const auto block_of = [&](int of) {
    const uint32_t id = call.step.blocks[sequence.block_begin + of];
    return call.step.block_memory + int64_t{id} * call.step.block_bytes;
  };
  const auto part_of = [&](int of, int64_t offset) {
    return reinterpret_cast<uint16_t*>(block_of(of) + offset) + int64_t{head} * kKeys * kDim;
  };
  // What earlier steps have stored of a page: nothing in this one touches it. Its row comes from
  // this block itself.
  const auto load = [&](int of, int64_t offset, uint16_t(*to)[kPitch<kDim>], const uint16_t* own) {
    if (of < page_end) {
      const uint16_t* from = part_of(of, offset);
      const int stored = of == last_page ? slot : kKeys;
      CopyRows<kDim>(to, from, 0, stored, stored);
      if (of == last_page) {
        CopyRows<kDim>(to, from, slot + 1, kKeys, 0);
        if (own != nullptr && threadIdx.x < kDim / 8) {
          reinterpret_cast<uint4*>(to[slot])[threadIdx.x] =
              reinterpret_cast<const uint4*>(own)[threadIdx.x];
        }
      }
    }
    CommitAsync();
  };
  load(page, kv.k_offset, room.k, nullptr);
  load(page, kv.v_offset, room.v, nullptr);
  for (int i = group * kPitch<kDim> / 8 + static_cast<int>(threadIdx.x);
       i < kTileQueries * kPitch<kDim> / 8; i += kThreads) {
    reinterpret_cast<uint4*>(room.q)[i] = make_uint4(0, 0, 0, 0);
  }
  const int team = static_cast<int>(threadIdx.x) / kNormLanes;
  const int channel = static_cast<int>(threadIdx.x) % kNormLanes;
  const bool normed = inputs.q_norm != nullptr;
  uint16_t* own_k = nullptr;
  uint16_t* own_v = nullptr;
  if (has_row) {
    own_k = part_of(last_page, kv.k_offset) + slot * kDim;
    own_v = part_of(last_page, kv.v_offset) + slot * kDim;
  }
  WaitForInputs();
  if (page >= page_end) return;

  // Everything is asked for at once.
  const float value = has_row && threadIdx.x < kDim
                          ? one.v.data[row * one.v.stride + int64_t{head} * kDim + threadIdx.x]
                          : 0.0f;
  float2 gate[2][kPart / 8];
  const View& gates = call.params.gate;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
      gate[h][j] = make_float2(0, 0);
      if (gates.data == nullptr || call.partial != nullptr || g + 8 * h >= group) continue;
      gate[h][j] = *reinterpret_cast<const float2*>(gates.data + row * gates.stride +
                                                    int64_t(head * group + g + 8 * h) * kDim +
                                                    warp * kPart + 8 * j + 2 * t);
    }
  }
  const int turned = inputs.half / kNormLanes;
  float cos[kEach / 2], sin[kEach / 2];
#pragma unroll
  for (int i = 0; i < kEach / 2; ++i) {
    if (i >= turned) break;
    cos[i] = inputs.cos[row * inputs.half + i * kNormLanes + channel];
    sin[i] = inputs.sin[row * inputs.half + i * kNormLanes + channel];
  }
  // Heads of q, then the one of k.
#pragma unroll 1
  for (int first = 0; first <= group; first += kTeams) {
    const int index = first + team;
    const bool is_key = index == group && has_row;
    const float* from =
        index < group ? call.q.data + row * call.q.stride + int64_t(head * group + index) * kDim
                      : one.k.data + row * one.k.stride + int64_t{head} * kDim;
    LaneHead<kDim> mine;
    mine.Load(from, channel);
    if (normed) {
      float weight[kEach];
      const float* of = index < group ? inputs.q_norm : inputs.k_norm;
#pragma unroll
      for (int i = 0; i < kEach; ++i) weight[i] = of[i * kNormLanes + channel];
      mine.Norm(weight, inputs.eps);
    }
    if (turned == kAllTurned<kDim>) {
      mine.template Turn<kAllTurned<kDim>>(cos, sin);
    } else if (turned > 0) {
      mine.template Turn<kFewTurned<kDim>>(cos, sin);
    }
    if (index < group) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        room.q[index][i * kNormLanes + channel] = Round16<kType>(mine.x[i]);
      }
    } else if (is_key) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int c = i * kNormLanes + channel;
        const uint16_t rounded = Round16<kType>(mine.x[i]);
        own_k[c] = rounded;
        (page == last_page ? room.k[slot] : room.new_k)[c] = rounded;
      }
    }
  }
  if (has_row && threadIdx.x < kDim) {
    const uint16_t rounded = Round16<kType>(value);
    own_v[threadIdx.x] = rounded;
    (page == last_page ? room.v[slot] : room.new_v)[threadIdx.x] = rounded;
  }

  TileRows rows;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool real = g + 8 * h < group;
    rows.row[h] = real ? row : -1;
    rows.head[h] = head * group + g + 8 * h;
    rows.position[h] = real ? sequence.position : -1;
  }
  Running<kPart> running;
#pragma unroll 1
  for (; page < page_end; ++page) {
    WaitAsync<1>();
    __syncthreads();
    // Eight keys of this warp.
    float acc[4] = {0, 0, 0, 0};
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
      uint32_t b[4];
      LoadMatrix4(b, &room.k[8 * warp + lane % 8][32 * step + lane / 8 * 8]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        LoadMatrix4(a, &room.q[lane % 16][32 * step + 16 * half + lane / 16 * 8]);
        Mma<kType>(acc, a, b[2 * half], b[2 * half + 1]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      *reinterpret_cast<float2*>(&room.scores[g + 8 * h][8 * warp + 2 * t]) =
          make_float2(acc[2 * h], acc[2 * h + 1]);
    }
    __syncthreads();  // all have read the keys, and the scores are there
    load(page + 1, kv.k_offset, room.k, room.new_k);
    PageScores score;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 two = *reinterpret_cast<const float2*>(&room.scores[g + 8 * h][8 * j + 2 * t]);
        score[j][2 * h] = two.x, score[j][2 * h + 1] = two.y;
      }
    }
    float top[2];
    if (call.params.softcap != 0) {
      Weigh<false, true>(call.params, rows, page, score, top);
    } else {
      Weigh<false, false>(call.params, rows, page, score, top);
    }
    uint32_t p[4][4];
    Joint joint[2];
    JoinWeights<kType>(top, score, running, p, joint);
    WaitAsync<1>();
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
      float fresh[4] = {};
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        uint32_t b[4];
        LoadMatrix4Transposed(b, &room.v[16 * k + lane][warp * kPart + 8 * j]);
        Mma<kType>(fresh, p[k], b[0], b[1]);
        Mma<kType>(fresh, p[k + 1], b[2], b[3]);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        running.out[j][e] = joint[e / 2].Join(running.out[j][e], fresh[e]);
      }
    }
    __syncthreads();  // all have read the values
    load(page + 1, kv.v_offset, room.v, room.new_v);
    if (call.partial != nullptr) {
      StorePage(call, rows, page, warp * kPart, running);
      running = {};
    }
  }
  if (call.partial != nullptr) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row[h] < 0) continue;
    const float inverse = 1.0f / running.sum[h];
    float* to =
        call.out.data + row * call.out.stride + int64_t(rows.head[h]) * kDim + warp * kPart + 2 * t;
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
      float2 mean = make_float2(running.out[j][2 * h] * inverse + 0.0f,
                                running.out[j][2 * h + 1] * inverse + 0.0f);
      if (gates.data != nullptr) {
        mean.x = reference::Sigmoid(gate[h][j].x) * mean.x;
        mean.y = reference::Sigmoid(gate[h][j].y) * mean.y;
      }
      *reinterpret_cast<float2*>(to + 8 * j) = mean;
    }
  }
}

template <KvType kStored, int kDim>
void Launch(Stream stream, const OneRowCall& one, int parts) {
  const auto kernel = OneRowAttention<kStored, kDim>;
  static const bool allowed = (AllowShared(kernel, sizeof(Room<kDim>)), true);
  (void)allowed;
  const AttentionCall& call = one.attention;
  const dim3 grid(unsigned(call.step.sequence_count), unsigned(call.kv.kv_heads), unsigned(parts));
  LaunchEarly(kernel, grid, kThreads, sizeof(Room<kDim>), stream, one);
}
template <KvType kStored>
void LaunchDim(Stream stream, const OneRowCall& one, int parts) {
  const int dim = one.attention.kv.head_dim;
  (dim == 64    ? Launch<kStored, 64>
   : dim == 128 ? Launch<kStored, 128>
                : Launch<kStored, 256>)(stream, one, parts);
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
  const PageParts pages = PartsOfPages(step, longest, kv, params);
  AttentionCall call{step,    kv,      params, heads.q, out, params.q_heads / kv.kv_heads,
                     nullptr, longest, 0};
  if (pages.page_count > 0) {
    call.partial = static_cast<float*>(workspace);
    call.page_count = pages.page_count;
  }
  const OneRowCall one{call, heads.inputs, heads.k, heads.v};
  (kv.type == KvType::kF16 ? LaunchDim<KvType::kF16> : LaunchDim<KvType::kBF16>)(stream, one,
                                                                                 pages.parts);
  if (pages.page_count > 0) JoinPages(stream, call);
}

}  // namespace reprise::cuda
