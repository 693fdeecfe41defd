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
#include "kernels/matrix.h"
#include "kernels/ops.h"
#include "tensor/codec.h"

namespace reprise::cli {
namespace {

// More than any last-level cache that a process is likely to have for itself.
constexpr size_t kReadBytes = size_t{1} << 30;
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

uint64_t SumWords(const std::byte* data, size_t bytes) {
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes] = {};
  for (size_t at = 0; at + sizeof(lanes) <= bytes; at += sizeof(lanes)) {
    uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) lanes[i] += words[i];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double MeasureReadGigabytes(const OpContext& context) {
  auto buffer = Buffer::Allocate(kReadBytes);
  if (!buffer.ok()) return 0;
  const int64_t pages = int64_t(kReadBytes / 4096);
  context.backend->host_threads().ParallelFor(pages, 1, [&](int64_t begin, int64_t end) {
    std::memset(buffer->data() + begin * 4096, 1, size_t(end - begin) * 4096);
  });
  std::atomic<uint64_t> sink{0};
  const double seconds = FastestSeconds([&] {
    context.backend->host_threads().ParallelFor(pages, 1, [&](int64_t begin, int64_t end) {
      sink += SumWords(buffer->data() + begin * 4096, size_t(end - begin) * 4096);
    });
  });
  CHECK(sink != 0);
  return double(kReadBytes) / seconds * 1e-9;
}

double MeasureProductGigaflops(const OpContext& context, DType dtype) {
  constexpr int64_t kCols = 1024;
  constexpr int64_t kTokens = 256;
  const int64_t rows = int64_t{256} * context.backend->host_threads().size();
  const DType type = CanQuantise(dtype) ? dtype : DType::kQ8_0;
  std::vector<float> values(kCols);
  std::vector<std::byte> stored(RowBytes(type, kCols) * size_t(rows));
  Rng rng(1);
  for (int64_t row = 0; row < rows; ++row) {
    for (float& value : values) value = rng.Uniform() - 0.5f;
    QuantiseRow(type, values.data(), stored.data() + RowBytes(type, kCols) * size_t(row), kCols);
  }
  const auto matrix =
      Matrix::Pack(context, {type, 1, rows, kCols}, stored.data(), RowBytes(type, kCols));
  if (!matrix.ok()) return 0;
  std::vector<float> values_of_x(kTokens * kCols);
  for (float& value : values_of_x) value = rng.Uniform() - 0.5f;
  const ScratchScope operands(*context.scratch);
  const Rows x = {context.scratch->Floats(values_of_x.size()), kTokens, kCols, kCols};
  const Rows y = {context.scratch->Floats(size_t(kTokens * rows)), kTokens, rows, rows};
  context.backend->memory().UploadArray<float>(x.data, values_of_x);
  const Projection projection[] = {{&*matrix, y}};
  const double seconds = FastestSeconds([&] {
    for (int i = 0; i < 4; ++i) Project(context, x, projection);
    context.backend->memory().Synchronize();
  });
  return 4 * 2.0 * double(rows) * double(kCols) * double(kTokens) / seconds * 1e-9;
}

}  // namespace reprise::cli
