// SPDX-License-Identifier: Apache-2.0
// Proves that every type decodes to llama.cpp's bits and that the small blocks encode to them
// (tests/data/{quants,grids}.bin, made by tools/make_quant_fixtures.py); that the searching
// quantisers are accurate, idempotent on what they can represent, and defined for hostile values.
#include "tensor/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "tensor/blocks.h"

namespace reprise {
namespace {

struct Record {
  DType dtype;
  bool quantises;
  std::vector<char> blocks;
  std::vector<float> values;
};

void ReadRecords(const std::string& path, std::vector<Record>* records) {
  const Result<std::string> file = ReadFile(path, 1 << 20);
  CHECK(file.ok());
  const char* at = file->data();
  while (at < file->data() + file->size()) {
    uint32_t head[3];
    std::memcpy(head, at, sizeof head);
    Record record;
    record.dtype = *FindDTypeByGgufId(head[0]);
    record.quantises = head[1] == 1;
    record.blocks.resize(RowBytes(record.dtype, head[2]));
    record.values.resize(head[2]);
    std::memcpy(record.blocks.data(), at + 12, record.blocks.size());
    std::memcpy(record.values.data(), at + 12 + record.blocks.size(), 4 * record.values.size());
    at += 12 + record.blocks.size() + 4 * record.values.size();
    records->push_back(std::move(record));
  }
}

std::vector<Record> ReadFixture() {
  std::vector<Record> records;
  ReadRecords("tests/data/quants.bin", &records);
  ReadRecords("tests/data/grids.bin", &records);
  return records;
}

std::vector<char> Quantise(DType dtype, const std::vector<float>& values) {
  std::vector<char> blocks(RowBytes(dtype, int64_t(values.size())), char(0xAA));
  QuantiseRow(dtype, values.data(), blocks.data(), int64_t(values.size()));
  return blocks;
}

// From an odd address: nothing may rely on alignment.
std::vector<float> Dequantise(DType dtype, const std::vector<char>& blocks, size_t n) {
  std::vector<char> shifted(blocks.size() + 1);
  std::memcpy(shifted.data() + 1, blocks.data(), blocks.size());
  std::vector<float> values(n);
  DequantiseRow(dtype, shifted.data() + 1, values.data(), int64_t(n));
  return values;
}

std::vector<float> Gaussian(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    value = -6.0f;
    for (int i = 0; i < 12; ++i) value += rng.Uniform();
    value *= 0.03f;
  }
  return values;
}

// Error relative to the values, both as root mean squares.
double RelativeError(DType dtype, const std::vector<float>& values) {
  const std::vector<float> back = Dequantise(dtype, Quantise(dtype, values), values.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(double(values[i]) - back[i], 2);
    norm += std::pow(double(values[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST(Codec, DecodesLikeLlamaCpp) {
  std::set<DType> seen;
  for (const Record& record : ReadFixture()) {
    if (record.quantises) continue;
    SCOPED_TRACE(NameOf(record.dtype));
    const auto values = Dequantise(record.dtype, record.blocks, record.values.size());
    EXPECT_EQ(std::memcmp(values.data(), record.values.data(), 4 * values.size()), 0);
    seen.insert(record.dtype);
  }
  EXPECT_EQ(int(seen.size()), kDTypeCount - 2);  // every type but f32 and i32
}

TEST(Codec, SmallAndTernaryBlocksEncodeLikeLlamaCpp) {
  int count = 0;
  for (const Record& record : ReadFixture()) {
    if (!record.quantises) continue;
    SCOPED_TRACE(NameOf(record.dtype));
    EXPECT_EQ(Quantise(record.dtype, record.values), record.blocks);
    ++count;
  }
  EXPECT_EQ(count, 10);
}

// A point that no vector happens to name must be right, too. The sums are of gguf-py's tables.
TEST(Codec, GridsAreThoseOfTheFormat) {
  const auto digest = [](std::span<const uint16_t> grid) {
    uint64_t all = 0;
    for (const uint16_t point : grid) all = Mix64(all ^ point);
    return all;
  };
  EXPECT_EQ(digest(kIQ2Grid), 0x5754acb101b4c729u);
  EXPECT_EQ(digest(kIQ2XSGrid), 0x141a20e92fcdd5a0u);
  EXPECT_EQ(digest(kIQ2SGrid), 0xa01f58a69b5b0549u);
  EXPECT_EQ(digest(kIQ3XXSGrid), 0x4e4c543ef00ca332u);
  EXPECT_EQ(digest(kIQ3SGrid), 0xc12f18599d5196d2u);
  EXPECT_EQ(digest(kIQ1Grid), 0xc99c6e6526de1f92u);
}

TEST(Codec, ErrorsAreThoseOfTheBits) {
  const struct {
    DType dtype;
    double bound;
  } kBounds[] = {
      {DType::kF32, 0},        {DType::kF16, 2.5e-4},   {DType::kBF16, 2e-3},
      {DType::kQ8_0, 5.5e-3},  {DType::kQ6_K, 0.0175},  {DType::kQ5_K, 0.036},
      {DType::kQ5_1, 0.038},   {DType::kQ5_0, 0.043},   {DType::kQ4_K, 0.072},
      {DType::kIQ4_XS, 0.076}, {DType::kIQ4_NL, 0.075}, {DType::kQ4_1, 0.078},
      {DType::kQ4_0, 0.085},   {DType::kMXFP4, 0.13},   {DType::kQ3_K, 0.145},
      {DType::kQ2_K, 0.275},
  };
  const std::vector<float> values = Gaussian(256 * 64, 7);
  for (const auto& [dtype, bound] : kBounds) {
    const double error = RelativeError(dtype, values);
    EXPECT_LE(error, bound) << NameOf(dtype);
    RecordProperty(std::string(NameOf(dtype)), std::to_string(error));
  }
}

// One answer on every CPU begins here: the searching quantisers give these bits everywhere.
TEST(Codec, SearchesFindTheSameBitsOnEveryCpu) {
  const struct {
    DType dtype;
    uint64_t digest;
  } kDigests[] = {
      {DType::kQ2_K, 0x3c312806fb17e55a},   {DType::kQ3_K, 0x31ae770e9f2fecb1},
      {DType::kQ4_K, 0x592458f9cd5580e4},   {DType::kQ5_K, 0xd5c6aa408e44d16e},
      {DType::kQ6_K, 0x6c214a6830acc054},   {DType::kIQ4_NL, 0xea69742333a1f3e6},
      {DType::kIQ4_XS, 0xad8c9ed2f9855c98},
  };
  const std::vector<float> values = Gaussian(256 * 64, 13);
  for (const auto& [dtype, expected] : kDigests) {
    uint64_t digest = 0;
    for (const char byte : Quantise(dtype, values)) {
      digest = Mix64(digest ^ static_cast<unsigned char>(byte));
    }
    EXPECT_EQ(digest, expected) << NameOf(dtype) << std::hex << " 0x" << digest;
  }
}

// Zeros stay zeros, and no block is left partly unwritten.
TEST(Codec, Zeros) {
  const std::vector<float> zeros(512, 0.0f);
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!CanQuantise(dtype)) continue;
    for (const float value : Dequantise(dtype, Quantise(dtype, zeros), zeros.size())) {
      EXPECT_EQ(value, 0.0f) << NameOf(dtype);
    }
  }
}

TEST(Codec, AffineTypesKeepConstants) {
  for (const float constant : {-0.75f, 0.5f}) {
    const std::vector<float> values(256, constant);
    for (const DType dtype :
         {DType::kQ4_1, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ2_K}) {
      for (const float value : Dequantise(dtype, Quantise(dtype, values), 256)) {
        EXPECT_NEAR(value, constant, 2e-3f) << NameOf(dtype);
      }
    }
  }
}

// A file may hold anything. A bad value must reach the logits, where it is refused, not be lost.
TEST(Codec, NonFiniteValuesMakeTheirBlockNonFinite) {
  const float kBad[] = {INFINITY, -INFINITY, NAN};
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!CanQuantise(dtype) || !IsQuantised(dtype)) continue;
    SCOPED_TRACE(NameOf(dtype));
    const int block = TraitsOf(dtype).block_elements;
    for (const float bad : kBad) {
      std::vector<float> values = Gaussian(512, 9);
      values[5] = bad;
      const std::vector<float> back = Dequantise(dtype, Quantise(dtype, values), values.size());
      for (int e = 0; e < block; ++e) EXPECT_FALSE(std::isfinite(back[e]));
      for (int e = block; e < 512; ++e) EXPECT_TRUE(std::isfinite(back[e]));
    }
  }
}

TEST(Codec, ExtremeMagnitudesAreDefined) {
  const float kScales[] = {std::numeric_limits<float>::max(), 1e30f, 1e5f, 1e-30f,
                           std::numeric_limits<float>::denorm_min()};
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!CanQuantise(dtype)) continue;
    for (const float scale : kScales) {
      std::vector<float> values = Gaussian(512, 11);
      for (float& value : values) value = value > 0 ? scale : -scale;
      const std::vector<float> back = Dequantise(dtype, Quantise(dtype, values), values.size());
      const bool wide = dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kMXFP4;
      if (scale < 1e-20f && !wide) {
        for (const float value : back) EXPECT_EQ(std::fabs(value), 0.0f) << NameOf(dtype);
      }
    }
  }
}

TEST(Codec, EmptyRows) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (dtype != DType::kI32) DequantiseRow(dtype, nullptr, nullptr, 0);
    if (CanQuantise(dtype)) QuantiseRow(dtype, nullptr, nullptr, 0);
  }
  EXPECT_FALSE(CanQuantise(DType::kI32));
  EXPECT_FALSE(CanQuantise(DType::kIQ2_XXS));
  EXPECT_FALSE(CanQuantise(DType::kIQ1_M));
  EXPECT_TRUE(CanQuantise(DType::kTQ1_0));
}

}  // namespace
}  // namespace reprise
