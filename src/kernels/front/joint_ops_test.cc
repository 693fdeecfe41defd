// SPDX-License-Identifier: Apache-2.0
// Proves that the joint ops of a CPU give the bits of the ops that they consist of: outputs and all
// state, however a sequence is cut, for any threads and every instruction set, with states that are
// wanted on the way; and that they say what spoils a state.
#include "kernels/joint_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/front/kv_fixture.h"
#include "kernels/front/ops_fixture.h"

namespace reprise {
namespace {

struct DeltaCase {
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
  bool tiled;
  int sequences;
};

// A GatedDeltaNet layer with random weights, inputs of some tokens of every sequence and states.
class DeltaLayer {
 public:
  static constexpr int kTokens = 70, kTap = 66;

  explicit DeltaLayer(const DeltaCase& shape)
      : shape_(shape),
        values_(int64_t{shape.value_heads} * shape.value_dim),
        channels_(2 * int64_t{shape.key_heads} * shape.key_dim + values_),
        conv_(Uniform(rng_, kReach * channels_, -1, 1)),
        exp_a_(Uniform(rng_, shape.value_heads, 0.1f, 2)),
        dt_bias_(Uniform(rng_, shape.value_heads, -1, 1)),
        norm_(Uniform(rng_, shape.value_dim, -1, 1)),
        qkv_(Uniform(rng_, rows() * channels_, -1, 1)),
        ab_(Uniform(rng_, rows() * 2 * shape.value_heads, -2, 2)),
        z_(Uniform(rng_, rows() * values_, -3, 3)) {
    layer_.shape = {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim,
                    shape.tiled};
    layer_.reach = kReach;
    layer_.conv_offset = 64;
    layer_.delta_offset = layer_.conv_offset + size_t((kReach - 1) * channels_) * 4;
    layer_.conv = View(conv_);
    layer_.exp_a = View(exp_a_);
    layer_.dt_bias = View(dt_bias_);
    layer_.norm = View(norm_);
    layer_.l2_eps = layer_.norm_eps = 1e-6f;
    state_floats_ = int64_t(layer_.delta_offset / 4) + values_ * shape.key_dim;
    // The sequences', and as many for what is wanted on the way.
    states_ = Uniform(rng_, 2 * state_floats_ * shape.sequences, -1, 1);
  }

  int64_t rows() const { return int64_t{kTokens} * shape_.sequences; }
  Floats& states() { return states_; }

  // Tokens [begin, begin + count) of every sequence: row by row where they end up, and the states.
  // `as_ops`: by the ops, one after another. States before token kTap are wanted.
  void Run(const OpContext& context, int begin, int count, bool as_ops, Floats* states, Floats* out,
           std::vector<uint8_t>* finite) {
    TestStep made(int64_t{count} * shape_.sequences);
    Floats qkv, ab, z;
    for (int s = 0; s < shape_.sequences; ++s) {
      made.Add(s * count, count, begin, uint32_t(shape_.sequences - 1 - s));
      if (begin < kTap && kTap < begin + count) {
        made.AddTap(s * count + kTap - begin, uint32_t(shape_.sequences + s));
      }
      const int64_t row = int64_t{s} * kTokens + begin;
      const auto add = [&](Floats* to, const Floats& from, int64_t cols) {
        to->insert(to->end(), from.begin() + row * cols, from.begin() + (row + count) * cols);
      };
      add(&qkv, qkv_, channels_);
      add(&ab, ab_, 2 * shape_.value_heads);
      add(&z, z_, values_);
    }
    made.SetStates(*states, state_floats_);
    const StepLayout& step = made.Begin(context);
    Floats y(z.size(), 777.0f);
    const Rows both = View(ab, 2 * shape_.value_heads);
    const Rows b = Columns(both, 0, shape_.value_heads);
    const Rows a = Columns(both, shape_.value_heads, shape_.value_heads);
    if (as_ops) {
      RunOps(context, step, View(qkv, channels_), a, b, View(z, values_), View(y, values_));
    } else {
      GatedDeltaMix(context, step, layer_, View(qkv, channels_), a, b, View(z, values_),
                    View(y, values_));
    }
    for (int s = 0; s < shape_.sequences; ++s) {
      std::copy_n(y.begin() + s * count * values_, count * values_,
                  out->begin() + (int64_t{s} * kTokens + begin) * values_);
    }
    finite->resize(size_t(shape_.sequences));
    FiniteRows(context, step, View(y, values_), PlaceAt(finite->data()));
    context.scratch->Reset();
  }
  Floats Output() const { return Floats(size_t(rows() * values_)); }

 private:
  static constexpr int kReach = 4;

  // What joint_ops.h says.
  void RunOps(const OpContext& context, const StepLayout& step, const ConstRows& qkv, const Rows& a,
              const Rows& b, const ConstRows& z, const Rows& y) const {
    const int64_t keys = int64_t{shape_.key_heads} * shape_.key_dim;
    Floats mixed(size_t(qkv.rows * qkv.cols));
    const Rows m = View(mixed, qkv.cols);
    ShortConv(context, step, layer_.conv_offset, layer_.conv, nullptr, kReach, true, qkv, m);
    const Rows q = Columns(m, 0, keys), k = Columns(m, keys, keys);
    L2Norm(context, q, shape_.key_heads, layer_.l2_eps, 1 / std::sqrt(float(shape_.key_dim)), q);
    L2Norm(context, k, shape_.key_heads, layer_.l2_eps, 1, k);
    GatedDeltaGates(context, a, b, layer_.exp_a, layer_.dt_bias, a, b);
    GatedDelta(context, step, layer_.delta_offset, layer_.shape, q, k,
               Columns(m, 2 * keys, values_), a, b, y);
    RmsNormGated(context, y, z, layer_.norm, shape_.value_heads, layer_.norm_eps, y);
  }

  const DeltaCase shape_;
  Rng rng_{5};
  const int64_t values_, channels_;
  const Floats conv_, exp_a_, dt_bias_, norm_, qkv_, ab_, z_;
  Floats states_;
  int64_t state_floats_ = 0;
  GatedDeltaLayer layer_;
};

constexpr DeltaCase kDeltaCases[] = {{1, 1, 16, 16, false, 1},    {2, 2, 128, 128, false, 3},
                                     {2, 4, 32, 48, false, 2},    {2, 6, 32, 48, true, 5},
                                     {16, 16, 128, 128, false, 2}, {3, 3, 20, 23, false, 4}};

TEST(JointOps, ADeltaLayerEqualsItsOps) {
  for (const DeltaCase& shape : kDeltaCases) {
    DeltaLayer layer(shape);
    std::vector<uint8_t> finite;
    Machine scalar(1, "scalar");
    Floats expected_states = layer.states(), expected = layer.Output();
    layer.Run(scalar.context(), 0, DeltaLayer::kTokens, true, &expected_states, &expected, &finite);
    for (const std::string& isa : cpu::AvailableIsas()) {
      for (const int threads : {1, 2, 4}) {
        for (const int at_once : {DeltaLayer::kTokens, DeltaLayer::kTap, 1}) {
          Machine machine(threads, "scalar," + isa);
          Floats states = layer.states(), out = layer.Output();
          for (int t = 0; t < DeltaLayer::kTokens; t += at_once) {
            const int count = std::min(at_once, DeltaLayer::kTokens - t);
            layer.Run(machine.context(), t, count, false, &states, &out, &finite);
            EXPECT_EQ(finite, std::vector<uint8_t>(size_t(shape.sequences), 1));
          }
          EXPECT_TRUE(SameBits(out, expected)) << isa << threads << " by " << at_once;
          // States that are wanted on the way: only where a step has rows on both sides.
          const bool all = at_once == DeltaLayer::kTokens;
          const size_t compared = all ? states.size() : states.size() / 2;
          EXPECT_EQ(0, std::memcmp(states.data(), expected_states.data(), compared * 4))
              << isa << threads << " by " << at_once;
        }
      }
    }
  }
}

TEST(JointOps, AStateThatIsNotFiniteIsSaid) {
  const DeltaCase shape = {2, 4, 32, 48, false, 3};
  DeltaLayer layer(shape);
  const int64_t unit = int64_t(layer.states().size()) / 2 / shape.sequences;
  for (const int tokens : {1, DeltaLayer::kTokens}) {
    Machine machine(2);
    Floats states = layer.states(), out = layer.Output();
    // State 0 is that of the last sequence; the last of its floats is one of the last head.
    states[size_t(unit - 1)] = std::numeric_limits<float>::infinity();
    std::vector<uint8_t> finite;
    layer.Run(machine.context(), 0, tokens, false, &states, &out, &finite);
    EXPECT_EQ(finite, (std::vector<uint8_t>{1, 1, 0}));
  }
}

struct HeadsCase {
  int q_heads;
  int kv_heads;
  int dim;
  int half;  // of the channels that are turned
  bool norm;
  DType type;
};

// Tokens [0, kTokens) of some sequences through StoreHeads and AttendGated, all of a sequence at
// once or one of every sequence: what comes out, row by row, and the blocks.
class HeadsLayer {
 public:
  static constexpr int kTokens = 67, kSequences = 3;

  explicit HeadsLayer(const HeadsCase& shape)
      : shape_(shape),
        q_width_(int64_t{shape.q_heads} * shape.dim),
        k_width_(int64_t{shape.kv_heads} * shape.dim),
        q_(Uniform(rng_, kRows * q_width_, -1, 1)),
        k_(Uniform(rng_, kRows * k_width_, -1, 1)),
        v_(Uniform(rng_, kRows * k_width_, -1, 1)),
        gate_(Uniform(rng_, kRows * q_width_, -3, 3)),
        q_norm_(Uniform(rng_, shape.dim, -1, 1)),
        k_norm_(Uniform(rng_, shape.dim, -1, 1)),
        cos_(Uniform(rng_, kRows * shape.half, -1, 1)),
        sin_(Uniform(rng_, kRows * shape.half, -1, 1)) {}

  // `as_ops`: by the ops, one after another.
  std::pair<Floats, std::vector<std::byte>> Run(const OpContext& context, int at_once,
                                                bool as_ops) {
    const KvShape shape{shape_.kv_heads, shape_.dim, shape_.dim, shape_.type};
    KvMemory memory(shape, kSequences * BlocksOf(kTokens));
    Floats out(q_.size(), 777.0f);
    for (int begin = 0; begin < kTokens; begin += at_once) {
      const int count = std::min(at_once, kTokens - begin);
      RunSome(context, shape, begin, count, as_ops, &memory, &out);
    }
    return {out, memory.bytes()};
  }

 private:
  static constexpr int64_t kRows = int64_t{kTokens} * kSequences;

  void RunSome(const OpContext& context, const KvShape& shape, int begin, int count, bool as_ops,
               KvMemory* memory, Floats* out) {
    TestStep made(int64_t{count} * kSequences);
    const auto take = [&](const Floats& from, int64_t cols) {
      Floats some;
      for (int s = 0; s < kSequences; ++s) {
        const auto row = from.begin() + (int64_t{s} * kTokens + begin) * cols;
        some.insert(some.end(), row, row + count * cols);
      }
      return some;
    };
    for (int s = 0; s < kSequences; ++s) {
      made.Add(s * count, count, begin);
      std::vector<uint32_t> ids;
      for (int b = 0; b < BlocksOf(begin + count); ++b) ids.push_back(uint32_t(b * kSequences + s));
      made.AddBlocks(ids);
    }
    memory->AddTo(&made);
    const StepLayout& step = made.Begin(context);
    Floats q = take(q_, q_width_), k = take(k_, k_width_);
    const Floats v = take(v_, k_width_), gate = take(gate_, q_width_);
    const Floats cos = take(cos_, shape_.half), sin = take(sin_, shape_.half);
    HeadInputs inputs;
    inputs.q_heads = shape_.q_heads;
    inputs.eps = 1e-6f;
    if (shape_.norm) inputs.q_norm = View(q_norm_), inputs.k_norm = View(k_norm_);
    inputs.rope = {View(cos), View(sin), shape_.half};
    AttentionParams params;
    params.q_heads = shape_.q_heads;
    params.scale = 0.3f;
    const Rows q_rows = View(q, q_width_);
    const Rows k_rows = View(k, k_width_);
    Floats y(q.size(), 777.0f);
    const Rows out_rows = View(y, q_width_);
    if (as_ops) {
      if (shape_.norm) {
        RmsNorm(context, q_rows, inputs.q_norm, shape_.q_heads, inputs.eps, q_rows);
        RmsNorm(context, k_rows, inputs.k_norm, shape_.kv_heads, inputs.eps, k_rows);
      }
      Rope(context, inputs.rope, shape_.q_heads, q_rows);
      Rope(context, inputs.rope, shape_.kv_heads, k_rows);
      StoreKv(context, step, memory->place(), shape, k_rows, View(v, k_width_));
      Attend(context, step, memory->place(), shape, params, q_rows, out_rows);
      SigmoidMul(context, View(gate, q_width_), out_rows, out_rows);
    } else {
      StoreHeads(context, step, memory->place(), shape, inputs, q_rows, k_rows,
                 View(v, k_width_));
      AttendGated(context, step, memory->place(), shape, params, View(gate, q_width_), q_rows,
                  out_rows);
    }
    for (int s = 0; s < kSequences; ++s) {
      std::copy_n(y.begin() + s * count * q_width_, count * q_width_,
                  out->begin() + (int64_t{s} * kTokens + begin) * q_width_);
    }
    context.scratch->Reset();
  }

  const HeadsCase shape_;
  Rng rng_{9};
  const int64_t q_width_, k_width_;
  const Floats q_, k_, v_, gate_, q_norm_, k_norm_, cos_, sin_;
};

TEST(JointOps, HeadsAndGatesEqualTheirOps) {
  const HeadsCase cases[] = {{8, 2, 64, 16, true, DType::kF16},
                             {4, 4, 80, 40, true, DType::kBF16},
                             {6, 2, 32, 16, false, DType::kF32},
                             {8, 1, 64, 8, true, DType::kQ8_0}};
  for (const HeadsCase& shape : cases) {
    HeadsLayer layer(shape);
    Machine scalar(1, "scalar");
    const auto expected = layer.Run(scalar.context(), HeadsLayer::kTokens, true);
    for (const std::string& isa : cpu::AvailableIsas()) {
      for (const int threads : {1, 3}) {
        for (const int at_once : {HeadsLayer::kTokens, 1}) {
          Machine machine(threads, "scalar," + isa);
          const auto got = layer.Run(machine.context(), at_once, false);
          EXPECT_TRUE(SameBits(got.first, expected.first)) << isa << threads << shape.dim;
          EXPECT_TRUE(got.second == expected.second) << isa << threads << shape.dim;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reprise
