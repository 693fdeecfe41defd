// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/this_core.h"
#include "kernels/reference/gpu/tensor_probe.h"

namespace reprise::cuda {
namespace {

using reference::TensorCore;
using reference::TensorProbe;

// A warp is a tile: d = a b + c.
template <Half kType>
__global__ void TileKernel(const uint16_t* a, const uint16_t* b, const float* c, float* d) {
  a += int64_t{blockIdx.x} * TensorProbe::kA, b += int64_t{blockIdx.x} * TensorProbe::kB;
  c += int64_t{blockIdx.x} * TensorProbe::kC, d += int64_t{blockIdx.x} * TensorProbe::kC;
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto pair = [](const uint16_t* p, int row, int k) {
    return *reinterpret_cast<const uint32_t*>(p + row * 16 + k);
  };
  const uint32_t rows[4] = {pair(a, g, 2 * t), pair(a, g + 8, 2 * t), pair(a, g, 2 * t + 8),
                            pair(a, g + 8, 2 * t + 8)};
  const auto at = [&](int e) { return (g + e / 2 * 8) * 8 + 2 * t + e % 2; };
  float sum[4];
  for (int e = 0; e < 4; ++e) sum[e] = c[at(e)];
  Mma<kType>(sum, rows, pair(b, g, 2 * t), pair(b, g, 2 * t + 8));
  for (int e = 0; e < 4; ++e) d[at(e)] = sum[e];
}

// Memory of the device for as long as it is asked.
struct Room {
  explicit Room(size_t bytes) {
    if (cudaMalloc(&data, bytes) != cudaSuccess) data = nullptr;
  }
  ~Room() { cudaFree(data); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  void* data = nullptr;
};

// On a stream of its own: what others do at the same time does not matter.
Result<std::vector<float>> OutputsOf(const TensorProbe& probe, Half type, Stream stream) {
  const size_t a_bytes = probe.a().size() * 2, b_bytes = probe.b().size() * 2;
  const size_t c_bytes = probe.c().size() * sizeof(float);
  const Room a(a_bytes), b(b_bytes), c(c_bytes), d(c_bytes);
  std::vector<float> outputs(probe.c().size());
  bool done = a.data != nullptr && b.data != nullptr && c.data != nullptr && d.data != nullptr;
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    done = done && cudaMemcpyAsync(to, from, bytes, kind, stream) == cudaSuccess;
  };
  copy(a.data, probe.a().data(), a_bytes, cudaMemcpyHostToDevice);
  copy(b.data, probe.b().data(), b_bytes, cudaMemcpyHostToDevice);
  copy(c.data, probe.c().data(), c_bytes, cudaMemcpyHostToDevice);
  if (done) {
    LaunchInTurn(type == Half::kF16 ? TileKernel<Half::kF16> : TileKernel<Half::kBF16>,
                 unsigned{TensorProbe::kTiles}, 32, 0, stream, static_cast<const uint16_t*>(a.data),
                 static_cast<const uint16_t*>(b.data), static_cast<const float*>(c.data),
                 static_cast<float*>(d.data));
    REPRISE_TRY(Launches::On(stream).Take());
  }
  copy(outputs.data(), d.data, c_bytes, cudaMemcpyDeviceToHost);
  done = done && cudaStreamSynchronize(stream) == cudaSuccess;
  if (!done) {
    const std::string error = cudaGetErrorString(cudaGetLastError());
    return Internal("the tensor cores of the GPU could not be asked: " + error);
  }
  return outputs;
}

Result<TensorCore> Ask() {
  Stream stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    return Internal(std::string("the GPU has no stream: ") +
                    cudaGetErrorString(cudaGetLastError()));
  }
  const auto core_of = [&](Half type) -> Result<TensorCore> {
    const TensorProbe probe(type);
    REPRISE_ASSIGN(const std::vector<float> outputs, OutputsOf(probe, type, stream));
    const std::optional<TensorCore> core = probe.Judge(outputs);
    if (core) return *core;
    return FailedPrecondition(
        "the GPU's tensor cores add products in a way that this program has no specification of, "
        "so it could not promise the same answer twice: --device cpu can");
  };
  const Result<TensorCore> half = core_of(Half::kF16), brain = core_of(Half::kBF16);
  cudaStreamDestroy(stream);
  if (!half.ok()) return half;
  if (!brain.ok()) return brain;
  if (*half == *brain) return half;
  return FailedPrecondition(
      "the GPU's tensor cores add products of f16 and of bf16 in different ways, which this "
      "program "
      "does not expect: --device cpu");
}

}  // namespace

const Result<TensorCore>& ThisTensorCore() {
  static std::mutex mutex;
  static std::map<int, Result<TensorCore>> all;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard lock(mutex);
  auto found = all.find(device);
  if (found == all.end()) found = all.emplace(device, Ask()).first;
  return found->second;
}

}  // namespace reprise::cuda
