// SPDX-License-Identifier: Apache-2.0
// kernels_bench [isas] [types] [threads] [rows]: speed of matrix products per type and instruction
// set, beside what the machine can do. A laboratory, not a test: numbers depend on the neighbours.
//
//   decode   one token, weights streamed from memory: GB/s of weights, and of a plain read
//   prefill  512 tokens, 1024 x 2048 weights: 10^9 multiply-adds per second, and what the same
//            kernel does on data that stays in the first-level cache
//
// With "rows": few tokens, weights from memory, by the kernel of any number of tokens and by that
// of many: where one should take over from the other.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "device/raw.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/ops.h"
#include "tensor/dtype.h"

namespace reprise {
namespace {

// Seconds of the quickest of several runs.
template <typename Function>
double Quickest(double budget, const Function& function) {
  double best = 1e9;
  const double begin = ThreadSeconds();
  do {
    const double start = ThreadSeconds();
    function();
    const double seconds = ThreadSeconds() - start;
    if (seconds < best) best = seconds;
  } while (ThreadSeconds() - begin < budget);
  return best;
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    if (comma > at) parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

double StreamBandwidth(ThreadPool& pool, const Buffer& buffer) {
  const double seconds = Quickest(0.5, [&] {
    pool.ParallelFor(int64_t(buffer.size() / 64), 64, [&](int64_t begin, int64_t end) {
      uint64_t sums[8] = {};
      const uint64_t* words = reinterpret_cast<const uint64_t*>(buffer.data());
      for (int64_t i = begin; i < end; ++i) {
        for (int j = 0; j < 8; ++j) sums[j] += words[8 * i + j];
      }
      volatile uint64_t sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6];
      static_cast<void>(sink);
    });
  });
  return double(buffer.size()) / seconds / 1e9;
}

// Small random weights: bytes at random would make the scales infinite.
std::vector<std::byte> Weights(DType dtype, int64_t rows, int64_t cols) {
  Rng rng(1);
  std::vector<std::byte> bytes(size_t(rows) * RowBytes(dtype, cols));
  const std::byte mask = static_cast<std::byte>(IsQuantised(dtype) ? 0x1F : 0x3F);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.Next() | 0x10) & mask;
  return bytes;
}

struct Problem {
  Matrix matrix;
  std::vector<float> x, y;
  int64_t tokens, cols;

  Problem(const OpContext& context, DType dtype, int64_t rows, int64_t c, int64_t t)
      : tokens(t), cols(c) {
    const int64_t source_rows = rows < 256 ? rows : 256;
    const auto source = Weights(dtype, source_rows, cols);
    std::vector<std::byte> all;
    for (int64_t r = 0; r < rows; r += source_rows) {
      all.insert(all.end(), source.begin(), source.end());
    }
    auto packed = Matrix::Pack(context, {dtype, 1, rows, cols}, all.data(), RowBytes(dtype, cols));
    if (!packed.ok()) std::exit(1);
    matrix = std::move(*packed);
    Rng rng(2);
    x.resize(size_t(tokens * cols));
    y.resize(size_t(tokens * rows));
    for (float& value : x) value = rng.Uniform() - 0.5f;
  }
  void Run(const OpContext& context) {
    const Projection projection = {&matrix,
                                   {PlaceAt(y.data()), tokens, matrix.rows(), matrix.rows()}};
    Project(context, {PlaceAt<const float>(x.data()), tokens, cols, cols}, {&projection, 1});
  }
};

// One group of rows against 64 tokens: the leaf kernel alone, on data in the nearest caches.
double InCache(const cpu::KernelTable& table, const OpContext& context, DType dtype) {
  const int64_t cols = 256, tokens = 64;
  Problem small(context, dtype, 32, cols, tokens);
  const cpu::PackedSlice slice = cpu::CpuMatrixOf(small.matrix).slice(0);
  const cpu::MatrixKernel& kernel = *slice.kernel;
  const bool block32 = kernel.activations == cpu::ActivationFormat::kQ8Block32;
  std::vector<int8_t> q(size_t(tokens * cols));
  std::vector<float> scale(size_t(tokens * 16));
  std::vector<int16_t> sum(size_t(tokens * 32));
  const cpu::QuantisedRows rows = {q.data(), scale.data(), sum.data(), cols, 16, 32};
  for (int64_t t = 0; t < tokens; ++t) {
    (block32 ? table.quantise_32 : table.quantise_256)(&small.x[size_t(t * cols)], cols,
                                                       &q[size_t(t * cols)], &scale[size_t(t * 16)],
                                                       &sum[size_t(t * 32)]);
  }
  const cpu::MatrixRun run = kernel.run_many != nullptr ? kernel.run_many : kernel.run;
  const double seconds = Quickest(0.1, [&] {
    for (int i = 0; i < 100; ++i) {
      run(slice.group(0), kernel.group_rows, cols, small.x.data(), cols, &rows, int(tokens),
          small.y.data(), 32);
    }
  });
  return 100 * double(kernel.group_rows) * double(cols * tokens) / seconds / 1e9;
}

void Bench(const cpu::KernelTable& table, const OpContext& context, DType dtype, const char* isa,
           double stream) {
  const int64_t cols = 2048;
  const int64_t decode_rows = int64_t(160e6 / double(RowBytes(dtype, cols))) / 256 * 256;
  Problem decode(context, dtype, decode_rows, cols, 1);
  const double decode_seconds = Quickest(0.4, [&] { decode.Run(context); });
  const double gbs = double(decode.matrix.bytes()) / decode_seconds / 1e9;
  Problem four(context, dtype, 32768, cols, 4);
  const double four_seconds = Quickest(0.2, [&] { four.Run(context); });

  Problem prefill(context, dtype, 2048, cols, 256);
  const double prefill_seconds = Quickest(0.4, [&] { prefill.Run(context); });
  const double gmacs = 2048.0 * 256 * double(cols) / prefill_seconds / 1e9;
  const double peak = InCache(table, context, dtype);
  std::printf("%-12s %-8s %7.1f GB/s (%3.0f%%)  x4 %6.1f GB/s  %8.1f GMAC/s  (in cache %.1f)\n",
              isa, std::string(NameOf(dtype)).c_str(), gbs, 100 * gbs / stream,
              double(four.matrix.bytes()) / four_seconds / 1e9, gmacs, peak);
  std::fflush(stdout);
}

void BenchRows(cpu::KernelTable table, ThreadPool& pool, ScratchArena& scratch, DType dtype,
               const char* isa) {
  constexpr int64_t kCols = 1024;
  const int64_t rows = int64_t(96e6 / double(RowBytes(dtype, kCols))) / 256 * 256;
  cpu::MatrixKernel& kernel = table.matrix[static_cast<int>(dtype)];
  for (const int tokens : {1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 256}) {
    std::printf("%-12s %-8s %4d rows", isa, std::string(NameOf(dtype)).c_str(), tokens);
    for (const bool many : {false, true}) {
      if (many && kernel.run_many == nullptr) continue;
      kernel.many = many ? 1 : 1 << 30;
      cpu::CpuBackend backend(&pool, &table);
      const OpContext context = {&backend, &scratch};
      Problem problem(context, dtype, tokens < 64 ? rows : rows / 8, kCols, tokens);
      const double seconds = Quickest(0.1, [&] { problem.Run(context); });
      std::printf("   %s %7.1f GB/s %8.1f GMAC/s", many ? "many" : "any",
                  double(problem.matrix.bytes()) / seconds / 1e9,
                  double(problem.matrix.rows() * kCols) * tokens / seconds / 1e9);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int Main(int argc, char** argv) {
  const auto isas = argc > 1 && argv[1][0] != '\0' ? Split(argv[1]) : cpu::AvailableIsas();
  const auto types = Split(argc > 2 && argv[2][0] != '\0' ? argv[2] : "q8_0,q4_0,q4_k,q6_k,bf16");
  ThreadPool pool(argc > 3 ? std::atoi(argv[3]) : 0);
  ScratchArena scratch;
  auto buffer = Buffer::Allocate(size_t{256} << 20);
  if (!buffer.ok()) return 1;
  std::memset(buffer->data(), 1, buffer->size());
  const double stream = StreamBandwidth(pool, *buffer);
  std::printf("%d threads, plain read %.1f GB/s\n", pool.size(), stream);
  for (const std::string& type : types) {
    const auto dtype = FindDType(type);
    if (!dtype) return 1;
    for (const std::string& isa : isas) {
      std::string upto;  // with everything slower, as on a CPU that has no more
      for (const std::string& slower : cpu::AvailableIsas()) {
        upto += (upto.empty() ? "" : ",") + slower;
        if (slower == isa) break;
      }
      const auto table = cpu::BuildTable(upto);
      if (!table.ok()) return 1;
      if (argc > 4) {
        BenchRows(*table, pool, scratch, *dtype, isa.c_str());
        continue;
      }
      cpu::CpuBackend backend(&pool, &*table);
      const OpContext context = {&backend, &scratch};
      Bench(*table, context, *dtype, isa.c_str(), stream);
    }
  }
  return 0;
}

}  // namespace reprise

int main(int argc, char** argv) { return reprise::Main(argc, argv); }
