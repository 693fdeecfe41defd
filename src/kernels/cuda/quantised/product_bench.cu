// SPDX-License-Identifier: Apache-2.0
// How fast products with quantised weights are: GB/s of weights from cold for few rows, TOP/s for
// many. Arguments: names of types; none: all.
#include <cstdio>
#include <cstring>
#include <memory>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/quantised/product.h"
#include "kernels/cuda/quantised/quantise.h"
#include "kernels/cuda/quantised/random_blocks.h"

namespace reprise::cuda {
namespace {

struct Shape {
  int64_t cols;
  int64_t outputs;
};
constexpr Shape kShapes[] = {{1024, 3584}, {4096, 4096}, {4096, 12288}, {12288, 4096}};
constexpr int64_t kColdBytes = int64_t{256} << 20;  // several times the last cache

// Seconds of one call of launch(i), i = 0, 1, ..., without the cost of launching: a graph of them.
template <typename Launch>
double Seconds(int launches, const Launch& launch) {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  for (int i = 0; i < launches; ++i) launch(stream, i);
  cudaGraph_t graph;
  cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t run;
  cudaGraphInstantiate(&run, graph, 0);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e30f;
  for (int i = 0; i < 3; ++i) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(run, stream);
    cudaEventRecord(end, stream);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    float milliseconds;
    cudaEventElapsedTime(&milliseconds, begin, end);
    if (i > 0 && milliseconds < best) best = milliseconds;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(run);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return best * 1e-3 / launches;
}

void Measure(DType dtype, const Shape& shape) {
  const QuantisedLayout layout = LayoutOf(dtype, shape.outputs, shape.cols);
  Rng rng(1);
  const std::vector<std::byte> blocks = RandomBlocks(rng, dtype, 64, shape.cols);
  std::vector<std::byte> packed(layout.bytes);
  const size_t stride = RowBytes(dtype, shape.cols);
  for (int64_t row = 0; row < shape.outputs; row += 64) {
    PackRows(layout, blocks.data(), stride, row, std::min(row + 64, shape.outputs), packed.data());
  }
  PackTables(layout, packed.data());
  const int copies = static_cast<int>(kColdBytes / int64_t(layout.bytes) + 1);
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> weights;
  for (int i = 0; i < copies; ++i) {
    weights.push_back(std::make_unique<DeviceArray<std::byte>>(packed));
  }
  constexpr int64_t kRows = 4096;
  const DeviceArray<float> x(std::vector<float>(size_t(kRows * shape.cols), 0.5f));
  const DeviceArray<float> y(size_t(kRows * shape.outputs));
  const DeviceArray<int8_t> q(size_t(kRows * shape.cols));
  const DeviceArray<float> scale(size_t(kRows * shape.cols / 32));
  const DeviceArray<int16_t> sum(size_t(kRows * shape.cols / 16));
  const QuantisedView view = {q.data(), scale.data(), sum.data(), kRows, shape.cols};
  const bool block256 = TraitsOf(dtype).block_elements == 256;
  (block256 ? Quantise256 : Quantise32)(nullptr, {x.data(), kRows, shape.cols, shape.cols}, view);
  std::printf("%-8s %6d %6d ", NameOf(dtype).data(), int(shape.cols), int(shape.outputs));
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096}) {
    QuantisedView part = view;
    part.rows = rows;
    const double seconds = Seconds(rows <= 64 ? 2 * copies : 4, [&](Stream stream, int i) {
      ProductQuantised(stream, {layout, weights[size_t(i % copies)]->data()}, nullptr, part,
                       {y.data(), rows, shape.outputs, shape.outputs});
    });
    if (rows <= 64) {
      std::printf(" %6.0f", double(layout.bytes) / seconds * 1e-9);
    } else {
      std::printf(" %6.1f", 2e-12 * double(rows * shape.cols * shape.outputs) / seconds);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace reprise::cuda

int main(int count, char** names) {
  using namespace reprise;
  std::printf(
      "type       cols   rows   GB/s: 1      2      4      8     16     32     64  TOP/s: 256   "
      "1024   4096\n");
  for (const DType dtype : cuda::kQuantisedTypes) {
    bool wanted = count == 1;
    for (int i = 1; i < count; ++i) wanted |= NameOf(dtype) == names[i];
    if (!wanted) continue;
    for (const cuda::Shape& shape : cuda::kShapes) cuda::Measure(dtype, shape);
  }
}
