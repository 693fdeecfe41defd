// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/segments.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/raw_rows.h"

// Tasks are (sequence, head, range of columns) or (sequence, range of channels): each runs over all
// rows of its sequence with its part of the state in the first-level cache.
namespace reprise::cpu {

namespace {

// A tile of 128 keys and 64 columns is 32 KiB: it stays in the first-level cache over all rows.
constexpr int kTileColumns = 64;

TokenRows From(const ConstRows& rows, const Segment& sequence, int64_t column) {
  return {RowOf(rows, sequence.row_begin) + column, rows.stride};
}

const float* LastOf(const Rows& rows, const Segment& sequence) {
  return RowOf(rows, sequence.row_begin + sequence.row_count - 1);
}

// Part of a matrix state of one head that a task works on.
struct HeadTile {
  const Segment& sequence;
  int head;
  int column;  // of the head
  MatrixState state;
};

// Calls tile(HeadTile) for every tile of every head of every sequence. The state is [heads, keys,
// columns]. What is not finite in it stays so from token to token, so it is looked at behind them:
// first at the last output, which tile tells, because the outputs of a column are sums over its
// keys and finite only if all of them are.
template <typename Tile>
void ForHeadTiles(ThreadPool& pool, const StepLayout& step, size_t state_offset, int heads,
                  int keys, int columns, const Tile& tile) {
  const int64_t tiles = (columns + kTileColumns - 1) / kTileColumns;
  const int64_t per_sequence = heads * tiles;
  const int64_t state_size = int64_t{keys} * columns;
  const StateOperand state(step, state_offset, heads * state_size);
  ForSegments(pool, state, [&](std::span<const Segment> segments) {
    const int64_t tasks = static_cast<int64_t>(segments.size()) * per_sequence;
    const int64_t elements = TotalRows(segments) * heads * state_size;
    ForTasks(pool, tasks, elements, [&](int64_t task, int) {
      const Segment& s = segments[static_cast<size_t>(task / per_sequence)];
      const int head = static_cast<int>(task % per_sequence / tiles);
      const int column = static_cast<int>(task % tiles) * kTileColumns;
      const int width = std::min(kTileColumns, columns - column);
      float* const part = s.state + head * state_size + column;
      const float* out = tile(HeadTile{s, head, column, {part, columns, keys, width}});
      if (AllBelow(kInfinity, out, width)) return;
      if (!AllBelow(kInfinity, part, keys, columns, width)) Spoil(step, s.sequence);
    });
  });
}

// Calls range(sequence, begin, count) for every range of channels of every sequence. The state is
// [keys, channels].
template <typename Range>
void ForChannels(ThreadPool& pool, const StepLayout& step, size_t state_offset, int64_t keys,
                 int64_t channels, int64_t cost, const Range& range) {
  const int64_t ranges = (channels + kTileColumns - 1) / kTileColumns;
  const StateOperand state(step, state_offset, keys * channels);
  ForSegments(pool, state, [&](std::span<const Segment> segments) {
    const int64_t tasks = static_cast<int64_t>(segments.size()) * ranges;
    const int64_t elements = TotalRows(segments) * channels * cost;
    ForTasks(pool, tasks, elements, [&](int64_t task, int) {
      const int64_t begin = task % ranges * kTileColumns;
      const Segment& s = segments[static_cast<size_t>(task / ranges)];
      const int64_t width = std::min<int64_t>(kTileColumns, channels - begin);
      range(s, begin, static_cast<int>(width));
      if (!AllBelow(kInfinity, s.state + begin, keys, channels, width)) Spoil(step, s.sequence);
    });
  });
}

}  // namespace

void CpuBackend::ShortConv(const StepLayout& step, size_t state_offset, ConstFloats weight,
                           ConstFloats bias, int reach, bool silu, const ConstRows& x,
                           const Rows& y) {
  // A quarter of a page of each row: long enough to stream, many enough to divide.
  constexpr int64_t kChannels = 256;
  const int64_t channels = x.cols;
  const int64_t ranges = (channels + kChannels - 1) / kChannels;
  const StateOperand state(step, state_offset, (reach - 1) * channels);
  ForSegments(*pool_, state, [&](std::span<const Segment> segments) {
    const int64_t elements = TotalRows(segments) * channels * (reach + (silu ? 4 : 0));
    const int64_t tasks = static_cast<int64_t>(segments.size()) * ranges;
    ForTasks(*pool_, tasks, elements, [&](int64_t task, int) {
      const Segment& s = segments[static_cast<size_t>(task / ranges)];
      const int64_t begin = task % ranges * kChannels;
      const int64_t count = std::min(kChannels, channels - begin);
      if (!AllBelow(kInfinity, RowOf(x, s.row_begin) + begin, s.row_count, x.stride, count)) {
        Spoil(step, s.sequence);
      }
      table_->short_conv(RowOf(x, s.row_begin) + begin, x.stride, static_cast<int>(s.row_count),
                         Raw(weight) + begin, bias ? Raw(bias) + begin : nullptr, reach, channels,
                         static_cast<int>(count), silu, s.state + begin, channels,
                         RowOf(y, s.row_begin) + begin, y.stride);
    });
  });
}

void CpuBackend::GatedDelta(const StepLayout& step, size_t state_offset,
                            const GatedDeltaShape& shape, const ConstRows& q, const ConstRows& k,
                            const ConstRows& v, const ConstRows& decay, const ConstRows& beta,
                            const Rows& y) {
  ForHeadTiles(*pool_, step, state_offset, shape.value_heads, shape.key_dim, shape.value_dim,
               [&](const HeadTile& tile) {
                 const int64_t row = tile.sequence.row_begin;
                 const int key_head = shape.tiled_heads
                                          ? tile.head % shape.key_heads
                                          : tile.head / (shape.value_heads / shape.key_heads);
                 const int64_t key = int64_t{key_head} * shape.key_dim;
                 const int64_t value = int64_t{tile.head} * shape.value_dim + tile.column;
                 table_->gated_delta(tile.state.data, tile.state.stride, tile.state.keys,
                                     tile.state.columns, RowOf(q, row) + key, RowOf(k, row) + key,
                                     q.stride, RowOf(v, row) + value, v.stride,
                                     RowOf(decay, row) + tile.head, RowOf(beta, row) + tile.head,
                                     decay.stride, static_cast<int>(tile.sequence.row_count),
                                     RowOf(y, row) + value, y.stride, nullptr);
                 return LastOf(y, tile.sequence) + value;
               });
}

void CpuBackend::KeyDecayDelta(const StepLayout& step, size_t state_offset, int heads,
                               const ConstRows& q, const ConstRows& k, const ConstRows& v,
                               const ConstRows& decay, const ConstRows& beta, const Rows& y) {
  const int keys = static_cast<int>(q.cols / heads);
  const int columns = static_cast<int>(v.cols / heads);
  ForHeadTiles(*pool_, step, state_offset, heads, keys, columns, [&](const HeadTile& tile) {
    const Segment& s = tile.sequence;
    const int64_t key = int64_t{tile.head} * keys;
    const int64_t value = int64_t{tile.head} * columns + tile.column;
    const KeyDecayDeltaScan scan = {tile.state,
                                    static_cast<int>(s.row_count),
                                    From(q, s, key),
                                    From(k, s, key),
                                    From(decay, s, key),
                                    From(v, s, value),
                                    From(beta, s, tile.head),
                                    RowOf(y, s.row_begin) + value,
                                    y.stride};
    table_->scan.key_decay_delta(&scan);
    return LastOf(y, s) + value;
  });
}

void CpuBackend::DecayGates(const ConstRows& x, ConstFloats bias, ConstFloats rate,
                            const Rows& decay) {
  ForRows(*pool_, x.rows, x.cols * 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->scan.decay(RowOf(x, t), Raw(bias), Raw(rate), x.cols, RowOf(decay, t));
    }
  });
}

void CpuBackend::Ssd(const StepLayout& step, size_t state_offset, const SsdShape& shape,
                     const ConstRows& x, const ConstRows& b, const ConstRows& c,
                     const ConstRows& dt, const ConstRows& decay, ConstFloats skip, const Rows& y) {
  const int heads_per_group = shape.heads / shape.groups;
  ForHeadTiles(*pool_, step, state_offset, shape.heads, shape.state_dim, shape.head_dim,
               [&](const HeadTile& tile) {
                 const Segment& s = tile.sequence;
                 const int64_t key = int64_t{tile.head / heads_per_group} * shape.state_dim;
                 const int64_t value = int64_t{tile.head} * shape.head_dim + tile.column;
                 const SsdScan scan = {tile.state,
                                       static_cast<int>(s.row_count),
                                       From(b, s, key),
                                       From(c, s, key),
                                       From(x, s, value),
                                       From(dt, s, tile.head),
                                       From(decay, s, tile.head),
                                       Raw(skip)[tile.head],
                                       RowOf(y, s.row_begin) + value,
                                       y.stride};
                 table_->scan.ssd(&scan);
                 return LastOf(y, s) + value;
               });
}

void CpuBackend::SsdGates(const ConstRows& x, ConstFloats bias, ConstFloats a, float low,
                          float high, const Rows& dt, const Rows& decay) {
  ForRows(*pool_, x.rows, x.cols * 12, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table_->scan.ssd_gates(RowOf(x, t), Raw(bias), Raw(a), low, high, x.cols, RowOf(dt, t),
                             RowOf(decay, t));
    }
  });
}

void CpuBackend::SelectiveScan(const StepLayout& step, size_t state_offset, ConstFloats a,
                               ConstFloats skip, const ConstRows& x, const ConstRows& dt,
                               const ConstRows& b, const ConstRows& c, const Rows& y) {
  const int64_t channels = x.cols;
  const int keys = static_cast<int>(b.cols);
  ForChannels(*pool_, step, state_offset, keys, channels, int64_t{keys} * 4,
              [&](const Segment& s, int64_t begin, int count) {
                const cpu::SelectiveScan scan = {{s.state + begin, channels, keys, count},
                                                 static_cast<int>(s.row_count),
                                                 Raw(a) + begin,
                                                 channels,
                                                 Raw(skip) + begin,
                                                 From(x, s, begin),
                                                 From(dt, s, begin),
                                                 From(b, s, 0),
                                                 From(c, s, 0),
                                                 RowOf(y, s.row_begin) + begin,
                                                 y.stride};
                table_->scan.selective(&scan);
              });
}

void CpuBackend::Wkv7(const StepLayout& step, size_t state_offset, int heads,
                      const Wkv7Operands& operands, const Rows& y) {
  const int width = static_cast<int>(y.cols / heads);
  ForHeadTiles(*pool_, step, state_offset, heads, width, width, [&](const HeadTile& tile) {
    const Segment& s = tile.sequence;
    const int64_t key = int64_t{tile.head} * width;
    const Wkv7Scan scan = {tile.state,
                           static_cast<int>(s.row_count),
                           From(operands.r, s, key),
                           From(operands.w, s, key),
                           From(operands.k, s, key),
                           From(operands.a, s, key),
                           From(operands.b, s, key),
                           From(operands.v, s, key + tile.column),
                           RowOf(y, s.row_begin) + key + tile.column,
                           y.stride};
    table_->scan.wkv7(&scan);
    return LastOf(y, s) + key + tile.column;
  });
}

void CpuBackend::TokenShift(const StepLayout& step, size_t state_offset, const ConstRows& x,
                            std::span<const ConstFloats> mix, std::span<const Rows> outs) {
  const int64_t cost = x.cols * static_cast<int64_t>(outs.size());
  ForSegments(*pool_, StateOperand(step, state_offset, x.cols), [&](auto segments) {
    for (const Segment& s : segments) {
      if (s.row_count == 0) continue;
      ForRows(*pool_, s.row_count, cost, [&](int64_t begin, int64_t end) {
        for (int64_t t = s.row_begin + begin; t < s.row_begin + end; ++t) {
          const float* before = t == s.row_begin ? s.state : RowOf(x, t - 1);
          if (!AllBelow(kInfinity, RowOf(x, t), x.cols)) Spoil(step, s.sequence);
          for (size_t i = 0; i < outs.size(); ++i) {
            table_->lerp(RowOf(x, t), before, Raw(mix[i]), x.cols, RowOf(outs[i], t));
          }
        }
      });
      std::copy_n(RowOf(x, s.row_begin + s.row_count - 1), x.cols, s.state);
    }
  });
}

void CpuBackend::RgLru(const StepLayout& step, size_t state_offset, ConstFloats rate,
                       const ConstRows& x, const ConstRows& r, const ConstRows& i, const Rows& y) {
  ForChannels(*pool_, step, state_offset, 1, x.cols, 16,
              [&](const Segment& s, int64_t begin, int count) {
                const RgLruScan scan = {s.state + begin,
                                        count,
                                        static_cast<int>(s.row_count),
                                        s.position == 0,
                                        Raw(rate) + begin,
                                        From(x, s, begin),
                                        From(r, s, begin),
                                        From(i, s, begin),
                                        RowOf(y, s.row_begin) + begin,
                                        y.stride};
                table_->scan.rg_lru(&scan);
              });
}

}  // namespace reprise::cpu
