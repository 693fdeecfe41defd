// SPDX-License-Identifier: Apache-2.0
// Drivers of Project and Embed: quantise the activations, divide the row groups among threads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/ops.h"

namespace reprise {
namespace {

using cpu::ActivationFormat;
using cpu::QuantisedRows;

// Activations of one pass stay in the second-level cache while every row group goes over them.
constexpr int64_t kTokenBlockBytes = 1 << 20;
// Bytes of weights that a thread takes at a time when a step has few tokens: large enough to
// stream, small enough to even out threads that lose their CPU for a while.
constexpr int64_t kUnitBytes = 64 << 10;
// Up to here, every thread quantises all activations for itself: that is quicker than a barrier.
constexpr int64_t kPrivateElements = 8192;

// Memory of one quantised copy of the activations.
struct QuantisedBuffer {
  QuantisedRows rows = {};
  int8_t* q = nullptr;
  float* scale = nullptr;
  int16_t* sum = nullptr;
};

QuantisedBuffer AllocateQuantised(ScratchArena& scratch, ActivationFormat format, int64_t tokens,
                                  int64_t cols) {
  const int64_t block = format == ActivationFormat::kQ8Block32 ? 32 : 256;
  const int64_t sum_block = format == ActivationFormat::kQ8Block32 ? 32 : 16;
  QuantisedBuffer buffer;
  // An odd number of cache lines: rows at a large power of two apart would share cache sets.
  buffer.rows.q_stride = (cols + 63) / 64 * 64 + (cols / 64 % 2 == 0 ? 64 : 0);
  buffer.rows.scale_stride = (cols / block + 15) / 16 * 16;
  buffer.rows.sum_stride = (cols / sum_block + 31) / 32 * 32;
  buffer.q = static_cast<int8_t*>(scratch.Bytes(size_t(tokens * buffer.rows.q_stride)));
  buffer.scale = scratch.Floats(size_t(tokens * buffer.rows.scale_stride));
  buffer.sum = static_cast<int16_t*>(
      scratch.Bytes(size_t(tokens * buffer.rows.sum_stride) * sizeof(int16_t)));
  buffer.rows.q = buffer.q;
  buffer.rows.scale = buffer.scale;
  buffer.rows.sum = buffer.sum;
  return buffer;
}

void QuantiseTokens(const cpu::KernelTable& table, ActivationFormat format, const Rows& x,
                    int64_t begin, int64_t end, const QuantisedBuffer& buffer) {
  const auto quantise =
      format == ActivationFormat::kQ8Block32 ? table.quantise_32 : table.quantise_256;
  for (int64_t t = begin; t < end; ++t) {
    quantise(x.row(t), x.cols, buffer.q + t * buffer.rows.q_stride,
             buffer.scale + t * buffer.rows.scale_stride, buffer.sum + t * buffer.rows.sum_stride);
  }
}

QuantisedRows AtToken(const QuantisedRows& rows, int64_t token) {
  QuantisedRows moved = rows;
  moved.q += token * rows.q_stride;
  moved.scale += token * rows.scale_stride;
  moved.sum += token * rows.sum_stride;
  return moved;
}

// One pass, divided into units: some row groups of one projection times one block of its input's
// tokens. Each thread owns a contiguous range of units and takes over others' when it is done.
class ProjectJob {
 public:
  ProjectJob(const OpContext& context, std::span<const ProjectionGroup> groups);
  void Run();

 private:
  static constexpr int kFormats = 3;

  struct Input {
    Rows x;
    std::span<const Projection> projections;
    bool needed[kFormats] = {};
    int64_t block_tokens = 0;  // tokens of a unit
    int64_t block_units = 0;   // units per block of tokens
    int64_t first_unit = 0;
    int64_t first_row = 0;  // in the rows of all inputs, one after another
  };
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };

  static Input MakeInput(const ProjectionGroup& group);
  static int64_t UnitGroups(const Matrix& weight, int64_t tokens);
  static int64_t UnitCount(const Matrix& weight, int64_t tokens);
  // The buffers [inputs][kFormats] of a thread.
  QuantisedBuffer* BuffersFor(int thread) const {
    return buffers_ + (private_ ? size_t(thread) * inputs_.size() * kFormats : 0);
  }
  void Quantise(int64_t row_begin, int64_t row_end, QuantisedBuffer* buffers) const;
  void Work(int thread);
  void RunUnit(int64_t unit, const QuantisedBuffer* buffers) const;
  void RunGroups(const Input& input, const Projection& projection, int64_t begin, int64_t end,
                 int64_t token, const QuantisedBuffer* buffers) const;

  const OpContext& context_;
  std::span<Input> inputs_;
  int64_t rows_ = 0;
  bool private_ = false;                // each thread has its own quantised copy
  QuantisedBuffer* buffers_ = nullptr;  // [copies][inputs][kFormats]
  Range* ranges_ = nullptr;             // [threads]
};

ProjectJob::ProjectJob(const OpContext& context, std::span<const ProjectionGroup> groups)
    : context_(context) {
  void* memory = context.scratch->Bytes(sizeof(Input) * groups.size());
  inputs_ = {new (memory) Input[groups.size()], groups.size()};
  int64_t units = 0;
  int64_t elements = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    Input& input = inputs_[i] = MakeInput(groups[i]);
    input.first_unit = units;
    input.first_row = rows_;
    units += input.block_units * ((input.x.rows + input.block_tokens - 1) / input.block_tokens);
    rows_ += input.x.rows;
    elements += input.x.rows * input.x.cols;
  }

  const int threads = context.pool->size();
  private_ = elements <= kPrivateElements;
  const size_t copies = private_ ? size_t(threads) : 1;
  const size_t count = copies * inputs_.size() * kFormats;
  buffers_ = new (context.scratch->Bytes(sizeof(QuantisedBuffer) * count)) QuantisedBuffer[count];
  for (size_t copy = 0; copy < copies * inputs_.size(); ++copy) {
    const Input& input = inputs_[copy % inputs_.size()];
    for (int f = 1; f < kFormats; ++f) {
      if (!input.needed[f]) continue;
      buffers_[copy * kFormats + size_t(f)] = AllocateQuantised(
          *context.scratch, static_cast<ActivationFormat>(f), input.x.rows, input.x.cols);
    }
  }
  ranges_ = static_cast<Range*>(context.scratch->Bytes(sizeof(Range) * size_t(threads)));
  for (int thread = 0; thread < threads; ++thread) {
    Range* range = new (&ranges_[thread]) Range;
    range->next.store(units * thread / threads, std::memory_order_relaxed);
    range->end = units * (thread + 1) / threads;
  }
}

ProjectJob::Input ProjectJob::MakeInput(const ProjectionGroup& group) {
  const Rows& x = group.x;
  CHECK(x.rows > 0);
  Input input;
  input.x = x;
  input.projections = group.projections;
  int64_t token_bytes = x.cols;
  for (const Projection& projection : group.projections) {
    const Matrix& weight = *projection.weight;
    CHECK(weight.cols() == x.cols && projection.out.cols == weight.rows());
    CHECK(projection.out.rows == x.rows);
    const ActivationFormat format = weight.kernel().activations;
    input.needed[static_cast<size_t>(format)] = true;
    if (format == ActivationFormat::kF32) token_bytes = 4 * x.cols;
    input.block_units += UnitCount(weight, x.rows);
  }
  input.block_tokens = std::max<int64_t>(kTokenBlockBytes / token_bytes / 32 * 32, 32);
  input.block_tokens = std::min(input.block_tokens, x.rows);
  return input;
}

int64_t ProjectJob::UnitGroups(const Matrix& weight, int64_t tokens) {
  if (tokens >= 16) return std::max(1, 32 / weight.kernel().group_rows);
  return std::max<int64_t>(1, kUnitBytes / static_cast<int64_t>(weight.group_bytes()));
}

int64_t ProjectJob::UnitCount(const Matrix& weight, int64_t tokens) {
  const int64_t groups = UnitGroups(weight, tokens);
  return (weight.group_count() + groups - 1) / groups;
}

// Rows [row_begin, row_end) of all inputs, to `buffers` [inputs][kFormats].
void ProjectJob::Quantise(int64_t row_begin, int64_t row_end, QuantisedBuffer* buffers) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    const int64_t begin = std::max<int64_t>(row_begin - input.first_row, 0);
    const int64_t end = std::min(row_end - input.first_row, input.x.rows);
    for (int f = 1; f < kFormats; ++f) {
      if (!input.needed[f] || begin >= end) continue;
      QuantiseTokens(*context_.table, static_cast<ActivationFormat>(f), input.x, begin, end,
                     buffers[i * kFormats + size_t(f)]);
    }
  }
}

void ProjectJob::Run() {
  if (!private_) {
    context_.pool->ParallelFor(
        rows_, 1, [this](int64_t begin, int64_t end) { Quantise(begin, end, buffers_); });
  }
  context_.pool->Run([this](int thread) { Work(thread); });
}

void ProjectJob::Work(int thread) {
  QuantisedBuffer* buffers = BuffersFor(thread);
  if (private_) Quantise(0, rows_, buffers);
  const int threads = context_.pool->size();
  for (int i = 0; i < threads; ++i) {
    Range& range = ranges_[(thread + i) % threads];
    for (;;) {
      const int64_t unit = range.next.fetch_add(1, std::memory_order_relaxed);
      if (unit >= range.end) break;
      RunUnit(unit, buffers);
    }
  }
}

void ProjectJob::RunUnit(int64_t unit, const QuantisedBuffer* buffers) const {
  const auto behind = std::upper_bound(
      inputs_.begin(), inputs_.end(), unit,
      [](int64_t wanted, const Input& candidate) { return wanted < candidate.first_unit; });
  const Input& input = *(behind - 1);
  buffers += size_t(&input - inputs_.data()) * kFormats;
  unit -= input.first_unit;
  const int64_t token = unit / input.block_units * input.block_tokens;
  unit %= input.block_units;
  for (const Projection& projection : input.projections) {
    const Matrix& weight = *projection.weight;
    const int64_t count = UnitCount(weight, input.x.rows);
    if (unit < count) {
      const int64_t groups = UnitGroups(weight, input.x.rows);
      const int64_t end = std::min((unit + 1) * groups, weight.group_count());
      return RunGroups(input, projection, unit * groups, end, token, buffers);
    }
    unit -= count;
  }
}

void ProjectJob::RunGroups(const Input& input, const Projection& projection, int64_t begin,
                           int64_t end, int64_t token, const QuantisedBuffer* buffers) const {
  const Matrix& weight = *projection.weight;
  const cpu::MatrixKernel& kernel = weight.kernel();
  const Rows& x = input.x;
  const int tokens = static_cast<int>(std::min(input.block_tokens, x.rows - token));
  const QuantisedRows quantised =
      AtToken(buffers[static_cast<size_t>(kernel.activations)].rows, token);
  const bool many = kernel.run_many != nullptr && tokens >= kernel.many;
  const cpu::MatrixRun run = many ? kernel.run_many : kernel.run;
  for (int64_t group = begin; group < end; ++group) {
    const int64_t row = group * kernel.group_rows;
    const int rows = static_cast<int>(std::min<int64_t>(kernel.group_rows, weight.rows() - row));
    float* y = projection.out.row(token) + row;
    run(weight.group(group), rows, x.cols, x.row(token), x.stride, &quantised, tokens, y,
        projection.out.stride);
    if (projection.bias == nullptr) continue;
    for (int t = 0; t < tokens; ++t) {
      float* out = y + t * projection.out.stride;
      for (int r = 0; r < rows; ++r) out[r] += projection.bias[row + r];
    }
  }
}

}  // namespace

void Project(const OpContext& context, const Rows& x, std::span<const Projection> projections) {
  if (x.rows == 0) return;
  const ProjectionGroup group{x, projections};
  ProjectGroups(context, std::span(&group, 1));
}

void ProjectGroups(const OpContext& context, std::span<const ProjectionGroup> groups) {
  if (groups.empty()) return;
  const ScratchScope scope(*context.scratch);
  ProjectJob(context, groups).Run();
}

void Embed(const OpContext& context, const Matrix& table, std::span<const int32_t> tokens,
           const Rows& out) {
  CHECK(out.rows == static_cast<int64_t>(tokens.size()) && out.cols == table.cols());
  context.pool->ParallelFor(out.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) table.UnpackRow(tokens[size_t(t)], out.row(t));
  });
}

}  // namespace reprise
