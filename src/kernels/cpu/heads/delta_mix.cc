// SPDX-License-Identifier: Apache-2.0
// A GatedDeltaNet layer between its projections as one op whose tasks are key heads of sequences.
// All that is computed for a head needs nothing of other heads, so its numbers stay in the caches
// of one core from the convolution to the norm.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch_span.h"
#include "kernels/cpu/segments.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/joint_ops.h"
#include "kernels/raw_rows.h"

namespace reprise::cpu {
namespace {

// Rows that go from op to op at a time: queries, keys and values of a head stay in the second-level
// cache.
constexpr int64_t kRows = 64;
// Columns of a state that stay in the first-level cache over several rows.
constexpr int kTileColumns = 64;

// What all tasks of a call share.
struct Mix {
  const KernelTable& table;
  const StepLayout& step;
  const GatedDeltaLayer& layer;
  const ConstRows& qkv;
  const Rows& a;
  const Rows& b;
  const ConstRows& z;
  const Rows& y;

  const GatedDeltaShape& shape() const { return layer.shape; }
  int heads_per_key() const { return shape().value_heads / shape().key_heads; }
  int value_head(int key_head, int i) const {
    return shape().tiled_heads ? key_head + i * shape().key_heads : key_head * heads_per_key() + i;
  }
  // First columns of qkv.
  int64_t keys_begin() const { return int64_t{shape().key_heads} * shape().key_dim; }
  int64_t values_begin() const { return 2 * keys_begin(); }

  float* unit(uint32_t id, size_t offset) const {
    std::byte* const at = Raw(step.state_memory) + size_t{id} * step.state_bytes + offset;
    return reinterpret_cast<float*>(at);
  }
  int64_t delta_floats() const { return int64_t{shape().key_dim} * shape().value_dim; }
  float* delta(uint32_t id, int value_head) const {
    return unit(id, layer.delta_offset) + value_head * delta_floats();
  }
};

// Memory of one thread, for kRows rows.
struct Memory {
  float* q;
  float* k;
  float* v;
  float* decay;
  float* beta;

  static int64_t FloatsFor(const GatedDeltaShape& shape, int64_t rows) {
    return (rows * (2 * shape.key_dim + shape.value_dim + 2) + 15) / 16 * 16;
  }
  Memory(const GatedDeltaShape& shape, int64_t rows, float* at)
      : q(at),
        k(q + rows * shape.key_dim),
        v(k + rows * shape.key_dim),
        decay(v + rows * shape.value_dim),
        beta(decay + rows) {}
};

// A piece of a sequence.
struct Piece {
  const StepSequence& s;
  int64_t row;  // of the step
  int count;
};

void SpoilSequence(const Mix& mix, const StepSequence& s) {
  Spoil(mix.step, size_t(&s - mix.step.host.sequences.data()));
}

// Columns [begin, begin + count) of the convolution of the rows of a piece.
void Convolve(const Mix& mix, const Piece& piece, int64_t begin, int count, float* out) {
  const GatedDeltaLayer& layer = mix.layer;
  const int64_t channels = mix.qkv.cols;
  const float* const x = RowOf(mix.qkv, piece.row) + begin;
  if (!AllBelow(kInfinity, x, piece.count, mix.qkv.stride, count)) SpoilSequence(mix, piece.s);
  float* const window = mix.unit(piece.s.state, layer.conv_offset) + begin;
  mix.table.short_conv(x, mix.qkv.stride, piece.count, Raw(layer.conv) + begin, nullptr,
                       layer.reach, channels, count, true, window, channels, out, count);
}

// The recurrence. One row runs over whole rows of the state, which come from memory.
void Scan(const Mix& mix, const Piece& piece, int head, const Memory& memory, const float* ahead) {
  const GatedDeltaShape& shape = mix.shape();
  const int64_t column = int64_t{head} * shape.value_dim;
  const int at_once = piece.count == 1 ? shape.value_dim : kTileColumns;
  float* const state = mix.delta(piece.s.state, head);
  float* const y = RowOf(mix.y, piece.row) + column;
  for (int c = 0; c < shape.value_dim; c += at_once) {
    const int columns = std::min(at_once, shape.value_dim - c);
    mix.table.gated_delta(state + c, shape.value_dim, shape.key_dim, columns, memory.q, memory.k,
                          shape.key_dim, memory.v + c, shape.value_dim, memory.decay, memory.beta,
                          1, piece.count, y + c, mix.y.stride, ahead);
  }
  // As ForHeadTiles of scan_ops.cc says.
  const float* const last = y + (piece.count - 1) * mix.y.stride;
  if (AllBelow(kInfinity, last, shape.value_dim)) return;
  if (!AllBelow(kInfinity, state, mix.delta_floats())) SpoilSequence(mix, piece.s);
}

// One value head whose queries and keys are ready.
void RunHead(const Mix& mix, const Piece& piece, int head, const Memory& memory,
             const float* ahead) {
  const GatedDeltaLayer& layer = mix.layer;
  const GatedDeltaShape& shape = mix.shape();
  const KernelTable& table = mix.table;
  const int64_t column = int64_t{head} * shape.value_dim;
  Convolve(mix, piece, mix.values_begin() + column, shape.value_dim, memory.v);
  for (int r = 0; r < piece.count; ++r) {
    table.delta_gates(RowOf(mix.a, piece.row + r) + head, RowOf(mix.b, piece.row + r) + head,
                      Raw(layer.exp_a) + head, Raw(layer.dt_bias) + head, 1, memory.decay + r,
                      memory.beta + r);
  }
  Scan(mix, piece, head, memory, ahead);
  for (int r = 0; r < piece.count; ++r) {
    float* const y = RowOf(mix.y, piece.row + r) + column;
    table.rms_norm(y, Raw(layer.norm), layer.norm_eps, shape.value_dim, y);
    table.swiglu(RowOf(mix.z, piece.row + r) + column, y, shape.value_dim, y);
  }
}

// The rows of a piece for one key head and its value heads. `next`: the state that is read behind
// this piece, or null.
void RunPiece(const Mix& mix, const Piece& piece, int key_head, const Memory& memory,
              const float* next) {
  const int key_dim = mix.shape().key_dim;
  const int64_t column = int64_t{key_head} * key_dim;
  Convolve(mix, piece, column, key_dim, memory.q);
  Convolve(mix, piece, mix.keys_begin() + column, key_dim, memory.k);
  for (int r = 0; r < piece.count; ++r) {
    float* const q = memory.q + r * key_dim;
    float* const k = memory.k + r * key_dim;
    mix.table.l2_norm(q, mix.layer.l2_eps, 1 / std::sqrt(float(key_dim)), key_dim, q);
    mix.table.l2_norm(k, mix.layer.l2_eps, 1, key_dim, k);
  }
  for (int i = 0; i < mix.heads_per_key(); ++i) {
    const bool last = i + 1 == mix.heads_per_key();
    const float* const ahead =
        last ? next : mix.delta(piece.s.state, mix.value_head(key_head, i + 1));
    RunHead(mix, piece, mix.value_head(key_head, i), memory, ahead);
  }
}

// What belongs to a key head of the state of a sequence, to the place where it is wanted.
void CopyHeads(const Mix& mix, const StepSequence& s, uint32_t to, int key_head) {
  const GatedDeltaShape& shape = mix.shape();
  const auto columns = [&](int64_t begin, int count) {
    for (int r = 0; r < mix.layer.reach - 1; ++r) {
      const int64_t at = r * mix.qkv.cols + begin;
      std::memcpy(mix.unit(to, mix.layer.conv_offset) + at,
                  mix.unit(s.state, mix.layer.conv_offset) + at, size_t(count) * sizeof(float));
    }
  };
  const int64_t key = int64_t{key_head} * shape.key_dim;
  columns(key, shape.key_dim);
  columns(mix.keys_begin() + key, shape.key_dim);
  for (int i = 0; i < mix.heads_per_key(); ++i) {
    const int head = mix.value_head(key_head, i);
    columns(mix.values_begin() + int64_t{head} * shape.value_dim, shape.value_dim);
    std::memcpy(mix.delta(to, head), mix.delta(s.state, head),
                size_t(mix.delta_floats()) * sizeof(float));
  }
}

// A key head of a sequence over all its rows; states that are wanted on the way are copied.
void RunTask(const Mix& mix, const StepSequence& s, int key_head, const Memory& memory,
             const float* next) {
  int64_t row = s.row_begin;
  for (int32_t done = 0; done <= s.tap_count; ++done) {
    const bool at_end = done == s.tap_count;
    const StepTap* const tap =
        at_end ? nullptr : &mix.step.host.taps[size_t(s.tap_begin) + size_t(done)];
    const int64_t end = at_end ? int64_t{s.row_begin} + s.row_count : tap->row;
    for (; row < end; row += kRows) {
      const int count = static_cast<int>(std::min(kRows, end - row));
      RunPiece(mix, {s, row, count}, key_head, memory, next);
    }
    row = end;
    if (tap != nullptr) CopyHeads(mix, s, tap->state, key_head);
  }
}

// Whether whole heads keep the threads as busy as the tiles of them would that the ops have.
bool DividesWell(int64_t tasks, int64_t threads, int64_t rows_most) {
  const auto rounds = [&](int64_t count) { return (count + threads - 1) / threads; };
  if (tasks < threads) return false;
  return rows_most == 1 || tasks >= 4 * threads || 2 * rounds(tasks) == rounds(2 * tasks);
}

}  // namespace

bool CpuBackend::GatedDeltaMix(ScratchArena& scratch, const StepLayout& step,
                               const GatedDeltaLayer& layer, const ConstRows& qkv, const Rows& a,
                               const Rows& b, const ConstRows& z, const Rows& y) {
  const std::span<const StepSequence> sequences = step.host.sequences;
  const GatedDeltaShape& shape = layer.shape;
  const int64_t tasks = int64_t(sequences.size()) * shape.key_heads;
  int64_t most = 0;
  for (const StepSequence& s : sequences) most = std::max<int64_t>(most, s.row_count);
  if (!DividesWell(tasks, pool_->size(), most)) return false;
  const ScratchScope scope(scratch);
  const int64_t rows = std::min(most, kRows);
  const int64_t floats = Memory::FloatsFor(shape, rows);
  const auto ranges = MakeSpan<TaskRanges::Range>(scratch, size_t(pool_->size()));
  const std::span<float> memory = MakeSpan<float>(scratch, size_t(floats * pool_->size()));
  const Mix mix = {*table_, step, layer, qkv, a, b, z, y};
  const bool alone = qkv.rows * mix.delta_floats() * shape.value_heads <= kParallelElements;
  const TaskRanges division(alone ? ranges.first(1) : ranges, tasks);
  const auto work = [&](int thread) {
    const Memory mine(shape, rows, memory.data() + thread * floats);
    division.Take(thread, [&](int64_t task, int64_t following) {
      const auto head_of = [&](int64_t index) { return int(index % shape.key_heads); };
      const auto sequence_of = [&](int64_t index) -> const StepSequence& {
        return sequences[size_t(index / shape.key_heads)];
      };
      const float* next = nullptr;
      if (following >= 0) {
        next = mix.delta(sequence_of(following).state, mix.value_head(head_of(following), 0));
      }
      RunTask(mix, sequence_of(task), head_of(task), mine, next);
    });
  };
  if (alone) {
    work(0);
  } else {
    pool_->Run(work);
  }
  return true;
}

}  // namespace reprise::cpu
