// SPDX-License-Identifier: Apache-2.0
// Drivers of products and of Embed: quantise the activations, divide the row groups among threads.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/products/product_order.h"
#include "kernels/cpu/scratch_span.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/raw_rows.h"

namespace reprise::cpu {
namespace {

// One matrix times one input; a product of the front may be many of these.
struct Product {
  PackedSlice weight;
  Rows out;
  const float* bias = nullptr;  // [weight rows] or null
};
// REQUIRES: x has rows.
struct ProductGroup {
  ConstRows x;
  std::span<const Product> products;
};

// Activations of one pass stay in the second-level cache while every row group goes over them.
constexpr int64_t kTokenBlockBytes = 1 << 20;
// Bytes of weights that a thread takes at a time when a step has few tokens: large enough to
// stream, small enough to even out threads that lose their CPU for a while.
constexpr int64_t kUnitBytes = 64 << 10;
// Steps of so many tokens read their weights from memory: what comes next is asked for ahead.
constexpr int64_t kStreamedTokens = 32;
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
  buffer.q = MakeSpan<int8_t>(scratch, size_t(tokens * buffer.rows.q_stride)).data();
  buffer.scale = MakeSpan<float>(scratch, size_t(tokens * buffer.rows.scale_stride)).data();
  buffer.sum = MakeSpan<int16_t>(scratch, size_t(tokens * buffer.rows.sum_stride)).data();
  buffer.rows.q = buffer.q;
  buffer.rows.scale = buffer.scale;
  buffer.rows.sum = buffer.sum;
  return buffer;
}

void QuantiseTokens(const KernelTable& table, ActivationFormat format, const ConstRows& x,
                    int64_t begin, int64_t end, const QuantisedBuffer& buffer) {
  const auto quantise =
      format == ActivationFormat::kQ8Block32 ? table.quantise_32 : table.quantise_256;
  for (int64_t t = begin; t < end; ++t) {
    quantise(RowOf(x, t), x.cols, buffer.q + t * buffer.rows.q_stride,
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
  ProjectJob(ThreadPool& pool, const KernelTable& table, ScratchArena& scratch,
             std::span<const ProductGroup> groups);
  // Where it may be that weights come from memory, `order` has the threads ask ahead; or null.
  void Run(ProductOrder* order);

 private:
  static constexpr int kFormats = 3;

  struct Input {
    ConstRows x;
    std::span<const Product> products;
    bool needed[kFormats] = {};
    int64_t block_tokens = 0;  // tokens of a unit
    int64_t block_units = 0;   // units per block of tokens
    int64_t first_unit = 0;
    int64_t first_row = 0;  // in the rows of all inputs, one after another
  };
  // Some row groups of a product.
  struct Unit {
    const Input* input = nullptr;
    const Product* product = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t token = 0;  // the first of its block
  };

  static Input MakeInput(const ProductGroup& group);
  static int64_t UnitGroups(const PackedSlice& weight, int64_t tokens);
  static int64_t UnitCount(const PackedSlice& weight, int64_t tokens);
  // The buffers [inputs][kFormats] of a thread.
  QuantisedBuffer* BuffersFor(int thread) const {
    return buffers_.data() + (private_ ? size_t(thread) * inputs_.size() * kFormats : 0);
  }
  void Quantise(int64_t row_begin, int64_t row_end, QuantisedBuffer* buffers) const;
  void Work(int thread);
  void NoteOrder(ProductOrder* order) const;
  Unit UnitAt(int64_t unit) const;
  void RunUnit(const Unit& unit, const QuantisedBuffer* buffers) const;

  ThreadPool& pool_;
  const KernelTable& table_;
  const std::span<Input> inputs_;
  int64_t rows_ = 0;
  int64_t units_ = 0;
  bool private_ = false;                // each thread has its own quantised copy
  std::span<QuantisedBuffer> buffers_;  // [copies][inputs][kFormats]
  std::span<const std::byte*> starts_;  // [threads], room for what each thread reads first
  TaskRanges ranges_;                   // of units
};

ProjectJob::ProjectJob(ThreadPool& pool, const KernelTable& table, ScratchArena& scratch,
                       std::span<const ProductGroup> groups)
    : pool_(pool), table_(table), inputs_(MakeSpan<Input>(scratch, groups.size())) {
  int64_t elements = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    Input& input = inputs_[i] = MakeInput(groups[i]);
    input.first_unit = units_;
    input.first_row = rows_;
    units_ += input.block_units * ((input.x.rows + input.block_tokens - 1) / input.block_tokens);
    rows_ += input.x.rows;
    elements += input.x.rows * input.x.cols;
  }

  const int threads = pool.size();
  private_ = elements <= kPrivateElements;
  const size_t copies = private_ ? size_t(threads) : 1;
  buffers_ = MakeSpan<QuantisedBuffer>(scratch, copies * inputs_.size() * kFormats);
  for (size_t copy = 0; copy < copies * inputs_.size(); ++copy) {
    const Input& input = inputs_[copy % inputs_.size()];
    for (int f = 1; f < kFormats; ++f) {
      if (!input.needed[f]) continue;
      buffers_[copy * kFormats + size_t(f)] =
          AllocateQuantised(scratch, static_cast<ActivationFormat>(f), input.x.rows, input.x.cols);
    }
  }
  ranges_ = TaskRanges(MakeSpan<TaskRanges::Range>(scratch, size_t(threads)), units_);
  starts_ = MakeSpan<const std::byte*>(scratch, size_t(threads));
}

ProjectJob::Input ProjectJob::MakeInput(const ProductGroup& group) {
  const ConstRows& x = group.x;
  Input input;
  input.x = x;
  input.products = group.products;
  int64_t token_bytes = x.cols;
  for (const Product& product : group.products) {
    const PackedSlice& weight = product.weight;
    const ActivationFormat format = weight.kernel->activations;
    input.needed[static_cast<size_t>(format)] = true;
    if (format == ActivationFormat::kF32) token_bytes = 4 * x.cols;
    input.block_units += UnitCount(weight, x.rows);
  }
  input.block_tokens = std::max<int64_t>(kTokenBlockBytes / token_bytes / 32 * 32, 32);
  input.block_tokens = std::min(input.block_tokens, x.rows);
  return input;
}

int64_t ProjectJob::UnitGroups(const PackedSlice& weight, int64_t tokens) {
  if (tokens >= 16) return std::max(1, 32 / weight.kernel->group_rows);
  return std::max<int64_t>(1, kUnitBytes / static_cast<int64_t>(weight.group_bytes));
}

int64_t ProjectJob::UnitCount(const PackedSlice& weight, int64_t tokens) {
  const int64_t groups = UnitGroups(weight, tokens);
  return (weight.group_count + groups - 1) / groups;
}

// Rows [row_begin, row_end) of all inputs, to `buffers` [inputs][kFormats].
void ProjectJob::Quantise(int64_t row_begin, int64_t row_end, QuantisedBuffer* buffers) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    const int64_t begin = std::max<int64_t>(row_begin - input.first_row, 0);
    const int64_t end = std::min(row_end - input.first_row, input.x.rows);
    for (int f = 1; f < kFormats; ++f) {
      if (!input.needed[f] || begin >= end) continue;
      QuantiseTokens(table_, static_cast<ActivationFormat>(f), input.x, begin, end,
                     buffers[i * kFormats + size_t(f)]);
    }
  }
}

void ProjectJob::NoteOrder(ProductOrder* order) const {
  if (order == nullptr || units_ == 0) return;
  if (rows_ > kStreamedTokens) return order->Break();
  const int64_t threads = pool_.size();
  for (int64_t thread = 0; thread < threads; ++thread) {
    const int64_t first = TaskRanges::FirstOf(units_, threads, thread);
    const Unit unit = UnitAt(std::min(first, units_ - 1));
    starts_[size_t(thread)] = unit.product->weight.group(unit.begin);
  }
  order->Begin(inputs_.front().products.front().weight.groups, starts_, pool_);
}

void ProjectJob::Run(ProductOrder* order) {
  if (!private_) {
    pool_.ParallelFor(
        rows_, 1, [this](int64_t begin, int64_t end) { Quantise(begin, end, buffers_.data()); });
  }
  if (order != nullptr) NoteOrder(order);
  pool_.Run([this](int thread) { Work(thread); });
}

void ProjectJob::Work(int thread) {
  QuantisedBuffer* buffers = BuffersFor(thread);
  if (private_) Quantise(0, rows_, buffers);
  ranges_.Take(thread, [&](int64_t unit, int64_t) { RunUnit(UnitAt(unit), buffers); });
}

ProjectJob::Unit ProjectJob::UnitAt(int64_t unit) const {
  const auto behind = std::upper_bound(
      inputs_.begin(), inputs_.end(), unit,
      [](int64_t wanted, const Input& candidate) { return wanted < candidate.first_unit; });
  const Input& input = *(behind - 1);
  unit -= input.first_unit;
  const int64_t token = unit / input.block_units * input.block_tokens;
  unit %= input.block_units;
  for (const Product& product : input.products) {
    const PackedSlice& weight = product.weight;
    const int64_t count = UnitCount(weight, input.x.rows);
    if (unit < count) {
      const int64_t groups = UnitGroups(weight, input.x.rows);
      const int64_t end = std::min((unit + 1) * groups, weight.group_count);
      return {&input, &product, unit * groups, end, token};
    }
    unit -= count;
  }
  return {};
}

void ProjectJob::RunUnit(const Unit& unit, const QuantisedBuffer* buffers) const {
  const Product& product = *unit.product;
  const int64_t token = unit.token;
  const PackedSlice& weight = product.weight;
  const MatrixKernel& kernel = *weight.kernel;
  const ConstRows& x = unit.input->x;
  const int tokens = static_cast<int>(std::min(unit.input->block_tokens, x.rows - token));
  buffers += size_t(unit.input - inputs_.data()) * kFormats;
  const QuantisedRows quantised =
      AtToken(buffers[static_cast<size_t>(kernel.activations)].rows, token);
  const bool many = kernel.run_many != nullptr && tokens >= kernel.many;
  const MatrixRun run = many ? kernel.run_many : kernel.run;
  for (int64_t group = unit.begin; group < unit.end; ++group) {
    const int64_t row = group * kernel.group_rows;
    const int rows = static_cast<int>(std::min<int64_t>(kernel.group_rows, weight.rows - row));
    float* y = RowOf(product.out, token) + row;
    run(weight.group(group), rows, x.cols, RowOf(x, token), x.stride, &quantised, tokens, y,
        product.out.stride);
    if (product.bias == nullptr) continue;
    for (int t = 0; t < tokens; ++t) {
      float* out = y + t * product.out.stride;
      for (int r = 0; r < rows; ++r) out[r] += product.bias[row + r];
    }
  }
}

// Slots [begin, end) of every expert that has some.
void RunExperts(ThreadPool& pool, const KernelTable& table, ScratchArena& scratch,
                const ExpertPlan& plan, const ConstRows& x,
                std::span<const ExpertProjection> projections) {
  const int64_t experts = projections.front().weights->count();
  const size_t most = size_t(std::min(experts, plan.slots));
  const std::span<Product> products = MakeSpan<Product>(scratch, most * projections.size());
  const std::span<ProductGroup> groups = MakeSpan<ProductGroup>(scratch, most);
  const int32_t* first_slot = Raw(plan.begin);
  size_t used = 0;
  bool shared = x.stride == 0;  // one row for all, and no expert has it twice
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t begin = first_slot[e];
    const int64_t count = first_slot[e + 1] - begin;
    if (count == 0) continue;
    shared = shared && count == 1;
    const auto mine = products.subspan(used * projections.size(), projections.size());
    for (size_t i = 0; i < projections.size(); ++i) {
      const Rows& out = projections[i].out;
      mine[i] = {CpuMatrixOf(*projections[i].weights).slice(e),
                 {out.data + begin * out.stride, count, out.cols, out.stride}};
    }
    groups[used++] = {{x.data + begin * x.stride, count, x.cols, x.stride}, mine};
  }
  if (used == 0) return;
  if (shared) {
    const ConstRows one(x.data, 1, x.cols, x.cols);
    groups[0] = {one, products.first(used * projections.size())};
    used = 1;
  }
  ProjectJob(pool, table, scratch, groups.first(used)).Run(nullptr);
}

// What an adapter adds to some rows of a product: out += up (scale * (down x)), with the weights of
// one matrix of each stack.
struct LowRankPart {
  ConstRows x;
  PackedSlice down;
  PackedSlice up;
  float scale = 1;
  Rows out;
};

// Rows that a thread takes at a time.
constexpr int64_t kPartRows = 32;

// All of a part's rows from `begin` to `end`, by one thread: no other waits for what is between.
void AddPart(const KernelTable& table, const LowRankPart& part, int64_t begin, int64_t end,
             float* between, float* added) {
  const auto run = [&](const PackedSlice& weight, const float* x, int64_t stride, int tokens,
                       float* y, int64_t y_stride) {
    const MatrixKernel& kernel = *weight.kernel;
    const bool many = kernel.run_many != nullptr && tokens >= kernel.many;
    const QuantisedRows none = {};
    for (int64_t group = 0; group < weight.group_count; ++group) {
      const int64_t row = group * kernel.group_rows;
      const int rows = static_cast<int>(std::min<int64_t>(kernel.group_rows, weight.rows - row));
      (many ? kernel.run_many : kernel.run)(weight.group(group), rows, weight.cols, x, stride,
                                            &none, tokens, y + row, y_stride);
    }
  };
  const int tokens = static_cast<int>(end - begin);
  const int64_t rank = part.down.rows;
  run(part.down, RowOf(part.x, begin), part.x.stride, tokens, between, rank);
  if (part.scale != 1) {
    for (int64_t i = 0; i < tokens * rank; ++i) between[i] *= part.scale;
  }
  const int64_t cols = part.up.rows;
  run(part.up, between, rank, tokens, added, cols);
  for (int t = 0; t < tokens; ++t) {
    float* out = RowOf(part.out, begin + t);
    table.add(out, added + t * cols, cols, out);
  }
}

// Parts, a thread each, where there are many of them; else all threads share each product.
void AddParts(ThreadPool& pool, const KernelTable& table, ScratchArena& scratch,
              std::span<const LowRankPart> parts) {
  const auto is_float = [](const PackedSlice& weight) {
    return weight.kernel->activations == ActivationFormat::kF32;
  };
  struct Task {
    const LowRankPart* part;
    int64_t begin, end;
  };
  size_t count = 0;
  int64_t rank = 0, cols = 0, rows = 0;
  bool floats = true;
  for (const LowRankPart& part : parts) {
    count += size_t((part.x.rows + kPartRows - 1) / kPartRows);
    rank = std::max(rank, part.down.rows);
    cols = std::max(cols, part.up.rows);
    rows = std::max(rows, std::min(part.x.rows, kPartRows));
    floats = floats && is_float(part.down) && is_float(part.up);
  }
  const int threads = pool.size();
  if (floats && count >= size_t{4} * size_t(threads)) {
    const std::span<Task> tasks = MakeSpan<Task>(scratch, count);
    size_t at = 0;
    for (const LowRankPart& part : parts) {
      for (int64_t row = 0; row < part.x.rows; row += kPartRows) {
        tasks[at++] = {&part, row, std::min(row + kPartRows, part.x.rows)};
      }
    }
    const int64_t each = (rows * (rank + cols) + 15) / 16 * 16;
    float* const memory = Raw(scratch.Floats(size_t(each * threads)));
    std::atomic<size_t> next{0};
    pool.Run([&](int thread) {
      float* const between = memory + thread * each;
      for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        AddPart(table, *tasks[i].part, tasks[i].begin, tasks[i].end, between,
                between + rows * rank);
      }
    });
    return;
  }
  const std::span<Product> down = MakeSpan<Product>(scratch, parts.size());
  const std::span<Product> up = MakeSpan<Product>(scratch, parts.size());
  const std::span<ProductGroup> first = MakeSpan<ProductGroup>(scratch, parts.size());
  const std::span<ProductGroup> second = MakeSpan<ProductGroup>(scratch, parts.size());
  const auto make = [&](int64_t part_rows, int64_t part_cols) {
    return Rows{scratch.Floats(size_t(part_rows * part_cols)), part_rows, part_cols, part_cols};
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const LowRankPart& part = parts[i];
    down[i] = {part.down, make(part.x.rows, part.down.rows)};
    up[i] = {part.up, make(part.x.rows, part.up.rows)};
    first[i] = {part.x, down.subspan(i, 1)};
    second[i] = {down[i].out, up.subspan(i, 1)};
  }
  ProjectJob(pool, table, scratch, first).Run(nullptr);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].scale == 1) continue;
    float* const values = RowOf(down[i].out, 0);
    for (int64_t k = 0; k < down[i].out.rows * down[i].out.cols; ++k) values[k] *= parts[i].scale;
  }
  ProjectJob(pool, table, scratch, second).Run(nullptr);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Rows& out = parts[i].out;
    ForRows(pool, out.rows, out.cols, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        table.add(RowOf(out, t), RowOf(up[i].out, t), out.cols, RowOf(out, t));
      }
    });
  }
}

}  // namespace

void CpuBackend::AddLowRank(ScratchArena& scratch, std::span<const LowRankSum> sums) {
  const ScratchScope scope(scratch);
  const std::span<LowRankPart> parts = MakeSpan<LowRankPart>(scratch, sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const LowRank& product = *sums[i].product;
    parts[i] = {sums[i].x, CpuMatrixOf(product.down).slice(0), CpuMatrixOf(product.up).slice(0),
                product.scale, sums[i].out};
  }
  AddParts(*pool_, *table_, scratch, parts);
}

void CpuBackend::AddExpertLowRank(ScratchArena& scratch, const ExpertPlan& plan, const ConstRows& x,
                                  ExpertInput input, std::span<const ExpertLowRankSum> sums) {
  const ScratchScope scope(scratch);
  ConstRows slots = x;
  if (input == ExpertInput::kRows && x.rows == 1) {
    slots = ConstRows(x.data, plan.slots, x.cols, 0);
  } else if (input == ExpertInput::kRows) {
    const Rows gathered = {scratch.Floats(size_t(plan.slots * x.cols)), plan.slots, x.cols, x.cols};
    GatherRows(x, plan.row, gathered);
    slots = gathered;
  }
  const int32_t* const first = Raw(plan.begin);
  const int32_t* const row = Raw(plan.row);
  std::vector<LowRankPart> parts;
  for (const ExpertLowRankSum& sum : sums) {
    const LowRank& product = *sum.product;
    for (int64_t e = 0; e < product.down.count(); ++e) {
      const int32_t* const end = row + first[e + 1];
      const int32_t* const low = std::lower_bound(row + first[e], end, sum.row_begin);
      const int64_t count = std::lower_bound(low, end, sum.row_begin + sum.row_count) - low;
      if (count == 0) continue;
      const int64_t at = low - row;
      parts.push_back({{slots.data + at * slots.stride, count, slots.cols, slots.stride},
                       CpuMatrixOf(product.down).slice(e),
                       CpuMatrixOf(product.up).slice(e),
                       product.scale,
                       {sum.out.data + at * sum.out.stride, count, sum.out.cols, sum.out.stride}});
    }
  }
  if (!parts.empty()) AddParts(*pool_, *table_, scratch, parts);
}

void CpuBackend::Project(ScratchArena& scratch, std::span<const ProjectionGroup> groups) {
  const ScratchScope scope(scratch);
  size_t count = 0;
  for (const ProjectionGroup& group : groups) count += group.projections.size();
  const std::span<Product> products = MakeSpan<Product>(scratch, count);
  const std::span<ProductGroup> all = MakeSpan<ProductGroup>(scratch, groups.size());
  size_t used = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    all[i] = {groups[i].x, products.subspan(used, groups[i].projections.size())};
    for (const Projection& projection : groups[i].projections) {
      products[used++] = {CpuMatrixOf(*projection.weight).slice(0), projection.out,
                          Raw(projection.bias)};
    }
  }
  ProjectJob(*pool_, *table_, scratch, all).Run(&order_);
}

void CpuBackend::ProjectFirst(ScratchArena& scratch, const ConstRows& x, const Matrix& weight,
                              const Rows& out) {
  const ScratchScope scope(scratch);
  PackedSlice slice = CpuMatrixOf(weight).slice(0);
  slice.rows = out.cols;
  slice.group_count = (out.cols + slice.kernel->group_rows - 1) / slice.kernel->group_rows;
  const Product product = {slice, out};
  const ProductGroup group = {x, {&product, 1}};
  ProjectJob(*pool_, *table_, scratch, {&group, 1}).Run(nullptr);
}

void CpuBackend::ProjectHeads(ScratchArena& scratch, const ConstRows& x, int64_t x_step,
                              std::span<const HeadProjection> projections) {
  const ScratchScope scope(scratch);
  const size_t heads = size_t(projections.front().weights->count());
  const std::span<Product> products = MakeSpan<Product>(scratch, heads * projections.size());
  const std::span<ProductGroup> groups = MakeSpan<ProductGroup>(scratch, heads);
  for (size_t h = 0; h < heads; ++h) {
    const int64_t head = static_cast<int64_t>(h);
    const auto mine = products.subspan(h * projections.size(), projections.size());
    for (size_t i = 0; i < projections.size(); ++i) {
      const HeadProjection& projection = projections[i];
      const int64_t rows = projection.weights->rows();
      mine[i] = {CpuMatrixOf(*projection.weights).slice(head),
                 Columns(projection.out, head * projection.out_step, rows),
                 projection.bias ? Raw(projection.bias) + head * rows : nullptr};
    }
    groups[h] = {Columns(x, head * x_step, projections.front().weights->cols()), mine};
  }
  ProjectJob(*pool_, *table_, scratch, groups).Run(nullptr);
}

void CpuBackend::ProjectExperts(ScratchArena& scratch, const ExpertPlan& plan, const ConstRows& x,
                                ExpertInput input, std::span<const ExpertProjection> projections) {
  const ScratchScope scope(scratch);
  if (input == ExpertInput::kSlots) {
    return RunExperts(*pool_, *table_, scratch, plan, x, projections);
  }
  if (x.rows == 1) {
    const ConstRows one(x.data, plan.slots, x.cols, 0);
    return RunExperts(*pool_, *table_, scratch, plan, one, projections);
  }
  const Rows slots = {scratch.Floats(size_t(plan.slots * x.cols)), plan.slots, x.cols, x.cols};
  GatherRows(x, plan.row, slots);
  RunExperts(*pool_, *table_, scratch, plan, slots, projections);
}

void CpuBackend::Embed(const Matrix& table, const StepLayout& step, const Rows& out) {
  const PackedSlice slice = CpuMatrixOf(table).slice(0);
  const int64_t group_rows = slice.kernel->group_rows;
  pool_->ParallelFor(out.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t token = step.host.tokens[size_t(t)];
      const int64_t row = token < table.rows() ? token : 0;
      slice.kernel->unpack_row(slice.group(row / group_rows), static_cast<int>(row % group_rows),
                               slice.cols, RowOf(out, t));
    }
  });
}

}  // namespace reprise::cpu
