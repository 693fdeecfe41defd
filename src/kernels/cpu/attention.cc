// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/ops.h"

// Attention over blocks of 64 stored tokens. A task is one K/V head and a few rows of one sequence,
// with all the query heads that share the K/V head: each block is read once for all of them. A
// query's result depends on its own blocks in position order only, so tasks can be cut and divided
// in any way.
namespace reprise {

namespace {

using cpu::kKeys;

// Queries (rows times heads of a group) of a task: enough that converting a block to f32 costs
// little beside using it, few enough that their q and out stay in the second-level cache.
constexpr int kTaskQueries = 192;
constexpr int kTaskFloats = 1 << 16;
// Rows of 16 floats keep everything aligned to cache lines.
constexpr int64_t RoundUp16(int64_t n) { return (n + 15) / 16 * 16; }

struct Task {
  const KvSequence* sequence;
  int kv_head;
  int row;   // of the sequence
  int rows;  // so many
  int block_begin;
  int block_end;
  int64_t partial;  // index of its first partial result, where blocks are divided among threads
};

// What all tasks of a call share.
struct Call {
  const OpContext& context;
  const KvShape& shape;
  const AttentionParams& params;
  const Rows& q;
  const Rows& out;
  int group;  // query heads per K/V head

  int queries(const Task& task) const { return task.rows * group; }
};

// Memory of one thread (or of one partial result, from max on) for `queries` queries.
struct TaskMemory {
  float* q = nullptr;
  cpu::AttentionState state{};
  int* first = nullptr;
  int* visible = nullptr;
  float* scratch = nullptr;
};

int64_t StateFloats(const KvShape& shape, int64_t queries) {
  return RoundUp16(2 * queries) + RoundUp16(queries * shape.value_dim);
}

cpu::AttentionState MakeState(float* memory, int64_t queries) {
  return {memory, memory + queries, memory + RoundUp16(2 * queries)};
}

int64_t TaskFloats(const KvShape& shape, int64_t queries) {
  return RoundUp16(queries * shape.head_dim) + StateFloats(shape, queries) +
         RoundUp16(2 * queries) +
         RoundUp16(kKeys * (shape.head_dim + shape.value_dim + queries) + 8 * queries);
}

TaskMemory MakeTaskMemory(float* memory, const KvShape& shape, int64_t queries) {
  TaskMemory result;
  result.q = memory;
  memory += RoundUp16(queries * shape.head_dim);
  result.state = MakeState(memory, queries);
  memory += StateFloats(shape, queries);
  result.first = reinterpret_cast<int*>(memory);
  result.visible = result.first + queries;
  result.scratch = memory + RoundUp16(2 * queries);
  return result;
}

void ResetState(const cpu::AttentionState& state, int queries) {
  std::fill_n(state.max, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, queries, 0.0f);
}

// First position that the row at `position` sees.
int FirstSeen(const AttentionParams& params, int position) {
  return params.window > 0 ? std::max(0, position - params.window + 1) : 0;
}

void LoadQueries(const Call& call, const Task& task, float* q) {
  const int head_dim = call.shape.head_dim;
  for (int r = 0; r < task.rows; ++r) {
    const float* row = call.q.row(task.sequence->row_begin + task.row + r) +
                       int64_t{task.kv_head} * call.group * head_dim;
    const int64_t count = int64_t{call.group} * head_dim;
    call.context.table->scale(row, call.params.scale, count, q + r * count);
  }
}

void AttendBlock(const Call& call, const Task& task, int block, const TaskMemory& memory,
                 const cpu::AttentionState& state) {
  const int start = block * kKeys;
  for (int r = 0; r < task.rows; ++r) {
    const int position = task.sequence->position + task.row + r;
    const int first = std::max(0, FirstSeen(call.params, position) - start);
    const int visible = std::clamp(position + 1 - start, 0, kKeys);
    std::fill_n(memory.first + r * call.group, call.group, first);
    std::fill_n(memory.visible + r * call.group, call.group, visible);
  }
  const KvShape& shape = call.shape;
  const int64_t width = shape.dtype == DType::kF16 ? 2 : 4;
  cpu::AttentionTile tile;
  tile.q = memory.q;
  tile.queries = call.queries(task);
  tile.first = memory.first;
  tile.visible = memory.visible;
  tile.k = task.sequence->k_blocks[block] + task.kv_head * width * kKeys * shape.head_dim;
  tile.v = nullptr;
  if (!shape.value_in_key) {
    tile.v = task.sequence->v_blocks[block] + task.kv_head * width * kKeys * shape.value_dim;
  }
  tile.head_dim = shape.head_dim;
  tile.value_dim = shape.value_dim;
  tile.softcap = call.params.softcap;
  const cpu::KernelTable& table = *call.context.table;
  (shape.dtype == DType::kF16 ? table.attend_f16 : table.attend_f32)(&tile, &state, memory.scratch);
}

void StoreResult(const Call& call, const Task& task, const cpu::AttentionState& state) {
  const int value_dim = call.shape.value_dim;
  for (int query = 0; query < call.queries(task); ++query) {
    const int64_t row = task.sequence->row_begin + task.row + query / call.group;
    const int64_t head = int64_t{task.kv_head} * call.group + query % call.group;
    call.context.table->scale(state.out + int64_t{query} * value_dim, 1.0f / state.sum[query],
                              value_dim, call.out.row(row) + head * value_dim);
  }
}

// Enough tasks for the threads without making them small: rows of a sequence per task.
int RowsPerTask(const Call& call, std::span<const KvSequence> sequences) {
  int64_t rows = 0;
  for (const KvSequence& sequence : sequences) rows += sequence.row_count;
  const int fitting = kTaskFloats / (call.shape.head_dim + call.shape.value_dim);
  const int64_t most = std::max(1, std::min(kTaskQueries, fitting) / call.group);
  const int64_t threads = call.context.pool->size();
  if (threads == 1) return static_cast<int>(most);
  const int64_t wanted = 4 * threads;  // tasks
  const int64_t balanced = rows * call.shape.kv_heads / wanted;
  const int64_t least = std::max(1, 24 / call.group);
  return static_cast<int>(std::clamp(balanced, std::min(least, most), most));
}

std::span<Task> MakeTasks(const Call& call, std::span<const KvSequence> sequences, int rows) {
  size_t count = 0;
  for (const KvSequence& s : sequences) count += size_t((s.row_count + rows - 1) / rows);
  count *= size_t(call.shape.kv_heads);
  Task* tasks = static_cast<Task*>(call.context.scratch->Bytes(count * sizeof(Task)));
  size_t index = 0;
  for (const KvSequence& s : sequences) {
    for (int row = 0; row < s.row_count; row += rows) {
      const int task_rows = std::min(rows, static_cast<int>(s.row_count) - row);
      const int begin = FirstSeen(call.params, s.position + row) / kKeys;
      const int end = (s.position + row + task_rows - 1) / kKeys + 1;
      for (int head = 0; head < call.shape.kv_heads; ++head) {
        tasks[index++] = {&s, head, row, task_rows, begin, end, 0};
      }
    }
  }
  // Longest first, so that the threads end together.
  std::sort(tasks, tasks + count, [](const Task& a, const Task& b) {
    return int64_t{a.rows} * (a.block_end - a.block_begin) >
           int64_t{b.rows} * (b.block_end - b.block_begin);
  });
  return {tasks, count};
}

void RunWhole(const Call& call, std::span<const Task> tasks, int64_t elements, int64_t queries) {
  const int64_t floats = TaskFloats(call.shape, queries);
  float* memory = call.context.scratch->Floats(size_t(floats * call.context.pool->size()));
  cpu::ForTasks(call.context, int64_t(tasks.size()), elements, [&](int64_t index, int thread) {
    const Task& task = tasks[size_t(index)];
    const TaskMemory mine = MakeTaskMemory(memory + thread * floats, call.shape, queries);
    LoadQueries(call, task, mine.q);
    ResetState(mine.state, call.queries(task));
    for (int block = task.block_begin; block < task.block_end; ++block) {
      AttendBlock(call, task, block, mine, mine.state);
    }
    StoreResult(call, task, mine.state);
  });
}

// Few queries over a long context: blocks are divided among the threads, each block's result is
// kept, and then merged in position order, as one thread would have done block by block.
void RunDivided(const Call& call, std::span<Task> tasks, int64_t elements, int64_t queries) {
  int64_t partials = 0;
  for (Task& task : tasks) {
    task.partial = partials;
    partials += task.block_end - task.block_begin;
  }
  const Task** owner = static_cast<const Task**>(
      call.context.scratch->Bytes(size_t(partials) * sizeof(const Task*)));
  for (const Task& task : tasks) {
    std::fill_n(owner + task.partial, task.block_end - task.block_begin, &task);
  }
  const int64_t partial_floats = StateFloats(call.shape, queries);
  float* results = call.context.scratch->Floats(size_t(partials * partial_floats));
  const int64_t floats = TaskFloats(call.shape, queries);
  float* memory = call.context.scratch->Floats(size_t(floats * call.context.pool->size()));
  cpu::ForTasks(call.context, partials, elements, [&](int64_t index, int thread) {
    const Task& task = *owner[index];
    const TaskMemory mine = MakeTaskMemory(memory + thread * floats, call.shape, queries);
    const cpu::AttentionState state = MakeState(results + index * partial_floats, queries);
    LoadQueries(call, task, mine.q);
    ResetState(state, call.queries(task));
    AttendBlock(call, task, task.block_begin + int(index - task.partial), mine, state);
  });
  const int64_t merged = partials * queries * call.shape.value_dim;
  cpu::ForTasks(call.context, int64_t(tasks.size()), merged, [&](int64_t index, int) {
    const Task& task = tasks[size_t(index)];
    const cpu::AttentionState state = MakeState(results + task.partial * partial_floats, queries);
    for (int64_t p = task.partial + 1; p < task.partial + task.block_end - task.block_begin; ++p) {
      const cpu::AttentionState block = MakeState(results + p * partial_floats, queries);
      call.context.table->attend_merge(&state, &block, call.queries(task), call.shape.value_dim);
    }
    StoreResult(call, task, state);
  });
}

}  // namespace

void Attend(const OpContext& context, std::span<const KvSequence> sequences, const KvShape& shape,
            const AttentionParams& params, const Rows& q, const Rows& out) {
  CHECK(shape.kv_heads > 0 && params.q_heads % shape.kv_heads == 0);
  CHECK(q.cols == int64_t{params.q_heads} * shape.head_dim);
  CHECK(out.cols == int64_t{params.q_heads} * shape.value_dim);
  CHECK(shape.dtype == DType::kF16 || shape.dtype == DType::kF32);
  CHECK(!shape.value_in_key || shape.value_dim <= shape.head_dim);
  const ScratchScope scope(*context.scratch);
  const Call call{context, shape, params, q, out, params.q_heads / shape.kv_heads};
  const int rows = RowsPerTask(call, sequences);
  const std::span<Task> tasks = MakeTasks(call, sequences, rows);
  int64_t blocks = 0;
  int64_t query_blocks = 0;
  for (const Task& task : tasks) {
    blocks += task.block_end - task.block_begin;
    query_blocks += int64_t{task.block_end - task.block_begin} * call.queries(task);
  }
  const int64_t elements = query_blocks * kKeys * (shape.head_dim + shape.value_dim) / 4;
  const int64_t queries = int64_t{rows} * call.group;
  const int64_t count = static_cast<int64_t>(tasks.size());
  const int64_t threads = context.pool->size();
  // Whole tasks unless they would leave threads idle.
  const bool idle = count < threads || (count < 4 * threads && count % threads != 0);
  if (threads > 1 && idle && blocks > 2 * count) {
    RunDivided(call, tasks, elements, queries);
  } else {
    RunWhole(call, tasks, elements, queries);
  }
}

namespace {

// Rows [row, row + count) of a sequence, all in one block, of one K/V head.
void StoreBlock(const OpContext& context, const KvSequence& s, const KvShape& shape, int64_t head,
                int64_t row, int count, const Rows& k, const Rows& v) {
  const cpu::KernelTable& table = *context.table;
  const int64_t position = s.position + row;
  const int slot = static_cast<int>(position % kKeys);
  const float* k_row = k.row(s.row_begin + row) + head * shape.head_dim;
  std::byte* k_block = s.k_blocks[position / kKeys];
  const int64_t k_offset = head * shape.head_dim * kKeys;
  if (shape.dtype == DType::kF32) {
    table.store_keys_f32(k_row, k.stride, count, shape.head_dim, slot,
                         reinterpret_cast<float*>(k_block) + k_offset);
  } else {
    table.store_keys_f16(k_row, k.stride, count, shape.head_dim, slot,
                         reinterpret_cast<uint16_t*>(k_block) + k_offset);
  }
  if (shape.value_in_key) return;
  std::byte* v_block = s.v_blocks[position / kKeys];
  for (int t = 0; t < count; ++t) {
    const float* v_row = v.row(s.row_begin + row + t) + head * shape.value_dim;
    const int64_t v_offset = (head * kKeys + slot + t) * shape.value_dim;
    if (shape.dtype == DType::kF32) {
      std::copy_n(v_row, shape.value_dim, reinterpret_cast<float*>(v_block) + v_offset);
    } else {
      table.f32_to_f16(v_row, shape.value_dim, reinterpret_cast<uint16_t*>(v_block) + v_offset);
    }
  }
}

}  // namespace

void StoreKv(const OpContext& context, std::span<const KvSequence> sequences, const KvShape& shape,
             const Rows& k, const Rows& v) {
  CHECK(k.cols == int64_t{shape.kv_heads} * shape.head_dim);
  CHECK(shape.value_in_key || v.cols == int64_t{shape.kv_heads} * shape.value_dim);
  CHECK(shape.dtype == DType::kF16 || shape.dtype == DType::kF32);
  int64_t rows = 0;
  for (const KvSequence& s : sequences) rows += s.row_count;
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * shape.kv_heads;
  cpu::ForTasks(context, tasks, rows * 2 * k.cols, [&](int64_t task, int) {
    const KvSequence& s = sequences[size_t(task / shape.kv_heads)];
    for (int64_t row = 0; row < s.row_count;) {
      const int64_t left = kKeys - (s.position + row) % kKeys;
      const int count = static_cast<int>(std::min(left, s.row_count - row));
      StoreBlock(context, s, shape, task % shape.kv_heads, row, count, k, v);
      row += count;
    }
  });
}

}  // namespace reprise
