// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/ops.h"

// Ops with a state: channels (columns) are independent, rows follow one another. Tasks are
// (sequence, channel range): each runs over all rows of its sequence.
namespace reprise {

namespace {

int64_t TotalRows(std::span<const RecurrentSequence> sequences) {
  int64_t rows = 0;
  for (const RecurrentSequence& sequence : sequences) rows += sequence.row_count;
  return rows;
}

}  // namespace

void ShortConv(const OpContext& context, std::span<const RecurrentSequence> sequences,
               const float* weight, const float* bias, int taps, bool silu, const Rows& x,
               const Rows& y) {
  CHECK(x.cols == y.cols && taps >= 1);
  // A quarter of a page of each row: long enough to stream, many enough to divide.
  constexpr int64_t kChannels = 256;
  const int64_t channels = x.cols;
  const int64_t ranges = (channels + kChannels - 1) / kChannels;
  const int64_t elements = TotalRows(sequences) * channels * (taps + (silu ? 4 : 0));
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * ranges;
  cpu::ForTasks(context, tasks, elements, [&](int64_t task, int) {
    const RecurrentSequence& s = sequences[static_cast<size_t>(task / ranges)];
    const int64_t begin = task % ranges * kChannels;
    const int64_t count = std::min(kChannels, channels - begin);
    context.table->short_conv(x.row(s.row_begin) + begin, x.stride, static_cast<int>(s.row_count),
                              weight + begin, bias != nullptr ? bias + begin : nullptr, taps,
                              channels, static_cast<int>(count), silu, s.state + begin, channels,
                              y.row(s.row_begin) + begin, y.stride);
  });
}

void GatedDelta(const OpContext& context, std::span<const RecurrentSequence> sequences,
                const GatedDeltaShape& shape, const Rows& q, const Rows& k, const Rows& v,
                const Rows& decay, const Rows& beta, const Rows& y) {
  CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
  CHECK(q.cols == int64_t{shape.key_heads} * shape.key_dim && k.cols == q.cols);
  CHECK(v.cols == int64_t{shape.value_heads} * shape.value_dim && y.cols == v.cols);
  CHECK(decay.cols == shape.value_heads && beta.cols == shape.value_heads);
  CHECK(q.stride == k.stride && decay.stride == beta.stride);
  // A tile of 128 keys and 64 columns is 32 KiB: it stays in the first-level cache over all rows.
  constexpr int kColumns = 64;
  const int tiles = (shape.value_dim + kColumns - 1) / kColumns;
  const int64_t per_sequence = int64_t{shape.value_heads} * tiles;
  const int64_t state_size = int64_t{shape.key_dim} * shape.value_dim;
  const int64_t elements = TotalRows(sequences) * shape.value_heads * state_size;
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * per_sequence;
  cpu::ForTasks(context, tasks, elements, [&](int64_t task, int) {
    const RecurrentSequence& s = sequences[static_cast<size_t>(task / per_sequence)];
    const int head = static_cast<int>(task % per_sequence) / tiles;
    const int column = static_cast<int>(task % tiles) * kColumns;
    const int key_head =
        shape.tiled_heads ? head % shape.key_heads : head / (shape.value_heads / shape.key_heads);
    const int64_t row = s.row_begin;
    const int64_t key_offset = int64_t{key_head} * shape.key_dim;
    const int64_t value_offset = int64_t{head} * shape.value_dim + column;
    context.table->gated_delta(s.state + head * state_size + column, shape.value_dim, shape.key_dim,
                               std::min(kColumns, shape.value_dim - column),
                               q.row(row) + key_offset, k.row(row) + key_offset, q.stride,
                               v.row(row) + value_offset, v.stride, decay.row(row) + head,
                               beta.row(row) + head, decay.stride, static_cast<int>(s.row_count),
                               y.row(row) + value_offset, y.stride);
  });
}

}  // namespace reprise
