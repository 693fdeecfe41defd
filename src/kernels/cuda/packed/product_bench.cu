// SPDX-License-Identifier: Apache-2.0
// How fast products with packed weights are, and whether all forms give the same bits. Arguments:
// all, tiles (those of mma.sync alone) or check (their bits), and names of types; none: all.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

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

struct Shape {
  int64_t cols, outputs;
  int matrices = 1;
};
constexpr Shape kShapes[] = {{4096, 12288, 2}, {12288, 4096},   {4096, 4096},
                             {4096, 12288},    {1024, 3584, 2}, {3584, 1024}};
constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr int64_t kRowsMost = 4096;
// The last ones, in which a few blocks share tiles, are for their bits alone.
const PackedTiling kTilings[] = {
    {8, 1, 1},     {8, 1, 2},     {8, 1, 4},      {16, 1, 1},     {16, 1, 2},     {16, 1, 4},
    {32, 1, 1},    {32, 1, 2},    {32, 1, 4},     {64, 1, 1},     {64, 1, 2},     {64, 1, 4},
    {64, 2, 1},    {64, 2, 2},    {64, 2, 4},     {128, 2, 1},    {128, 2, 2},    {160, 2, 1},
    {64, 2, 1, 4}, {64, 2, 1, 5}, {128, 2, 1, 4}, {128, 2, 1, 5}, {160, 2, 1, 4}, {160, 2, 1, 5}};

std::string NameOf(const PackedTiling& tiling) {
  return std::to_string(tiling.tokens) + "/" + std::to_string(tiling.groups) + "/" +
         std::to_string(tiling.team) + "/" + std::to_string(tiling.blocks);
}
std::string NameOf(const PackedTile& tile) {
  return std::to_string(tile.tokens) + "x" + std::to_string(tile.rows) + "/" +
         std::to_string(tile.along);
}

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
    const DeviceArray<float> sums(size_t(8) * HandedSums::kFloats);
    const DeviceArray<uint32_t> hands(std::vector<uint32_t>(size_t(8) * HandedSums::kWarps));
    rows.handed = {sums.data(), hands.data()};
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
    RunPackedTiles(nullptr, rows, {&product, 1});
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
      if (!ThisGpu().wgmma) break;
      for (const int64_t count : {1, 5, 8, 17, 64, 100, 129, 300}) {
        cudaMemset(y.data(), 0xFF, size_t(kRows * shape.outputs) * 4);
        HalfRows some = rows;
        some.rows = count;
        HalfProduct one = product;
        one.out.rows = count;
        RunPackedMany(nullptr, some, {&one, 1}, tiling);
        all += compare(NameOf(tiling).c_str(), count);
      }
    }
    for (const PackedTile& tile : PackedTiles()) {
      for (const int64_t count : {1, 5, 8, 17, 64, 100, 129, 300}) {
        cudaMemset(y.data(), 0xFF, size_t(kRows * shape.outputs) * 4);
        HalfRows some = rows;
        some.rows = count;
        HalfProduct one = product;
        one.out.rows = count;
        RunPackedTiles(nullptr, some, {&one, 1}, tile);
        all += compare(NameOf(tile).c_str(), count);
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

// Products of one shape, with weights from cold.
class Bench {
 public:
  Bench(DType dtype, const Shape& shape)
      : dtype_(dtype),
        shape_(shape),
        layout_{PackedFormOf(dtype), dtype, shape.outputs, shape.cols},
        bytes_(double(layout_.bytes()) * shape.matrices),
        copies_(int(kColdBytes / int64_t(bytes_) + 1)) {
    Rng rng(1);
    const std::vector<std::byte> blocks = RandomBlocks(rng, dtype, 16, shape.cols);
    std::vector<std::byte> packed(layout_.bytes());
    PackWeights(layout_, blocks.data(), RowBytes(dtype, shape.cols), 0, 16, packed.data());
    for (int64_t row = 16; row < shape.outputs; row += 16) {
      std::memcpy(packed.data() + row / 16 * layout_.tile_bytes(), packed.data(),
                  size_t(layout_.tile_bytes()));
    }
    for (int i = 0; i < copies_ * shape.matrices; ++i) {
      weights_.push_back(std::make_unique<DeviceArray<std::byte>>(packed));
    }
    RoundRows(nullptr, {x_.data(), kRowsMost, shape.cols, shape.cols}, all_);
  }

  void Run(bool tiles_alone) const {
    std::printf("%s %d x %d x %d\n few:", NameOf(dtype_).data(), int(shape_.cols),
                int(shape_.outputs), shape_.matrices);
    Few();
    for (const int64_t rows : {8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
      std::printf(" %4d:", int(rows));
      if (ThisGpu().wgmma) Tilings(rows, tiles_alone);
      Tiles(rows);
      std::printf("\n");
      std::fflush(stdout);
    }
  }

 private:
  std::vector<HalfProduct> Products(int i, int64_t rows) const {
    std::vector<HalfProduct> out;
    for (int m = 0; m < shape_.matrices; ++m) {
      out.push_back(
          {{reinterpret_cast<const uint16_t*>(
                weights_[size_t(i % copies_ * shape_.matrices + m)]->data()),
            shape_.outputs, shape_.cols, layout_.padded_cols(), 1, layout_.form},
           nullptr,
           {y_.data() + m * kRowsMost * shape_.outputs, rows, shape_.outputs, shape_.outputs}});
    }
    return out;
  }
  void Few() const {
    for (const int64_t rows : {1, 2, 4}) {
      for (int kind = 0; kind < 4; ++kind) {
        if (kind == 3 && shape_.matrices == 1) continue;
        if (kind == 2 && shape_.matrices == 2) continue;
        if (kind % 2 == 1 && !MayNormOnTheWay({x_.data(), rows, shape_.cols, shape_.cols}))
          continue;
        if (!MayRoundOnTheWay({x_.data(), rows, shape_.cols, shape_.cols})) continue;
        const double us = Micros(2 * copies_, [&](Stream stream, int i) {
          const std::vector<HalfProduct> some = Products(i, rows);
          FewProducts few = {.x = RoundedOnTheWay({x_.data(), rows, shape_.cols, shape_.cols}),
                             .products = some};
          if (kind == 1 || kind == 3)
            few.norm = {norm_.data(), 1e-6f, {h_.data(), rows, shape_.cols, shape_.cols}};
          if (kind == 2)
            few.op = OutputOp::kAdd, few.sum = {sum_.data(), rows, shape_.outputs, shape_.outputs};
          if (kind == 3) few.op = OutputOp::kSwiGlu;
          RunPackedFew(stream, few);
        });
        std::printf(" %d%s %.2f us %.0f GB/s;", int(rows),
                    kind == 0   ? ""
                    : kind == 1 ? " norm"
                    : kind == 2 ? " add"
                                : " norm gate",
                    us, bytes_ / us * 1e-3);
      }
    }
    std::printf("\n");
  }

  template <typename Product>
  double Time(int64_t rows, const Product& product) const {
    return Micros(rows <= 512 ? 2 * copies_ : 4, [&](Stream stream, int i) {
      HalfRows some = all_;
      some.rows = rows;
      product(stream, some, Products(i, rows));
    });
  }
  void Say(const char* what, int64_t rows, double us) const {
    std::printf(" %s %.2f us", what, us);
    if (rows <= 64) {
      std::printf(" %.0f GB/s |", bytes_ / us * 1e-3);
    } else {
      std::printf(" %.0f TF |",
                  2e-6 * double(rows * shape_.cols * shape_.outputs * shape_.matrices) / us);
    }
  }
  void Tilings(int64_t rows, bool chosen_alone) const {
    const auto time = [&](std::optional<PackedTiling> tiling, bool shared = true) {
      return Time(rows, [&](Stream stream, HalfRows some, const auto& of) {
        if (!shared) some.handed = {};
        RunPackedMany(stream, some, of, tiling);
      });
    };
    Say("chosen", rows, time(std::nullopt));
    Say("its tiles not shared", rows, time(std::nullopt, false));
    for (const PackedTiling& tiling : kTilings) {
      if (chosen_alone || tiling.blocks > 0) break;
      if (tiling.tokens > 2 * rows || tiling.tokens < std::min<int64_t>(rows, 64)) continue;
      if (rows > 512 && tiling.team > 1) continue;
      std::printf(" %d/%d/%d %.2f", tiling.tokens, tiling.groups, tiling.team, time(tiling));
      if (tiling.groups == 2 && tiling.team == 1) std::printf(" (%.2f)", time(tiling, false));
    }
  }
  void Tiles(int64_t rows) const {
    const auto time = [&](std::optional<PackedTile> tile) {
      return Time(rows, [&](Stream stream, const HalfRows& some, const auto& of) {
        RunPackedTiles(stream, some, of, tile);
      });
    };
    Say("tiles", rows, time(std::nullopt));
    for (const PackedTile& tile : PackedTiles()) {
      if (tile.tokens > 2 * rows || tile.tokens < std::min<int64_t>(rows / 2, 64)) continue;
      std::printf(" %s %.2f", NameOf(tile).c_str(), time(tile));
    }
  }

  const DType dtype_;
  const Shape shape_;
  const PackedLayout layout_;
  const double bytes_;
  const int copies_;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> weights_;
  const DeviceArray<float> x_{std::vector<float>(size_t(kRowsMost * shape_.cols), 0.5f)};
  const DeviceArray<float> norm_{std::vector<float>(size_t(shape_.cols), 1.0f)};
  const DeviceArray<float> h_{size_t(4 * shape_.cols)}, sum_{size_t(4 * shape_.outputs)};
  const DeviceArray<float> y_{size_t(kRowsMost * shape_.outputs * shape_.matrices)};
  const DeviceArray<uint16_t> half_{size_t(kRowsMost * shape_.cols)};
  const DeviceArray<float> scale_{size_t(kRowsMost)};
  const DeviceArray<float> sums_{size_t(ThisGpu().multiprocessors) * HandedSums::kFloats};
  const DeviceArray<uint32_t> hands_{
      std::vector<uint32_t>(size_t(ThisGpu().multiprocessors) * HandedSums::kWarps)};
  const HalfRows all_ = {half_.data(),
                         scale_.data(),
                         kRowsMost,
                         shape_.cols,
                         shape_.cols,
                         nullptr,
                         {sums_.data(), hands_.data()}};
};

// A stack of experts whose rows choose eight each at random: all tilings.
struct ExpertShape {
  int64_t cols, outputs;
  int matrices, experts;
};
constexpr ExpertShape kExpertShapes[] = {
    {2048, 512, 2, 256}, {512, 2048, 1, 256}, {2048, 768, 2, 128}, {768, 2048, 1, 128}};
void MeasureExperts(DType dtype, const ExpertShape& shape) {
  constexpr int kEach = 8;
  const PackedLayout layout = {PackedFormOf(dtype), dtype, shape.outputs, shape.cols};
  Rng rng(1);
  const std::vector<std::byte> blocks = RandomBlocks(rng, dtype, shape.outputs, shape.cols);
  std::vector<std::byte> one(layout.bytes());
  PackWeights(layout, blocks.data(), RowBytes(dtype, shape.cols), 0, shape.outputs, one.data());
  std::vector<std::byte> packed;
  for (int e = 0; e < shape.experts; ++e) packed.insert(packed.end(), one.begin(), one.end());
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> weights;
  for (int m = 0; m < shape.matrices; ++m) {
    weights.push_back(std::make_unique<DeviceArray<std::byte>>(packed));
  }
  const int64_t most = kRowsMost * kEach;
  const DeviceArray<float> x(std::vector<float>(size_t(most * shape.cols), 0.5f));
  const DeviceArray<float> y(size_t(most * shape.outputs * shape.matrices)), scale { size_t(most) };
  const DeviceArray<uint16_t> half(size_t(most * shape.cols));
  std::printf("experts: %s %d x %d x %d of %d\n", NameOf(dtype).data(), int(shape.cols),
              int(shape.outputs), shape.matrices, shape.experts);
  for (const int64_t rows : {1, 2, 4, 16, 64, 256, 1024, 4096}) {
    const int64_t slots = rows * kEach;
    std::vector<int32_t> begin(size_t(shape.experts) + 1, 0);
    int64_t used = 0;
    for (int64_t i = 0; i < slots; ++i) {
      const auto expert = size_t(rng.Below(uint64_t(shape.experts)));
      used += begin[expert + 1]++ == 0 ? 1 : 0;
    }
    for (int e = 0; e < shape.experts; ++e) begin[size_t(e) + 1] += begin[size_t(e)];
    const DeviceArray<int32_t> device_begin(begin);
    const HalfRows half_rows = {half.data(), scale.data(), slots, shape.cols, shape.cols};
    RoundRows(nullptr, {x.data(), slots, shape.cols, shape.cols}, half_rows);
    std::vector<HalfProduct> products;
    for (int m = 0; m < shape.matrices; ++m) {
      products.push_back(
          {{reinterpret_cast<const uint16_t*>(weights[size_t(m)]->data()), shape.outputs,
            shape.cols, layout.padded_cols(), 1, layout.form},
           nullptr,
           {y.data() + m * most * shape.outputs, slots, shape.outputs, shape.outputs}});
    }
    const auto run = [&](std::optional<PackedTiling> tiling) {
      return Micros(8, [&](Stream stream, int) {
        RunPackedExperts(stream, half_rows, {device_begin.data(), shape.experts}, products, tiling);
      });
    };
    const double chosen = run(std::nullopt);
    std::printf(" %4d (%d used): chosen %.2f us %.0f GB/s %.0f TF |", int(rows), int(used), chosen,
                double(used) * double(layout.bytes()) * shape.matrices / chosen * 1e-3,
                2e-6 * double(slots * shape.cols * shape.outputs * shape.matrices) / chosen);
    for (const PackedTiling& tiling :
         {PackedTiling{8, 1, 1}, PackedTiling{16, 1, 1}, PackedTiling{32, 1, 1},
          PackedTiling{64, 2, 1}, PackedTiling{128, 2, 1}}) {
      std::printf(" %d/%d %.2f", tiling.tokens, tiling.groups, run(tiling));
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
    const std::string what = count > 1 ? names[1] : "all";
    bool wanted = count <= 2;
    for (int i = 2; i < count; ++i) wanted |= NameOf(dtype) == names[i];
    if (!wanted) continue;
    if (what == "check") {
      cuda::Check(dtype);
    } else if (std::string(names[1]) == "experts") {
      for (const cuda::ExpertShape& shape : cuda::kExpertShapes) cuda::MeasureExperts(dtype, shape);
    } else {
      for (const cuda::Shape& shape : cuda::kShapes) cuda::Bench(dtype, shape).Run(what == "tiles");
    }
  }
}
