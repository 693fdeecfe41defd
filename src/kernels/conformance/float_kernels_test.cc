// SPDX-License-Identifier: Apache-2.0
// Proves that every float entry of every overlay this CPU can run gives the bits of
// kernels/reference, over shapes with tails and over infinities, NaN and subnormals, and writes
// nothing beside its outputs (they are poisoned and padded; reads are checked by the ASan build,
// since operands are exactly as large as they must be).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/table.h"
#include "kernels/reference/attention.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"

namespace reprise {
namespace {

using cpu::AttentionState;
using cpu::AttentionTile;
using cpu::KernelTable;
using cpu::kKeys;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kSizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 100, 128, 255, 1024};

Floats Random(Rng& rng, int64_t n, float scale = 1) {
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = (rng.Uniform() * 2 - 1) * scale;
  return x;
}

// Ordinary values with some of the kind that breaks shortcuts.
Floats RandomOdd(Rng& rng, int64_t n) {
  constexpr float kOdd[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 1e38f,  -1e38f, kInf,   -kInf,
                            NAN,  88.7f, 89.5f,  -86.99f, -86.9f, 0.625f, 1e-20f, -20.5f};
  Floats x = Random(rng, n, 30);
  for (float& v : x) {
    if (rng.Below(8) == 0) v = kOdd[rng.Below(std::size(kOdd))];
  }
  return x;
}

// Equal bits; any NaN equals any other (sign and payload of NaN are not specified).
::testing::AssertionResult SameBits(const Floats& expected, const Floats& got) {
  if (expected.size() != got.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&expected[i], &got[i], 4) == 0) continue;
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    return ::testing::AssertionFailure()
           << "element " << i << ": expected " << expected[i] << ", got " << got[i];
  }
  return ::testing::AssertionSuccess();
}

class FloatKernels : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto scalar = cpu::BuildTable("scalar");
    auto table = cpu::BuildTable(GetParam());
    ASSERT_TRUE(scalar.ok() && table.ok());
    reference_ = *scalar;
    table_ = *table;
  }

  // Runs `call` with both tables on a copy of `output` with padding and compares.
  void Compare(const Floats& output, const std::function<void(const KernelTable&, float*)>& call,
               const std::string& what) {
    constexpr size_t kPad = 32;
    Floats padded(output.size() + 2 * kPad, -12345.0f);
    std::copy(output.begin(), output.end(), padded.begin() + kPad);
    Floats expected = padded;
    call(reference_, expected.data() + kPad);
    call(table_, padded.data() + kPad);
    EXPECT_TRUE(SameBits(expected, padded)) << what;
  }

  KernelTable reference_ = {};
  KernelTable table_ = {};
  Rng rng_{1};
};

TEST_P(FloatKernels, ElementWise) {
  for (const int64_t n : kSizes) {
    const std::string what = "n = " + std::to_string(n);
    const Floats a = RandomOdd(rng_, n);
    const Floats b = RandomOdd(rng_, n);
    const Floats out(static_cast<size_t>(n), 777.0f);
    const auto binary = [&](auto entry, const char* name) {
      Compare(
          out, [&](const KernelTable& t, float* y) { (t.*entry)(a.data(), b.data(), n, y); },
          name + what);
      // In place, each operand.
      Compare(
          a, [&](const KernelTable& t, float* y) { (t.*entry)(y, b.data(), n, y); }, name + what);
      Compare(
          b, [&](const KernelTable& t, float* y) { (t.*entry)(a.data(), y, n, y); }, name + what);
    };
    binary(&KernelTable::swiglu, "swiglu ");
    for (const float limit : {7.0f, 0.5f}) {
      Compare(
          out,
          [&](const KernelTable& t, float* y) {
            t.clamped_swiglu(a.data(), b.data(), 1.702f, limit, n, y);
          },
          "clamped_swiglu " + what);
    }
    binary(&KernelTable::sigmoid_mul, "sigmoid_mul ");
    binary(&KernelTable::add, "add ");
    binary(&KernelTable::mul, "mul ");
    binary(&KernelTable::geglu, "geglu ");
    binary(&KernelTable::softplus, "softplus ");
    binary(&KernelTable::sigmoid, "sigmoid ");
    binary(&KernelTable::rwkv_decay, "rwkv_decay ");
    const auto unary = [&](auto entry, const char* name) {
      Compare(
          out, [&](const KernelTable& t, float* y) { (t.*entry)(a.data(), n, y); }, name + what);
      Compare(a, [&](const KernelTable& t, float* y) { (t.*entry)(y, n, y); }, name + what);
    };
    unary(&KernelTable::gelu, "gelu ");
    unary(&KernelTable::gelu_erf, "gelu erf ");
    unary(&KernelTable::relu_squared, "relu_squared ");
    unary(&KernelTable::exp, "exp ");
    unary(&KernelTable::softmax, "softmax ");
    Compare(
        out, [&](const KernelTable& t, float* y) { t.softcap(a.data(), 30.0f, n, y); },
        "softcap " + what);
    const Floats calm = Random(rng_, n, 5);
    Compare(
        calm, [&](const KernelTable& t, float* y) { t.scale_add(a.data(), 0.7f, n, y); },
        "scale_add " + what);
    Compare(
        out, [&](const KernelTable& t, float* y) { t.softmax(calm.data(), n, y); },
        "softmax " + what);
    Compare(
        out, [&](const KernelTable& t, float* y) { t.lerp(a.data(), b.data(), calm.data(), n, y); },
        "lerp " + what);
    Compare(
        calm,
        [&](const KernelTable& t, float* y) {
          t.dot_scale_add(calm.data(), calm.data(), calm.data(), a.data(), n, y);
        },
        "dot_scale_add " + what);
    Compare(out, [&](const KernelTable& t, float* y) { t.silu(a.data(), n, y); }, "silu " + what);
    Compare(
        out, [&](const KernelTable& t, float* y) { t.scale(a.data(), 0.3f, n, y); },
        "scale " + what);
  }
}

TEST_P(FloatKernels, SiluOfManyValues) {
  // Every 4099th float: exp and its ends, in vectors.
  Floats x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const int64_t n = static_cast<int64_t>(x.size());
  const Floats ones(x.size(), 1.0f);
  Compare(x, [&](const KernelTable& t, float* y) { t.silu(x.data(), n, y); }, "silu");
  Compare(
      x, [&](const KernelTable& t, float* y) { t.sigmoid_mul(x.data(), ones.data(), n, y); },
      "sigmoid");
}

TEST_P(FloatKernels, Norms) {
  for (const int64_t n : kSizes) {
    const std::string what = "n = " + std::to_string(n);
    const Floats w = Random(rng_, n);
    const Floats out(static_cast<size_t>(n), 777.0f);
    for (const float scale : {1.0f, 1e-30f, 1e25f}) {
      const Floats x = Random(rng_, n, scale);
      Compare(
          out, [&](const KernelTable& t, float* y) { t.rms_norm(x.data(), w.data(), 1e-6f, n, y); },
          "rms_norm " + what);
      Compare(
          out,
          [&](const KernelTable& t, float* y) {
            t.layer_norm(x.data(), w.data(), n % 2 != 0 ? w.data() : nullptr, 1e-5f, n, y);
          },
          "layer_norm " + what);
      Compare(
          x, [&](const KernelTable& t, float* y) { t.rms_norm(y, w.data(), 1e-6f, n, y); },
          "rms_norm in place " + what);
      Compare(
          out, [&](const KernelTable& t, float* y) { t.l2_norm(x.data(), 1e-6f, 0.1f, n, y); },
          "l2_norm " + what);
    }
    const Floats odd = RandomOdd(rng_, n);
    Compare(
        out, [&](const KernelTable& t, float* y) { t.rms_norm(odd.data(), w.data(), 1e-6f, n, y); },
        "rms_norm odd " + what);
  }
}

TEST_P(FloatKernels, Rope) {
  for (const int half : {1, 8, 16, 17, 24, 32, 40, 64, 128}) {
    const Floats x = Random(rng_, 2 * half + 5, 10);
    Floats inverse(static_cast<size_t>(half));
    for (int i = 0; i < half; ++i) inverse[size_t(i)] = std::pow(1e4f, -float(i) / float(half));
    for (const float position : {0.0f, 1.0f, 511.0f, 131071.0f, 16777215.0f}) {
      Floats angles(static_cast<size_t>(2 * half));
      Compare(
          angles,
          [&](const KernelTable& t, float* y) {
            t.rope_angles(position, inverse.data(), half, y, y + half);
          },
          "rope_angles");
      reference_.rope_angles(position, inverse.data(), half, angles.data(), angles.data() + half);
      Compare(
          x,
          [&](const KernelTable& t, float* y) {
            t.rope(y, angles.data(), angles.data() + half, half);
          },
          "rope half = " + std::to_string(half));
    }
  }
}

TEST_P(FloatKernels, HalfConversions) {
  // All 65536 patterns one way; a dense sample with all ties near them the other way.
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  const Floats out(patterns.size());
  Compare(
      out, [&](const KernelTable& t, float* y) { t.f16_to_f32(patterns.data(), 65536, y); },
      "f16_to_f32");
  Compare(
      out, [&](const KernelTable& t, float* y) { t.bf16_to_f32(patterns.data(), 65536, y); },
      "bf16_to_f32");
  for (const int64_t n : kSizes) {
    Compare(
        Floats(size_t(n)),
        [&](const KernelTable& t, float* y) { t.f16_to_f32(patterns.data() + 15000, n, y); },
        "f16_to_f32");
    Compare(
        Floats(size_t(n)),
        [&](const KernelTable& t, float* y) { t.bf16_to_f32(patterns.data() + 15000, n, y); },
        "bf16_to_f32");
  }
  Floats x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 2048) {
    for (const uint64_t near : {bits, bits + 1, bits + 2047}) {
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(near)));
    }
    if ((bits & 0x7FFFFFFF) > 0x48000000 || (bits & 0x7FFFFFFF) < 0x32000000) bits += 1 << 20;
  }
  for (const int64_t n : {int64_t(x.size()), int64_t{5}, int64_t{19}}) {
    std::vector<uint16_t> expected(size_t(n) + 8, 0xBEEF);
    std::vector<uint16_t> got = expected;
    reference_.f32_to_f16(x.data(), n, expected.data());
    table_.f32_to_f16(x.data(), n, got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      const bool nan = i < size_t(n) && std::isnan(x[i]);
      ASSERT_TRUE(nan ? std::isnan(F16ToF32(got[i])) : got[i] == expected[i]) << i << " " << x[i];
    }
  }
  // To bf16: every pattern, what lies just beside it, and half way to the next.
  x.clear();
  for (const uint16_t pattern : patterns) {
    for (const uint32_t beside : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      x.push_back(std::bit_cast<float>(uint32_t{pattern} << 16 | beside));
    }
  }
  for (const int64_t n : {int64_t(x.size()), int64_t{5}, int64_t{19}}) {
    std::vector<uint16_t> expected(size_t(n) + 8, 0xBEEF);
    std::vector<uint16_t> got = expected;
    reference_.f32_to_bf16(x.data(), n, expected.data());
    table_.f32_to_bf16(x.data(), n, got.data());
    EXPECT_EQ(got, expected);
  }
}

TEST_P(FloatKernels, DeltaGates) {
  for (const int64_t n : kSizes) {
    const Floats a = RandomOdd(rng_, n);
    const Floats b = RandomOdd(rng_, n);
    Floats exp_a = Random(rng_, n, 8);
    for (float& v : exp_a) v = std::fabs(v);
    const Floats bias = Random(rng_, n, 3);
    Compare(
        Floats(static_cast<size_t>(2 * n)),
        [&](const KernelTable& t, float* y) {
          t.delta_gates(a.data(), b.data(), exp_a.data(), bias.data(), n, y, y + n);
        },
        "delta_gates");
  }
}

TEST_P(FloatKernels, ShortConv) {
  for (const int reach : {1, 2, 3, 4, 5, 7}) {
    for (const int channels : {1, 15, 16, 33, 64, 100}) {
      for (const int rows : {1, 2, 3, 9, 20}) {
        for (const bool silu : {false, true}) {
          const int stride = channels + 3;
          const Floats x = Random(rng_, rows * stride, 4);
          const Floats weight = Random(rng_, reach * channels);
          const Floats bias = Random(rng_, channels);
          const Floats window = Random(rng_, std::max(1, reach - 1) * channels, 4);
          const std::string what = "reach " + std::to_string(reach) + " channels " +
                                   std::to_string(channels) + " rows " + std::to_string(rows);
          Floats memory = window;  // window and output in one, so that both are compared
          memory.resize(window.size() + size_t(rows * stride), 777.0f);
          Compare(
              memory,
              [&](const KernelTable& t, float* y) {
                t.short_conv(x.data(), stride, rows, weight.data(),
                             channels % 2 != 0 ? bias.data() : nullptr, reach, channels, channels,
                             silu, y, channels, y + window.size(), stride);
              },
              what);
          Floats place = window;
          place.insert(place.end(), x.begin(), x.end());
          Compare(
              place,
              [&](const KernelTable& t, float* y) {
                t.short_conv(y + window.size(), stride, rows, weight.data(), nullptr, reach,
                             channels, channels, silu, y, channels, y + window.size(), stride);
              },
              "in place " + what);
        }
      }
    }
  }
}

TEST_P(FloatKernels, GatedDelta) {
  for (const int key_dim : {1, 16, 33, 128}) {
    for (const int columns : {1, 15, 16, 32, 48, 64, 70, 96, 128, 150}) {
      for (const int rows : {1, 2, 5}) {
        const int state_stride = columns + 2;
        const int stride = key_dim + 7;
        const int v_stride = columns + 5;
        const Floats q = Random(rng_, rows * stride);
        const Floats k = Random(rng_, rows * stride);
        const Floats v = Random(rng_, rows * v_stride);
        Floats gates = Random(rng_, rows * 6);
        for (float& g : gates) g = std::fabs(g);
        Floats memory = Random(rng_, key_dim * state_stride);
        const size_t state_size = memory.size();
        memory.resize(state_size + size_t(rows * v_stride), 777.0f);
        Compare(
            memory,
            [&](const KernelTable& t, float* m) {
              t.gated_delta(m, state_stride, key_dim, columns, q.data(), k.data(), stride, v.data(),
                            v_stride, gates.data(), gates.data() + 3, 6, rows, m + state_size,
                            v_stride, columns % 2 == 0 ? m : nullptr);
            },
            "keys " + std::to_string(key_dim) + " columns " + std::to_string(columns) + " rows " +
                std::to_string(rows));
      }
    }
  }
}

constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0};

struct AttentionCase {
  int queries;
  int head_dim;
  int value_dim;
  float softcap;
  bool window;  // queries see different parts of the block, some nothing
  bool value_in_key = false;
};

// Memory of a state: max, sum, out.
AttentionState StateIn(float* memory, int queries) {
  return {memory, memory + queries, memory + 2 * queries};
}

class AttentionFixture {
 public:
  AttentionFixture(Rng& rng, const AttentionCase& shape) : shape_(shape) {
    q_ = Random(rng, shape.queries * shape.head_dim, 3);
    for (int i = 0; i < shape.queries; ++i) {
      const int end = shape.window ? int(rng.Below(kKeys + 1)) : kKeys;
      first_.push_back(shape.window && i % 3 == 0 ? int(rng.Below(kKeys)) : 0);
      visible_.push_back(end);
    }
    const int64_t k_size = kKeys * shape.head_dim;
    const int64_t v_size = kKeys * shape.value_dim;
    for (int i = 0; i < k_size; ++i) k16_.push_back(F32ToF16(rng.Uniform() * 2 - 1));
    for (int i = 0; i < v_size; ++i) v16_.push_back(F32ToF16(rng.Uniform() * 2 - 1));
    // What nobody sees is poison: it must not touch a result.
    int most = 0;
    for (int i = 0; i < shape.queries; ++i) {
      if (first_[size_t(i)] < visible_[size_t(i)]) most = std::max(most, visible_[size_t(i)]);
    }
    for (int j = most; j < kKeys; ++j) {
      for (int i = 0; i < shape.head_dim; ++i) k16_[size_t(i * kKeys + j)] = 0x7E00;
      for (int i = 0; i < shape.value_dim; ++i) v16_[size_t(j * shape.value_dim + i)] = 0x7E00;
    }
    for (const uint16_t bits : k16_) k_.push_back(F16ToF32(bits));
    for (const uint16_t bits : v16_) v_.push_back(F16ToF32(bits));
    for (const float x : k_) kb16_.push_back(F32ToBF16(x));
    for (const float x : v_) vb16_.push_back(F32ToBF16(x));
    Floats keys(k_.size());  // as rows
    for (int i = 0; i < shape.head_dim; ++i) {
      for (int j = 0; j < kKeys; ++j)
        keys[size_t(j * shape.head_dim + i)] = k_[size_t(i * kKeys + j)];
    }
    kq8_.resize(kKeys * KvRowBytes(DType::kQ8_0, shape.head_dim));
    vq8_.resize(kKeys * KvRowBytes(DType::kQ8_0, shape.value_dim));
    reference::StoreKeysQ8(keys.data(), shape.head_dim, kKeys, shape.head_dim, 0, kq8_.data());
    reference::StoreValuesQ8(v_.data(), shape.value_dim, kKeys, shape.value_dim, 0, vq8_.data());
  }

  Floats FreshState() const {
    Floats state(size_t(shape_.queries * (2 + shape_.value_dim)), 0.0f);
    std::fill_n(state.begin(), shape_.queries, -kInf);
    std::fill(state.begin() + 2 * shape_.queries, state.end(), 555.0f);
    return state;
  }

  void Run(const KernelTable& table, DType type, float* state_memory) const {
    const AttentionTile tile = Tile(type);
    Floats scratch(
        size_t(kKeys * (shape_.head_dim + shape_.value_dim + shape_.queries) + 8 * shape_.queries),
        NAN);
    const AttentionState state = StateIn(state_memory, shape_.queries);
    const auto attend = type == DType::kF32    ? table.attend_f32
                        : type == DType::kF16  ? table.attend_f16
                        : type == DType::kBF16 ? table.attend_bf16
                                               : table.attend_q8_0;
    attend(&tile, &state, scratch.data());
  }

  // Adds to weights [kKeys].
  void Weigh(const KernelTable& table, DType type, float* state_memory, float* weights) const {
    const AttentionTile tile = Tile(type);
    Floats scratch(size_t(kKeys * (shape_.head_dim + shape_.queries)), NAN);
    const AttentionState state = StateIn(state_memory, shape_.queries);
    const auto weigh = type == DType::kF32    ? table.weigh_keys_f32
                       : type == DType::kF16  ? table.weigh_keys_f16
                       : type == DType::kBF16 ? table.weigh_keys_bf16
                                              : table.weigh_keys_q8_0;
    weigh(&tile, &state, weights, scratch.data());
  }

 private:
  AttentionTile Tile(DType type) const {
    AttentionTile tile;
    tile.q = q_.data();
    tile.queries = shape_.queries;
    tile.first = first_.data();
    tile.visible = visible_.data();
    const auto of = [&](const auto& f32, const auto& f16, const auto& bf16,
                        const auto& q8) -> const void* {
      if (type == DType::kF32) return f32.data();
      if (type == DType::kQ8_0) return q8.data();
      return type == DType::kF16 ? f16.data() : bf16.data();
    };
    tile.k = of(k_, k16_, kb16_, kq8_);
    tile.v = of(v_, v16_, vb16_, vq8_);
    if (shape_.value_in_key) tile.v = nullptr;
    tile.head_dim = shape_.head_dim;
    tile.value_dim = shape_.value_dim;
    tile.softcap = shape_.softcap;
    return tile;
  }

  AttentionCase shape_;
  Floats q_, k_, v_;
  std::vector<uint16_t> k16_, v16_, kb16_, vb16_;
  std::vector<std::byte> kq8_, vq8_;
  std::vector<int> first_, visible_;
};

TEST_P(FloatKernels, Attention) {
  for (const int queries : {1, 2, 5, 6, 7, 12, 13, 31}) {
    for (const auto& [head_dim, value_dim] : {std::pair{1, 1},
                                              {16, 16},
                                              {64, 64},
                                              {80, 80},
                                              {96, 96},
                                              {100, 37},
                                              {128, 128},
                                              {192, 128},
                                              {256, 256},
                                              {576, 512}}) {
      if (head_dim > 192 && queries != 5 && queries != 13) continue;
      for (const float softcap : {0.0f, 5.0f}) {
        for (const bool window : {false, true}) {
          const bool value_in_key = softcap == 0 && queries % 2 == 1 && head_dim != value_dim;
          const AttentionCase shape = {queries, head_dim, value_dim, softcap, window, value_in_key};
          const AttentionFixture first(rng_, shape);
          const AttentionFixture second(rng_, shape);
          for (const DType type : kKvTypes) {
            const std::string what = std::to_string(queries) + " queries, head " +
                                     std::to_string(head_dim) + ", value " +
                                     std::to_string(value_dim) + ", " + std::string(NameOf(type));
            Floats state = first.FreshState();
            Compare(
                state, [&](const KernelTable& t, float* m) { first.Run(t, type, m); },
                "first block: " + what);
            first.Run(reference_, type, state.data());
            Compare(
                state, [&](const KernelTable& t, float* m) { second.Run(t, type, m); },
                "second block: " + what);
            // A block on its own, merged, is the block folded in.
            Floats block = first.FreshState();
            second.Run(reference_, type, block.data());
            Floats folded = state;
            second.Run(reference_, type, folded.data());
            for (const KernelTable* t : {&reference_, &table_}) {
              Floats merged = state;
              const AttentionState into = StateIn(merged.data(), queries);
              const AttentionState from = StateIn(block.data(), queries);
              t->attend_merge(&into, &from, queries, value_dim);
              EXPECT_TRUE(SameBits(folded, merged)) << "merge: " << what;
            }
          }
        }
      }
    }
  }
}

TEST_P(FloatKernels, WeightsOfKeys) {
  for (const int queries : {1, 6, 13, 40}) {
    for (const int head_dim : {1, 16, 100, 128, 576}) {
      for (const float softcap : {0.0f, 5.0f}) {
        for (const bool window : {false, true}) {
          // A softmax without values is what the weights are made from.
          const AttentionFixture first(rng_, {queries, head_dim, 0, softcap, window, false});
          const AttentionFixture second(rng_, {queries, head_dim, 0, softcap, window, false});
          for (const DType type : kKvTypes) {
            const std::string what = std::to_string(queries) + " queries, head " +
                                     std::to_string(head_dim) + ", " + std::string(NameOf(type));
            Floats state = first.FreshState();
            Compare(
                state, [&](const KernelTable& t, float* m) { first.Run(t, type, m); },
                "softmax: " + what);
            first.Run(reference_, type, state.data());
            second.Run(reference_, type, state.data());
            Floats weights = Random(rng_, kKeys, 1);
            Compare(
                weights,
                [&](const KernelTable& t, float* m) { first.Weigh(t, type, state.data(), m); },
                "weights: " + what);
            Floats both(kKeys, 0.0f);
            first.Weigh(reference_, type, state.data(), both.data());
            second.Weigh(reference_, type, state.data(), both.data());
            double sum = 0;
            for (const float weight : both) sum += weight;
            int seeing = 0;
            for (int i = 0; i < queries; ++i) seeing += state[size_t(queries + i)] > 0 ? 1 : 0;
            EXPECT_NEAR(sum, seeing, 1e-4 * seeing) << what;
          }
        }
      }
    }
  }
}

TEST_P(FloatKernels, StoreKeys) {
  for (const int head_dim : {1, 16, 24, 64, 100}) {
    for (const auto& [slot, tokens] :
         {std::pair{0, 64}, {0, 1}, {63, 1}, {5, 3}, {7, 4}, {16, 16}, {1, 40}, {33, 31}}) {
      const Floats x = Random(rng_, tokens * (head_dim + 3), 100);
      Compare(
          Floats(size_t(kKeys * head_dim), 555.0f),
          [&](const KernelTable& t, float* k) {
            t.store_keys_f32(x.data(), head_dim + 3, tokens, head_dim, slot, k);
          },
          "store_keys_f32");
      Compare(
          Floats(size_t(kKeys * head_dim / 2), 555.0f),
          [&](const KernelTable& t, float* k) {
            t.store_keys_f16(x.data(), head_dim + 3, tokens, head_dim, slot,
                             reinterpret_cast<uint16_t*>(k));
          },
          "store_keys_f16");
      Compare(
          Floats(size_t(kKeys * head_dim / 2), 555.0f),
          [&](const KernelTable& t, float* k) {
            t.store_keys_bf16(x.data(), head_dim + 3, tokens, head_dim, slot,
                              reinterpret_cast<uint16_t*>(k));
          },
          "store_keys_bf16");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, FloatKernels, ::testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
