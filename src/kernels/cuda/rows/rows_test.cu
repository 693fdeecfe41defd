// SPDX-License-Identifier: Apache-2.0
// Kernels on rows against the ops of the CPU, bit by bit: shapes with tails, misaligned rows, the
// widths of models; denormals, infinities and rows that are no numbers.
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>

#include "kernels/activation_ops.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/quantised/random_blocks.h"
#include "kernels/cuda/rows/elementwise.h"
#include "kernels/cuda/rows/last_rows.h"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/rope.h"
#include "kernels/cuda/start/embed.h"
#include "kernels/cuda/streams/streams.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/gpu/bf16_weights.h"
#include "kernels/scan_ops.h"
#include "tensor/codec.h"
#include "tensor/half.h"

namespace reprise::cuda {
namespace {

class RowKernels : public ::testing::Test {
 protected:
  // Puts infinities and a NaN into two of the rows, where there are two.
  static void Spoil(DeviceRows& x) {
    const Rows rows = x.rows();
    if (rows.rows < 2) return;
    x.at(1, rows.cols / 2) = -std::numeric_limits<float>::infinity();
    x.at(1, rows.cols - 1) = std::numeric_limits<float>::infinity();
    x.at(rows.rows - 1, 0) = std::numeric_limits<float>::quiet_NaN();
    x.Upload();
  }

  Rng rng_{7};
  SpecifiedOps cpu_;
};

// Two vectors as ops take them, and as kernels do.
struct OpVectors {
  ConstFloats a;
  ConstFloats b;
};
struct Vectors {
  const float* a;
  const float* b;
};

// An op of up to three rows of inputs and two vectors; y comes last and starts as a copy of
// something.
struct RowOp {
  std::string name;
  std::function<void(const OpContext&, const Rows& a, const Rows& b, const Rows& c, OpVectors,
                     const Rows& y)>
      expected;
  std::function<void(const View& a, const View& b, const View& c, Vectors, const View& y)> got;
};

using R = Rows;
using V = View;
using C = OpContext;

std::vector<RowOp> ElementwiseOps() {
  return {
      {"Fill",
       [](const C& c, const R&, const R&, const R&, OpVectors, const R& y) {
         reprise::Fill(c, -2.5f, y);
       },
       [](const V&, const V&, const V&, Vectors, const V& y) { Fill(nullptr, -2.5f, y); }},
      {"Add",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::Add(c, a, b, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) { Add(nullptr, a, b, y); }},
      {"Mul",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::Mul(c, a, b, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) { Mul(nullptr, a, b, y); }},
      {"Scale",
       [](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::Scale(c, a, 0.7f, y);
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { Scale(nullptr, a, 0.7f, y); }},
      {"ScaleAdd",
       [](const C&, const R& a, const R&, const R&, OpVectors, const R& y) {
         for (int64_t t = 0; t < y.rows; ++t) {
           reference::ScaleAdd(RowOf(a, t), 0.7f, y.cols, RowOf(y, t));
         }
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { ScaleAdd(nullptr, a, 0.7f, y); }},
      {"Lerp",
       [](const C& c, const R& a, const R& b, const R& t, OpVectors, const R& y) {
         reprise::Lerp(c, a, b, t, y);
       },
       [](const V& a, const V& b, const V& t, Vectors, const V& y) { Lerp(nullptr, a, b, t, y); }},
      {"SwiGlu",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::SwiGlu(c, a, b, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) { SwiGlu(nullptr, a, b, y); }},
      {"ClampedSwiGlu",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::ClampedSwiGlu(c, a, b, 1.702f, 0.75f, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) {
         ClampedSwiGlu(nullptr, a, b, 1.702f, 0.75f, y);
       }},
      {"GeGlu",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::GeGlu(c, a, b, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) { GeGlu(nullptr, a, b, y); }},
      {"GeGluErf",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::GeGluErf(c, a, b, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) { GeGluErf(nullptr, a, b, y); }},
      {"SigmoidMul",
       [](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::SigmoidMul(c, a, b, y);
       },
       [](const V& a, const V& b, const V&, Vectors, const V& y) { SigmoidMul(nullptr, a, b, y); }},
      {"Silu",
       [](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::Silu(c, a, y);
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { Silu(nullptr, a, y); }},
      {"Gelu",
       [](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::Gelu(c, a, y);
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { Gelu(nullptr, a, y); }},
      {"GeluErf",
       [](const C&, const R& a, const R&, const R&, OpVectors, const R& y) {
         for (int64_t t = 0; t < y.rows; ++t) reference::GeluErf(RowOf(a, t), y.cols, RowOf(y, t));
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { GeluErf(nullptr, a, y); }},
      {"Clamp",
       [](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::Clamp(c, a, -0.25f, 0.5f, y);
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) {
         Clamp(nullptr, a, -0.25f, 0.5f, y);
       }},
      {"ReluSquared",
       [](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::ReluSquared(c, a, y);
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { ReluSquared(nullptr, a, y); }},
      {"Softcap",
       [](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::Softcap(c, a, 30, y);
       },
       [](const V& a, const V&, const V&, Vectors, const V& y) { Softcap(nullptr, a, 30, y); }},
      {"Sigmoid",
       [](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::Sigmoid(c, a, v.a, y);
       },
       [](const V& a, const V&, const V&, Vectors v, const V& y) { Sigmoid(nullptr, a, v.a, y); }},
      {"Softplus",
       [](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::Softplus(c, a, v.a, y);
       },
       [](const V& a, const V&, const V&, Vectors v, const V& y) { Softplus(nullptr, a, v.a, y); }},
      {"DecayGates",
       [](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::DecayGates(c, a, v.a, v.b, y);
       },
       [](const V& a, const V&, const V&, Vectors v, const V& y) {
         DecayGates(nullptr, a, v.a, v.b, y);
       }},
      {"RwkvDecay",
       [](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::RwkvDecay(c, a, v.a, y);
       },
       [](const V& a, const V&, const V&, Vectors v, const V& y) {
         RwkvDecay(nullptr, a, v.a, y);
       }},
      // Two outputs: the second one is c.
      {"DeltaGates",
       [](const C& c, const R& a, const R& b, const R& beta, OpVectors v, const R& y) {
         GatedDeltaGates(c, a, b, v.a, v.b, y, beta);
       },
       [](const V& a, const V& b, const V& beta, Vectors v, const V& y) {
         DeltaGates(nullptr, a, b, v.a, v.b, y, beta);
       }},
      {"SsdGates",
       [](const C& c, const R& a, const R&, const R& decay, OpVectors v, const R& y) {
         reprise::SsdGates(c, a, v.a, v.b, 1e-3f, 2.0f, y, decay);
       },
       [](const V& a, const V&, const V& decay, Vectors v, const V& y) {
         SsdGates(nullptr, a, v.a, v.b, 1e-3f, 2.0f, y, decay);
       }},
  };
}

// Ops on `groups` parts of a row.
std::vector<RowOp> NormOps(int groups) {
  return {
      {"RmsNorm",
       [=](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::RmsNorm(c, a, v.a, groups, 1e-6f, y);
       },
       [=](const V& a, const V&, const V&, Vectors v, const V& y) {
         RmsNorm(nullptr, a, v.a, groups, 1e-6f, y);
       }},
      {"AddRmsNorm",
       [=](const C& c, const R& a, const R& b, const R& sum, OpVectors v, const R& y) {
         reprise::Add(c, a, b, sum);
         reprise::RmsNorm(c, sum, v.a, 1, 1e-6f, y);
       },
       [=](const V& a, const V& b, const V& sum, Vectors v, const V& y) {
         AddRmsNorm(nullptr, a, b, v.a, 1e-6f, sum, y);
       }},
      {"RmsNormGated",
       [=](const C& c, const R& a, const R& b, const R&, OpVectors v, const R& y) {
         reprise::RmsNormGated(c, a, b, v.a, groups, 1e-5f, y);
       },
       [=](const V& a, const V& b, const V&, Vectors v, const V& y) {
         RmsNormGated(nullptr, a, b, v.a, groups, 1e-5f, y);
       }},
      {"L2Norm",
       [=](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::L2Norm(c, a, groups, 1e-6f, 0.3f, y);
       },
       [=](const V& a, const V&, const V&, Vectors, const V& y) {
         L2Norm(nullptr, a, groups, 1e-6f, 0.3f, y);
       }},
      {"GroupRmsNorm",
       [=](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::GroupRmsNorm(c, a, v.a, groups, 1e-6f, y);
       },
       [=](const V& a, const V&, const V&, Vectors v, const V& y) {
         GroupRmsNorm(nullptr, a, v.a, groups, 1e-6f, y);
       }},
      {"GateRmsNorm",
       [=](const C& c, const R& a, const R& b, const R&, OpVectors v, const R& y) {
         reprise::GateRmsNorm(c, a, b, v.a, groups, 1e-6f, y);
       },
       [=](const V& a, const V& b, const V&, Vectors v, const V& y) {
         GateRmsNorm(nullptr, a, b, v.a, groups, 1e-6f, y);
       }},
      {"LayerNorm",
       [=](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::LayerNorm(c, a, v.a, v.b, groups, 1e-5f, y);
       },
       [=](const V& a, const V&, const V&, Vectors v, const V& y) {
         LayerNorm(nullptr, a, v.a, v.b, groups, 1e-5f, y);
       }},
      {"LayerNorm without bias",
       [=](const C& c, const R& a, const R&, const R&, OpVectors v, const R& y) {
         reprise::LayerNorm(c, a, v.a, nullptr, groups, 1e-5f, y);
       },
       [=](const V& a, const V&, const V&, Vectors v, const V& y) {
         LayerNorm(nullptr, a, v.a, nullptr, groups, 1e-5f, y);
       }},
      {"CutBelow",
       [=](const C& c, const R& a, const R&, const R&, OpVectors, const R& y) {
         reprise::CutBelow(c, a, 1.3f, y);
       },
       [=](const V& a, const V&, const V&, Vectors, const V& y) { CutBelow(nullptr, a, 1.3f, y); }},
      {"MatchMagnitude",
       [=](const C& c, const R& a, const R& b, const R&, OpVectors, const R& y) {
         reprise::MatchMagnitude(c, a, b, 1e-5f, y);
       },
       [=](const V& a, const V& b, const V&, Vectors, const V& y) {
         MatchMagnitude(nullptr, a, b, 1e-5f, y);
       }},
      {"RwkvBonus",
       [=](const C& c, const R& a, const R& b, const R& v, OpVectors w, const R& y) {
         reprise::RwkvBonus(c, a, b, w.a, v, groups, y);
       },
       [=](const V& a, const V& b, const V& v, Vectors w, const V& y) {
         RwkvBonus(nullptr, a, b, w.a, v, groups, y);
       }},
      {"Softmax",
       [=](const C&, const R& a, const R&, const R&, OpVectors, const R& y) {
         for (int64_t t = 0; t < y.rows; ++t) reference::Softmax(RowOf(a, t), y.cols, RowOf(y, t));
       },
       [=](const V& a, const V&, const V&, Vectors, const V& y) { Softmax(nullptr, a, y); }},
  };
}

class RowOps : public RowKernels {
 protected:
  void Check(const RowOp& op, const RowShape& shape, bool in_place) {
    SCOPED_TRACE(op.name);
    DeviceRows a(shape, rng_), b(shape, rng_), c(shape, rng_), y(shape, rng_);
    Spoil(a), Spoil(b), Spoil(c);
    const Floats first = Numbers(rng_, shape.cols), second = Numbers(rng_, shape.cols);
    const DeviceArray<float> device_first(first), device_second(second);
    DeviceRows& to = in_place ? a : y;
    op.expected(cpu_.context(), a.rows(), b.rows(), c.rows(),
                {PlaceAt(first.data()), PlaceAt(second.data())}, to.rows());
    op.got(a.view(), b.view(), c.view(), {device_first.data(), device_second.data()}, to.view());
    EXPECT_TRUE(to.Same());
    EXPECT_TRUE(c.Same());
  }
};

TEST_F(RowOps, Elementwise) {
  for (const RowShape& shape : RowShapes()) {
    for (const RowOp& op : ElementwiseOps()) {
      Check(op, shape, false);
      Check(op, shape, true);
    }
  }
}

TEST_F(RowOps, Norms) {
  for (const RowShape& shape : RowShapes()) {
    for (const int groups : {1, 2, 16, 20}) {
      if (shape.cols % groups != 0) continue;
      for (const RowOp& op : NormOps(groups)) {
        Check(op, shape, false);
        if (op.name != "RwkvBonus") Check(op, shape, true);
      }
    }
  }
}

TEST_F(RowKernels, Rope) {
  const std::vector<int32_t> positions = {0, 1, 2, 63, 64, 4095, 32767, 131071, 262143};
  const DeviceArray<int32_t> device_positions(positions);
  StepLayout step;
  step.host.tokens = positions;  // any: as many as there are rows
  step.host.positions = positions;
  for (const float magnitude : {1.0f, 1.1386294f}) {
    for (const int half : {1, 16, 32, 64, 128}) {
      Floats frequencies(static_cast<size_t>(half));
      for (int i = 0; i < half; ++i) frequencies[size_t(i)] = std::pow(1e6f, -float(i) / half);
      const DeviceArray<float> device_frequencies(frequencies);
      const size_t count = positions.size() * size_t(half);
      const DeviceArray<float> cos(count), sin(count);
      const OpContext context = cpu_.context();
      BeginStep(context, &step);
      const RopeTable table =
          MakeRopeTable(context, step, PlaceAt(frequencies.data()), half, magnitude);
      const RopeAngles angles = {cos.data(), sin.data(), half};
      MakeRopeAngles(nullptr, {device_positions.data(), int64_t(positions.size()),
                               device_frequencies.data(), magnitude, angles});
      EXPECT_EQ(std::memcmp(cos.Read().data(), Raw(table.cos), count * 4), 0);
      EXPECT_EQ(std::memcmp(sin.Read().data(), Raw(table.sin), count * 4), 0);
      const int heads = 3, head_dim = 2 * half + 40;
      const RowShape shape = {int64_t(positions.size()), heads * head_dim, 5};
      DeviceRows x(shape, rng_);
      reprise::Rope(context, table, heads, x.rows());
      Rope(nullptr, angles, heads, 0, x.view());
      EXPECT_TRUE(x.Same());
      // From channel 24 of each head on.
      reprise::Rope(context, table, heads, x.rows(), 24);
      Rope(nullptr, angles, heads, 24, x.view());
      EXPECT_TRUE(x.Same());
    }
  }
}

TEST_F(RowKernels, Streams) {
  for (const int streams : {1, 2, 4, 8}) {
    for (const int64_t width : {int64_t{1}, int64_t{40}, int64_t{2053}}) {
      SCOPED_TRACE(streams * 10000 + width);
      DeviceRows x({5, streams * width, 3}, rng_), y({5, streams * width, 7}, rng_);
      DeviceRows mix({5, streams * streams, 2}, rng_), add({5, streams, 1}, rng_);
      DeviceRows one({5, width, 6}, rng_);
      Spoil(x), Spoil(one);
      const OpContext context = cpu_.context();
      reprise::MixStreams(context, x.rows(), mix.rows(), streams, y.rows());
      MixStreams(nullptr, x.view(), mix.view(), streams, y.view());
      EXPECT_TRUE(y.Same());
      reprise::AddToStreams(context, one.rows(), add.rows(), y.rows());
      AddToStreams(nullptr, one.view(), add.view(), y.view());
      EXPECT_TRUE(y.Same());
    }
  }
}

TEST_F(RowKernels, ScalesByPosition) {
  const std::vector<int32_t> positions = {0, 1, 63, 64, 65, 127, 128, 200};
  const DeviceArray<int32_t> device_positions(positions);
  const Floats factors = {1, 1.25f, 1.5f, 0.3f};
  const DeviceArray<float> device_factors(factors);
  StepLayout step;
  step.host.tokens = positions;  // any: as many as there are rows
  step.host.positions = positions;
  const OpContext context = cpu_.context();
  BeginStep(context, &step);
  for (const int64_t cols : {int64_t{3}, int64_t{4096}}) {
    DeviceRows x({int64_t(positions.size()), cols, 5}, rng_);
    reprise::ScaleByPosition(context, step, PlaceAt(factors.data()), 64, x.rows(), x.rows());
    ScaleByPosition(nullptr, device_positions.data(), device_factors.data(), 64, x.view(),
                    x.view());
    EXPECT_TRUE(x.Same());
  }
}

// Blocks of random bytes: every bit pattern that a file may hold, f16 infinities and NaN included.
std::vector<std::byte> RandomBytes(Rng& rng, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = std::byte(rng.Next() & 255);
  return bytes;
}

// BF16 values of many sizes, all of which f16 holds beside the largest.
std::vector<std::byte> RandomBF16(Rng& rng, size_t count) {
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    const int size = -int(rng.Next() % 28);
    value = F32ToBF16(std::ldexp(1 + float(rng.Next() % 128) / 128, size));
    value |= uint16_t((rng.Next() & 1) << 15);
  }
  std::vector<std::byte> bytes(2 * count);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The f16 of a table of 16-bit values, and its scale.
float PackHalf(DType dtype, const std::vector<std::byte>& table, std::vector<uint16_t>* values) {
  values->resize(table.size() / 2);
  std::memcpy(values->data(), table.data(), table.size());
  if (dtype == DType::kF16) return 1;
  const int exponent = reference::BF16Exponent(reference::LargestBF16(*values));
  for (uint16_t& value : *values) value = reference::BF16ToScaledF16(value, exponent);
  return std::ldexp(1.0f, -exponent);
}

TEST_F(RowKernels, EmbedsEveryType) {
  std::vector<DType> types(std::begin(kQuantisedTypes), std::end(kQuantisedTypes));
  types.insert(types.end(), {DType::kF32, DType::kF16, DType::kBF16});
  for (const DType dtype : types) {
    SCOPED_TRACE(NameOf(dtype));
    const int64_t vocabulary = 50;
    for (const int64_t cols : {int64_t{768}, int64_t{2560}}) {
      const size_t row_bytes = RowBytes(dtype, cols);
      const std::vector<std::byte> table = dtype == DType::kBF16
                                               ? RandomBF16(rng_, size_t(cols * vocabulary))
                                               : RandomBytes(rng_, row_bytes * size_t(vocabulary));
      const std::vector<int32_t> tokens = {49, 0, 7, 7, 31};
      DeviceRows out({int64_t(tokens.size()), cols, 8}, rng_);
      for (size_t t = 0; t < tokens.size(); ++t) {
        DequantiseRow(dtype, table.data() + size_t(tokens[t]) * row_bytes,
                      RowOf(out.rows(), int64_t(t)), cols);
      }
      const DeviceArray<int32_t> device_tokens(tokens);
      if (dtype == DType::kF32) {
        const DeviceArray<std::byte> device_table(table);
        Embed(nullptr, {reinterpret_cast<const float*>(device_table.data()), device_tokens.data(),
                        out.view()});
      } else if (!IsQuantised(dtype)) {
        std::vector<uint16_t> values;
        const float scale = PackHalf(dtype, table, &values);
        const DeviceArray<uint16_t> device_table(values);
        Embed(nullptr, {HalfMatrix{device_table.data(), vocabulary, cols, cols, scale},
                        device_tokens.data(), out.view()});
      } else {
        const QuantisedLayout layout = LayoutOf(dtype, vocabulary, cols);
        std::vector<std::byte> packed(layout.bytes);
        PackRows(layout, table.data(), row_bytes, 0, vocabulary, packed.data());
        PackTables(layout, packed.data());
        const DeviceArray<std::byte> device_table(packed);
        Embed(nullptr,
              {QuantisedMatrix{layout, device_table.data()}, device_tokens.data(), out.view()});
      }
      EXPECT_TRUE(out.Same());
      if (dtype != DType::kF32) continue;
      const DeviceArray<std::byte> device_table(table);
      const std::vector<int32_t> beyond = {49, 0, 0, 7, 0};
      const DeviceArray<int32_t> device_beyond(std::vector<int32_t>{49, 50, 51, 7, 1 << 20});
      for (size_t t = 0; t < beyond.size(); ++t) {
        DequantiseRow(dtype, table.data() + size_t(beyond[t]) * row_bytes,
                      RowOf(out.rows(), int64_t(t)), cols);
      }
      Embed(nullptr, {reinterpret_cast<const float*>(device_table.data()), device_beyond.data(),
                      out.view(), 50});
      EXPECT_TRUE(out.Same());
    }
  }
}

TEST_F(RowKernels, GathersRows) {
  DeviceRows x({40, 1030, 6}, rng_);
  const std::vector<int32_t> index = {3, 39, 0, 0, 17, 22, 3};
  DeviceRows out({int64_t(index.size()), 1030}, rng_);
  for (size_t i = 0; i < index.size(); ++i) {
    std::copy_n(RowOf(x.rows(), index[i]), 1030, RowOf(out.rows(), int64_t(i)));
  }
  GatherRows(nullptr, x.view(), DeviceArray<int32_t>(index).data(), out.view());
  EXPECT_TRUE(out.Same());
}

TEST_F(RowKernels, FindsWhatIsNotFinite) {
  const RowShape shape = {9, 5000, 12};
  DeviceRows x(shape, rng_);
  x.at(0, 4999) = std::numeric_limits<float>::quiet_NaN();
  x.at(4, 0) = std::numeric_limits<float>::infinity();
  x.at(8, 2500) = -std::numeric_limits<float>::infinity();
  x.Upload();
  // Sequences of so many rows, few and many.
  const auto flags = [&](const std::vector<int32_t>& counts) {
    std::vector<SequenceView> sequences;
    std::vector<int32_t> row_sequence;
    for (const int32_t count : counts) {
      SequenceView& one = sequences.emplace_back();
      one.row_begin = int32_t(row_sequence.size()), one.row_count = count;
      row_sequence.insert(row_sequence.end(), size_t(count), int32_t(sequences.size()) - 1);
    }
    const DeviceArray<int32_t> device_row_sequence(row_sequence);
    const DeviceArray<SequenceView> device_sequences(sequences);
    StepView step;
    step.rows = int32_t(row_sequence.size());
    step.sequence_count = int32_t(sequences.size());
    step.row_sequence = device_row_sequence.data();
    step.sequences = device_sequences.data();
    const DeviceArray<uint8_t> found(sequences.size());
    FiniteSequences(nullptr, step, x.view(), found.data());
    return found.Read();
  };
  EXPECT_EQ(flags({1, 3, 0, 2, 3}), (std::vector<uint8_t>{0, 1, 1, 0, 0}));
  EXPECT_EQ(flags({1, 3, 5}), (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(flags({1, 1, 1, 1, 1, 1, 1, 1, 1}), (std::vector<uint8_t>{0, 1, 1, 1, 0, 1, 1, 1, 0}));
}

}  // namespace
}  // namespace reprise::cuda
