// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/heads/kv_block.h"
#include "kernels/cpu/scratch_span.h"
#include "kernels/cpu/segments.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/raw_rows.h"

// Attention over blocks of 64 stored tokens. A task is one K/V head and a few rows of one sequence,
// with all the query heads that share the K/V head: each block is read once for all of them. A
// query's result depends on its own blocks in position order only, so tasks can be cut and divided
// in any way.
namespace reprise::cpu {
namespace {

// Queries (rows times heads of a group) of a task: enough that converting a block to f32 costs
// little beside using it, few enough that their q and out stay in the second-level cache.
constexpr int kTaskQueries = 192;
constexpr int kTaskFloats = 1 << 16;
// Results of blocks that are kept at once before they are merged: they stay in a cache of their
// own beside what is streamed, and long contexts need no more memory than short ones.
constexpr int64_t kRoundFloats = 1 << 19;
// Blocks that a thread takes at a time, most often of one task, whose queries it loads once.
constexpr int64_t kBlocksAtOnce = 8;
// Rows of 16 floats keep everything aligned to cache lines.
constexpr int64_t RoundUp16(int64_t n) { return (n + 15) / 16 * 16; }

struct Task {
  const StepSequence* sequence;
  int kv_head;
  int row;   // of the sequence
  int rows;  // so many
  int block_begin;
  int block_end;
  int64_t partial;  // index of its first block in those of all tasks, where they are divided
};

// What all tasks of a call share.
struct Call {
  ThreadPool& pool;
  const KernelTable& table;
  ScratchArena& scratch;
  const StepLayout& step;
  const KvPlace& place;
  const KvShape& shape;
  const AttentionParams& params;
  const ConstRows& q;
  const ConstRows* gate;  // of what is stored, or null
  const Rows& out;
  int group;  // query heads per K/V head

  int queries(const Task& task) const { return task.rows * group; }
};

// Memory of one thread.
struct TaskMemory {
  float* q = nullptr;
  AttentionState state{};
  int* first = nullptr;
  int* visible = nullptr;
  float* scratch = nullptr;
};

int64_t StateFloats(const KvShape& shape, int64_t queries) {
  return RoundUp16(2 * queries) + RoundUp16(queries * shape.value_dim);
}

AttentionState MakeState(float* memory, int64_t queries) {
  return {memory, memory + queries, memory + RoundUp16(2 * queries)};
}

AttentionState OfQuery(const AttentionState& state, int64_t query, int64_t value_dim) {
  return {state.max + query, state.sum + query, state.out + query * value_dim};
}

// Memory of every thread for tasks of up to `queries` queries.
class ThreadMemory {
 public:
  ThreadMemory(const Call& call, int64_t queries)
      : queries_(queries),
        q_floats_(RoundUp16(queries * call.shape.head_dim)),
        state_floats_(StateFloats(call.shape, queries)),
        floats_(q_floats_ + state_floats_ +
                RoundUp16(kKeys * (call.shape.head_dim + call.shape.value_dim + queries) +
                          8 * queries)),
        ints_(RoundUp16(2 * queries)),
        memory_(MakeSpan<float>(call.scratch, size_t(floats_ * call.pool.size()))),
        bounds_(MakeSpan<int>(call.scratch, size_t(ints_ * call.pool.size()))) {}

  TaskMemory of(int thread) const {
    float* memory = memory_.data() + thread * floats_;
    int* bounds = bounds_.data() + thread * ints_;
    return {memory, MakeState(memory + q_floats_, queries_), bounds, bounds + queries_,
            memory + q_floats_ + state_floats_};
  }

 private:
  const int64_t queries_;
  const int64_t q_floats_;
  const int64_t state_floats_;
  const int64_t floats_;
  const int64_t ints_;
  const std::span<float> memory_;
  const std::span<int> bounds_;
};

void ResetState(const AttentionState& state, int queries) {
  std::fill_n(state.max, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, queries, 0.0f);
}

// The state of queries before their first block: nothing, or the sink of each. Query i is one of
// head kv_head * group + i % group.
void StartState(const AttentionParams& params, int kv_head, int group, int value_dim,
                const AttentionState& state, int queries) {
  if (!params.sinks) return ResetState(state, queries);
  const float* sinks = Raw(params.sinks) + int64_t{kv_head} * group;
  for (int i = 0; i < queries; ++i) state.max[i] = sinks[i % group];
  std::fill_n(state.sum, queries, 1.0f);
  std::fill_n(state.out, int64_t{queries} * value_dim, 0.0f);
}

using AttendEntry = void (*)(const AttentionTile*, const AttentionState*, float*);
AttendEntry AttendOf(const KernelTable& table, DType type) {
  switch (type) {
    case DType::kF32:
      return table.attend_f32;
    case DType::kF16:
      return table.attend_f16;
    case DType::kBF16:
      return table.attend_bf16;
    default:
      return table.attend_q8_0;
  }
}

// The end of the positions that a row of the sequence sees,
int EndSeen(const AttentionParams& params, const StepSequence& sequence, int row) {
  return params.ends.empty() ? sequence.position + row + 1
                             : params.ends[size_t(sequence.row_begin + row)];
}

// and the first that the row at `position` sees.
int FirstSeen(const AttentionParams& params, int position) {
  return params.window > 0 ? std::max(0, position - params.window + 1) : 0;
}

void LoadQueries(const Call& call, const Task& task, float* q) {
  const int head_dim = call.shape.head_dim;
  for (int r = 0; r < task.rows; ++r) {
    const float* row = RowOf(call.q, task.sequence->row_begin + task.row + r) +
                       int64_t{task.kv_head} * call.group * head_dim;
    const int64_t count = int64_t{call.group} * head_dim;
    // A soft cap would hide what comes of them.
    if (!AllBelow(kInfinity, row, count)) {
      Spoil(call.step, size_t(task.sequence - call.step.host.sequences.data()));
    }
    call.table.scale(row, call.params.scale, count, q + r * count);
  }
}

// `next`: the block that the thread takes behind this one, or -1.
void AttendBlock(const Call& call, const Task& task, int block, int next, const TaskMemory& memory,
                 const AttentionState& state) {
  const int start = block * kKeys;
  for (int r = 0; r < task.rows; ++r) {
    const int position = task.sequence->position + task.row + r;
    const int first = std::max(0, FirstSeen(call.params, position) - start);
    const int end = EndSeen(call.params, *task.sequence, task.row + r);
    const int visible = std::clamp(end - start, 0, kKeys);
    std::fill_n(memory.first + r * call.group, call.group, first);
    std::fill_n(memory.visible + r * call.group, call.group, visible);
  }
  const KvShape& shape = call.shape;
  AttentionTile tile;
  tile.q = memory.q;
  tile.queries = call.queries(task);
  tile.first = memory.first;
  tile.visible = memory.visible;
  const std::byte* stored = BlockOf(call.step, *task.sequence, block);
  const size_t keys = call.place.k_offset + HeadOffset(shape.dtype, task.kv_head, shape.head_dim);
  tile.k = stored + keys;
  if (next >= 0) tile.next_k = BlockOf(call.step, *task.sequence, next) + keys;
  tile.v = nullptr;
  if (!shape.value_in_key) {
    tile.v = stored + call.place.v_offset + HeadOffset(shape.dtype, task.kv_head, shape.value_dim);
  }
  tile.head_dim = shape.head_dim;
  tile.value_dim = shape.value_dim;
  tile.softcap = call.params.softcap;
  AttendOf(call.table, shape.dtype)(&tile, &state, memory.scratch);
}

// The state of one query of a task, divided, to its row of the output.
void StoreQuery(const Call& call, const Task& task, int query, const AttentionState& state) {
  const int value_dim = call.shape.value_dim;
  if (!std::isfinite(*state.max) || !std::isfinite(*state.sum)) {
    Spoil(call.step, size_t(task.sequence - call.step.host.sequences.data()));
  }
  const int64_t row = task.sequence->row_begin + task.row + query / call.group;
  const int64_t head = int64_t{task.kv_head} * call.group + query % call.group;
  float* const out = RowOf(call.out, row) + head * value_dim;
  call.table.scale(state.out, 1.0f / *state.sum, value_dim, out);
  if (call.gate == nullptr) return;
  call.table.sigmoid_mul(RowOf(*call.gate, row) + head * value_dim, out, value_dim, out);
}

// Enough tasks for the threads without making them small: rows of a sequence per task.
int RowsPerTask(const Call& call, std::span<const StepSequence> sequences) {
  int64_t rows = 0;
  for (const StepSequence& sequence : sequences) rows += sequence.row_count;
  const int fitting = kTaskFloats / (call.shape.head_dim + call.shape.value_dim);
  const int64_t most = std::max(1, std::min(kTaskQueries, fitting) / call.group);
  const int64_t threads = call.pool.size();
  if (threads == 1) return static_cast<int>(most);
  const int64_t wanted = 4 * threads;  // tasks
  const int64_t balanced = rows * call.shape.kv_heads / wanted;
  const int64_t least = std::max(1, 24 / call.group);
  return static_cast<int>(std::clamp(balanced, std::min(least, most), most));
}

std::span<Task> MakeTasks(const Call& call, std::span<const StepSequence> sequences, int rows) {
  size_t count = 0;
  for (const StepSequence& s : sequences) count += size_t((s.row_count + rows - 1) / rows);
  count *= size_t(call.shape.kv_heads);
  const std::span<Task> tasks = MakeSpan<Task>(call.scratch, count);
  size_t index = 0;
  for (const StepSequence& s : sequences) {
    for (int row = 0; row < s.row_count; row += rows) {
      const int task_rows = std::min(rows, static_cast<int>(s.row_count) - row);
      const int begin = FirstSeen(call.params, s.position + row) / kKeys;
      const int end = (EndSeen(call.params, s, row + task_rows - 1) - 1) / kKeys + 1;
      for (int head = 0; head < call.shape.kv_heads; ++head) {
        tasks[index++] = {&s, head, row, task_rows, begin, end, 0};
      }
    }
  }
  // Longest first, so that the threads end together.
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return int64_t{a.rows} * (a.block_end - a.block_begin) >
           int64_t{b.rows} * (b.block_end - b.block_begin);
  });
  return tasks;
}

void RunWhole(const Call& call, std::span<const Task> tasks, int64_t elements, int64_t queries) {
  const ThreadMemory memory(call, queries);
  ForTasks(call.pool, int64_t(tasks.size()), elements, [&](int64_t index, int thread) {
    const Task& task = tasks[size_t(index)];
    const TaskMemory mine = memory.of(thread);
    LoadQueries(call, task, mine.q);
    StartState(call.params, task.kv_head, call.group, call.shape.value_dim, mine.state,
               call.queries(task));
    for (int block = task.block_begin; block < task.block_end; ++block) {
      const int next = block + 1 < task.block_end ? block + 1 : -1;
      AttendBlock(call, task, block, next, mine, mine.state);
    }
    for (int query = 0; query < call.queries(task); ++query) {
      StoreQuery(call, task, query, OfQuery(mine.state, query, call.shape.value_dim));
    }
  });
}

// Few queries over a long context: blocks are divided among the threads, each block's result is
// kept, and then merged in position order, as one thread would have done block by block. That is
// done in rounds over the blocks of all tasks, one task after another.
class DividedTasks {
 public:
  DividedTasks(const Call& call, std::span<Task> tasks, int64_t queries)
      : call_(call),
        tasks_(tasks),
        queries_(queries),
        state_floats_(StateFloats(call.shape, queries)),
        partials_(CountBlocks(tasks)),
        round_(std::min(partials_, std::max(kRoundFloats / state_floats_,
                                            2 * kBlocksAtOnce * call.pool.size()))),
        memory_(call, queries),
        states_(
            MakeSpan<float>(call.scratch, size_t(int64_t(tasks.size()) * state_floats_)).data()),
        results_(MakeSpan<float>(call.scratch, size_t(round_ * state_floats_)).data()) {}

  void Run(int64_t elements) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      ResetState(MakeState(states_ + int64_t(i) * state_floats_, queries_), int(queries_));
    }
    for (int64_t begin = 0; begin < partials_; begin += round_) {
      const int64_t end = std::min(begin + round_, partials_);
      const int64_t share = elements * (end - begin) / partials_;
      const int64_t wanted = (end - begin) / (4 * call_.pool.size());  // some for each thread
      const int64_t at_once = std::clamp<int64_t>(wanted, 1, kBlocksAtOnce);
      const int64_t takes = (end - begin + at_once - 1) / at_once;
      ForTasks(call_.pool, takes, share, [&](int64_t take, int thread) {
        const int64_t first = begin + take * at_once;
        Attend(begin, first, std::min(first + at_once, end), memory_.of(thread));
      });
      Merge(begin, end);
    }
  }

 private:
  static int64_t CountBlocks(std::span<Task> tasks) {
    int64_t blocks = 0;
    for (Task& task : tasks) {
      task.partial = blocks;
      blocks += task.block_end - task.block_begin;
    }
    return blocks;
  }

  // The task that block `index` of all blocks belongs to.
  size_t TaskOf(int64_t index) const {
    const auto behind =
        std::upper_bound(tasks_.begin(), tasks_.end(), index,
                         [](int64_t at, const Task& task) { return at < task.partial; });
    return size_t(behind - tasks_.begin()) - 1;
  }

  AttentionState ResultOf(int64_t index, int64_t round_begin) const {
    return MakeState(results_ + (index - round_begin) * state_floats_, queries_);
  }

  // Blocks [begin, end) of a round that begins at `round_begin`.
  void Attend(int64_t round_begin, int64_t begin, int64_t end, const TaskMemory& memory) const {
    const Task* loaded = nullptr;
    for (int64_t index = begin; index < end; ++index) {
      const Task& task = loaded != nullptr && index < loaded->partial + BlocksOf(*loaded)
                             ? *loaded
                             : tasks_[TaskOf(index)];
      if (&task != loaded) LoadQueries(call_, task, memory.q);
      loaded = &task;
      const AttentionState state = ResultOf(index, round_begin);
      if (index == task.partial) {
        StartState(call_.params, task.kv_head, call_.group, call_.shape.value_dim, state,
                   call_.queries(task));
      } else {
        ResetState(state, call_.queries(task));
      }
      const int block = task.block_begin + int(index - task.partial);
      const bool more = index + 1 < end && block + 1 < task.block_end;
      AttendBlock(call_, task, block, more ? block + 1 : -1, memory, state);
    }
  }

  // Folds the results of blocks [begin, end) into the states of their tasks, and stores those that
  // are complete: every query for itself.
  void Merge(int64_t begin, int64_t end) const {
    const size_t first = TaskOf(begin);
    const int64_t tasks = int64_t(TaskOf(end - 1) - first) + 1;
    const int value_dim = call_.shape.value_dim;
    const int64_t elements = (end - begin) * queries_ * value_dim;
    ForTasks(call_.pool, tasks * queries_, elements, [&](int64_t index, int) {
      const size_t at = first + size_t(index / queries_);
      const int query = int(index % queries_);
      const Task& task = tasks_[at];
      if (query >= call_.queries(task)) return;
      const AttentionState state =
          OfQuery(MakeState(states_ + int64_t(at) * state_floats_, queries_), query, value_dim);
      const int64_t task_end = task.partial + BlocksOf(task);
      for (int64_t p = std::max(begin, task.partial); p < std::min(end, task_end); ++p) {
        const AttentionState block = OfQuery(ResultOf(p, begin), query, value_dim);
        call_.table.attend_merge(&state, &block, 1, value_dim);
      }
      if (task_end <= end) StoreQuery(call_, task, query, state);
    });
  }

  static int64_t BlocksOf(const Task& task) { return task.block_end - task.block_begin; }

  const Call& call_;
  const std::span<const Task> tasks_;  // in the order of their blocks
  const int64_t queries_;              // of the largest task
  const int64_t state_floats_;
  const int64_t partials_;  // blocks of all tasks
  const int64_t round_;     // so many at once
  const ThreadMemory memory_;
  float* const states_;   // [tasks]
  float* const results_;  // [round_]
};

void RunCall(const Call& call) {
  const KvShape& shape = call.shape;
  const std::span<const StepSequence> sequences = call.step.host.sequences;
  const std::span<Task> tasks = MakeTasks(call, sequences, RowsPerTask(call, sequences));
  int64_t blocks = 0;
  int64_t query_blocks = 0;
  int64_t queries = 0;  // of the largest task
  for (const Task& task : tasks) {
    queries = std::max<int64_t>(queries, call.queries(task));
    blocks += task.block_end - task.block_begin;
    query_blocks += int64_t{task.block_end - task.block_begin} * call.queries(task);
  }
  const int64_t elements = query_blocks * kKeys * (shape.head_dim + shape.value_dim) / 4;
  const int64_t count = static_cast<int64_t>(tasks.size());
  const int64_t threads = call.pool.size();
  // Whole tasks unless they would leave threads idle.
  const bool idle = count < threads || (count < 4 * threads && count % threads != 0);
  if (threads > 1 && idle && blocks > 2 * count) {
    DividedTasks(call, tasks, queries).Run(elements);
  } else {
    RunWhole(call, tasks, elements, queries);
  }
}

}  // namespace

void CpuBackend::Attend(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                        const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                        const Rows& out) {
  const ScratchScope scope(scratch);
  RunCall({*pool_, *table_, scratch, step, place, shape, params, q, nullptr, out,
           params.q_heads / shape.kv_heads});
}

bool CpuBackend::AttendGated(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                             const KvShape& shape, const AttentionParams& params,
                             const ConstRows& gate, const ConstRows& q, const Rows& out) {
  const ScratchScope scope(scratch);
  RunCall({*pool_, *table_, scratch, step, place, shape, params, q, &gate, out,
           params.q_heads / shape.kv_heads});
  return true;
}

namespace {

// Blocks of a K/V head weighed against queries in tiles that stay in the second-level cache. What
// all tasks of a call share.
struct Weighing {
  const KernelTable& table;
  const StepLayout& step;
  const StepSequence& sequence;
  const KvPlace& place;
  const KvShape& shape;
  const AttentionParams& params;
  const ScoredRows& rows;
  int group;
  std::span<const float> q;        // [kv_heads, queries, head_dim], scaled
  std::span<const int32_t> above;  // [queries] position of the row of the query

  int64_t queries() const { return int64_t{rows.row_count} * group; }
};

constexpr int kTileMax = kTaskQueries;

int64_t WeighingFloats(const KvShape& shape) {
  return RoundUp16(kKeys * (int64_t{shape.head_dim} + kTileMax) + 8 * kTileMax);
}

// Queries [begin, begin + count) of a K/V head against a block; bounds: [2, kTileMax].
AttentionTile TileOf(const Weighing& call, int64_t kv_head, int64_t block, int64_t begin, int count,
                     int* bounds) {
  const KvShape& shape = call.shape;
  for (int i = 0; i < count; ++i) {
    bounds[i] = 0;
    bounds[kTileMax + i] =
        int(std::clamp<int64_t>(call.above[size_t(begin + i)] + 1 - block * kKeys, 0, kKeys));
  }
  AttentionTile tile;
  tile.q = call.q.data() + (kv_head * call.queries() + begin) * shape.head_dim;
  tile.queries = count;
  tile.first = bounds;
  tile.visible = bounds + kTileMax;
  tile.k = BlockOf(call.step, call.sequence, block) + call.place.k_offset +
           HeadOffset(shape.dtype, kv_head, shape.head_dim);
  tile.v = tile.k;  // of no channels
  tile.head_dim = shape.head_dim;
  tile.value_dim = 0;
  tile.softcap = call.params.softcap;
  return tile;
}

using WeighEntry = void (*)(const AttentionTile*, const AttentionState*, float*, float*);
WeighEntry WeighOf(const KernelTable& table, DType type) {
  switch (type) {
    case DType::kF32:
      return table.weigh_keys_f32;
    case DType::kF16:
      return table.weigh_keys_f16;
    case DType::kBF16:
      return table.weigh_keys_bf16;
    default:
      return table.weigh_keys_q8_0;
  }
}

// Calls f(tile, first query) for the queries of a K/V head, in order.
template <typename F>
void ForTiles(const Weighing& call, int64_t kv_head, int64_t block, const F& f) {
  int bounds[2 * kTileMax];
  for (int64_t begin = 0; begin < call.queries(); begin += kTileMax) {
    const int count = int(std::min<int64_t>(kTileMax, call.queries() - begin));
    f(TileOf(call, kv_head, block, begin, count, bounds), begin);
  }
}

}  // namespace

// First the softmax of every query, block by block as Attend takes it, joined in order; then what
// each key weighs with all of them. Tasks are blocks of a K/V head: outputs are divided, never
// sums.
void CpuBackend::ScoreKeys(ScratchArena& scratch, const StepLayout& step, const KvPlace& place,
                           const KvShape& shape, const AttentionParams& params, const ConstRows& q,
                           const ScoredRows& rows) {
  const ScratchScope scope(scratch);
  const StepSequence& s = step.host.sequences[size_t(rows.sequence)];
  const int group = params.q_heads / shape.kv_heads;
  const int64_t queries = int64_t{rows.row_count} * group;
  const int64_t end = s.position + rows.row_begin - s.row_begin + rows.row_count;
  const int64_t blocks = (end + kKeys - 1) / kKeys;
  const std::span<float> scaled =
      MakeSpan<float>(scratch, size_t(shape.kv_heads * queries * shape.head_dim));
  const std::span<int32_t> above = MakeSpan<int32_t>(scratch, size_t(queries));
  const int64_t head_floats = int64_t{group} * shape.head_dim;
  for (int64_t r = 0; r < rows.row_count; ++r) {
    const int64_t row = rows.row_begin + r;
    std::fill_n(above.begin() + r * group, group, int32_t(s.position + row - s.row_begin));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      table_->scale(RowOf(q, row) + head * head_floats, params.scale, head_floats,
                    scaled.data() + (head * queries + r * group) * shape.head_dim);
    }
  }
  const Weighing call{*table_, step, s, place, shape, params, rows, group, scaled, above};
  // max, then sum, of a K/V head, block and query.
  const int64_t stride = 2 * queries;
  const std::span<float> sums = MakeSpan<float>(scratch, size_t(shape.kv_heads * blocks * stride));
  const int64_t floats = WeighingFloats(shape);
  const std::span<float> memory = MakeSpan<float>(scratch, size_t(floats * pool_->size()));
  const auto state = [&](int64_t task, int64_t begin) {
    float* of = sums.data() + task * stride;
    return AttentionState{of + begin, of + queries + begin, nullptr};
  };
  const int64_t tasks = shape.kv_heads * blocks;
  const int64_t work = tasks * queries * kKeys * shape.head_dim / 4;
  const auto attend = AttendOf(*table_, shape.dtype);
  ForTasks(*pool_, tasks, work, [&](int64_t task, int thread) {
    ForTiles(call, task / blocks, task % blocks, [&](const AttentionTile& tile, int64_t begin) {
      const AttentionState mine = state(task, begin);
      ResetState(mine, tile.queries);
      // Tiles may begin inside a group, so sinks are put in place one by one.
      for (int i = 0; params.sinks && task % blocks == 0 && i < tile.queries; ++i) {
        mine.max[i] = Raw(params.sinks)[task / blocks * group + (begin + i) % group];
        mine.sum[i] = 1;
      }
      attend(&tile, &mine, memory.data() + thread * floats);
    });
  });
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const AttentionState whole = state(head * blocks, 0);
    for (int64_t block = 1; block < blocks; ++block) {
      const AttentionState part = state(head * blocks + block, 0);
      table_->attend_merge(&whole, &part, int(queries), 0);
    }
  }
  const auto weigh = WeighOf(*table_, shape.dtype);
  float* const weights = Raw(rows.weights);
  ForTasks(*pool_, tasks, work, [&](int64_t task, int thread) {
    const int64_t head = task / blocks, block = task % blocks;
    const int64_t seen = std::min<int64_t>(kKeys, end - block * kKeys);
    float* const out = weights + head * rows.stride + block * kKeys;
    float sum[kKeys] = {};
    std::copy_n(out, seen, sum);
    ForTiles(call, head, block, [&](const AttentionTile& tile, int64_t begin) {
      const AttentionState mine = state(head * blocks, begin);
      weigh(&tile, &mine, sum, memory.data() + thread * floats);
    });
    std::copy_n(sum, seen, out);
  });
}

namespace {

// Elements of one head, `offset` bytes into a block, row by row in blocks of `from` and `to`;
// `channel_step` and `row_step` say how they lie. Block by block in order, so that a block may be
// written where it is read: row i comes from row i or a later one.
struct KeptElements {
  size_t offset;
  int64_t channels;
  int64_t channel_step;
  int64_t row_step;
};
template <typename Element>
void KeepElements(const KeptRows& kept, int64_t head, const KeptElements& elements) {
  const int64_t channels = elements.channels, row_step = elements.row_step;
  const int64_t channel_step = elements.channel_step;
  const auto block = [&](DevicePtr<const uint32_t> ids, int64_t index) {
    std::byte* at = Raw(kept.block_memory) + size_t{Raw(ids)[index]} * kept.block_bytes;
    return reinterpret_cast<Element*>(at + elements.offset);
  };
  const int32_t* rows = Raw(kept.rows) + head * kept.count;
  const Element* from[kKeys];
  for (int64_t begin = 0; begin < kept.count; begin += kKeys) {
    const int64_t count = std::min<int64_t>(kKeys, kept.count - begin);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t row = rows[begin + i];
      from[i] = block(kept.from, row / kKeys) + row % kKeys * row_step;
    }
    Element* const to = block(kept.to, begin / kKeys);
    if (channel_step == 1) {
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(from[i], from[i] == to + i * row_step ? 0 : channels, to + i * row_step);
      }
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < count; ++i) {
        to[c * channel_step + i * row_step] = from[i][c * channel_step];
      }
    }
  }
}

// Rows of a head of K (transposed) or V, whose part of a block begins at `offset`.
void KeepHead(const KeptRows& kept, DType type, int64_t head, size_t offset, int64_t channels,
              bool transposed) {
  offset += HeadOffset(type, head, channels);
  const auto lie = [&](size_t begin, int64_t count) {
    return transposed ? KeptElements{begin, count, kKeys, 1} : KeptElements{begin, count, 1, count};
  };
  if (type == DType::kF32) return KeepElements<uint32_t>(kept, head, lie(offset, channels));
  if (type != DType::kQ8_0) return KeepElements<uint16_t>(kept, head, lie(offset, channels));
  KeepElements<uint8_t>(kept, head, lie(offset, channels));
  const size_t scales = offset + size_t(kKeys * channels);
  KeepElements<uint16_t>(kept, head, lie(scales, KvGroups(channels)));
}

}  // namespace

void CpuBackend::KeepRows(const KvPlace& place, const KvShape& shape, const KeptRows& kept) {
  const int64_t work = kept.count * shape.kv_heads * (shape.head_dim + shape.value_dim);
  ForTasks(*pool_, shape.kv_heads, work, [&](int64_t head, int) {
    KeepHead(kept, shape.dtype, head, place.k_offset, shape.head_dim, true);
    if (!shape.value_in_key) {
      KeepHead(kept, shape.dtype, head, place.v_offset, shape.value_dim, false);
    }
  });
}

}  // namespace reprise::cpu
