// SPDX-License-Identifier: Apache-2.0
// Attention over pages against its specification, bit by bit.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/test_values.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/gpu/paged_attention.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"

namespace reprise::cuda {
namespace {

using reference::Half;
using reference::kPage;

uint16_t ToHalf(Half type, float x) { return type == Half::kF16 ? F32ToF16(x) : F32ToBF16(x); }

struct AttentionCase {
  int q_heads, kv_heads, head_dim, value_dim, window;
  float softcap;
  bool value_in_key;
  bool sinks = false;
  int picture = 0;  // rows [picture, 2 * picture) of a piece see one another; 0: there are none
};
std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << c.q_heads << "/" << c.kv_heads << " heads of " << c.head_dim << "/" << c.value_dim
             << " window " << c.window << " picture " << c.picture;
}
struct Piece {
  int position, rows;
};

// Rows of `channels` become what q8_0 makes of them.
void AsQ8(std::vector<float>* rows, int channels) {
  for (size_t row = 0; row < rows->size(); row += size_t(channels)) {
    for (int begin = 0; begin < channels; begin += kKvGroup) {
      float* group = rows->data() + row + begin;
      const int count = std::min(kKvGroup, channels - begin);
      const uint16_t scale = reference::ScaleOfQ8(group, count);
      for (int i = 0; i < count; ++i) {
        group[i] = reference::ElementOfQ8(scale, reference::CodeOfQ8(scale, group[i]));
      }
    }
  }
}

// Keys and values of all positions are stored by StoreKv, in steps; then the rows of a piece
// attend.
void RunCase(KvType type, const AttentionCase& shape, const std::vector<Piece>& pieces) {
  const reference::TensorCore core = TheCore();
  const DType stored = type == KvType::kF32  ? DType::kF32
                       : type == KvType::kQ8 ? DType::kQ8_0
                                             : DType::kF16;
  KvView kv{0, 0, shape.kv_heads, shape.head_dim, shape.value_dim, type, shape.value_in_key};
  const auto bytes = [&](int channels) {
    return int64_t{kPage} * shape.kv_heads * int64_t(KvRowBytes(stored, channels));
  };
  kv.v_offset = bytes(shape.head_dim);
  const int64_t block_bytes = kv.v_offset + (shape.value_in_key ? 0 : bytes(shape.value_dim));
  std::vector<SequenceView> sequences;
  std::vector<uint32_t> blocks;
  std::vector<int32_t> positions, row_sequence, ends;
  int32_t next_block = 0;
  std::vector<std::vector<float>> keys, values;
  for (const Piece& piece : pieces) {
    const int total = piece.position + piece.rows;
    const int count = (total + kPage - 1) / kPage;
    sequences.push_back({int32_t(positions.size()), piece.rows, piece.position,
                         int32_t(blocks.size()), count, 0, 0, 0});
    for (int b = 0; b < count; ++b) blocks.push_back(uint32_t(next_block++ ^ 1));
    for (int i = 0; i < piece.rows; ++i) {
      positions.push_back(piece.position + i);
      row_sequence.push_back(int32_t(sequences.size()) - 1);
      const bool seen = i >= shape.picture && i < 2 * shape.picture;
      ends.push_back(piece.position + (seen ? std::min(2 * shape.picture, piece.rows) : i + 1));
    }
    const unsigned seed = unsigned(keys.size());
    keys.push_back(RandomFloats(size_t(total * shape.kv_heads * shape.head_dim), 10 + seed, 1));
    values.push_back(RandomFloats(size_t(total * shape.kv_heads * shape.value_dim), 90 + seed, 1));
  }
  const int64_t rows = int64_t(positions.size());
  DeviceArray<std::byte> memory(size_t(block_bytes) * size_t(next_block + 2));
  DeviceArray<uint32_t> device_blocks(blocks);

  const auto store = [&](size_t s, int from, int count) {
    std::vector<SequenceView> one = {sequences[s]};
    one[0].row_begin = 0, one[0].row_count = count, one[0].position = from;
    std::vector<int32_t> at(static_cast<size_t>(count)), zero(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) at[size_t(i)] = from + i;
    DeviceArray<SequenceView> device_one(one);
    DeviceArray<int32_t> device_at(at), device_zero(zero);
    const int64_t k_width = shape.kv_heads * shape.head_dim;
    const int64_t v_width = shape.kv_heads * shape.value_dim;
    const std::vector<float> k(keys[s].begin() + from * k_width,
                               keys[s].begin() + (from + count) * k_width);
    const std::vector<float> v(values[s].begin() + from * v_width,
                               values[s].begin() + (from + count) * v_width);
    DeviceArray<float> device_k(k), device_v(v);
    StepView step;
    step.rows = count, step.sequence_count = 1;
    step.positions = device_at.data(), step.row_sequence = device_zero.data();
    step.sequences = device_one.data(), step.blocks = device_blocks.data();
    step.block_memory = memory.data(), step.block_bytes = block_bytes;
    StoreKv(nullptr, step, kv, {device_k.data(), count, k_width, k_width},
            {device_v.data(), count, v_width, v_width});
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (pieces[s].position > 0) store(s, 0, pieces[s].position);
    store(s, pieces[s].position, pieces[s].rows);
  }

  if (type == KvType::kQ8) {  // what was stored
    for (auto& rows_of : keys) AsQ8(&rows_of, shape.head_dim);
    for (auto& rows_of : values) AsQ8(&rows_of, shape.value_dim);
  }

  const int64_t q_width = int64_t{shape.q_heads} * shape.head_dim;
  const int64_t out_width = int64_t{shape.q_heads} * shape.value_dim;
  const std::vector<float> q = RandomFloats(size_t(rows * q_width), 5, 1);
  DeviceArray<float> device_q(q), out(size_t(rows * out_width));
  DeviceArray<SequenceView> device_sequences(sequences);
  DeviceArray<int32_t> device_positions(positions), device_row_sequence(row_sequence);
  StepView step;
  step.rows = int32_t(rows), step.sequence_count = int32_t(sequences.size());
  step.positions = device_positions.data(), step.row_sequence = device_row_sequence.data();
  step.sequences = device_sequences.data(), step.blocks = device_blocks.data();
  step.block_memory = memory.data(), step.block_bytes = block_bytes;
  AttentionView params{shape.q_heads, 0.11f, shape.window, shape.softcap};
  const std::vector<float> sinks = RandomFloats(size_t(shape.q_heads), 9, 4);
  DeviceArray<float> device_sinks(sinks);
  if (shape.sinks) params.sinks = device_sinks.data();
  DeviceArray<int32_t> device_ends(ends);
  if (shape.picture > 0) params.ends = device_ends.data();
  const DepthView depth = DepthOf(sequences);
  DeviceArray<std::byte> workspace(AttendWorkspace(step, depth, kv, params));
  Attend(nullptr, step, depth, kv, params, {device_q.data(), rows, q_width, q_width},
         {out.data(), rows, out_width, out_width}, workspace.data());
  const std::vector<float> got = out.Read();

  const Half half = type == KvType::kBF16 ? Half::kBF16 : Half::kF16;
  std::atomic<int64_t> different{0};
  ParallelFor(rows, [&](int64_t row) {
    const size_t s = size_t(row_sequence[size_t(row)]);
    const int position = positions[size_t(row)];
    const int first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
    for (int head = 0; head < shape.q_heads; head += 1 + int(row % 3)) {
      const int kv_head = head / (shape.q_heads / shape.kv_heads);
      const float* query = q.data() + row * q_width + head * shape.head_dim;
      const auto key = [&](int at, int i) {
        return keys[s][size_t((at * shape.kv_heads + kv_head) * shape.head_dim + i)];
      };
      const auto value = [&](int at, int c) {
        return shape.value_in_key
                   ? key(at, c)
                   : values[s][size_t((at * shape.kv_heads + kv_head) * shape.value_dim + c)];
      };
      std::vector<float> expected(size_t(shape.value_dim));
      const int end_seen = ends[size_t(row)];
      const int page_count = (end_seen - 1) / kPage + 1;
      if (type == KvType::kF32) {
        std::vector<float> scaled(size_t(shape.head_dim));
        for (int i = 0; i < shape.head_dim; ++i) scaled[size_t(i)] = query[i] * params.scale;
        float max = shape.sinks ? sinks[size_t(head)] : -INFINITY, sum = shape.sinks ? 1 : 0;
        std::vector<float> k(size_t(kPage * shape.head_dim)), v(size_t(kPage * shape.value_dim));
        for (int page = first / kPage; page < page_count; ++page) {
          const int from = std::max(0, first - page * kPage);
          const int end = std::min(kPage, end_seen - page * kPage);
          for (int j = from; j < end; ++j) {
            for (int i = 0; i < shape.head_dim; ++i) {
              k[size_t(i * kPage + j)] = key(page * kPage + j, i);
            }
            for (int c = 0; c < shape.value_dim; ++c) {
              v[size_t(j * shape.value_dim + c)] = value(page * kPage + j, c);
            }
          }
          const cpu::AttentionTile tile{scaled.data(), 1,        &from,          &end,
                                        k.data(),      v.data(), shape.head_dim, shape.value_dim,
                                        shape.softcap};
          const cpu::AttentionState state{&max, &sum, expected.data()};
          reference::AttendF32(&tile, &state, nullptr);
        }
        for (float& e : expected) e *= 1.0f / sum;
      } else {
        std::vector<uint16_t> k(size_t(page_count * kPage * shape.head_dim));
        std::vector<uint16_t> v(size_t(page_count * kPage * shape.value_dim));
        std::vector<reference::PageView> pages;
        for (int page = first / kPage; page < page_count; ++page) {
          const int from = std::max(0, first - page * kPage);
          const int end = std::min(kPage, end_seen - page * kPage);
          for (int j = from; j < end; ++j) {
            const int at = page * kPage + j;
            for (int i = 0; i < shape.head_dim; ++i) {
              k[size_t(at * shape.head_dim + i)] = ToHalf(half, key(at, i));
            }
            for (int c = 0; c < shape.value_dim; ++c) {
              v[size_t(at * shape.value_dim + c)] = ToHalf(half, value(at, c));
            }
          }
          pages.push_back({k.data() + page * kPage * shape.head_dim,
                           v.data() + page * kPage * shape.value_dim, from, end});
        }
        reference::AttendPages(
            {core, half, shape.head_dim, shape.value_dim, shape.value_dim, params.scale,
             shape.softcap, first / kPage, shape.sinks ? &sinks[size_t(head)] : nullptr},
            query, pages, expected.data());
      }
      different += std::memcmp(got.data() + row * out_width + head * shape.value_dim,
                               expected.data(), expected.size() * sizeof(float)) != 0;
    }
  });
  EXPECT_EQ(different, 0);
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<KvType, AttentionCase>> {
 protected:
  void Run(const std::vector<Piece>& pieces) {
    const auto [type, shape] = GetParam();
    RunCase(type, shape, pieces);
  }
};

TEST_P(AttentionTest, OneRowOfOneSequence) { Run({{700, 1}}); }
TEST_P(AttentionTest, AStartingPrompt) { Run({{0, 83}}); }
TEST_P(AttentionTest, LongPromptsBehindContexts) { Run({{301, 150}, {0, 70}, {64, 64}}); }
TEST_P(AttentionTest, ManyPages) { Run({{1100, 70}}); }
TEST_P(AttentionTest, FewRowsBehindManyPages) {
  Run({{1500, 30}});
  Run({{700, 31}, {90, 20}});
}
// A group of pages has 1,024 positions.
TEST_P(AttentionTest, RowsBehindGroupsOfPages) {
  Run({{3100, 1}});
  Run({{2047, 1}, {5, 1}, {1023, 1}, {1024, 1}, {63, 1}, {1500, 1}});
}
TEST_P(AttentionTest, FewRowsBehindGroupsOfPages) { Run({{1022, 3}, {2040, 16}, {7, 2}}); }
TEST_P(AttentionTest, ManyRowsBehindGroupsOfPages) { Run({{2100, 70}}); }
TEST_P(AttentionTest, SequencesOfAllKinds) {
  Run({{0, 1}, {63, 2}, {64, 1}, {200, 70}, {5, 130}, {300, 1}});
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionTest,
    ::testing::Combine(::testing::Values(KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8),
                       ::testing::Values(AttentionCase{4, 2, 16, 16, 0, 0, false},
                                         AttentionCase{6, 2, 20, 20, 0, 0, false},
                                         AttentionCase{4, 2, 32, 32, 0, 0, false},
                                         AttentionCase{8, 8, 64, 64, 0, 0, false},
                                         AttentionCase{8, 1, 64, 64, 0, 0, false, true},
                                         AttentionCase{8, 1, 64, 64, 128, 0, false, true},
                                         AttentionCase{8, 2, 128, 128, 100, 0, false},
                                         AttentionCase{8, 2, 128, 128, 1300, 0, false},
                                         AttentionCase{6, 2, 96, 80, 0, 0, false},
                                         AttentionCase{16, 4, 256, 256, 0, 0, false},
                                         AttentionCase{4, 1, 256, 256, 0, 50, false, true},
                                         AttentionCase{6, 2, 512, 512, 0, 0, false},
                                         AttentionCase{3, 1, 320, 272, 100, 0, false, true},
                                         AttentionCase{40, 1, 576, 512, 0, 0, true},
                                         AttentionCase{16, 16, 72, 72, 0, 0, false, false, 20},
                                         AttentionCase{8, 2, 128, 128, 0, 0, false, false, 60},
                                         AttentionCase{8, 2, 128, 128, 100, 0, false, false, 30},
                                         AttentionCase{4, 1, 256, 256, 0, 0, false, false, 33},
                                         AttentionCase{4, 2, 256, 256, 64, 50, false, false, 9},
                                         AttentionCase{6, 2, 512, 512, 0, 0, false, false, 33})));

// More positions than 16 bits count, alone and among others.
TEST(DeepAttentionTest, SeventyThousandPositions) {
  const AttentionCase shape{4, 2, 64, 64, 0, 0, false};
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    RunCase(type, shape, {{70000, 1}});
    RunCase(type, shape, {{3, 1}, {70001, 1}, {200, 1}, {0, 1}});
  }
}

// Blocks have up to 64 queries of a sequence: a turn's few new tokens are few blocks, whose pages
// must be divided until there is work for the whole GPU, or no more groups.
TEST(PartsOfPagesTest, AreMoreWhereQueriesAreFew) {
  KvView kv;
  kv.kv_heads = 4, kv.head_dim = kv.value_dim = 256;
  AttentionView params;
  params.q_heads = 16;
  StepView step;
  const auto parts = [&](int rows, int sequences, int64_t longest) {
    step.rows = rows, step.sequence_count = sequences;
    const DepthView depth{longest, rows * longest / kGroupPages};
    return PartsOfPages(step, depth, kv, params).parts;
  };
  // Where only one block fits on a multiprocessor some have none: parts are whole groups.
  const int most = ThisGpu().multiprocessors * 3 / 4;
  EXPECT_EQ(parts(1, 1, 128), 128 / kGroupPages);
  EXPECT_GE(parts(1, 1, 1024) * 4, most);
  EXPECT_GE(parts(30, 1, 1024) * 2 * 4, most);
  EXPECT_GE(parts(30, 30, 128) * 30 * 4, most);
  EXPECT_EQ(parts(65, 1, 128), 1);
}

}  // namespace
}  // namespace reprise::cuda
