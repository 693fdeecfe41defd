// SPDX-License-Identifier: Apache-2.0
// The step of a tensor core against its specification, bit by bit.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/test_values.h"
#include "kernels/reference/gpu/tensor_core.h"
#include "tensor/half.h"

namespace reprise::cuda {
namespace {

// D = A[64, 16] x B[8, 16]^T + C[64, 8], by mma.sync and by wgmma; by mma.sync twice in code for
// GPUs without it.
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
  if constexpr (kSinceHopper) asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  const uint32_t fragment[4] = {pair(a, rows + g, 2 * t), pair(a, rows + g + 8, 2 * t),
                                pair(a, rows + g, 2 * t + 8), pair(a, rows + g + 8, 2 * t + 8)};
  float sum[4], wide[4];
  for (int e = 0; e < 4; ++e) sum[e] = wide[e] = c[(rows + g + e / 2 * 8) * 8 + 2 * t + e % 2];
  Mma<kType>(sum, fragment, pair(b, g, 2 * t), pair(b, g, 2 * t + 8));
  if constexpr (kForWgmma) {
    const uint64_t descriptor =
        uint64_t(SharedAddress(shared) >> 4) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if constexpr (kType == Half::kBF16) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
          "{%0,%1,%2,%3},{%4,%5,%6,%7},%8,1,1,1,"
          "0;"
          : "+f"(wide[0]), "+f"(wide[1]), "+f"(wide[2]), "+f"(wide[3])
          : "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]),
            "l"(descriptor));
    } else {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
          "{%0,%1,%2,%3},{%4,%5,%6,%7},%8,1,1,1,0;"
          : "+f"(wide[0]), "+f"(wide[1]), "+f"(wide[2]), "+f"(wide[3])
          : "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]),
            "l"(descriptor));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  } else {
    for (int e = 0; e < 4; ++e) wide[e] = sum[e];
  }
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
  const reference::TensorCore core = TheCore();
  std::atomic<int64_t> different{0};
  ParallelFor(kTiles, [&](int64_t tile) {
    for (int i = 0; i < 512; ++i) {
      const size_t at = size_t(tile * 512 + i);
      const float expected =
          reference::TensorChain(core, type, &a[size_t(tile * 1024 + i / 8 * 16)],
                                 &b[size_t(tile * 128 + i % 8 * 16)], 16, c[at]);
      different += Bits(by_mma[at]) != Bits(expected) || Bits(by_wgmma[at]) != Bits(expected);
    }
  });
  EXPECT_EQ(different, 0) << inputs.name;
}
// What the GPU is found to compute is what is known of its kind.
TEST(ThisTensorCoreTest, IsThatOfTheComputeCapability) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(TheCore(), major < 9 ? reference::kStepsOf8 : reference::kStepsOf16);
}

INSTANTIATE_TEST_SUITE_P(All, StepTest,
                         ::testing::Combine(::testing::Values(Half::kF16, Half::kBF16),
                                            ::testing::Range(size_t{0}, std::size(kInputs))));

}  // namespace
}  // namespace reprise::cuda
