// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/tensor/this_core.h"

// What tests of tensor cores have in common: values, and the specification on all cores.
namespace reprise::cuda {

inline uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

// What this GPU is held to.
inline reference::TensorCore TheCore() {
  const Result<reference::TensorCore>& core = ThisTensorCore();
  CHECK(core.ok());
  return *core;
}

// Normal with a deviation; the same for the same seed.
inline std::vector<float> RandomFloats(size_t count, unsigned seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The specification takes longer than the device: body(0) .. body(count - 1), on all cores.
inline void ParallelFor(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&] {
      for (int64_t n; (n = next++) < count;) body(n);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace reprise::cuda
