// SPDX-License-Identifier: Apache-2.0
// The device against its specification, bit by bit: the step of a tensor core, products with 16-bit
// weights, attention.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/many/forms.h"
#include "kernels/cuda/tensor/many/product_many.h"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/tensor/round.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/gpu/paged_attention.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"

namespace reprise::cuda {
namespace {

using reference::kPage;

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

void ParallelFor(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&] {
      for (int64_t n; (n = next++) < count;) body(n);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

uint16_t ToHalf(Half type, float x) { return type == Half::kF16 ? F32ToF16(x) : F32ToBF16(x); }

// --- The step ------------------------------------------------------------------------------

// D = A[64, 16] x B[8, 16]^T + C[64, 8], by mma.sync and by wgmma.
template <Half kType>
__global__ void StepKernel(const uint16_t* a, const uint16_t* b, const float* c, float* d,
                           float* w) {
  __shared__ alignas(1024) uint16_t shared[8 * 16];
  a += blockIdx.x * 1024, b += blockIdx.x * 128;
  c += blockIdx.x * 512, d += blockIdx.x * 512, w += blockIdx.x * 512;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, rows = threadIdx.x / 32 * 16;
  const auto pair = [](const uint16_t* p, int row, int k) {
    return *reinterpret_cast<const uint32_t*>(p + row * 16 + k);
  };
  const int n = threadIdx.x / 16, k = threadIdx.x % 16;
  shared[k / 8 * 64 + n * 8 + k % 8] = b[n * 16 + k];
  asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  const uint32_t fragment[4] = {pair(a, rows + g, 2 * t), pair(a, rows + g + 8, 2 * t),
                                pair(a, rows + g, 2 * t + 8), pair(a, rows + g + 8, 2 * t + 8)};
  float sum[4], wide[4];
  for (int e = 0; e < 4; ++e) sum[e] = wide[e] = c[(rows + g + e / 2 * 8) * 8 + 2 * t + e % 2];
  Mma<kType>(sum, fragment, pair(b, g, 2 * t), pair(b, g, 2 * t + 8));
  const uint64_t descriptor =
      uint64_t(SharedAddress(shared) >> 4) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  if constexpr (kType == Half::kBF16) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,1,1,1,"
        "0;"
        : "+f"(wide[0]), "+f"(wide[1]), "+f"(wide[2]), "+f"(wide[3])
        : "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]), "l"(descriptor));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,1,1,1,0;"
        : "+f"(wide[0]), "+f"(wide[1]), "+f"(wide[2]), "+f"(wide[3])
        : "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]), "l"(descriptor));
  }
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int e = 0; e < 4; ++e) {
    const int i = (rows + g + e / 2 * 8) * 8 + 2 * t + e % 2;
    d[i] = sum[e], w[i] = wide[e];
  }
}

// What inputs look like: exponents are drawn from a range, some are zero, infinite or not a number.
struct Inputs {
  const char* name;
  int a_low, a_high, b_low, b_high;  // exponents, relative to the bias of the type
  int c_low, c_high;
  double zeros;
  double odd;  // infinities and NaN
};
constexpr Inputs kInputs[] = {
    {"all finite numbers", -200, 200, -200, 200, -200, 200, 0, 0},
    {"moderate", -3, 3, -3, 3, -4, 4, 0.02, 0},
    {"one exponent: cancellation", 0, 0, 0, 0, 0, 3, 0, 0},
    {"denormal results", -70, -62, -66, -60, -130, -120, 0.2, 0},
    {"denormal inputs", -200, -120, -20, 20, -200, -100, 0.2, 0},
    {"zeros beside the largest", 100, 127, -127, -60, -120, 0, 0.6, 0},
    {"sparse", -10, 10, -10, 10, -20, 20, 0.9, 0},
    {"a large accumulator", -3, 3, -3, 3, 0, 40, 0, 0},
    {"overflow", 50, 70, 50, 70, 100, 127, 0.3, 0},
    {"infinities and NaN", -4, 4, -4, 4, 0, 5, 0.1, 0.02},
};

class StepTest : public ::testing::TestWithParam<std::tuple<Half, size_t>> {};

TEST_P(StepTest, EqualsMmaAndWgmma) {
  const Half type = std::get<0>(GetParam());
  const Inputs& inputs = kInputs[std::get<1>(GetParam())];
  constexpr int kTiles = 12'500;  // of 64 x 8: 50,000 of 16 x 8, 10^6 over all cases
  const int mantissa = type == Half::kF16 ? 10 : 7;
  const int largest = type == Half::kF16 ? 31 : 255;
  std::mt19937 random(7 + unsigned(std::get<1>(GetParam())));
  const auto chance = [&](double p) { return random() < p * 4294967296.0; };
  const auto draw = [&](int low, int high, int bits, int top) -> uint32_t {
    const uint32_t sign = random() & 1;
    const uint32_t field_width = top == 31 ? 5 : 8;
    const uint32_t shifted = sign << (bits + int(field_width));
    if (chance(inputs.zeros)) return shifted;
    if (chance(inputs.odd)) return shifted | uint32_t(top) << bits | (chance(0.3) ? 1 : 0);
    const int exponent = low + int(random() % unsigned(high - low + 1)) + top / 2;
    const uint32_t field = uint32_t(std::clamp(exponent, 0, top - 1));
    return shifted | field << bits | (random() & ((1u << bits) - 1));
  };
  std::vector<uint16_t> a(kTiles * 1024), b(kTiles * 128);
  std::vector<float> c(kTiles * 512);
  for (auto& x : a) x = uint16_t(draw(inputs.a_low, inputs.a_high, mantissa, largest));
  for (auto& x : b) x = uint16_t(draw(inputs.b_low, inputs.b_high, mantissa, largest));
  for (auto& x : c) x = std::bit_cast<float>(draw(inputs.c_low, inputs.c_high, 23, 255));
  DeviceArray<uint16_t> device_a(a), device_b(b);
  DeviceArray<float> device_c(c), mma(c.size()), wgmma(c.size());
  (type == Half::kF16 ? StepKernel<Half::kF16> : StepKernel<Half::kBF16>)<<<kTiles, 128>>>(
      device_a.data(), device_b.data(), device_c.data(), mma.data(), wgmma.data());
  const std::vector<float> by_mma = mma.Read(), by_wgmma = wgmma.Read();
  std::atomic<int64_t> different{0};
  ParallelFor(kTiles, [&](int64_t tile) {
    for (int i = 0; i < 512; ++i) {
      const size_t at = size_t(tile * 512 + i);
      const float expected = reference::TensorStep(type, &a[size_t(tile * 1024 + i / 8 * 16)],
                                                   &b[size_t(tile * 128 + i % 8 * 16)], c[at]);
      different += Bits(by_mma[at]) != Bits(expected) || Bits(by_wgmma[at]) != Bits(expected);
    }
  });
  EXPECT_EQ(different, 0) << inputs.name;
}
INSTANTIATE_TEST_SUITE_P(All, StepTest,
                         ::testing::Combine(::testing::Values(Half::kF16, Half::kBF16),
                                            ::testing::Range(size_t{0}, std::size(kInputs))));

// --- Products ------------------------------------------------------------------------------

struct ProductCase {
  int64_t rows, cols, outputs;
};
std::ostream& operator<<(std::ostream& out, const ProductCase& c) {
  return out << c.rows << "x" << c.cols << "x" << c.outputs;
}

std::vector<float> RandomFloats(size_t count, unsigned seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

using RunProducts = std::function<void(const HalfRows&, std::span<const HalfProduct>)>;

// Weights have a scale, as those of BF16 do.
void ExpectSpecification(float weight_scale, const ProductCase& shape, const RunProducts& run) {
  const int64_t stride = (shape.cols + 15) / 16 * 16;
  std::vector<float> x = RandomFloats(size_t(shape.rows * shape.cols), 1, 1);
  if (shape.rows > 2) x[size_t(2 * shape.cols + 5)] = 3e6f;  // too large for f16
  const std::vector<float> w = RandomFloats(size_t(shape.outputs * shape.cols), 2, 0.05f);
  const std::vector<float> bias = RandomFloats(size_t(shape.outputs), 3, 1);
  std::vector<uint16_t> weights(size_t(shape.outputs * stride));
  for (int64_t r = 0; r < shape.outputs; ++r) {
    for (int64_t k = 0; k < shape.cols; ++k) {
      weights[size_t(r * stride + k)] = F32ToF16(w[size_t(r * shape.cols + k)]);
    }
  }
  DeviceArray<float> device_x(x), device_bias(bias), scale(size_t(shape.rows));
  DeviceArray<uint16_t> device_w(weights), rounded(size_t(shape.rows * stride));
  DeviceArray<float> out(size_t(shape.rows * shape.outputs));
  const View view{device_x.data(), shape.rows, shape.cols, shape.cols};
  HalfRows half{rounded.data(), scale.data(), shape.rows, shape.cols, stride};
  if (MayRoundOnTheWay(view)) {
    half = RoundedOnTheWay(view);
  } else {
    RoundRows(nullptr, view, half);
  }
  // Beside two others of the same input: the first row of the matrix, whose outputs lie behind
  // those of the first half.
  DeviceArray<float> beside(size_t(shape.rows * (shape.outputs / 2 + 1)));
  const HalfProduct products[] = {
      {{device_w.data(), 1, shape.cols, stride, 2 * weight_scale},
       nullptr,
       {beside.data() + shape.outputs / 2, shape.rows, 1, shape.outputs / 2 + 1}},
      {{device_w.data(), shape.outputs / 2, shape.cols, stride, 2 * weight_scale},
       nullptr,
       {beside.data(), shape.rows, shape.outputs / 2, shape.outputs / 2 + 1}},
      {{device_w.data(), shape.outputs, shape.cols, stride, weight_scale},
       device_bias.data(),
       {out.data(), shape.rows, shape.outputs, shape.outputs}}};
  const std::span<const HalfProduct> all(products, 3);
  run(half, shape.outputs > 1 ? all : all.subspan(2, 1));
  const std::vector<float> got = out.Read();
  const std::vector<float> others = beside.Read();

  // All outputs of small shapes, a sample of large ones.
  const int64_t step = std::max<int64_t>(1, shape.rows * shape.outputs * shape.cols / 100'000'000);
  std::atomic<int64_t> different{0};
  ParallelFor(shape.rows, [&](int64_t t) {
    std::vector<uint16_t> row(static_cast<size_t>(stride));
    const float row_scale =
        reference::RoundRow({x.data() + t * shape.cols, size_t(shape.cols)}, row.data());
    for (int64_t r = t % step; r < shape.outputs; r += step) {
      const float expected =
          reference::TensorProduct(weights.data() + r * stride, row.data(), stride,
                                   row_scale * weight_scale, &bias[size_t(r)]);
      different += Bits(got[size_t(t * shape.outputs + r)]) != Bits(expected);
      if (shape.outputs == 1) continue;
      const float plain = reference::TensorProduct(weights.data() + r * stride, row.data(), stride,
                                                   row_scale * (2 * weight_scale), nullptr);
      const float* other = others.data() + t * (shape.outputs / 2 + 1);
      if (r < shape.outputs / 2) different += Bits(other[r]) != Bits(plain);
      if (r == 0) different += Bits(other[shape.outputs / 2]) != Bits(plain);
    }
  });
  EXPECT_EQ(different, 0) << shape;
}

class ProductTest : public ::testing::TestWithParam<std::tuple<float, ProductCase>> {};

TEST_P(ProductTest, EqualsSpecification) {
  const auto [weight_scale, shape] = GetParam();
  ExpectSpecification(weight_scale, shape,
                      [](const HalfRows& x, auto products) { Products(nullptr, x, products); });
}
INSTANTIATE_TEST_SUITE_P(
    All, ProductTest,
    ::testing::Combine(::testing::Values(1.0f, 0x1p-12f),
                       ::testing::Values(ProductCase{1, 16, 1}, ProductCase{1, 40, 9},
                                         ProductCase{1, 1024, 3584}, ProductCase{1, 4096, 1000},
                                         ProductCase{3, 12288, 260}, ProductCase{4, 2048, 130},
                                         ProductCase{5, 2048, 130}, ProductCase{16, 520, 100},
                                         ProductCase{17, 2048, 130}, ProductCase{33, 4608, 72},
                                         ProductCase{2, 12288, 96}, ProductCase{64, 4096, 257},
                                         ProductCase{65, 100, 65}, ProductCase{300, 1024, 200},
                                         ProductCase{129, 5000, 129}, ProductCase{200, 1100, 4000},
                                         ProductCase{300, 600, 5640}, ProductCase{600, 104, 31},
                                         ProductCase{512, 4096, 12288},
                                         ProductCase{4096, 2560, 1024})));

// As where there is no copy engine, for up to 16 rows.
TEST(FewProductsTest, EqualTheSpecification) {
  for (const ProductCase& shape : {ProductCase{3, 12288, 260}, ProductCase{5, 2048, 130},
                                   ProductCase{8, 4096, 1000}, ProductCase{16, 520, 100}}) {
    ExpectSpecification(1.0f, shape, [](const HalfRows& x, auto products) {
      RunFewProducts(nullptr, {.x = x, .products = products});
    });
  }
}

// Which tiles a product has decides how long it takes, and nothing else.
TEST(ProductFormsTest, EveryFormEqualsTheSpecification) {
  if (!ThisGpu().hopper) GTEST_SKIP() << "there are no forms to choose from";
  for (size_t form = 0; form < kProductForms.size(); ++form) {
    const Tiling& tiling = kProductForms[form].tiling;
    SCOPED_TRACE(std::to_string(tiling.tokens) + " x " + std::to_string(tiling.outputs));
    for (const ProductCase& shape :
         {ProductCase{17, 100, 31}, ProductCase{40, 1100, 300}, ProductCase{129, 520, 1000},
          ProductCase{300, 2056, 97}, ProductCase{7, 1536, 70}}) {
      ExpectSpecification(1.0f, shape, [&](const HalfRows& x, auto products) {
        ManyRowsProducts(nullptr, x, {}, products, form);
      });
    }
  }
}

// Measured on a GPU with 132 multiprocessors, each against all others.
TEST(ProductFormsTest, TheQuickestIsChosen) {
  if (ThisGpu().multiprocessors != 132) GTEST_SKIP() << "measured on another GPU";
  struct Measured {
    int64_t rows, cols, outputs;
    size_t matrices;
    int tokens_of_tile, outputs_of_tile;
  };
  for (const Measured& one :
       {Measured{4096, 4096, 12288, 1, 128, 192}, Measured{4096, 12288, 4096, 1, 128, 128},
        Measured{512, 4096, 4096, 1, 128, 128},   Measured{432, 4096, 4096, 1, 112, 128},
        Measured{400, 12288, 4096, 1, 104, 128},  Measured{384, 12288, 4096, 1, 128, 96},
        Measured{336, 4096, 8192, 1, 168, 128},   Measured{300, 4096, 8192, 1, 152, 128},
        Measured{272, 12288, 4096, 1, 136, 64},   Measured{256, 4096, 12288, 1, 128, 192},
        Measured{256, 12288, 4096, 1, 128, 64},   Measured{200, 4096, 12288, 1, 104, 192},
        Measured{200, 12288, 4096, 1, 104, 64},   Measured{160, 4096, 12288, 1, 80, 192},
        Measured{144, 4096, 8192, 1, 80, 128},    Measured{144, 12288, 4096, 1, 80, 64},
        Measured{128, 4096, 12288, 1, 128, 96},   Measured{128, 12288, 4096, 1, 64, 64},
        Measured{64, 4096, 12288, 2, 64, 96},     Measured{64, 12288, 4096, 1, 64, 32},
        Measured{16, 12288, 4096, 1, 16, 32}}) {
    const HalfProduct product = {{nullptr, one.outputs, one.cols, one.cols, 1}, nullptr, {}};
    const std::vector<HalfProduct> products(one.matrices, product);
    const Tiling& tiling = kProductForms[PlanOf(one.rows, products).form].tiling;
    EXPECT_EQ(tiling.tokens, one.tokens_of_tile)
        << one.rows << " x " << one.cols << " x " << one.outputs;
    EXPECT_EQ(tiling.outputs, one.outputs_of_tile) << one.rows << " x " << one.cols;
  }
}

// 192 tiles on 132 multiprocessors: those of the second turn are halved, so that all have one.
TEST(ProductFormsTest, AProductMayBeDivided) {
  if (ThisGpu().multiprocessors != 132) GTEST_SKIP() << "measured on another GPU";
  constexpr ProductCase kShape = {300, 4096, 12288};
  const HalfProduct product = {{nullptr, 12288, 4096, 4096, 1}, nullptr, {}};
  const ProductPlan plan = PlanOf(kShape.rows, {&product, 1});
  EXPECT_EQ(plan.outputs, 66 * 128);
  EXPECT_EQ(kProductForms[plan.form].tiling.outputs, 128);
  EXPECT_EQ(kProductForms[plan.rest].tiling.outputs, 64);
  ExpectSpecification(1.0f, kShape, [&](const HalfRows& x, auto products) {
    for (const HalfProduct& one : products) Products(nullptr, x, {&one, 1});
  });
}

TEST(ProductGroupsTest, EachGroupHasItsMatrix) {
  constexpr int64_t kCols = 768, kOutputs = 96, kRows = 40;
  constexpr int kExperts = 40, kChoices = 4;
  for (const int64_t rows : {int64_t{1}, kRows, int64_t{700}}) {
    const std::vector<float> x = RandomFloats(size_t(rows * kCols), 1, 1);
    const std::vector<float> w = RandomFloats(size_t(kExperts * kOutputs * kCols), 2, 0.05f);
    std::vector<uint16_t> weights(w.size());
    for (size_t i = 0; i < w.size(); ++i) weights[i] = F32ToF16(w[i]);
    std::mt19937 random(5);
    std::vector<std::vector<int32_t>> of(kExperts);
    for (int32_t t = 0; t < rows; ++t) {
      // The last experts get nothing, one gets a choice of every row.
      for (int c = 0; c < kChoices; ++c) of[c == 0 ? 3 : random() % (kExperts - 5)].push_back(t);
    }
    std::vector<int32_t> begin = {0}, row;
    for (const auto& list : of) {
      row.insert(row.end(), list.begin(), list.end());
      begin.push_back(int32_t(row.size()));
    }
    const int64_t slots = rows * kChoices;
    DeviceArray<float> device_x(x), scale(static_cast<size_t>(rows));
    DeviceArray<float> out(static_cast<size_t>(slots * kOutputs));
    DeviceArray<uint16_t> device_w(weights), rounded(size_t(rows * kCols));
    DeviceArray<int32_t> device_begin(begin), device_row(row);
    std::vector<float> weight_scale(kExperts);
    for (int e = 0; e < kExperts; ++e) weight_scale[size_t(e)] = std::ldexp(1.0f, e % 7 - 3);
    const DeviceArray<float> scales(weight_scale);
    const HalfRows half{rounded.data(), scale.data(), rows, kCols, kCols};
    RoundRows(nullptr, {device_x.data(), rows, kCols, kCols}, half);
    ProductGroups(
        nullptr, half, {device_w.data(), kOutputs, kCols, kCols},
        {device_begin.data(), device_row.data(), kExperts, kOutputs * kCols, scales.data()},
        nullptr, {out.data(), slots, kOutputs, kOutputs});
    const std::vector<float> got = out.Read();
    int64_t different = 0;
    for (int e = 0; e < kExperts; ++e) {
      for (int32_t s = begin[size_t(e)]; s<begin[size_t(e) + 1]; s += rows> 100 ? 7 : 1) {
        std::vector<uint16_t> rounded_row(kCols);
        const float row_scale = reference::RoundRow(
            {x.data() + row[size_t(s)] * kCols, size_t(kCols)}, rounded_row.data());
        for (int64_t r = 0; r < kOutputs; ++r) {
          const float expected = reference::TensorProduct(
              weights.data() + (e * kOutputs + r) * kCols, rounded_row.data(), kCols,
              row_scale * weight_scale[size_t(e)], nullptr);
          different += Bits(got[size_t(s * kOutputs + r)]) != Bits(expected);
        }
      }
    }
    EXPECT_EQ(different, 0) << rows;
  }
}

// --- Attention -----------------------------------------------------------------------------

struct AttentionCase {
  int q_heads, kv_heads, head_dim, value_dim, window;
  float softcap;
  bool value_in_key;
};
std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << c.q_heads << "/" << c.kv_heads << " heads of " << c.head_dim << "/" << c.value_dim
             << " window " << c.window;
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

class AttentionTest : public ::testing::TestWithParam<std::tuple<KvType, AttentionCase>> {
 protected:
  void Run(const std::vector<Piece>& pieces);
};

// Keys and values of all positions are stored by StoreKv, in steps; then the rows of a piece
// attend.
void AttentionTest::Run(const std::vector<Piece>& pieces) {
  const auto [type, shape] = GetParam();
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
  std::vector<int32_t> positions, row_sequence;
  int32_t longest = 0, next_block = 0;
  std::vector<std::vector<float>> keys, values;
  for (const Piece& piece : pieces) {
    const int total = piece.position + piece.rows;
    const int count = (total + kPage - 1) / kPage;
    longest = std::max(longest, count);
    sequences.push_back({int32_t(positions.size()), piece.rows, piece.position,
                         int32_t(blocks.size()), count, 0, 0, 0});
    for (int b = 0; b < count; ++b) blocks.push_back(uint32_t(next_block++ ^ 1));
    for (int i = 0; i < piece.rows; ++i) {
      positions.push_back(piece.position + i);
      row_sequence.push_back(int32_t(sequences.size()) - 1);
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
  DeviceArray<std::byte> workspace(AttendWorkspace(step, longest, kv, params));
  Attend(nullptr, step, longest, kv, params, {device_q.data(), rows, q_width, q_width},
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
      const int page_count = position / kPage + 1;
      if (type == KvType::kF32) {
        std::vector<float> scaled(size_t(shape.head_dim));
        for (int i = 0; i < shape.head_dim; ++i) scaled[size_t(i)] = query[i] * params.scale;
        float max = -INFINITY, sum = 0;
        std::vector<float> k(size_t(kPage * shape.head_dim)), v(size_t(kPage * shape.value_dim));
        for (int page = first / kPage; page < page_count; ++page) {
          const int from = std::max(0, first - page * kPage);
          const int end = std::min(kPage, position + 1 - page * kPage);
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
          const int end = std::min(kPage, position + 1 - page * kPage);
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
            {half, shape.head_dim, shape.value_dim, shape.value_dim, params.scale, shape.softcap},
            query, pages, expected.data());
      }
      different += std::memcmp(got.data() + row * out_width + head * shape.value_dim,
                               expected.data(), expected.size() * sizeof(float)) != 0;
    }
  });
  EXPECT_EQ(different, 0);
}

TEST_P(AttentionTest, OneRowOfOneSequence) { Run({{700, 1}}); }
TEST_P(AttentionTest, AStartingPrompt) { Run({{0, 83}}); }
TEST_P(AttentionTest, LongPromptsBehindContexts) { Run({{301, 150}, {0, 70}, {64, 64}}); }
TEST_P(AttentionTest, ManyPages) { Run({{1100, 70}}); }
TEST_P(AttentionTest, FewRowsBehindManyPages) {
  Run({{1500, 30}});
  Run({{700, 31}, {90, 20}});
}
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
                                         AttentionCase{8, 2, 128, 128, 100, 0, false},
                                         AttentionCase{6, 2, 96, 80, 0, 0, false},
                                         AttentionCase{16, 4, 256, 256, 0, 0, false},
                                         AttentionCase{4, 1, 256, 256, 0, 50, false},
                                         AttentionCase{40, 1, 576, 512, 0, 0, true})));

// Blocks have up to 64 queries of a sequence: a turn's few new tokens are few blocks, whose pages
// must be divided until there is work for the whole GPU.
TEST(PartsOfPagesTest, AreMoreWhereQueriesAreFew) {
  KvView kv;
  kv.kv_heads = 4, kv.head_dim = kv.value_dim = 256;
  AttentionView params;
  params.q_heads = 16;
  StepView step;
  const auto parts = [&](int rows, int sequences) {
    step.rows = rows, step.sequence_count = sequences;
    return PartsOfPages(step, 128, kv, params).parts;
  };
  const int all = ThisGpu().multiprocessors;
  EXPECT_GE(parts(1, 1) * 4, all);
  EXPECT_GE(parts(30, 1) * 2 * 4, all);
  EXPECT_GE(parts(30, 30) * 30 * 4, all);
  EXPECT_EQ(parts(65, 1), 1);
}

}  // namespace
}  // namespace reprise::cuda
