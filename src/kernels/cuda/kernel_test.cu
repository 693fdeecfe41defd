// SPDX-License-Identifier: Apache-2.0
// A launch that does not start is never overlooked: it fails its stream by name, and nothing starts
// behind it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/launch.cuh"

namespace reprise::cuda {
namespace {

__global__ void WriteKernel(int value, int* to) {
  extern __shared__ int room[];
  if (threadIdx.x == 0) room[0] = value;
  __syncthreads();
  to[threadIdx.x] = room[0];
}

class LaunchTest : public ::testing::Test {
 protected:
  static constexpr int kThreads = 32;
  LaunchTest() : place_(std::vector<int>(kThreads, 5)) {}
  ~LaunchTest() override { (void)Launches::On(nullptr).Take(); }

  int Seen() const { return place_.Read()[0]; }

  DeviceArray<int> place_;
};

TEST_F(LaunchTest, StartsWithAsMuchSharedMemoryAsABlockMayHave) {
  for (const size_t shared : {size_t{4}, size_t{60} << 10, ThisGpu().block_shared, size_t{4}}) {
    for (const bool early : {false, true}) {
      LaunchAs({.shared = shared, .early = early}, WriteKernel, 1, kThreads, nullptr,
               int(shared) + early, place_.data());
      EXPECT_TRUE(Launches::On(nullptr).Take().ok());
      EXPECT_EQ(Seen(), int(shared) + early);
    }
  }
}

TEST_F(LaunchTest, MoreIsRefusedByNameAndNothingStartsBehindIt) {
  LaunchInTurn(WriteKernel, 1, kThreads, ThisGpu().block_shared + 4, nullptr, 6, place_.data());
  LaunchInTurn(WriteKernel, 1, kThreads, 4, nullptr, 7, place_.data());
  EXPECT_EQ(Seen(), 5);
  const Status error = Launches::On(nullptr).Take();
  EXPECT_EQ(error.code(), StatusCode::kInternal);
  EXPECT_NE(error.message().find("WriteKernel(int, int*)"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("shared memory"), std::string::npos) << error.message();
  LaunchInTurn(WriteKernel, 1, kThreads, 4, nullptr, 8, place_.data());
  EXPECT_EQ(Seen(), 8);
}

TEST_F(LaunchTest, WhatTheRuntimeRefusesIsSaidToo) {
  LaunchInTurn(WriteKernel, 1, 4096, 4, nullptr, 6, place_.data());  // threads
  EXPECT_NE(Launches::On(nullptr).Take().message().find("invalid"), std::string::npos);
  LaunchTeamsEarly(3, WriteKernel, 4, kThreads, 4, nullptr, 6, place_.data());  // 4 in threes
  EXPECT_FALSE(Launches::On(nullptr).Take().ok());
  EXPECT_EQ(Seen(), 5);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(LaunchTest, AGridWithoutBlocksIsNothingToStart) {
  LaunchInTurn(WriteKernel, dim3(0, 1), kThreads, 4, nullptr, 6, place_.data());
  LaunchInTurn(WriteKernel, dim3(1, 0), kThreads, 4, nullptr, 6, place_.data());
  EXPECT_TRUE(Launches::On(nullptr).Take().ok());
  EXPECT_EQ(Seen(), 5);
}

TEST_F(LaunchTest, ThePlantedOneFailsAndNoOther) {
  Launches::On(nullptr).FailAfter(2);
  LaunchInTurn(WriteKernel, 1, kThreads, 4, nullptr, 6, place_.data());
  LaunchInTurn(WriteKernel, 1, kThreads, 4, nullptr, 7, place_.data());
  EXPECT_EQ(Seen(), 6);
  EXPECT_FALSE(Launches::On(nullptr).Take().ok());
}

}  // namespace
}  // namespace reprise::cuda
