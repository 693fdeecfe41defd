// SPDX-License-Identifier: Apache-2.0
// Products with quantised weights against the specification, bit by bit: every type, both forms,
// every tile, rows of x that are no numbers, and experts.
#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/quantised/product.h"
#include "kernels/cuda/quantised/quantise.h"
#include "kernels/cuda/quantised/random_blocks.h"
#include "kernels/reference/matrix.h"

namespace reprise::cuda {
namespace {

int BlockOf(DType dtype) { return TraitsOf(dtype).block_elements; }

// Quantised rows in host and device memory: quantised by the specification and by the kernel.
class TestActivations {
 public:
  TestActivations(int block, const RowShape& shape, Rng& rng)
      : block_(block),
        x(shape, rng),
        rows_(shape.rows),
        cols_(shape.cols),
        q_(size_t(rows_ * cols_)),
        scale_(size_t(rows_ * cols_ / block)),
        sum_(size_t(rows_ * cols_ / (block == 32 ? 32 : 16))),
        device_q_(q_.size()),
        device_scale_(scale_.size()),
        device_sum_(sum_.size() + 1) {}

  void Quantise(ThreadPool& pool) {
    pool.ParallelFor(rows_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        (block_ == 32 ? reference::Quantise32 : reference::Quantise256)(
            RowOf(x.rows(), t), cols_, q_.data() + t * cols_, scale_.data() + t * (cols_ / block_),
            sum_.data() + t * sums());
      }
    });
    (block_ == 32 ? Quantise32 : Quantise256)(nullptr, x.view(), view());
  }
  int64_t sums() const { return cols_ / (block_ == 32 ? 32 : 16); }
  QuantisedView view() const {
    return {device_q_.data(), device_scale_.data(), device_sum_.data(), rows_, cols_};
  }
  cpu::QuantisedRows rows(int64_t t) const {
    return {q_.data() + t * cols_,    scale_.data() + t * (cols_ / block_),
            sum_.data() + t * sums(), cols_,
            cols_ / block_,           sums()};
  }
  void ExpectSame() const {
    EXPECT_EQ(device_q_.Read(), q_);
    std::vector<int16_t> sums = device_sum_.Read();
    sums.pop_back();
    EXPECT_EQ(sums, sum_);
    const Floats scale = device_scale_.Read();
    for (size_t i = 0; i < scale.size(); ++i) {
      if (std::isnan(scale[i]) && std::isnan(scale_[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(scale[i]), std::bit_cast<uint32_t>(scale_[i])) << i;
    }
  }

 private:
  int block_;

 public:
  DeviceRows x;

 private:
  int64_t rows_, cols_;
  std::vector<int8_t> q_;
  Floats scale_;
  std::vector<int16_t> sum_;
  DeviceArray<int8_t> device_q_;
  DeviceArray<float> device_scale_;
  DeviceArray<int16_t> device_sum_;
};

class TestMatrix {
 public:
  TestMatrix(DType dtype, int64_t rows, int64_t cols, Rng& rng)
      : dtype_(dtype), rows_(rows), cols_(cols), blocks_(RandomBlocks(rng, dtype, rows, cols)) {
    if (rows > 3) {  // one row that is no number, one infinite
      Scale(1, 0x7E00);
      Scale(3, 0x7C00);
    }
    const QuantisedLayout layout = LayoutOf(dtype, rows, cols);
    std::vector<std::byte> packed(layout.bytes);
    PackRows(layout, blocks_.data(), RowBytes(dtype, cols), 0, rows, packed.data());
    PackTables(layout, packed.data());
    device_ = std::make_unique<DeviceArray<std::byte>>(packed);
    matrix_ = {layout, device_->data()};
  }

  const QuantisedMatrix& matrix() const { return matrix_; }
  // Row r times row t of x.
  float Expected(int64_t r, const TestActivations& x, int64_t t) const {
    float y;
    const cpu::QuantisedRows rows = x.rows(t);
    reference::MatrixKernelOf(dtype_).run(blocks_.data() + r * int64_t(RowBytes(dtype_, cols_)), 1,
                                          cols_, nullptr, 0, &rows, 1, &y, 1);
    return y;
  }

 private:
  void Scale(int64_t row, uint16_t half) {
    std::memcpy(blocks_.data() + row * int64_t(RowBytes(dtype_, cols_)) + ScaleOffset(dtype_),
                &half, 2);
  }

  DType dtype_;
  int64_t rows_, cols_;
  std::vector<std::byte> blocks_;
  std::unique_ptr<DeviceArray<std::byte>> device_;
  QuantisedMatrix matrix_;
};

class QuantisedProducts : public ::testing::TestWithParam<DType> {
 protected:
  void ExpectManyAreFew(int64_t cols);

  Rng rng_{17};
  SpecifiedOps cpu_;
};

TEST_P(QuantisedProducts, EveryNumberOfRows) {
  const DType dtype = GetParam();
  const int block = BlockOf(dtype);
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {1, block}, {7, 3 * block}, {33, 1024}, {130, 2560}, {40, 12288}, {17, 16384}};
  for (const auto& [outputs, cols] : shapes) {
    const TestMatrix weight(dtype, outputs, cols, rng_);
    for (const int64_t rows : {1, 2, 3, 4, 7, 8, 9, 16, 17, 64, 65, 130}) {
      TestActivations x(block, {rows, cols, 8}, rng_);
      if (rows > 2) {
        x.x.at(2, cols - 1) = std::numeric_limits<float>::quiet_NaN();
        x.x.Upload();
      }
      x.Quantise(cpu_.pool());
      x.ExpectSame();
      DeviceRows y({rows, outputs, 3}, rng_);
      const Floats bias = Numbers(rng_, outputs);
      const DeviceArray<float> device_bias(bias);
      const bool with_bias = rows % 2 == 1;
      cpu_.pool().ParallelFor(rows * outputs, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t t = i / outputs, r = i % outputs;
          y.at(t, r) = weight.Expected(r, x, t);
          if (with_bias) y.at(t, r) += bias[size_t(r)];
        }
      });
      ProductQuantised(nullptr, weight.matrix(), with_bias ? device_bias.data() : nullptr, x.view(),
                       y.view());
      ASSERT_TRUE(y.Same()) << rows << " rows, " << outputs << " x " << cols;
    }
  }
}

// Shapes of models: all tokens at once against some of them alone, and samples against the
// specification.
void QuantisedProducts::ExpectManyAreFew(int64_t cols) {
  const DType dtype = GetParam();
  const int64_t outputs = 4100, rows = 2050;
  const TestMatrix weight(dtype, outputs, cols, rng_);
  TestActivations x(BlockOf(dtype), {rows, cols}, rng_);
  x.Quantise(cpu_.pool());
  const Floats bias = Numbers(rng_, outputs);
  const DeviceArray<float> device_bias(bias);
  const DeviceArray<float> all(size_t(rows * outputs));
  ProductQuantised(nullptr, weight.matrix(), device_bias.data(), x.view(),
                   {all.data(), rows, outputs, outputs});
  const Floats got = all.Read();
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {1, 2}, {100, 3}, {2042, 8}, {555, 14}, {3, 60}}) {
    QuantisedView part = x.view();
    part.q += begin * cols;
    part.scale += begin * (cols / BlockOf(dtype));
    part.sum += begin * x.sums();
    part.rows = count;
    const DeviceArray<float> some(size_t(count * outputs));
    ProductQuantised(nullptr, weight.matrix(), device_bias.data(), part,
                     {some.data(), count, outputs, outputs});
    const Floats alone = some.Read();
    int64_t different = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      const float same = got[size_t(begin * outputs) + i];
      if (std::isnan(alone[i]) && std::isnan(same)) continue;
      different += std::bit_cast<uint32_t>(alone[i]) != std::bit_cast<uint32_t>(same);
    }
    EXPECT_EQ(different, 0) << count << " rows from " << begin;
  }
  for (int sample = 0; sample < 2000; ++sample) {
    const int64_t t = int64_t(rng_.Below(uint64_t(rows))),
                  r = int64_t(rng_.Below(uint64_t(outputs)));
    const float expected = weight.Expected(r, x, t) + bias[size_t(r)];
    const float here = got[size_t(t * outputs + r)];
    if (std::isnan(expected) && std::isnan(here)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(expected), std::bit_cast<uint32_t>(here)) << t << ", " << r;
  }
}

TEST_P(QuantisedProducts, ManyRowsAreFewRows) { ExpectManyAreFew(4096); }

// Rows that the copy engine cannot read: the form without it.
TEST_P(QuantisedProducts, ManyOddRowsAreFewRows) {
  ExpectManyAreFew(BlockOf(GetParam()) == 32 ? 1088 : 1280);  // rows of sums are whole words
}

TEST_P(QuantisedProducts, Experts) {
  const DType dtype = GetParam();
  const int64_t outputs = 70, cols = 1024, x_rows = 40;
  for (const int experts : {1, 5, 130}) {
    const TestMatrix weight(dtype, experts * outputs, cols, rng_);
    for (const int64_t slots : {1, 8, 60, 300, 700}) {
      std::vector<int32_t> begin(size_t(experts) + 1), row(static_cast<size_t>(slots));
      for (int e = 1; e < experts; ++e) begin[size_t(e)] = int32_t(rng_.Below(uint64_t(slots) + 1));
      begin[size_t(experts)] = int32_t(slots);
      std::sort(begin.begin(), begin.end());
      for (int32_t& r : row) r = int32_t(rng_.Below(uint64_t(x_rows)));
      const DeviceArray<int32_t> device_begin(begin), device_row(row);
      const PlanView plan = {device_begin.data(), device_row.data(), nullptr, experts, slots};
      for (const bool gather : {true, false}) {
        TestActivations x(BlockOf(dtype), {gather ? x_rows : slots, cols}, rng_);
        x.Quantise(cpu_.pool());
        DeviceRows y({slots, outputs, 2}, rng_), again({slots, outputs, 2}, rng_);
        for (int e = 0; e < experts; ++e) {
          const int64_t from = begin[size_t(e)], count = begin[size_t(e) + 1] - from;
          cpu_.pool().ParallelFor(count * outputs, 1, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) {
              const int64_t s = from + i / outputs, r = i % outputs;
              y.at(s, r) = again.at(s, r) =
                  weight.Expected(e * outputs + r, x, gather ? row[size_t(s)] : s);
            }
          });
        }
        const QuantisedProduct two[] = {{weight.matrix(), nullptr, y.view()},
                                        {weight.matrix(), nullptr, again.view()}};
        ExpertsProductsQuantised(nullptr, two, plan, gather, x.view());
        ASSERT_TRUE(y.Same() && again.Same()) << experts << " experts, " << slots << " slots";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachType, QuantisedProducts, ::testing::ValuesIn(kQuantisedTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace reprise::cuda
