// SPDX-License-Identifier: Apache-2.0
#include "kernels/scan_ops.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"

// Tasks are (sequence, head, range of columns) or (sequence, range of channels): each runs over all
// rows of its sequence with its part of the state in the first-level cache.
namespace reprise {

namespace {

constexpr int kTileColumns = 64;

int64_t TotalRows(std::span<const RecurrentSequence> sequences) {
  int64_t rows = 0;
  for (const RecurrentSequence& sequence : sequences) rows += sequence.row_count;
  return rows;
}

cpu::TokenRows From(const Rows& rows, const RecurrentSequence& sequence, int64_t column) {
  return {rows.row(sequence.row_begin) + column, rows.stride};
}

// Part of a matrix state of one head that a task works on.
struct HeadTile {
  const RecurrentSequence& sequence;
  int head;
  int column;  // of the head
  cpu::MatrixState state;
};

// Calls tile(HeadTile) for every tile of every head of every sequence.
template <typename Tile>
void ForHeadTiles(const OpContext& context, std::span<const RecurrentSequence> sequences, int heads,
                  int keys, int columns, const Tile& tile) {
  const int64_t tiles = (columns + kTileColumns - 1) / kTileColumns;
  const int64_t per_sequence = heads * tiles;
  const int64_t state_size = int64_t{keys} * columns;
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * per_sequence;
  const int64_t elements = TotalRows(sequences) * heads * state_size;
  cpu::ForTasks(context, tasks, elements, [&](int64_t task, int) {
    const RecurrentSequence& s = sequences[static_cast<size_t>(task / per_sequence)];
    const int head = static_cast<int>(task % per_sequence / tiles);
    const int column = static_cast<int>(task % tiles) * kTileColumns;
    const int width = std::min(kTileColumns, columns - column);
    tile(HeadTile{s, head, column, {s.state + head * state_size + column, columns, keys, width}});
  });
}

// Calls range(sequence, begin, count) for every range of channels of every sequence.
template <typename Range>
void ForChannels(const OpContext& context, std::span<const RecurrentSequence> sequences,
                 int64_t channels, int64_t cost, const Range& range) {
  const int64_t ranges = (channels + kTileColumns - 1) / kTileColumns;
  const int64_t tasks = static_cast<int64_t>(sequences.size()) * ranges;
  const int64_t elements = TotalRows(sequences) * channels * cost;
  cpu::ForTasks(context, tasks, elements, [&](int64_t task, int) {
    const int64_t begin = task % ranges * kTileColumns;
    range(sequences[static_cast<size_t>(task / ranges)], begin,
          static_cast<int>(std::min<int64_t>(kTileColumns, channels - begin)));
  });
}

}  // namespace

void KeyDecayDelta(const OpContext& context, std::span<const RecurrentSequence> sequences,
                   int heads, const Rows& q, const Rows& k, const Rows& v, const Rows& decay,
                   const Rows& beta, const Rows& y) {
  CHECK(heads > 0 && q.cols % heads == 0 && k.cols == q.cols && decay.cols == q.cols);
  CHECK(v.cols % heads == 0 && y.cols == v.cols && beta.cols == heads);
  const int keys = static_cast<int>(q.cols / heads);
  const int columns = static_cast<int>(v.cols / heads);
  ForHeadTiles(context, sequences, heads, keys, columns, [&](const HeadTile& tile) {
    const RecurrentSequence& s = tile.sequence;
    const int64_t key = int64_t{tile.head} * keys;
    const int64_t value = int64_t{tile.head} * columns + tile.column;
    const cpu::KeyDecayDeltaScan scan = {tile.state,
                                         static_cast<int>(s.row_count),
                                         From(q, s, key),
                                         From(k, s, key),
                                         From(decay, s, key),
                                         From(v, s, value),
                                         From(beta, s, tile.head),
                                         y.row(s.row_begin) + value,
                                         y.stride};
    context.table->scan.key_decay_delta(&scan);
  });
}

void DecayGates(const OpContext& context, const Rows& x, const float* bias, const float* rate,
                const Rows& decay) {
  CHECK(x.rows == decay.rows && x.cols == decay.cols);
  cpu::ForRows(context, x.rows, x.cols * 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->scan.decay(x.row(t), bias, rate, x.cols, decay.row(t));
    }
  });
}

void Ssd(const OpContext& context, std::span<const RecurrentSequence> sequences,
         const SsdShape& shape, const Rows& x, const Rows& b, const Rows& c, const Rows& dt,
         const Rows& decay, const float* skip, const Rows& y) {
  CHECK(shape.groups > 0 && shape.heads % shape.groups == 0);
  CHECK(b.cols == int64_t{shape.groups} * shape.state_dim && c.cols == b.cols);
  CHECK(x.cols == int64_t{shape.heads} * shape.head_dim && y.cols == x.cols);
  CHECK(dt.cols == shape.heads && decay.cols == shape.heads);
  const int heads_per_group = shape.heads / shape.groups;
  ForHeadTiles(context, sequences, shape.heads, shape.state_dim, shape.head_dim,
               [&](const HeadTile& tile) {
                 const RecurrentSequence& s = tile.sequence;
                 const int64_t key = int64_t{tile.head / heads_per_group} * shape.state_dim;
                 const int64_t value = int64_t{tile.head} * shape.head_dim + tile.column;
                 const cpu::SsdScan scan = {tile.state,
                                            static_cast<int>(s.row_count),
                                            From(b, s, key),
                                            From(c, s, key),
                                            From(x, s, value),
                                            From(dt, s, tile.head),
                                            From(decay, s, tile.head),
                                            skip[tile.head],
                                            y.row(s.row_begin) + value,
                                            y.stride};
                 context.table->scan.ssd(&scan);
               });
}

void SsdGates(const OpContext& context, const Rows& x, const float* bias, const float* a, float low,
              float high, const Rows& dt, const Rows& decay) {
  CHECK(x.rows == dt.rows && x.cols == dt.cols && x.rows == decay.rows && x.cols == decay.cols);
  cpu::ForRows(context, x.rows, x.cols * 12, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->scan.ssd_gates(x.row(t), bias, a, low, high, x.cols, dt.row(t), decay.row(t));
    }
  });
}

void SelectiveScan(const OpContext& context, std::span<const RecurrentSequence> sequences,
                   const float* a, const float* skip, const Rows& x, const Rows& dt, const Rows& b,
                   const Rows& c, const Rows& y) {
  CHECK(x.cols == y.cols && dt.cols == y.cols && b.cols == c.cols);
  const int64_t channels = x.cols;
  const int keys = static_cast<int>(b.cols);
  ForChannels(context, sequences, channels, int64_t{keys} * 4,
              [&](const RecurrentSequence& s, int64_t begin, int count) {
                const cpu::SelectiveScan scan = {{s.state + begin, channels, keys, count},
                                                 static_cast<int>(s.row_count),
                                                 a + begin,
                                                 channels,
                                                 skip + begin,
                                                 From(x, s, begin),
                                                 From(dt, s, begin),
                                                 From(b, s, 0),
                                                 From(c, s, 0),
                                                 y.row(s.row_begin) + begin,
                                                 y.stride};
                context.table->scan.selective(&scan);
              });
}

void Wkv7(const OpContext& context, std::span<const RecurrentSequence> sequences, int heads,
          const Wkv7Operands& operands, const Rows& y) {
  for (const Rows* rows :
       {&operands.r, &operands.w, &operands.k, &operands.v, &operands.a, &operands.b}) {
    CHECK(rows->cols == y.cols);
  }
  CHECK(heads > 0 && y.cols % heads == 0);
  const int width = static_cast<int>(y.cols / heads);
  ForHeadTiles(context, sequences, heads, width, width, [&](const HeadTile& tile) {
    const RecurrentSequence& s = tile.sequence;
    const int64_t key = int64_t{tile.head} * width;
    const cpu::Wkv7Scan scan = {tile.state,
                                static_cast<int>(s.row_count),
                                From(operands.r, s, key),
                                From(operands.w, s, key),
                                From(operands.k, s, key),
                                From(operands.a, s, key),
                                From(operands.b, s, key),
                                From(operands.v, s, key + tile.column),
                                y.row(s.row_begin) + key + tile.column,
                                y.stride};
    context.table->scan.wkv7(&scan);
  });
}

void TokenShift(const OpContext& context, std::span<const RecurrentSequence> sequences,
                const Rows& x, std::span<const float* const> mix, std::span<const Rows> outs) {
  CHECK(mix.size() == outs.size());
  for (const RecurrentSequence& s : sequences) {
    if (s.row_count == 0) continue;
    const int64_t cost = x.cols * static_cast<int64_t>(outs.size());
    cpu::ForRows(context, s.row_count, cost, [&](int64_t begin, int64_t end) {
      for (int64_t t = s.row_begin + begin; t < s.row_begin + end; ++t) {
        const float* before = t == s.row_begin ? s.state : x.row(t - 1);
        for (size_t i = 0; i < outs.size(); ++i) {
          context.table->lerp(x.row(t), before, mix[i], x.cols, outs[i].row(t));
        }
      }
    });
    std::copy_n(x.row(s.row_begin + s.row_count - 1), x.cols, s.state);
  }
}

void RgLru(const OpContext& context, std::span<const RecurrentSequence> sequences,
           const float* rate, const Rows& x, const Rows& r, const Rows& i, const Rows& y) {
  CHECK(x.cols == y.cols && r.cols == y.cols && i.cols == y.cols);
  ForChannels(context, sequences, x.cols, 16,
              [&](const RecurrentSequence& s, int64_t begin, int count) {
                const cpu::RgLruScan scan = {s.state + begin,
                                             count,
                                             static_cast<int>(s.row_count),
                                             s.position == 0,
                                             rate + begin,
                                             From(x, s, begin),
                                             From(r, s, begin),
                                             From(i, s, begin),
                                             y.row(s.row_begin) + begin,
                                             y.stride};
                context.table->scan.rg_lru(&scan);
              });
}

}  // namespace reprise
