// SPDX-License-Identifier: Apache-2.0
// Kernels that are several ops at once against those ops, bit by bit, on the device.
#include "kernels/joint_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/activation_ops.h"
#include "kernels/cuda/architecture.h"
#include "kernels/cuda/joined/joint_ops_fixture.h"
#include "kernels/expert_ops.h"
#include "tensor/kv_row.h"

namespace reprise::cuda {
namespace {

struct DeltaCase {
  int key_heads, value_heads;
  bool tiled;
  int sequences = 7;
};

class DeltaTest : public JointOpsTest, public ::testing::WithParamInterface<DeltaCase> {};

// Tokens of several sequences one by one, which is the kernel, and all at once, which is the ops.
TEST_P(DeltaTest, TokenByTokenEqualsTheOps) {
  const DeltaCase& shape = GetParam();
  constexpr int kTokens = 5, kDim = 128, kReach = 4;
  GatedDeltaLayer layer;
  layer.shape = {shape.key_heads, shape.value_heads, kDim, kDim, shape.tiled};
  const int64_t keys = int64_t{shape.key_heads} * kDim, values = int64_t{shape.value_heads} * kDim;
  const int64_t channels = 2 * keys + values;
  layer.reach = kReach;
  layer.conv_offset = 64;
  layer.delta_offset = 64 + size_t(3 * channels) * 4;
  layer.conv = OnDevice(Random(kReach * channels));
  layer.exp_a = OnDevice(Random(shape.value_heads, 0.1f, 2));
  layer.dt_bias = OnDevice(Random(shape.value_heads));
  layer.norm = OnDevice(Random(kDim));
  layer.l2_eps = layer.norm_eps = 1e-6f;
  const size_t state_bytes = layer.delta_offset + size_t(shape.value_heads * kDim * kDim) * 4;
  const auto states = Random(int64_t(state_bytes / 4) * shape.sequences);
  const int64_t rows = shape.sequences * kTokens;
  const auto qkv = Random(rows * channels), ab = Random(rows * 2 * shape.value_heads, -2, 2);
  const auto z = Random(rows * values);
  const auto part = [](const std::vector<float>& all, int64_t row, int64_t cols) {
    return std::vector<float>(all.begin() + row * cols, all.begin() + (row + 1) * cols);
  };
  // Rows [begin, begin + count) of every sequence, in the states at `place`.
  const auto run = [&](DevicePtr<float> place, int begin, int count) {
    HandMade step;
    std::vector<float> some_qkv, some_ab, some_z;
    for (int s = 0; s < shape.sequences; ++s) {
      StepSequence sequence;
      sequence.row_begin = s * count;
      sequence.row_count = count;
      sequence.position = begin;
      sequence.state = uint32_t(shape.sequences - 1 - s);
      step.sequences.push_back(sequence);
      for (int t = begin; t < begin + count; ++t) {
        const int64_t row = s * kTokens + t;
        step.positions.push_back(t);
        step.row_sequences.push_back(s);
        const auto add = [&](std::vector<float>* to, const std::vector<float>& from, int64_t cols) {
          const auto one = part(from, row, cols);
          to->insert(to->end(), one.begin(), one.end());
        };
        add(&some_qkv, qkv, channels);
        add(&some_ab, ab, 2 * shape.value_heads);
        add(&some_z, z, values);
      }
    }
    step.layout.state_memory = place.As<std::byte>();
    step.layout.state_bytes = state_bytes;
    scratch_->Reset();
    const StepLayout& layout = step.Begin(context_);
    const Rows both = RowsOf(some_ab, 2 * shape.value_heads);
    const Rows y = RowsOf(std::vector<float>(some_z.size()), values);
    GatedDeltaMix(context_, layout, layer, RowsOf(some_qkv, channels),
                  Columns(both, 0, shape.value_heads),
                  Columns(both, shape.value_heads, shape.value_heads), RowsOf(some_z, values), y);
    return Read(y);
  };
  const DevicePtr<float> at_once = OnDevice(states), one_by_one = OnDevice(states);
  const auto expected = run(at_once, 0, kTokens);
  for (int t = 0; t < kTokens; ++t) {
    const auto y = run(one_by_one, t, 1);
    for (int s = 0; s < shape.sequences; ++s) {
      ExpectSame(part(y, s, values), part(expected, s * kTokens + t, values), "outputs");
    }
  }
  const int64_t floats = int64_t(states.size());
  ExpectSame(Read(one_by_one, floats), Read(at_once, floats), "states");
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaTest,
                         ::testing::Values(DeltaCase{16, 16, false}, DeltaCase{16, 32, false},
                                           DeltaCase{16, 32, true}, DeltaCase{4, 12, true},
                                           DeltaCase{2, 8, false}, DeltaCase{16, 48, true},
                                           DeltaCase{16, 64, false}, DeltaCase{16, 32, true, 70},
                                           DeltaCase{16, 16, false, 8},
                                           DeltaCase{4, 12, false, 33}));

// Norms, rotary embedding and storing of heads; attention and its gate.
TEST_F(JointOpsTest, HeadsAndGatesEqualTheOps) {
  constexpr int kQueries = 8, kHeads = 2;
  for (const int dim : {64, 80, 128, 256}) {
    for (const DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kQ8_0}) {
      // Of the channels a half is turned, or all: pairs are so many parts of them.
      for (const auto& [norm, part] : {std::pair(true, 4), {false, 4}, {true, 2}, {false, 2}}) {
        const int64_t rows = 70, q_width = kQueries * dim, k_width = kHeads * dim;
        const KvShape shape{kHeads, dim, dim, type};
        const KvPlace place{0, 64 * kHeads * KvRowBytes(type, dim)};
        HandMade step;
        step.sequences.push_back({0, int32_t(rows), 0, 0, 2});
        step.blocks = {1, 0};
        for (int32_t t = 0; t < rows; ++t) {
          step.positions.push_back(t);
          step.row_sequences.push_back(0);
        }
        step.layout.block_bytes = 2 * place.v_offset;
        const auto q = Random(rows * q_width), k = Random(rows * k_width),
                   v = Random(rows * k_width);
        auto gate = Random(rows * q_width, -3, 3);
        // Gates whose sigmoids are 1, denormal or 0.
        const float far[] = {90, -87.5f, -88.2f, -95, -1e30f};
        // Two rows have the same: where threads decide together, one kind is alone.
        for (size_t i = 0; i < gate.size(); i += 41) {
          gate[i] = far[i / size_t(q_width) / 2 % std::size(far)];
        }
        HeadInputs inputs;
        inputs.q_heads = kQueries;
        inputs.eps = 1e-6f;
        if (norm) inputs.q_norm = OnDevice(Random(dim)), inputs.k_norm = OnDevice(Random(dim));
        const auto frequencies = OnDevice(Random(dim / part, 0.01f, 1));
        AttentionParams params;
        params.q_heads = kQueries;
        params.scale = 0.1f;
        const auto run = [&](bool joint) {
          scratch_->Reset();
          const DevicePtr<float> blocks =
              OnDevice(std::vector<float>(step.layout.block_bytes * 2 / 4));
          step.layout.block_memory = blocks.As<std::byte>();
          const StepLayout& layout = step.Begin(context_);
          inputs.rope = MakeRopeTable(context_, layout, frequencies, dim / part);
          const Rows qs = RowsOf(q, q_width), ks = RowsOf(k, k_width), vs = RowsOf(v, k_width);
          const Rows out = RowsOf(std::vector<float>(size_t(rows * q_width)), q_width);
          const Rows gates = RowsOf(gate, q_width);
          if (joint) {
            StoreHeads(context_, layout, place, shape, inputs, qs, ks, vs);
            AttendGated(context_, layout, place, shape, params, gates, qs, out);
          } else {
            if (norm) {
              RmsNorm(context_, qs, inputs.q_norm, kQueries, inputs.eps, qs);
              RmsNorm(context_, ks, inputs.k_norm, kHeads, inputs.eps, ks);
            }
            Rope(context_, inputs.rope, kQueries, qs);
            Rope(context_, inputs.rope, kHeads, ks);
            StoreKv(context_, layout, place, shape, ks, vs);
            Attend(context_, layout, place, shape, params, qs, out);
            SigmoidMul(context_, gates, out, out);
          }
          auto all = Read(out);
          const auto kept = Read(blocks, int64_t(step.layout.block_bytes) * 2 / 4);
          const auto queries = Read(qs);
          all.insert(all.end(), kept.begin(), kept.end());
          all.insert(all.end(), queries.begin(), queries.end());
          return all;
        };
        ExpectSame(run(true), run(false), "outputs, blocks and queries");
      }
    }
  }
}

struct OneRowCase {
  int dim, queries, heads;
  DType type;
  int turned;  // of the channels one part of so many is turned; 0: none
  bool norm = true, gated = true;
  int window = 0;
  float softcap = 0;
  bool interrupted = false;  // something else comes between: heads wait no longer
};

// Of so many sequences, the last of which is the longest.
std::vector<int32_t> ManyPositions(int32_t count, int32_t last) {
  std::vector<int32_t> positions;
  for (int32_t i = 1; i <= count; ++i) positions.push_back(last * i / count);
  return positions;
}

class OneRowTest : public JointOpsTest, public ::testing::WithParamInterface<OneRowCase> {};

// A decoded token of several sequences, from its projections on: inside a step, where StoreHeads
// and Attend are one kernel, and as the ops. In contexts where pages are not divided, where they
// are in a cluster, one or several a block, and where they are with a workspace; the row's own
// place is the first of a page, the last, and in between.
TEST_P(OneRowTest, HeadsAndAttentionEqualTheOps) {
  const OneRowCase& one = GetParam();
  const KvShape shape{one.heads, one.dim, one.dim, one.type};
  const KvPlace place{0, 64 * one.heads * KvRowBytes(one.type, one.dim)};
  const int64_t q_width = int64_t{one.queries} * one.dim, k_width = int64_t{one.heads} * one.dim;
  for (const std::vector<int32_t>& positions : {std::vector<int32_t>{0},
                                                {5, 63},
                                                {64, 127, 1, 100},
                                                {128},
                                                {319},
                                                {511, 70, 200, 0},
                                                {512},
                                                {1023, 3, 600, 64, 960},
                                                {1087},
                                                {130, 0, 575, 640, 1983},
                                                {2047},
                                                {2048, 64, 1500},
                                                {6399},
                                                ManyPositions(16, 1023),
                                                ManyPositions(33, 1000),
                                                ManyPositions(70, 300)}) {
    HandMade step;
    uint32_t block = 0;
    for (size_t s = 0; s < positions.size(); ++s) {
      const int32_t count = positions[s] / 64 + 1;
      step.sequences.push_back({int32_t(s), 1, positions[s], int32_t(block), count});
      step.positions.push_back(positions[s]);
      step.row_sequences.push_back(int32_t(s));
      for (int32_t i = 0; i < count; ++i) step.blocks.push_back(block++);
    }
    std::reverse(step.blocks.begin(), step.blocks.end());
    step.layout.block_bytes = 2 * place.v_offset;
    const auto rows = int64_t(positions.size());
    const auto q = Random(rows * q_width), k = Random(rows * k_width), v = Random(rows * k_width);
    const auto gate = Random(rows * q_width, -3, 3);
    // K/V of 16 bit between 2^-7 and 2 in pairs.
    std::vector<uint16_t> kept(step.layout.block_bytes * block / 2);
    for (uint16_t& half : kept) {
      half = static_cast<uint16_t>((rng_.Next() & 0x83FF) |
                                   (one.type == DType::kF16 ? 0x3400 : 0x3E80));
    }
    std::vector<float> as_floats(kept.size() / 2);
    std::memcpy(as_floats.data(), kept.data(), kept.size() * 2);
    HeadInputs inputs;
    inputs.q_heads = one.queries;
    inputs.eps = 1e-6f;
    if (one.norm)
      inputs.q_norm = OnDevice(Random(one.dim)), inputs.k_norm = OnDevice(Random(one.dim));
    AttentionParams params;
    params.q_heads = one.queries;
    params.scale = 0.1f;
    params.window = one.window;
    params.softcap = one.softcap;
    const int half = one.turned > 0 ? one.dim / one.turned / 2 : 0;
    const auto frequencies = OnDevice(Random(std::max(half, 1), 0.01f, 1));
    const auto run = [&](bool joint) {
      scratch_->Reset();
      const DevicePtr<float> blocks = OnDevice(as_floats);
      step.layout.block_memory = blocks.As<std::byte>();
      const StepLayout& layout = step.Begin(context_);
      inputs.rope = half > 0 ? MakeRopeTable(context_, layout, frequencies, half) : RopeTable{};
      const Rows qs = RowsOf(q, q_width), ks = RowsOf(k, k_width), vs = RowsOf(v, k_width);
      const Rows out = RowsOf(std::vector<float>(size_t(rows * q_width)), q_width);
      const Rows gates = RowsOf(gate, q_width);
      const auto ops = [&] {
        if (joint) {
          StoreHeads(context_, layout, place, shape, inputs, qs, ks, vs);
          if (one.interrupted) Fill(context_, 0, out);
        } else {
          if (one.norm) {
            RmsNorm(context_, qs, inputs.q_norm, one.queries, inputs.eps, qs);
            RmsNorm(context_, ks, inputs.k_norm, one.heads, inputs.eps, ks);
          }
          if (half > 0) Rope(context_, inputs.rope, one.queries, qs);
          if (half > 0) Rope(context_, inputs.rope, one.heads, ks);
          StoreKv(context_, layout, place, shape, ks, vs);
        }
        if (joint && one.gated) {
          AttendGated(context_, layout, place, shape, params, gates, qs, out);
        } else {
          Attend(context_, layout, place, shape, params, qs, out);
          if (one.gated) SigmoidMul(context_, gates, out, out);
        }
      };
      if (joint) {
        backend_->RunStep(*scratch_, layout, {.model = &one}, ops);
      } else {
        ops();
      }
      auto all = Read(out);
      const auto stored = Read(blocks, int64_t(as_floats.size()));
      all.insert(all.end(), stored.begin(), stored.end());
      return all;
    };
    ExpectSame(run(true), run(false), "outputs and blocks");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, OneRowTest,
    ::testing::Values(
        OneRowCase{256, 8, 2, DType::kF16, 4}, OneRowCase{256, 16, 4, DType::kBF16, 4},
        OneRowCase{128, 32, 8, DType::kF16, 1}, OneRowCase{128, 16, 8, DType::kBF16, 1},
        OneRowCase{128, 16, 1, DType::kF16, 1, true, false},
        OneRowCase{64, 14, 2, DType::kF16, 1, false, false}, OneRowCase{64, 9, 1, DType::kBF16, 1},
        OneRowCase{256, 8, 4, DType::kF16, 1, true, false, 100},
        OneRowCase{128, 8, 8, DType::kF16, 4, true, true, 64, 30.0f},
        OneRowCase{128, 12, 2, DType::kF16, 0, false, false, 0, 50.0f},
        OneRowCase{256, 32, 2, DType::kF16, 1, false, true},
        OneRowCase{256, 8, 2, DType::kF16, 4, true, true, 0, 0, true},
        OneRowCase{128, 32, 4, DType::kBF16, 1}, OneRowCase{64, 4, 4, DType::kF16, 1},
        OneRowCase{64, 16, 1, DType::kF16, 1},
        OneRowCase{256, 16, 2, DType::kBF16, 4, true, true, 400},
        OneRowCase{128, 16, 1, DType::kBF16, 1, false, true, 1000},
        // Those that have no such kernel: heads that are odd, turned otherwise, other types.
        OneRowCase{80, 8, 2, DType::kF16, 1}, OneRowCase{256, 8, 2, DType::kF16, 2},
        OneRowCase{128, 8, 2, DType::kF32, 1}));

struct StackCase {
  DType type;
  int64_t rows, dim, hidden;
  float size;                // of the activations: large ones have to be scaled in f16
  DType gate = DType::kF32;  // the type of the gate's weights, if not that of all
  DType down = DType::kF32;  // and of those behind it
};

class StackTest : public JointOpsTest, public ::testing::WithParamInterface<StackCase> {
 protected:
  Matrix Weights(DType type, int64_t rows, int64_t cols) {
    return JointOpsTest::Weights(type == DType::kF32 ? GetParam().type : type, rows, cols);
  }
};

// A stretch of a decoder: inside a step, where ops wait for one another, and outside. Step after
// step, so that nothing of one is taken for the next one's, and the later ones as a graph.
TEST_P(StackTest, JoinedOpsEqualTheOps) {
  const StackCase& shape = GetParam();
  const Matrix up = Weights(shape.type, shape.hidden, shape.dim);
  const Matrix gate = Weights(shape.gate, shape.hidden, shape.dim);
  const Matrix down = Weights(shape.down, shape.dim, shape.hidden);
  const DevicePtr<float> norm = OnDevice(Random(shape.dim)), bias = OnDevice(Random(shape.hidden));
  const auto zeros = [&](int64_t cols) {
    return RowsOf(std::vector<float>(size_t(shape.rows * cols)), cols);
  };
  const Rows x = zeros(shape.dim), y = zeros(shape.dim), h = zeros(shape.dim);
  const Rows both = zeros(2 * shape.hidden), last = zeros(shape.dim);
  const Rows g = Columns(both, 0, shape.hidden), u = Columns(both, shape.hidden, shape.hidden);
  const auto ops = [&] {
    RmsNorm(context_, x, norm, 1, 1e-6f, h);
    for (int i = 0; i < 2; ++i) {
      const Projection inputs[] = {{&up, u}, {&gate, g, bias}};
      Project(context_, h, inputs);
      if (i == 0) {
        SwiGlu(context_, g, u, g);
      } else {
        GeGlu(context_, g, u, g);
      }
      const Projection output[] = {{&down, y}};
      Project(context_, g, output);
      AddRmsNorm(context_, x, y, norm, 1e-6f, h);
    }
    const Projection output[] = {{&up, u}};
    Project(context_, h, output);
    Add(context_, x, y, last);
  };
  const auto run = [&](const std::vector<float>& x0, bool in_step) {
    scratch_->Reset();
    HandMade step = HandMade::OneRowEach(shape.rows);
    const StepLayout& layout = step.Begin(context_);
    backend_->memory().UploadArray<float>(x.data, x0);
    for (const Rows& rows : {y, h, last, both}) Fill(context_, 0, rows);
    if (in_step) {
      backend_->RunStep(*scratch_, layout, {.model = &shape}, ops);
    } else {
      ops();
    }
    auto all = Read(x);
    for (const Rows& rows : {y, h, last, both}) {
      const auto more = Read(rows);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  for (int i = 0; i < kSteps; ++i) {
    const auto x0 = Random(shape.rows * shape.dim, -shape.size, shape.size);
    ExpectSame(run(x0, true), run(x0, false), "every row of the stretch");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StackTest,
    ::testing::Values(
        StackCase{DType::kF16, 1, 1024, 3584, 1}, StackCase{DType::kF16, 4, 1024, 3584, 1},
        StackCase{DType::kF16, 1, 4096, 12288, 1}, StackCase{DType::kF16, 3, 4096, 1040, 1},
        StackCase{DType::kBF16, 1, 2048, 6144, 1}, StackCase{DType::kBF16, 2, 272, 528, 1},
        StackCase{DType::kF16, 2, 512, 1024, 1e6f}, StackCase{DType::kF16, 5, 1024, 1024, 1},
        StackCase{DType::kQ8_0, 1, 1024, 3584, 1}, StackCase{DType::kQ8_0, 1, 4096, 12288, 1},
        StackCase{DType::kQ8_0, 1, 5120, 1056, 1}, StackCase{DType::kQ8_0, 1, 8192, 992, 1},
        StackCase{DType::kQ8_0, 2, 1024, 512, 1}, StackCase{DType::kQ4_0, 1, 1056, 544, 1},
        StackCase{DType::kQ4_1, 1, 1056, 544, 1}, StackCase{DType::kQ5_0, 1, 1056, 544, 1},
        StackCase{DType::kQ5_1, 1, 1056, 544, 1}, StackCase{DType::kIQ4_NL, 1, 1056, 544, 1},
        StackCase{DType::kQ2_K, 1, 1280, 2304, 1}, StackCase{DType::kQ3_K, 1, 1280, 2304, 1},
        StackCase{DType::kQ4_K, 1, 4096, 12288, 1}, StackCase{DType::kQ4_K, 1, 1280, 256, 1},
        StackCase{DType::kQ5_K, 1, 1280, 2304, 1}, StackCase{DType::kQ6_K, 1, 4096, 3328, 1},
        StackCase{DType::kIQ4_XS, 1, 1280, 2304, 1}, StackCase{DType::kIQ2_XXS, 1, 1280, 2304, 1},
        StackCase{DType::kQ4_K, 1, 1280, 2304, 1, DType::kQ6_K},
        StackCase{DType::kQ8_0, 1, 1280, 2304, 1, DType::kQ4_K},
        // One row in the shapes of models, where tiles have two rows of weights or four.
        StackCase{DType::kF16, 1, 1024, 2048, 1e6f}, StackCase{DType::kF16, 1, 1040, 3344, 1},
        StackCase{DType::kBF16, 1, 5120, 17408, 1}, StackCase{DType::kF16, 1, 64, 16, 1},
        StackCase{DType::kBF16, 1, 8192, 4096, 1}, StackCase{DType::kQ8_0, 1, 2048, 6144, 1},
        StackCase{DType::kQ8_0, 1, 32, 96, 1}, StackCase{DType::kQ4_0, 1, 4096, 12288, 1},
        StackCase{DType::kQ5_K, 1, 4096, 12288, 1}, StackCase{DType::kQ8_0, 1, 5120, 17408, 1},
        StackCase{DType::kQ4_K, 1, 4096, 12288, 1, DType::kF32, DType::kQ6_K},
        StackCase{DType::kQ5_K, 1, 2048, 6144, 1, DType::kF32, DType::kQ6_K},
        StackCase{DType::kQ4_K, 1, 2560, 9728, 1, DType::kF32, DType::kQ6_K},
        StackCase{DType::kQ4_K, 1, 5120, 17408, 1, DType::kF32, DType::kQ5_K},
        // Rows for which gates wait.
        StackCase{DType::kF16, 20, 1024, 3584, 1}, StackCase{DType::kBF16, 70, 512, 16384, 1},
        StackCase{DType::kF16, 20, 512, 1024, 1e6f}, StackCase{DType::kF16, 9, 1000, 1000, 1},
        StackCase{DType::kQ8_0, 20, 1024, 3584, 1},
        StackCase{DType::kF16, 20, 256, 1024, 1, DType::kF32, DType::kQ8_0}));

// Of one row two for each gated layer, with the norm before it and the sum behind it; one for the
// norm and the product at the end. Of more rows two more for each layer and one at the end: inputs
// are rounded where they are made. Only one row with 16-bit weights does so without Hopper's forms.
TEST_F(KernelsTest, AStretchOfADecoderIsFew) {
  constexpr int64_t kDim = 1024, kHidden = 2048;
  struct Case {
    DType type;
    int64_t rows;
    size_t kernels;
  };
  for (const Case& one :
       {Case{DType::kF16, 1, 5}, Case{DType::kQ8_0, 1, 5}, Case{DType::kF16, 20, 10}}) {
    if (!ThisGpu().copy_engine && (one.rows > 1 || one.type == DType::kQ8_0)) continue;
    const Matrix up = Weights(one.type, kHidden, kDim), gate = Weights(one.type, kHidden, kDim);
    const Matrix down = Weights(one.type, kDim, kHidden);
    const DevicePtr<float> norm = OnDevice(Random(kDim));
    const auto rows = [&](int64_t cols) { return RowsOf(Random(one.rows * cols), cols); };
    const Rows x = rows(kDim), y = rows(kDim), h = rows(kDim), both = rows(2 * kHidden);
    const Rows g = Columns(both, 0, kHidden), u = Columns(both, kHidden, kHidden);
    const auto stretch = [&] {
      RmsNorm(context_, x, norm, 1, 1e-6f, h);
      for (int i = 0; i < 2; ++i) {
        const Projection inputs[] = {{&up, u}, {&gate, g}};
        Project(context_, h, inputs);
        SwiGlu(context_, g, u, g);
        const Projection output[] = {{&down, y}};
        Project(context_, g, output);
        AddRmsNorm(context_, x, y, norm, 1e-6f, h);
      }
      const Projection output[] = {{&up, u}};
      Project(context_, h, output);
    };
    EXPECT_EQ(KernelsOf(one.rows, stretch), one.kernels) << one.rows << " rows";
  }
}

TEST_F(KernelsTest, GatesOfRecurrencesRideAlong) {
  constexpr int64_t kDim = 1024;
  const Matrix inputs = Weights(DType::kF16, 2048, kDim), gate = Weights(DType::kF32, 16, kDim);
  const DevicePtr<float> norm = OnDevice(Random(kDim));
  const Rows x = RowsOf(Random(kDim), kDim), h = RowsOf(Random(kDim), kDim);
  const Rows a = RowsOf(Random(2048), 2048), b = RowsOf(Random(16), 16);
  const auto project = [&] {
    RmsNorm(context_, x, norm, 1, 1e-6f, h);
    const Projection all[] = {{&inputs, a}, {&gate, b}};
    Project(context_, h, all);
  };
  EXPECT_EQ(KernelsOf(1, project), 1u);
}

TEST_F(KernelsTest, ProductsOfTwoTypesAreOne) {
  const Rows x = RowsOf(Random(2048), 2048), h = RowsOf(std::vector<float>(2048), 2048);
  const DevicePtr<float> norm = OnDevice(Random(2048));
  const auto count = [&](std::vector<std::pair<DType, int64_t>> shapes) {
    std::vector<Matrix> weights;
    std::vector<Projection> all;
    for (const auto& [type, rows] : shapes) weights.push_back(Weights(type, rows, 2048));
    for (const Matrix& weight : weights) {
      all.push_back({&weight, RowsOf(std::vector<float>(size_t(weight.rows())), weight.rows())});
    }
    return KernelsOf(1, [&] {
      RmsNorm(context_, x, norm, 1, 1e-6f, h);
      Project(context_, h, all);
    });
  };
  EXPECT_EQ(count({{DType::kQ4_K, 4096}, {DType::kQ4_K, 512}, {DType::kQ6_K, 512}}), 1u);
  EXPECT_EQ(count({{DType::kQ6_K, 4096}, {DType::kQ5_K, 512}}), 1u);
  EXPECT_EQ(count({{DType::kQ4_K, 512}, {DType::kQ6_K, 512}}), 1u);
  EXPECT_EQ(count({{DType::kQ4_K, 4096}, {DType::kQ8_0, 512}}), 2u);
}

// Heads and attention of a token. Blocks of a cluster join pages themselves as long as each has few
// of them; then there are more blocks than a cluster has, and a kernel that joins what they leave.
TEST_F(KernelsTest, AttentionOfATokenIsOne) {
  if (!ThisGpu().clusters) GTEST_SKIP() << "heads and attention are kernels of their own here";
  constexpr int kHeads = 4, kQueries = 16, kDim = 256;
  const KvShape shape{kHeads, kDim, kDim, DType::kF16};
  const KvPlace place{0, 64 * kHeads * KvRowBytes(DType::kF16, kDim)};
  const auto row = [&](int heads) { return RowsOf(Random(heads * kDim), heads * kDim); };
  const Rows q = row(kQueries), out = row(kQueries), k = row(kHeads), v = row(kHeads);
  HeadInputs inputs;
  inputs.q_heads = kQueries;
  AttentionParams params;
  params.q_heads = kQueries;
  for (const auto& [position, kernels] : {std::pair{40, 1u}, {100, 1u}, {1000, 1u}, {8000, 3u}}) {
    HandMade step = HandMade::OneRowEach(1);
    step.blocks.resize(size_t(position / 64 + 1));
    step.sequences[0] = {0, 1, position, 0, int32_t(step.blocks.size())};
    step.layout.block_bytes = 2 * place.v_offset;
    EXPECT_EQ(KernelsOf(std::move(step),
                        [&](const StepLayout& layout) {
                          StoreHeads(context_, layout, place, shape, inputs, q, k, v);
                          Attend(context_, layout, place, shape, params, q, out);
                        }),
              kernels)
        << "behind " << position;
  }
}

// The norm with the router's product, the route with its plan.
TEST_F(KernelsTest, RoutersAreTwo) {
  constexpr int64_t kDim = 2048;
  for (const int experts : {1, 128, 256, 512}) {
    const Matrix router = Weights(DType::kF32, experts, kDim);
    const DevicePtr<float> norm = OnDevice(Random(kDim));
    const Rows x = RowsOf(Random(kDim), kDim), h = RowsOf(Random(kDim), kDim);
    const Rows logits = RowsOf(Random(experts), experts);
    const auto route = [&] {
      RmsNorm(context_, x, norm, 1, 1e-6f, h);
      const Projection projection[] = {{&router, logits}};
      Project(context_, h, projection);
      RoutingParams params;
      params.top_k = std::min(8, experts);
      PlanExperts(context_, RouteExperts(context_, logits, params), experts);
    };
    EXPECT_EQ(KernelsOf(1, route), 2u) << experts << " experts";
  }
}

enum class Between : uint8_t { kNothing, kFill, kProducts, kNorm, kRoute };

struct RouteCase {
  int64_t rows;
  int experts, top_k;
  Between between = Between::kNothing;  // what comes between a route and its plan
  int groups = 1;
};

class RouteTest : public JointOpsTest, public ::testing::WithParamInterface<RouteCase> {
 protected:
  template <typename T>
  void Append(DevicePtr<T> place, int64_t count, std::vector<float>* to) {
    const auto more = Read(place.template As<const float>(), count);  // bits
    to->insert(to->end(), more.begin(), more.end());
  }
};

// The route of rows to experts from their norm on: inside a step, where ops wait for one another,
// and outside. What comes between a route and its plan writes where the route reads.
TEST_P(RouteTest, RoutesAndPlansEqualTheOps) {
  constexpr int64_t kDim = 512;
  const RouteCase& one = GetParam();
  const Matrix router = Weights(DType::kF32, one.experts, kDim);
  const Matrix other = Weights(DType::kF16, one.experts, kDim);
  const DevicePtr<float> norm = OnDevice(Random(kDim));
  const auto zeros = [&](int64_t cols) {
    return RowsOf(std::vector<float>(size_t(one.rows * cols)), cols);
  };
  const Rows x = zeros(kDim), h = zeros(kDim), logits = zeros(one.experts);
  const Rows sum = zeros(one.experts), more = zeros(one.experts);
  RoutingParams params;
  params.top_k = one.top_k;
  params.groups = one.groups;
  params.group_top_k = one.groups;
  params.renormalise = true;
  params.selection_bias = OnDevice(Random(one.experts, -0.01f, 0.01f));
  std::vector<Routing> routings;
  std::vector<ExpertPlan> plans;
  const auto ops = [&] {
    RmsNorm(context_, x, norm, 1, 1e-6f, h);
    const Projection projection[] = {{&router, logits}};
    Project(context_, h, projection);
    routings = {RouteExperts(context_, logits, params)};
    const Projection halves[] = {{&other, logits}};
    switch (one.between) {
      case Between::kNothing:
        break;
      case Between::kFill:
        Fill(context_, 0.5f, logits);
        break;
      case Between::kProducts:  // they wait, and run with the sum
        Project(context_, h, halves);
        Add(context_, sum, logits, sum);
        break;
      case Between::kNorm:
        RmsNorm(context_, sum, params.selection_bias, 1, 1, logits);
        break;
      case Between::kRoute:
        routings.push_back(RouteExperts(context_, more, params));
        break;
    }
    plans.clear();
    for (const Routing& routing : routings) {
      plans.push_back(PlanExperts(context_, routing, one.experts));
    }
    Fill(context_, 0, more);
  };
  const auto run = [&](const std::vector<float>& x0, bool in_step) {
    scratch_->Reset();
    CHECK(scratch_->Provide(size_t{1} << 20).ok());  // results of a graph are in the same places
    HandMade step = HandMade::OneRowEach(one.rows);
    const StepLayout& layout = step.Begin(context_);
    backend_->memory().UploadArray<float>(x.data, x0);
    for (const Rows& rows : {h, logits, sum}) Fill(context_, 0, rows);
    Fill(context_, 1, more);
    if (in_step) {
      backend_->RunStep(*scratch_, layout, {.model = &one}, ops);
    } else {
      ops();
    }
    std::vector<float> all;
    for (const Rows& rows : {h, logits, sum}) Append(rows.data, rows.rows * rows.cols, &all);
    for (size_t i = 0; i < routings.size(); ++i) {
      Append(routings[i].experts, plans[i].slots, &all);
      Append(routings[i].weights, plans[i].slots, &all);
      Append(plans[i].begin, one.experts + 1, &all);
      Append(plans[i].row, plans[i].slots, &all);
      Append(plans[i].slot, plans[i].slots, &all);
    }
    return all;
  };
  for (int i = 0; i < kSteps; ++i) {
    const auto x0 = Random(one.rows * kDim);
    // First: what the other run leaves in the scratch memory would be its results, too.
    const auto in_step = run(x0, true);
    ExpectSame(in_step, run(x0, false), "routes and plans");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RouteTest,
    ::testing::Values(RouteCase{1, 128, 8}, RouteCase{1, 256, 8}, RouteCase{1, 512, 10},
                      RouteCase{1, 1, 1}, RouteCase{1, 60, 4}, RouteCase{3, 128, 8},
                      RouteCase{32, 128, 8}, RouteCase{33, 128, 8}, RouteCase{4, 512, 32},
                      RouteCase{1, 128, 8, Between::kFill}, RouteCase{20, 64, 6, Between::kFill},
                      RouteCase{1, 128, 8, Between::kProducts},
                      RouteCase{1, 128, 8, Between::kNorm}, RouteCase{1, 128, 8, Between::kRoute},
                      RouteCase{3, 128, 8, Between::kRoute},
                      RouteCase{1, 128, 8, Between::kNothing, 4}));

}  // namespace
}  // namespace reprise::cuda
