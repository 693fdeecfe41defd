// SPDX-License-Identifier: Apache-2.0
// Products with packed weights against their specification, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/packed/experts.h"
#include "kernels/cuda/packed/product_packed.h"
#include "kernels/cuda/quantised/random_blocks.h"
#include "kernels/cuda/tensor/round.h"
#include "kernels/cuda/tensor/test_values.h"
#include "kernels/reference/gpu/quantised_weights.h"

namespace reprise::cuda {
namespace {

// A matrix of a type, packed on the device and in f16.
struct TestMatrix {
  PackedLayout layout;
  std::vector<uint16_t> halves;  // [rows, cols]
  DeviceArray<std::byte> packed;

  static std::vector<std::byte> Pack(const PackedLayout& layout, const std::byte* blocks) {
    std::vector<std::byte> packed(layout.bytes());
    PackWeights(layout, blocks, RowBytes(layout.dtype, layout.cols), 0, layout.rows, packed.data());
    return packed;
  }
  TestMatrix(const PackedLayout& of, const std::vector<std::byte>& blocks)
      : layout(of), halves(size_t(of.rows * of.cols)), packed(Pack(of, blocks.data())) {
    const size_t stride = RowBytes(of.dtype, of.cols);
    ParallelFor(of.rows, [&](int64_t r) {
      reference::HalfWeights(of.dtype, blocks.data() + size_t(r) * stride,
                             {halves.data() + r * of.cols, size_t(of.cols)});
    });
  }
  static TestMatrix Random(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
    Rng rng(seed);
    return {{PackedFormOf(dtype), dtype, rows, cols}, RandomBlocks(rng, dtype, rows, cols)};
  }
  HalfMatrix half() const {
    return {reinterpret_cast<const uint16_t*>(packed.data()),
            layout.rows,
            layout.cols,
            layout.padded_cols(),
            1.0f,
            layout.form};
  }
};

struct Case {
  int64_t rows, cols, outputs;
};
using Run = std::function<void(const View&, const HalfRows&, std::span<const HalfProduct>)>;

HandedSums PlacesToHandOver() {
  const auto blocks = size_t(ThisGpu().multiprocessors);
  static const DeviceArray<float> sums(blocks * HandedSums::kFloats);
  static const DeviceArray<uint32_t> hands(std::vector<uint32_t>(blocks * HandedSums::kWarps));
  return {sums.data(), hands.data()};
}

void ExpectSpecification(DType dtype, const Case& shape, const Run& run) {
  const TestMatrix first = TestMatrix::Random(dtype, shape.outputs, shape.cols, 1);
  const TestMatrix second = TestMatrix::Random(dtype, shape.outputs / 2 + 1, shape.cols, 2);
  std::vector<float> x = RandomFloats(size_t(shape.rows * shape.cols), 1, 1);
  if (shape.rows > 2) x[size_t(2 * shape.cols + 5)] = 3e6f;  // too large for f16
  const std::vector<float> bias = RandomFloats(size_t(shape.outputs), 3, 1);
  const int64_t stride = (shape.cols + 15) / 16 * 16;
  DeviceArray<float> device_x(x), device_bias(bias), scale(size_t(shape.rows));
  DeviceArray<uint16_t> rounded(size_t(shape.rows * stride));
  DeviceArray<float> out(size_t(shape.rows * shape.outputs));
  DeviceArray<float> other(size_t(shape.rows * second.layout.rows));
  const View view{device_x.data(), shape.rows, shape.cols, shape.cols};
  HalfRows half{rounded.data(), scale.data(), shape.rows, shape.cols, stride};
  half.handed = PlacesToHandOver();
  RoundRows(nullptr, view, half);
  const HalfProduct products[] = {
      {first.half(), device_bias.data(), {out.data(), shape.rows, shape.outputs, shape.outputs}},
      {second.half(), nullptr, {other.data(), shape.rows, second.layout.rows, second.layout.rows}}};
  run(view, half, products);
  const std::vector<float> got = out.Read(), got_other = other.Read();
  const int64_t step = std::max<int64_t>(1, shape.rows * shape.outputs * shape.cols / 4'000'000);
  std::atomic<int64_t> different{0};
  ParallelFor(shape.rows, [&](int64_t t) {
    std::vector<uint16_t> row(static_cast<size_t>(stride));
    const float row_scale =
        reference::RoundRow({x.data() + t * shape.cols, size_t(shape.cols)}, row.data());
    for (int64_t r = t % step; r < shape.outputs; r += step) {
      const float expected =
          reference::TensorProduct(TheCore(), first.halves.data() + r * shape.cols, row.data(),
                                   shape.cols, row_scale, &bias[size_t(r)]);
      different += Bits(got[size_t(t * shape.outputs + r)]) != Bits(expected);
      if (r >= second.layout.rows) continue;
      const float plain = reference::TensorProduct(TheCore(), second.halves.data() + r * shape.cols,
                                                   row.data(), shape.cols, row_scale, nullptr);
      different += Bits(got_other[size_t(t * second.layout.rows + r)]) != Bits(plain);
    }
  });
  EXPECT_EQ(different, 0) << NameOf(dtype) << " " << shape.rows << " x " << shape.cols << " x "
                          << shape.outputs;
}

class PackedProductTest : public ::testing::TestWithParam<DType> {
 protected:
  // So many columns, or the next number that fills blocks.
  int64_t Columns(int64_t cols) const {
    const int64_t block = TraitsOf(GetParam()).block_elements;
    return (cols + block - 1) / block * block;
  }
};

// The last shapes are more tiles than multiprocessors, and no multiple of them.
TEST_P(PackedProductTest, EqualsTheSpecification) {
  for (const Case& shape :
       {Case{1, 32, 1},       Case{1, 1056, 40},     Case{1, 4096, 1000},
        Case{2, 12288, 200},  Case{4, 2048, 130},    Case{1, 512, 100},
        Case{1, 1024, 5000},  Case{1, 3584, 1024},   Case{1, 4096, 9000},
        Case{1, 2048, 24000}, Case{1, 12288, 5000},  Case{2, 4096, 9000},
        Case{3, 4096, 6000},  Case{5, 2048, 130},    Case{8, 544, 72},
        Case{17, 2048, 130},  Case{33, 4608, 72},    Case{64, 4096, 257},
        Case{100, 96, 65},    Case{130, 1024, 200},  Case{300, 600 / 32 * 32, 1300},
        Case{700, 1024, 31},  Case{70, 1024, 20000}, Case{130, 512, 24000},
        Case{256, 512, 18000}}) {
    ExpectSpecification(GetParam(), {shape.rows, Columns(shape.cols), shape.outputs},
                        [](const View& x, const HalfRows& half, auto products) {
                          const bool few = MayRoundOnTheWay(x);
                          Products(nullptr, few ? RoundedOnTheWay(x) : half, products);
                        });
  }
}

// How a product is divided decides how long it takes, and nothing else.
TEST_P(PackedProductTest, EveryTilingEqualsTheSpecification) {
  if (!ThisGpu().wgmma) GTEST_SKIP() << "there are no tilings on this GPU";
  for (const PackedTiling& tiling :
       {PackedTiling{8, 1, 1}, PackedTiling{8, 1, 4}, PackedTiling{16, 1, 2},
        PackedTiling{16, 1, 4}, PackedTiling{32, 1, 1}, PackedTiling{32, 1, 4},
        PackedTiling{64, 1, 2}, PackedTiling{64, 2, 1}, PackedTiling{64, 2, 2},
        PackedTiling{64, 2, 4}, PackedTiling{128, 2, 1}, PackedTiling{128, 2, 2},
        PackedTiling{160, 2, 1}, PackedTiling{64, 2, 1, 4}, PackedTiling{64, 2, 1, 5},
        PackedTiling{128, 2, 1, 4}, PackedTiling{128, 2, 1, 5}, PackedTiling{160, 2, 1, 4},
        PackedTiling{160, 2, 1, 5}}) {
    if (tiling.tokens == 160 && PackedFormOf(GetParam()) == PackedForm::kSixes) continue;
    SCOPED_TRACE(std::to_string(tiling.tokens) + " / " + std::to_string(tiling.groups) + " / " +
                 std::to_string(tiling.team) + " / " + std::to_string(tiling.blocks));
    for (const Case& shape : {Case{7, 4096, 300}, Case{150, 1056, 97}, Case{20, 2592, 2000}}) {
      ExpectSpecification(GetParam(), {shape.rows, Columns(shape.cols), shape.outputs},
                          [&](const View&, const HalfRows& half, auto products) {
                            RunPackedMany(nullptr, half, products, tiling);
                          });
    }
  }
}

// Those that need nothing of a GPU but mma.sync and 99 KiB of shared memory.
TEST_P(PackedProductTest, EveryTileEqualsTheSpecification) {
  for (const PackedTile& tile : PackedTiles()) {
    SCOPED_TRACE(std::to_string(tile.tokens) + " x " + std::to_string(tile.rows) + " / " +
                 std::to_string(tile.along));
    for (const Case& shape :
         {Case{1, 32, 1}, Case{7, 4096, 300}, Case{150, 1056, 97}, Case{20, 2592, 2000},
          Case{65, 96, 65}, Case{500, 1536, 130}, Case{33, 12288, 70}}) {
      ExpectSpecification(GetParam(), {shape.rows, Columns(shape.cols), shape.outputs},
                          [&](const View&, const HalfRows& half, auto products) {
                            RunPackedTiles(nullptr, half, products, tile);
                          });
    }
  }
}

// Whatever the number of rows, those that both have are the same.
TEST_P(PackedProductTest, RowsDoNotDependOnTheirNumber) {
  constexpr int64_t kRows = 500, kOutputs = 200;
  const int64_t cols = Columns(1312);
  const TestMatrix matrix = TestMatrix::Random(GetParam(), kOutputs, cols, 1);
  DeviceArray<float> x(RandomFloats(size_t(kRows * cols), 1, 1)), scale{size_t(kRows)};
  const int64_t stride = (cols + 15) / 16 * 16;
  DeviceArray<uint16_t> rounded(size_t(kRows * stride));
  const HalfRows all{rounded.data(), scale.data(), kRows, cols, stride};
  RoundRows(nullptr, {x.data(), kRows, cols, cols}, all);
  DeviceArray<float> out{size_t(kRows * kOutputs)};
  const auto run = [&](int64_t rows, bool tiles) {
    HalfRows some = all;
    some.rows = rows;
    const HalfProduct one[] = {{matrix.half(), nullptr, {out.data(), rows, kOutputs, kOutputs}}};
    tiles ? RunPackedTiles(nullptr, some, one) : Products(nullptr, some, one);
    return out.Read();
  };
  const std::vector<float> expected = run(kRows, false);
  for (int64_t rows = 1; rows <= kRows; rows += rows < 70 ? 1 : 43) {
    for (const bool tiles : {false, true}) {
      const std::vector<float> got = run(rows, tiles);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), size_t(rows * kOutputs) * sizeof(float)),
                0)
          << rows << " rows, " << (tiles ? "tiles" : "as chosen");
    }
  }
}

// Stacks of matrices, each with some of the slots that rows of x have in common; in every tiling.
struct ExpertsCase {
  int experts;
  int64_t rows;
  int each;  // slots of a row
  int64_t cols, outputs;
};
void ExpectExperts(DType dtype, const ExpertsCase& of, std::optional<PackedTiling> tiling) {
  Rng rng(7);
  const int64_t slots = of.rows * of.each;
  std::deque<TestMatrix> stacks[2];
  std::vector<std::byte> packed[2];
  for (int m = 0; m < 2; ++m) {
    for (int e = 0; e < of.experts; ++e) {
      const PackedLayout layout = {PackedFormOf(dtype), dtype, of.outputs, of.cols};
      stacks[m].emplace_back(layout, RandomBlocks(rng, dtype, of.outputs, of.cols));
      const std::vector<std::byte> one = stacks[m].back().packed.Read();
      packed[m].insert(packed[m].end(), one.begin(), one.end());
    }
  }
  // Some experts have no slot, some many; the last slots belong to experts that no stack has.
  std::vector<int32_t> begin(size_t(of.experts) + 1), slot(size_t(slots), 0);
  for (int e = 1; e <= of.experts; ++e) begin[size_t(e)] = int32_t(rng.Below(uint64_t(slots) + 1));
  std::sort(begin.begin(), begin.end());
  for (size_t i = 0; i < slot.size(); ++i) slot[i] = int32_t(i);
  for (size_t i = slot.size(); i > 1; --i) std::swap(slot[i - 1], slot[size_t(rng.Below(i))]);
  std::vector<float> x = RandomFloats(size_t(of.rows * of.cols), 1, 1);
  if (of.rows > 2) x[size_t(2 * of.cols + 5)] = 3e6f;  // too large for f16
  const int64_t stride = (of.cols + 15) / 16 * 16;
  const DeviceArray<float> device_x(x), scale{size_t(slots)};
  const DeviceArray<uint16_t> rounded(size_t(slots * stride));
  const DeviceArray<int32_t> device_begin(begin), device_slot(slot);
  const DeviceArray<std::byte> device_packed[] = {DeviceArray<std::byte>(packed[0]),
                                                  DeviceArray<std::byte>(packed[1])};
  const std::vector<float> before(size_t(slots * of.outputs), 0.25f);
  const DeviceArray<float> out[] = {DeviceArray<float>(before), DeviceArray<float>(before)};
  const HalfRows half{rounded.data(), scale.data(), slots, of.cols, stride};
  RoundRowsToSlots(nullptr, {device_x.data(), of.rows, of.cols, of.cols},
                   {device_slot.data(), of.each}, half);
  std::vector<HalfProduct> products;
  for (int m = 0; m < 2; ++m) {
    HalfMatrix stack = stacks[m][0].half();
    stack.data = reinterpret_cast<const uint16_t*>(device_packed[m].data());
    products.push_back({stack, nullptr, {out[m].data(), slots, of.outputs, of.outputs}});
  }
  RunPackedExperts(nullptr, half, {device_begin.data(), of.experts}, products, tiling);
  const std::vector<float> got[] = {out[0].Read(), out[1].Read()};
  const int64_t step = std::max<int64_t>(1, slots * of.outputs * of.cols / 4'000'000);
  std::atomic<int64_t> different{0};
  ParallelFor(slots, [&](int64_t i) {
    const int64_t s = slot[size_t(i)];
    const int e = int(std::upper_bound(begin.begin(), begin.end(), s) - begin.begin()) - 1;
    std::vector<uint16_t> row(static_cast<size_t>(stride));
    const float row_scale =
        reference::RoundRow({x.data() + i / of.each * of.cols, size_t(of.cols)}, row.data());
    for (int m = 0; m < 2; ++m) {
      for (int64_t r = i % step; r < of.outputs; r += step) {
        const float expected =
            e >= of.experts ? 0.25f
                            : reference::TensorProduct(
                                  TheCore(), stacks[m][size_t(e)].halves.data() + r * of.cols,
                                  row.data(), of.cols, row_scale, nullptr);
        different += Bits(got[m][size_t(s * of.outputs + r)]) != Bits(expected);
      }
    }
  });
  EXPECT_EQ(different, 0) << NameOf(dtype) << ": " << of.experts << " experts, " << of.rows << " x "
                          << of.each << " slots of " << of.cols << " x " << of.outputs;
}

TEST_P(PackedProductTest, ExpertsEqualTheSpecification) {
  if (!ThisGpu().packs_stacks()) GTEST_SKIP() << "stacks are not packed on this GPU";
  for (const ExpertsCase& one :
       {ExpertsCase{1, 1, 1, 256, 16}, ExpertsCase{5, 1, 8, 1056, 70},
        ExpertsCase{130, 9, 6, 96, 70}, ExpertsCase{40, 100, 8, 544, 130},
        ExpertsCase{3, 300, 2, 2048, 97}, ExpertsCase{600, 16, 10, 256, 24}}) {
    ExpertsCase of = one;
    of.cols = Columns(one.cols);
    ExpectExperts(GetParam(), of, std::nullopt);
  }
}

TEST_P(PackedProductTest, EveryTilingOfExpertsEqualsTheSpecification) {
  if (!ThisGpu().packs_stacks()) GTEST_SKIP() << "stacks are not packed on this GPU";
  for (const PackedTiling& tiling :
       {PackedTiling{8, 1, 1}, PackedTiling{16, 1, 1}, PackedTiling{32, 1, 1},
        PackedTiling{64, 2, 1}, PackedTiling{128, 2, 1}}) {
    SCOPED_TRACE(std::to_string(tiling.tokens));
    for (const ExpertsCase& one :
         {ExpertsCase{7, 150, 2, 1280, 150}, ExpertsCase{30, 4, 3, 768, 2000}}) {
      ExpectExperts(GetParam(), one, tiling);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedProductTest,
                         ::testing::Values(DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                           DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                           DType::kIQ3_S, DType::kTQ2_0),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace reprise::cuda
