// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/machine_peak.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "device/buffer.h"
#include "kernels/backend.h"
#include "kernels/bench/gauges.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/matrix.h"
#include "kernels/ops.h"
#include "tensor/codec.h"

namespace reprise::cli {
namespace {

constexpr int kRepeat = 5;

double Seconds() { return double(SteadyClock().NowNs()) * 1e-9; }

// The best of several runs.
template <typename Function>
double FastestSeconds(const Function& function) {
  double best = 1e30;
  for (int i = 0; i < kRepeat; ++i) {
    const double start = Seconds();
    function();
    best = std::min(best, Seconds() - start);
  }
  return best;
}

uint64_t SumWords(const std::byte* data, size_t bytes, bool ahead) {
  constexpr size_t kLanes = 8;
  constexpr uintptr_t kAhead = 8192;
  uint64_t lanes[kLanes] = {};
  for (size_t at = 0; at + sizeof(lanes) <= bytes; at += sizeof(lanes)) {
    if (ahead) {
      const uintptr_t later = reinterpret_cast<uintptr_t>(data + at) + kAhead;
      __builtin_prefetch(reinterpret_cast<const void*>(later));
    }
    uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) lanes[i] += words[i];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

// As much as is wanted, each thread its own part or all threads side by side, plainly or asking
// ahead: the best of all.
double ReadGigabytes(const OpContext& context, size_t bytes) {
  constexpr int64_t kPage = 4096;
  auto buffer = Buffer::Allocate(bytes / kPage * kPage + kPage);
  if (!buffer.ok()) return 0;
  const int64_t pages = int64_t(buffer->size() / size_t{kPage});
  ThreadPool& threads = context.backend->host_threads();
  threads.ParallelFor(pages, 1, [&](int64_t begin, int64_t end) {
    std::memset(buffer->data() + begin * kPage, 1, size_t((end - begin) * kPage));
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (const int64_t grain : {(pages + threads.size() - 1) / threads.size(), int64_t{64}}) {
    for (const bool ahead : {false, true}) {
      const double seconds = FastestSeconds([&] {
        std::atomic<int64_t> next{0};
        threads.Run([&](int) {
          for (int64_t at = next.fetch_add(grain); at < pages; at = next.fetch_add(grain)) {
            const int64_t count = std::min(grain, pages - at);
            sink += SumWords(buffer->data() + at * kPage, size_t(count * kPage), ahead);
          }
        });
      });
      best = std::max(best, double(buffer->size()) / seconds * 1e-9);
    }
  }
  CHECK(sink != 0);
  return best;
}

// Of all threads at once, on registers; 0: this CPU has no such loop for the type.
double InstructionGigaflops(const OpContext& context, DType dtype) {
  const cpu::KernelTable& table = cpu::ActiveTable();
  const bool floats = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  if (!floats && table.byte_multiply_adds == nullptr) return 0;
  constexpr int64_t kRounds = 200'000;
  std::atomic<int64_t> done{0};
  std::atomic<float> sink{0};
  const double seconds = FastestSeconds([&] {
    done = 0;
    context.backend->host_threads().Run([&](int) {
      if (floats) {
        sink = table.multiply_adds(kRounds);
        done += 16 * 16 * kRounds;
      } else {
        done += table.byte_multiply_adds(kRounds);
      }
    });
  });
  return 2.0 * double(done) / seconds * 1e-9;
}

// Seconds of one of `times` products, the best of several runs; 0: there is no room for them. Rows
// of weights are some few, again and again.
double ProductSeconds(const OpContext& context, const MatrixShape& shape, int64_t tokens,
                      int times) {
  const int64_t cols = shape.cols, different = std::min<int64_t>(shape.rows, 64);
  const size_t row_bytes = RowBytes(shape.dtype, cols);
  std::vector<float> values(static_cast<size_t>(cols));
  std::vector<std::byte> stored(row_bytes * size_t(shape.rows));
  Rng rng(1);
  for (int64_t row = 0; row < shape.rows; ++row) {
    std::byte* const to = stored.data() + row_bytes * size_t(row);
    if (row >= different) {
      std::memcpy(to, to - row_bytes * size_t(different), row_bytes);
      continue;
    }
    for (float& value : values) value = rng.Uniform() - 0.5f;
    QuantiseRow(shape.dtype, values.data(), to, cols);
  }
  const auto matrix = Matrix::Pack(context, shape, stored.data(), row_bytes);
  if (!matrix.ok()) return 0;
  std::vector<float> values_of_x(size_t(tokens * cols));
  for (float& value : values_of_x) value = rng.Uniform() - 0.5f;
  const ScratchScope operands(*context.scratch);
  const size_t results = size_t(tokens * shape.rows);
  if (!context.scratch->Provide((values_of_x.size() + results) * 2 * sizeof(float)).ok()) return 0;
  const Rows x = {context.scratch->Floats(values_of_x.size()), tokens, cols, cols};
  const Rows y = {context.scratch->Floats(results), tokens, shape.rows, shape.rows};
  context.backend->memory().UploadArray<float>(x.data, values_of_x);
  const Projection projection[] = {{&*matrix, y}};
  const double seconds = FastestSeconds([&] {
    for (int i = 0; i < times; ++i) Project(context, x, projection);
    context.backend->memory().Synchronize();
  });
  return seconds / times;
}

double ProductGigaflops(const OpContext& context, const MatrixShape& shape, int64_t tokens) {
  const double seconds = ProductSeconds(context, shape, tokens, 4);
  return seconds > 0 ? 2e-9 * double(shape.rows * shape.cols * tokens) / seconds : 0;
}

}  // namespace

Peak ReadPeak(const OpContext& context, size_t bytes) {
  const Ceilings known = CeilingsOf(*context.backend, DType::kF32);
  if (known.read_bytes > 0) {
    const MatrixShape shape = {DType::kF16, 1, 32768, 8192};
    const double seconds = ProductSeconds(context, shape, 1, 32);
    const double read = 2e-9 * double(shape.rows * shape.cols);
    return {seconds > 0 ? read / seconds : 0, "measured here for one row with 512 MiB of weights",
            known.read_bytes * 1e-9};
  }
  return {ReadGigabytes(context, bytes), "measured here for reading as much memory"};
}

Peak ProductPeak(const OpContext& context, DType dtype) {
  const DType type = CanQuantise(dtype) ? dtype : DType::kQ8_0;
  const Ceilings known = CeilingsOf(*context.backend, dtype);
  if (known.operations > 0) {
    return {ProductGigaflops(context, {type, 1, 8192, 8192}, 4096),
            "measured here for 4,096 rows with 8,192 x 8,192 weights", known.operations * 1e-9};
  }
  const double instructions = InstructionGigaflops(context, dtype);
  if (instructions > 0) return {instructions, "measured here for the instruction on registers"};
  const int64_t rows = int64_t{256} * context.backend->host_threads().size();
  double best = 0;  // of several shapes whose operands stay in the caches
  for (const int64_t cols : {512, 1024, 2048}) {
    for (const int64_t tokens : {128, 512}) {
      best = std::max(best, ProductGigaflops(context, {type, 1, rows, cols}, tokens));
    }
  }
  return {best, "measured here for products whose operands are in the cache"};
}

}  // namespace reprise::cli
