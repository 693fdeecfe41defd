// SPDX-License-Identifier: Apache-2.0
// How fast products with packed weights are, and whether all forms give the same bits. Arguments:
// names of types; none: all.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/packed/product_packed.h"
#include "kernels/cuda/quantised/random_blocks.h"
#include "kernels/cuda/tensor/round.h"
#include "kernels/cuda/tensor/test_values.h"
#include "kernels/reference/gpu/quantised_weights.h"

namespace reprise::cuda {
namespace {

struct Shape {
  int64_t cols, outputs;
  int matrices = 1;
};
constexpr Shape kShapes[] = {{4096, 12288, 2}, {12288, 4096},   {4096, 4096},
                             {4096, 12288},    {1024, 3584, 2}, {3584, 1024}};
constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr int64_t kRowsMost = 4096;
const PackedTiling kTilings[] = {
    {8, 1, 1},  {8, 1, 2},  {8, 1, 4},   {16, 1, 1},  {16, 1, 2},  {16, 1, 4},  {32, 1, 1},
    {32, 1, 2}, {32, 1, 4}, {64, 1, 1},  {64, 1, 2},  {64, 1, 4},  {64, 2, 1},  {64, 2, 2},
    {64, 2, 3}, {64, 2, 4}, {128, 2, 1}, {128, 2, 2}, {128, 2, 3}, {128, 2, 4}, {160, 2, 1}};

template <typename Launch>
double Micros(int launches, const Launch& launch) {
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
  for (int i = 0; i < 5; ++i) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(run, stream);
    cudaEventRecord(end, stream);
    if (cudaEventSynchronize(end) != cudaSuccess) {
      std::printf("error: %s\n", cudaGetErrorString(cudaGetLastError()));
      std::exit(1);
    }
    float milliseconds;
    cudaEventElapsedTime(&milliseconds, begin, end);
    if (i > 0 && milliseconds < best) best = milliseconds;
  }
  cudaGraphExecDestroy(run);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return best * 1e3 / launches;
}

void Must(const char* what) {
  const cudaError_t e = cudaDeviceSynchronize();
  if (e == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

void Check(DType dtype) {
  for (const Shape& shape :
       {Shape{4096, 400}, Shape{1056, 70}, Shape{12288, 130}, Shape{512, 16}}) {
    if (shape.cols % TraitsOf(dtype).block_elements != 0) continue;
    constexpr int64_t kRows = 300;
    const PackedLayout layout = {PackedFormOf(dtype), dtype, shape.outputs, shape.cols};
    Rng rng(1);
    const std::vector<std::byte> blocks = RandomBlocks(rng, dtype, shape.outputs, shape.cols);
    const size_t stride = RowBytes(dtype, shape.cols);
    std::vector<std::byte> packed(layout.bytes());
    PackWeights(layout, blocks.data(), stride, 0, shape.outputs, packed.data());
    const DeviceArray<std::byte> weights(packed);
    std::vector<float> x = RandomFloats(size_t(kRows * shape.cols), 1, 1);
    x[size_t(2 * shape.cols + 5)] = 3e6f;
    const int64_t half_stride = (shape.cols + 15) / 16 * 16;
    const DeviceArray<float> device_x(x), scale(kRows), y(size_t(kRows * shape.outputs));
    const DeviceArray<uint16_t> half(size_t(kRows * half_stride));
    HalfRows rows = {half.data(), scale.data(), kRows, shape.cols, half_stride};
    RoundRows(nullptr, {device_x.data(), kRows, shape.cols, shape.cols}, rows);
    HalfProduct product = {{reinterpret_cast<const uint16_t*>(weights.data()), shape.outputs,
                            shape.cols, layout.padded_cols(), 1, layout.form},
                           nullptr,
                           {y.data(), kRows, shape.outputs, shape.outputs}};
    std::vector<float> expected;
    const auto compare = [&](const char* what, int64_t count) {
      Must(what);
      std::vector<float> got(y.Read());
      int64_t different = 0;
      for (int64_t i = 0; i < count * shape.outputs; ++i) {
        different += Bits(got[size_t(i)]) != Bits(expected[size_t(i)]);
      }
      if (different > 0 || what[0] == '!') {
        std::printf("%s %s %d x %d rows %d: %lld of %lld differ\n", NameOf(dtype).data(), what,
                    int(shape.cols), int(shape.outputs), int(count), (long long)different,
                    (long long)(count * shape.outputs));
      }
      return different;
    };
    RunPackedMany(nullptr, rows, {&product, 1}, PackedTiling{64, 1, 1});
    Must("first");
    expected = y.Read();
    // Against the specification.
    std::vector<uint16_t> w(static_cast<size_t>(shape.cols)), row(static_cast<size_t>(half_stride));
    int wrong = 0, tried = 0;
    for (int64_t t = 0; t < kRows; t += 37) {
      const float row_scale =
          reference::RoundRow({x.data() + t * shape.cols, size_t(shape.cols)}, row.data());
      for (int64_t r = t % 11; r < shape.outputs; r += 11, ++tried) {
        reference::HalfWeights(dtype, blocks.data() + size_t(r) * stride, w);
        const float want = reference::TensorProduct(TheCore(), w.data(), row.data(), shape.cols,
                                                    row_scale, nullptr);
        const float got = expected[size_t(t * shape.outputs + r)];
        if (Bits(want) != Bits(got) && ++wrong < 4) {
          std::printf("  row %d output %d: %g for %g\n", int(t), int(r), got, want);
        }
      }
    }
    std::printf("%s %d x %d: %d of %d differ from the specification\n", NameOf(dtype).data(),
                int(shape.cols), int(shape.outputs), wrong, tried);
    std::fflush(stdout);
    int64_t all = 0;
    for (const PackedTiling& tiling : kTilings) {
      for (const int64_t count : {1, 5, 8, 17, 64, 100, 129, 300}) {
        cudaMemset(y.data(), 0xFF, size_t(kRows * shape.outputs) * 4);
        HalfRows some = rows;
        some.rows = count;
        HalfProduct one = product;
        one.out.rows = count;
        RunPackedMany(nullptr, some, {&one, 1}, tiling);
        const std::string what = std::to_string(tiling.tokens) + "/" +
                                 std::to_string(tiling.groups) + "/" + std::to_string(tiling.team);
        all += compare(what.c_str(), count);
      }
    }
    for (int64_t count = 1; count <= 4; ++count) {
      if (!MayRoundOnTheWay({device_x.data(), count, shape.cols, shape.cols})) continue;
      cudaMemset(y.data(), 0xFF, size_t(kRows * shape.outputs) * 4);
      HalfProduct one = product;
      one.out.rows = count;
      RunPackedFew(nullptr, {.x = RoundedOnTheWay({device_x.data(), count, shape.cols, shape.cols}),
                             .products = {&one, 1}});
      all += compare("few", count);
    }
    std::printf("  %lld differ among forms\n", (long long)all);
    std::fflush(stdout);
  }
}

void Measure(DType dtype, const Shape& shape) {
  const PackedLayout layout = {PackedFormOf(dtype), dtype, shape.outputs, shape.cols};
  Rng rng(1);
  const std::vector<std::byte> blocks = RandomBlocks(rng, dtype, 16, shape.cols);
  std::vector<std::byte> packed(layout.bytes());
  const size_t stride = RowBytes(dtype, shape.cols);
  PackWeights(layout, blocks.data(), stride, 0, 16, packed.data());
  for (int64_t row = 16; row < shape.outputs; row += 16) {
    std::memcpy(packed.data() + row / 16 * layout.tile_bytes(), packed.data(),
                size_t(layout.tile_bytes()));
  }
  const double bytes = double(layout.bytes()) * shape.matrices;
  const int copies = int(kColdBytes / int64_t(bytes) + 1);
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> weights;
  for (int i = 0; i < copies * shape.matrices; ++i) {
    weights.push_back(std::make_unique<DeviceArray<std::byte>>(packed));
  }
  const DeviceArray<float> x(std::vector<float>(size_t(kRowsMost * shape.cols), 0.5f));
  const DeviceArray<float> norm(std::vector<float>(size_t(shape.cols), 1.0f));
  const DeviceArray<float> h(size_t(4 * shape.cols)), sum(size_t(4 * shape.outputs));
  const DeviceArray<float> y(size_t(kRowsMost * shape.outputs * shape.matrices));
  const DeviceArray<uint16_t> half(size_t(kRowsMost * shape.cols));
  const DeviceArray<float> scale{size_t(kRowsMost)};
  const HalfRows all = {half.data(), scale.data(), kRowsMost, shape.cols, shape.cols};
  RoundRows(nullptr, {x.data(), kRowsMost, shape.cols, shape.cols}, all);
  const auto products = [&](int i, int64_t rows) {
    std::vector<HalfProduct> out;
    for (int m = 0; m < shape.matrices; ++m) {
      out.push_back(
          {{reinterpret_cast<const uint16_t*>(
                weights[size_t(i % copies * shape.matrices + m)]->data()),
            shape.outputs, shape.cols, layout.padded_cols(), 1, layout.form},
           nullptr,
           {y.data() + m * kRowsMost * shape.outputs, rows, shape.outputs, shape.outputs}});
    }
    return out;
  };
  std::printf("%s %d x %d x %d\n few:", NameOf(dtype).data(), int(shape.cols), int(shape.outputs),
              shape.matrices);
  for (const int64_t rows : {1, 2, 4}) {
    for (int kind = 0; kind < 4; ++kind) {
      if (kind == 3 && shape.matrices == 1) continue;
      if (kind == 2 && shape.matrices == 2) continue;
      if (kind % 2 == 1 && !MayNormOnTheWay({x.data(), rows, shape.cols, shape.cols})) continue;
      if (!MayRoundOnTheWay({x.data(), rows, shape.cols, shape.cols})) continue;
      const double us = Micros(2 * copies, [&](Stream stream, int i) {
        const std::vector<HalfProduct> some = products(i, rows);
        FewProducts few = {.x = RoundedOnTheWay({x.data(), rows, shape.cols, shape.cols}),
                           .products = some};
        if (kind == 1 || kind == 3)
          few.norm = {norm.data(), 1e-6f, {h.data(), rows, shape.cols, shape.cols}};
        if (kind == 2)
          few.op = OutputOp::kAdd, few.sum = {sum.data(), rows, shape.outputs, shape.outputs};
        if (kind == 3) few.op = OutputOp::kSwiGlu;
        RunPackedFew(stream, few);
      });
      std::printf(" %d%s %.2f us %.0f GB/s;", int(rows),
                  kind == 0   ? ""
                  : kind == 1 ? " norm"
                  : kind == 2 ? " add"
                              : " norm gate",
                  us, bytes / us * 1e-3);
    }
  }
  std::printf("\n");
  for (const int64_t rows : {8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
    std::printf(" %4d:", int(rows));
    const auto run = [&](std::optional<PackedTiling> tiling) {
      return Micros(rows <= 512 ? 2 * copies : 4, [&](Stream stream, int i) {
        HalfRows some = all;
        some.rows = rows;
        RunPackedMany(stream, some, products(i, rows), tiling);
      });
    };
    const double chosen = run(std::nullopt);
    std::printf(" chosen %.2f us", chosen);
    if (rows <= 64) {
      std::printf(" %.0f GB/s |", bytes / chosen * 1e-3);
    } else {
      std::printf(" %.0f TF |",
                  2e-6 * double(rows * shape.cols * shape.outputs * shape.matrices) / chosen);
    }
    for (const PackedTiling& tiling : kTilings) {
      if (tiling.tokens > 2 * rows || tiling.tokens < std::min<int64_t>(rows, 64)) continue;
      if (rows > 512 && tiling.team > 1) continue;
      std::printf(" %d/%d/%d %.2f", tiling.tokens, tiling.groups, tiling.team, run(tiling));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace reprise::cuda

int main(int count, char** names) {
  using namespace reprise;
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    bool wanted = count == 2;
    for (int i = 2; i < count; ++i) wanted |= NameOf(dtype) == names[i];
    if (!wanted) continue;
    if (std::string(names[1]) == "check") {
      cuda::Check(dtype);
    } else {
      for (const cuda::Shape& shape : cuda::kShapes) cuda::Measure(dtype, shape);
    }
  }
}
