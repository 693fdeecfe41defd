// SPDX-License-Identifier: Apache-2.0
// Proves that every matrix kernel and activation quantiser of every overlay that this CPU supports
// gives the bits of the reference: all types, shapes with tails, any bytes as weights, activations
// with infinities, NaN, zeros and denormals; that nothing outside the output is written; that
// unpacked rows are exactly the dequantised ones; and that REPRISE_ISA really selects.
#include "kernels/reference/matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"

namespace reprise {
namespace {

constexpr float kPoison = -12345.5f;

// Exactly `bytes` bytes, aligned to 64: the sanitizer sees every step outside.
struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte[], Free>;
AlignedBytes Allocate(size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(0, ::posix_memalign(&memory, 64, bytes));
  return AlignedBytes(static_cast<std::byte*>(memory));
}

uint16_t TameHalf(Rng& rng) { return F32ToF16(rng.Uniform() * 0.2f - 0.1f); }

template <typename Block>
void SetHalf(std::byte* block, uint16_t Block::*field, uint16_t value) {
  reinterpret_cast<Block*>(block)->*field = value;
}

// Replaces the floats of a random block, which would mostly be huge, by ordinary ones.
void Tame(Rng& rng, DType dtype, std::byte* block) {
  switch (dtype) {
#define REPRISE_TAME(name)                          \
  case DType::k##name:                              \
    SetHalf(block, &Block##name::d, TameHalf(rng)); \
    break
#define REPRISE_TAME2(name, min)                      \
  case DType::k##name:                                \
    SetHalf(block, &Block##name::d, TameHalf(rng));   \
    SetHalf(block, &Block##name::min, TameHalf(rng)); \
    break
    REPRISE_TAME(Q8_0);
    REPRISE_TAME(Q4_0);
    REPRISE_TAME2(Q4_1, m);
    REPRISE_TAME(Q5_0);
    REPRISE_TAME2(Q5_1, m);
    REPRISE_TAME2(Q2_K, dmin);
    REPRISE_TAME(Q3_K);
    REPRISE_TAME2(Q4_K, dmin);
    REPRISE_TAME2(Q5_K, dmin);
    REPRISE_TAME(Q6_K);
    REPRISE_TAME(IQ4_NL);
    REPRISE_TAME(IQ4_XS);
    REPRISE_TAME(IQ1_S);
    REPRISE_TAME(IQ2_XXS);
    REPRISE_TAME(IQ2_XS);
    REPRISE_TAME(IQ2_S);
    REPRISE_TAME(IQ3_XXS);
    REPRISE_TAME(IQ3_S);
    REPRISE_TAME(TQ1_0);
    REPRISE_TAME(TQ2_0);
#undef REPRISE_TAME
#undef REPRISE_TAME2
    case DType::kIQ1_M: {  // a nibble of the scale on top of each of four words
      const uint16_t half = TameHalf(rng);
      auto* words = reinterpret_cast<BlockIQ1_M*>(block)->scales;
      for (int i = 0; i < 4; ++i) {
        words[i] = uint16_t((words[i] & 0x0FFF) | (half >> (4 * i) & 15) << 12);
      }
      break;
    }
    case DType::kF32: {
      const float value = rng.Uniform() * 2 - 1;
      std::memcpy(block, &value, 4);
      break;
    }
    case DType::kF16:
    case DType::kBF16: {
      const float value = rng.Uniform() * 2 - 1;
      const uint16_t bits = dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      std::memcpy(block, &bits, 2);
      break;
    }
    case DType::kMXFP4:
      reinterpret_cast<BlockMXFP4*>(block)->e = uint8_t(118 + rng.Below(9));
      break;
    case DType::kI32:
      break;
  }
}

std::vector<std::byte> RandomBlocks(Rng& rng, DType dtype, int64_t rows, int64_t cols, bool tame) {
  std::vector<std::byte> bytes(size_t(rows) * RowBytes(dtype, cols));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.Below(256));
  const size_t block = size_t(TraitsOf(dtype).block_bytes);
  for (size_t at = 0; tame && at < bytes.size(); at += block) Tame(rng, dtype, &bytes[at]);
  return bytes;
}

struct Activations {
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int16_t> sum;
  cpu::QuantisedRows rows;
  int64_t cols;
};

// [tokens, cols], quantised by the reference. The strides differ from the row length; the last row
// ends where the memory ends.
Activations RandomActivations(Rng& rng, cpu::ActivationFormat format, int64_t tokens,
                              int64_t cols) {
  Activations a;
  a.cols = cols;
  a.x.resize(size_t(tokens * cols));
  for (float& value : a.x) value = rng.Uniform() * 4 - 2;
  for (int64_t i = 0; i + 40 < cols && tokens > 1; ++i) a.x[size_t(i)] = 0;  // empty blocks
  if (format == cpu::ActivationFormat::kF32) return a;
  const bool small = format == cpu::ActivationFormat::kQ8Block32;
  const int64_t scales = cols / (small ? 32 : 256), sums = cols / (small ? 32 : 16);
  a.rows.q_stride = cols + 12;
  a.rows.scale_stride = scales + 1;
  a.rows.sum_stride = sums + 3;
  a.q.resize(size_t((tokens - 1) * a.rows.q_stride + cols));
  a.scale.resize(size_t((tokens - 1) * a.rows.scale_stride + scales));
  a.sum.resize(size_t((tokens - 1) * a.rows.sum_stride + sums));
  for (int64_t t = 0; t < tokens; ++t) {
    (small ? reference::Quantise32 : reference::Quantise256)(
        a.x.data() + t * cols, cols, a.q.data() + t * a.rows.q_stride,
        a.scale.data() + t * a.rows.scale_stride, a.sum.data() + t * a.rows.sum_stride);
  }
  a.rows.q = a.q.data();
  a.rows.scale = a.scale.data();
  a.rows.sum = a.sum.data();
  return a;
}

bool SameBits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

std::vector<DType> WeightTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (static_cast<DType>(i) != DType::kI32) types.push_back(static_cast<DType>(i));
  }
  return types;
}

class MatrixTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto table = cpu::BuildTable(GetParam());
    ASSERT_TRUE(table.ok());
    table_ = *table;
  }

  // One group of `rows` rows against `tokens` tokens, compared with the reference.
  void Compare(Rng& rng, DType dtype, int rows, int64_t cols, int tokens, bool tame);

  cpu::KernelTable table_;
};

void MatrixTest::Compare(Rng& rng, DType dtype, int rows, int64_t cols, int tokens, bool tame) {
  const cpu::MatrixKernel& kernel = table_.matrix[size_t(dtype)];
  const cpu::MatrixKernel reference = reference::MatrixKernelOf(dtype);
  ASSERT_EQ(reference.activations, kernel.activations);
  const auto weights = RandomBlocks(rng, dtype, rows, cols, tame);
  const size_t row_bytes = RowBytes(dtype, cols);
  const Activations a = RandomActivations(rng, kernel.activations, tokens, cols);

  const size_t group_bytes = kernel.group_bytes(cols);
  ASSERT_EQ(0u, group_bytes % 64);
  const AlignedBytes group = Allocate(group_bytes);
  std::memset(group.get(), 0xEE, group_bytes);
  kernel.pack(weights.data(), row_bytes, rows, cols, group.get());

  const int64_t stride = rows + 3;
  std::vector<float> expected(size_t(tokens * stride), kPoison);
  for (int r = 0; r < rows; ++r) {
    const AlignedBytes row = Allocate(reference.group_bytes(cols));
    reference.pack(weights.data() + size_t(r) * row_bytes, row_bytes, 1, cols, row.get());
    reference.run(row.get(), 1, cols, a.x.data(), cols, &a.rows, tokens, expected.data() + r,
                  stride);
  }
  for (const cpu::MatrixRun run : {kernel.run, kernel.run_many}) {
    if (run == nullptr) continue;
    std::vector<float> y(size_t(tokens * stride), kPoison);
    run(group.get(), rows, cols, a.x.data(), cols, &a.rows, tokens, y.data(), stride);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_TRUE(SameBits(expected[i], y[i]))
          << NameOf(dtype) << (run == kernel.run ? "" : " many") << " rows " << rows << " cols "
          << cols << " tokens " << tokens << " token " << int64_t(i) / stride << " row "
          << int64_t(i) % stride << ": " << expected[i] << " and " << y[i];
    }
  }
  std::vector<float> unpacked(static_cast<size_t>(cols)), stored(static_cast<size_t>(cols));
  for (int r = 0; r < rows; ++r) {
    kernel.unpack_row(group.get(), r, cols, unpacked.data());
    DequantiseRow(dtype, weights.data() + size_t(r) * row_bytes, stored.data(), cols);
    for (size_t i = 0; i < stored.size(); ++i) ASSERT_TRUE(SameBits(stored[i], unpacked[i]));
  }
}

TEST_P(MatrixTest, EqualsReferenceOverShapes) {
  Rng rng(11);
  for (const DType dtype : WeightTypes()) {
    const int block = TraitsOf(dtype).block_elements;
    const int group_rows = table_.matrix[size_t(dtype)].group_rows;
    for (const int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 35}) {
      const int rows = 1 + static_cast<int>(rng.Below(uint64_t(group_rows)));
      const int64_t blocks = 1 + static_cast<int64_t>(rng.Below(block == 256 ? 3 : 10));
      Compare(rng, dtype, rows, blocks * block, tokens, true);
      Compare(rng, dtype, group_rows, blocks * block, tokens, true);
      if (HasFatalFailure()) return;
    }
    for (int rows = 1; rows <= group_rows; ++rows) {
      Compare(rng, dtype, rows, 2 * block, 1 + rows % 9, true);
    }
    for (const int blocks : {1, 2, 3, 7, 33, 70}) {
      Compare(rng, dtype, group_rows, blocks * block, 5, true);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(MatrixTest, EqualsReferenceForAnyBytes) {
  Rng rng(12);
  for (const DType dtype : WeightTypes()) {
    const int block = TraitsOf(dtype).block_elements;
    const int group_rows = table_.matrix[size_t(dtype)].group_rows;
    for (const int tokens : {1, 6, 16, 20}) {
      Compare(rng, dtype, group_rows, 2 * block, tokens, false);
      Compare(rng, dtype, group_rows, block, tokens, false);
    }
    if (HasFatalFailure()) return;
  }
}

// The largest integers that a block can hold: sums must stay exact.
TEST_P(MatrixTest, EqualsReferenceAtTheExtremes) {
  for (const DType dtype : WeightTypes()) {
    if (!IsQuantised(dtype)) continue;
    const cpu::MatrixKernel& kernel = table_.matrix[size_t(dtype)];
    const cpu::MatrixKernel reference = reference::MatrixKernelOf(dtype);
    const int64_t cols = 512;
    const int tokens = 18;
    for (const int fill : {0x00, 0x80, 0x7F, 0xFF, 0x0F, 0xF0, 0x55}) {
      Rng rng(13);
      const size_t row_bytes = RowBytes(dtype, cols);
      std::vector<std::byte> row(row_bytes, static_cast<std::byte>(fill));
      const size_t block = size_t(TraitsOf(dtype).block_bytes);
      for (size_t at = 0; at < row.size(); at += block) Tame(rng, dtype, &row[at]);
      for (const int sign : {-1, 1}) {
        Activations a = RandomActivations(rng, kernel.activations, tokens, cols);
        for (int8_t& q : a.q) q = int8_t(127 * sign);
        const int per_sum = kernel.activations == cpu::ActivationFormat::kQ8Block32 ? 32 : 16;
        for (int16_t& sum : a.sum) sum = int16_t(127 * sign * per_sum);
        const AlignedBytes group = Allocate(kernel.group_bytes(cols));
        kernel.pack(row.data(), 0, kernel.group_rows, cols, group.get());  // the same row 32 times
        const AlignedBytes single = Allocate(reference.group_bytes(cols));
        reference.pack(row.data(), row_bytes, 1, cols, single.get());
        std::vector<float> expected(tokens);
        reference.run(single.get(), 1, cols, nullptr, 0, &a.rows, tokens, expected.data(), 1);
        for (const cpu::MatrixRun run : {kernel.run, kernel.run_many}) {
          if (run == nullptr) continue;
          std::vector<float> y(size_t(tokens * kernel.group_rows));
          run(group.get(), kernel.group_rows, cols, nullptr, 0, &a.rows, tokens, y.data(),
              kernel.group_rows);
          for (size_t i = 0; i < y.size(); ++i) {
            ASSERT_TRUE(SameBits(expected[i / size_t(kernel.group_rows)], y[i]))
                << NameOf(dtype) << " fill " << fill;
          }
        }
      }
    }
  }
}

TEST_P(MatrixTest, FloatsOfAnyLength) {
  Rng rng(14);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t cols = 1; cols <= 70; ++cols) {
      Compare(rng, dtype, 1 + int(cols) % table_.matrix[size_t(dtype)].group_rows, cols,
              1 + int(cols) % 8, true);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows of activations that quantisers must treat alike.
std::vector<std::vector<float>> HardRows(Rng& rng, int64_t cols) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::vector<float>> rows;
  for (const float scale : {1.0f, 1e30f, 3.4e38f, 1e-30f, 1e-31f, 1e-38f, 1e-45f, 0.0f}) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (float& value : row) value = (rng.Uniform() * 2 - 1) * scale;
    rows.push_back(row);
  }
  for (const float special : {infinity, -infinity, nan, -nan, -0.0f, 0x1p-100f, 0x1.fffffep-101f}) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (float& value : row) value = special == 0x1p-100f ? 0 : rng.Uniform() - 0.5f;
    if (std::isfinite(special)) std::fill(row.begin(), row.end(), 0.0f);
    row[rng.Below(uint64_t(cols))] = special;
    rows.push_back(row);
  }
  // Halves: x * (127 / max) falls between two integers.
  std::vector<float> halves(static_cast<size_t>(cols));
  for (float& value : halves) value = float(int(rng.Below(255)) - 127) * 0.5f;
  halves[0] = 127;
  rows.push_back(halves);
  return rows;
}

TEST_P(MatrixTest, QuantisersEqualReference) {
  Rng rng(15);
  for (const int block : {32, 256}) {
    const auto quantise = block == 32 ? table_.quantise_32 : table_.quantise_256;
    const auto specified = block == 32 ? reference::Quantise32 : reference::Quantise256;
    for (const int64_t blocks : {1, 2, 3, 5, 17}) {
      const int64_t cols = blocks * block;
      const size_t scales = size_t(blocks), sums = size_t(cols / (block == 32 ? 32 : 16));
      for (const auto& row : HardRows(rng, cols)) {
        std::vector<int8_t> q(static_cast<size_t>(cols)), q_expected(q);
        std::vector<float> scale(scales), scale_expected(scales);
        std::vector<int16_t> sum(sums), sum_expected(sums);
        quantise(row.data(), cols, q.data(), scale.data(), sum.data());
        specified(row.data(), cols, q_expected.data(), scale_expected.data(), sum_expected.data());
        ASSERT_EQ(q_expected, q);
        ASSERT_EQ(sum_expected, sum);
        for (size_t i = 0; i < scales; ++i) ASSERT_TRUE(SameBits(scale_expected[i], scale[i]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachIsa, MatrixTest, testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

// The reference itself, against dequantised weights in double precision.
TEST(MatrixReferenceTest, AgreesWithDoublePrecision) {
  Rng rng(16);
  for (const DType dtype : WeightTypes()) {
    const cpu::MatrixKernel kernel = reference::MatrixKernelOf(dtype);
    const int64_t cols = 512;
    const auto weights = RandomBlocks(rng, dtype, 1, cols, true);
    const Activations a = RandomActivations(rng, kernel.activations, 1, cols);
    std::vector<float> values(static_cast<size_t>(cols));
    DequantiseRow(dtype, weights.data(), values.data(), cols);
    double exact = 0, magnitude = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      double x = a.x[i];
      if (kernel.activations == cpu::ActivationFormat::kQ8Block32) {
        x = double(a.q[i]) * double(a.scale[i / 32]);
      } else if (kernel.activations == cpu::ActivationFormat::kQ8Block256) {
        x = double(a.q[i]) * double(a.scale[i / 256]);
      }
      exact += double(values[i]) * x;
      magnitude += std::abs(double(values[i]) * x);
    }
    float y = 0;
    kernel.run(weights.data(), 1, cols, a.x.data(), cols, &a.rows, 1, &y, 1);
    EXPECT_NEAR(exact, double(y), magnitude * 1e-6) << NameOf(dtype);
  }
}

TEST(MatrixReferenceTest, NotFiniteActivationsReachTheOutput) {
  Rng rng(17);
  for (const DType dtype : WeightTypes()) {
    const cpu::MatrixKernel kernel = reference::MatrixKernelOf(dtype);
    const int64_t cols = 512;
    const auto weights = RandomBlocks(rng, dtype, 1, cols, true);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(static_cast<size_t>(cols), 1.0f);
      x[300] = bad;
      std::vector<int8_t> q(x.size());
      std::vector<float> scale(x.size());
      std::vector<int16_t> sum(x.size());
      const bool small = kernel.activations == cpu::ActivationFormat::kQ8Block32;
      (small ? reference::Quantise32 : reference::Quantise256)(x.data(), cols, q.data(),
                                                               scale.data(), sum.data());
      const cpu::QuantisedRows rows = {q.data(), scale.data(), sum.data(), 0, 0, 0};
      float y = 0;
      kernel.run(weights.data(), 1, cols, x.data(), cols, &rows, 1, &y, 1);
      EXPECT_FALSE(std::isfinite(y)) << NameOf(dtype);
    }
  }
}

// Run by ctest once per ISA with REPRISE_ISA set (label per_isa).
TEST(ForcedIsaTest, IsActive) {
  const char* isa = std::getenv("REPRISE_ISA");
  if (isa == nullptr) GTEST_SKIP() << "REPRISE_ISA is not set";
  const auto available = cpu::AvailableIsas();
  if (std::find(available.begin(), available.end(), isa) == available.end()) {
    GTEST_SKIP() << "this CPU does not support " << isa;
  }
  EXPECT_STREQ(isa, cpu::ActiveTable().matrix[size_t(DType::kQ8_0)].isa);
  int set = 0;
  for (const cpu::ActiveEntry& entry : cpu::DescribeTable(isa)) {
    EXPECT_TRUE(entry.isa == isa || entry.isa == "scalar") << entry.op << ": " << entry.isa;
    if (entry.isa == isa) ++set;
  }
  EXPECT_GT(set, 0);
}

}  // namespace
}  // namespace reprise
