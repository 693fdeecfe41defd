// SPDX-License-Identifier: Apache-2.0
// Matrices, steps, and what goes to the device that is home.
#include "kernels/split/split_backend.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/split/split_matrix.h"

namespace reprise {
namespace {

constexpr int kHome = 0;

DeviceSet Only(int device) { return DeviceSet{1} << device; }

}  // namespace

SplitBackend::SplitBackend(std::vector<Device> devices) : machine_(std::move(devices)) {
  name_ = std::string(part(kHome).name());
  for (int device = 1; device < count(); ++device) {
    CHECK(part(device).numerics() == numerics());
    name_ += " + " + std::string(part(device).name());
  }
}

Result<std::unique_ptr<PackedMatrix>> SplitBackend::MakeMatrix(const MatrixShape& shape) {
  return MakeDivided(shape, {});
}

Result<std::unique_ptr<PackedMatrix>> SplitBackend::MakeDivided(const MatrixShape& shape,
                                                                const MatrixDivision& division) {
  std::vector<Section> sections = division.rows;
  if (division.by_count) {
    sections = {{shape.count, 1}};
  } else if (sections.empty()) {
    sections = {Plain(shape.rows)};
  }
  // Where there are too few heads for all devices, weights are divided nevertheless.
  for (Section& section : sections) {
    if (section.count < count()) section = Plain(section.count * section.size);
  }
  std::vector<SplitMatrix::Part> parts;
  for (const Share& share : Divide(sections, count())) {
    SplitMatrix::Part part = {share.owner, share.begin, share.end, nullptr, Matrix()};
    MatrixShape one = shape;
    (division.by_count ? one.count : one.rows) = part.count();
    REPRISE_ASSIGN(std::unique_ptr<PackedMatrix> packed,
                   this->part(part.device).MakeMatrix(one));
    part.packed = packed.get();
    part.weights = Matrix(std::move(packed));
    parts.push_back(std::move(part));
  }
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<SplitMatrix>(shape, division.by_count, std::move(parts)));
}

Status SplitBackend::PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                                size_t stride) {
  const auto& split = *static_cast<const SplitMatrix*>(matrix);
  for (const SplitMatrix::Part& part : split.parts()) {
    Backend& backend = this->part(part.device);
    if (!split.by_count()) {
      const std::byte* const rows = source + size_t(part.begin) * stride;
      REPRISE_TRY(backend.PackMatrix(part.packed, index, rows, stride));
    } else if (part.begin <= index && index < part.end) {
      REPRISE_TRY(backend.PackMatrix(part.packed, index - part.begin, source, stride));
    }
  }
  return OkStatus();
}

size_t SplitBackend::MatrixBytes(const MatrixShape& shape) const {
  size_t bytes = 0;
  for (const Share& share : Divide(std::vector{Plain(shape.rows)}, count())) {
    MatrixShape one = shape;
    one.rows = share.end - share.begin;
    bytes += part(share.owner).MatrixBytes(one);
  }
  return bytes;
}

Status SplitBackend::TakeError() { return machine_.TakeError(); }

size_t SplitBackend::working_bytes() const {
  size_t bytes = 0;
  for (int device = 0; device < count(); ++device) bytes += part(device).working_bytes();
  return bytes;
}

Status SplitBackend::ChooseTokens(ScratchArena&, const ConstRows& logits, const ChoiceBatch& batch,
                                  const ChoiceResults& results,
                                  const std::function<void()>& meanwhile) {
  Gather(logits, Only(kHome));
  ConstRows here = logits;
  here.data = machine_.memory().On(kHome, logits.data);
  ChoiceResults home = results;
  if (results.flags_at) home.flags_at = machine_.memory().On(kHome, results.flags_at);
  Status chosen;
  machine_.OnHome("choose", [&](Backend& backend, ScratchArena& scratch) {
    chosen = backend.ChooseTokens(scratch, here, batch, home, meanwhile);
  });
  return chosen;
}

void SplitBackend::BeginStep(ScratchArena& scratch, StepLayout* step) {
  machine_.BeginStep(scratch, step);
}

void SplitBackend::Project(ScratchArena&, std::span<const ProjectionGroup> groups) {
  for (const ProjectionGroup& group : groups) Gather(group.x);
  for (int device = 0; device < count(); ++device) {
    const Here here = {&machine_, device, {}};
    std::vector<std::vector<Projection>> projections;
    std::vector<ProjectionGroup> mine;
    for (const ProjectionGroup& group : groups) {
      std::vector<Projection>& some = projections.emplace_back();
      for (const Projection& projection : group.projections) {
        for (const SplitMatrix::Part& part : SplitMatrix::Of(*projection.weight).parts()) {
          if (part.device != device) continue;
          some.push_back({&part.weights,
                          here.All(Columns(projection.out, part.begin, part.count())),
                          here.At(projection.bias, part.begin)});
        }
      }
      if (!some.empty()) mine.push_back({here.All(group.x), some});
    }
    if (mine.empty()) continue;
    machine_.On(device, "project", [&](Backend& on) { on.Project(here.scratch(), mine); });
  }
  for (const ProjectionGroup& group : groups) {
    for (const Projection& projection : group.projections) {
      for (const SplitMatrix::Part& part : SplitMatrix::Of(*projection.weight).parts()) {
        machine_.Wrote(Columns(projection.out, part.begin, part.count()), Only(part.device));
      }
    }
  }
}

// A stack that is divided by count: each device has heads of its own, and reads their columns
// alone. One that is divided by rows: each makes its channels of every head.
void SplitBackend::ProjectHeads(ScratchArena&, const ConstRows& x, int64_t x_step,
                                std::span<const HeadProjection> projections) {
  for (int device = 0; device < count(); ++device) {
    const Here here = {&machine_, device, {}};
    for (const HeadProjection& projection : projections) {
      const SplitMatrix& weights = SplitMatrix::Of(*projection.weights);
      const MatrixShape& shape = weights.shape();
      for (const SplitMatrix::Part& part : weights.parts()) {
        if (part.device != device) continue;
        const int64_t first = weights.by_count() ? part.begin : 0;
        const int64_t heads = weights.by_count() ? part.count() : shape.count;
        const int64_t row = weights.by_count() ? 0 : part.begin;
        const int64_t rows = weights.by_count() ? shape.rows : part.count();
        const ConstRows input =
            Columns(x, first * x_step, (heads - 1) * x_step + shape.cols);
        const Rows out = Columns(projection.out, first * projection.out_step + row,
                                 (heads - 1) * projection.out_step + rows);
        CHECK(weights.by_count() || !projection.bias || part.count() == shape.rows);
        Gather(input, Only(device));
        const HeadProjection mine[] = {{&part.weights, here.All(out), projection.out_step,
                                        here.At(projection.bias, first * shape.rows)}};
        machine_.On(device, "project heads", [&](Backend& on) {
          on.ProjectHeads(here.scratch(), here.All(input), x_step, mine);
        });
        for (int64_t head = 0; head < heads; ++head) {
          machine_.Wrote(Columns(out, head * projection.out_step, rows), Only(device));
        }
      }
    }
  }
}

// Each device looks up the tokens of its rows of the table, one behind the other; then all put them
// in order.
void SplitBackend::Embed(const Matrix& table, const StepLayout& step, const Rows& out) {
  const SplitMatrix& weights = SplitMatrix::Of(table);
  const int64_t rows = step.rows();
  ScratchArena& scratch = machine_.shared_scratch();
  const ScratchScope scope(scratch);
  std::vector<int32_t> tokens, places(static_cast<size_t>(rows));
  std::vector<int64_t> begins;
  for (const SplitMatrix::Part& part : weights.parts()) {
    begins.push_back(int64_t(tokens.size()));
    for (int64_t row = 0; row < rows; ++row) {
      const int32_t asked = step.host.tokens[size_t(row)];
      const int32_t token = asked < table.rows() ? asked : 0;
      if (token < part.begin || token >= part.end) continue;
      places[size_t(row)] = int32_t(tokens.size());
      tokens.push_back(token - int32_t(part.begin));
    }
  }
  begins.push_back(rows);
  const Rows found = {scratch.Floats(size_t(rows * out.cols)), rows, out.cols, out.cols};
  const DevicePtr<int32_t> all_tokens = scratch.Take<int32_t>(tokens.size());
  const DevicePtr<int32_t> order = scratch.Take<int32_t>(places.size());
  if (scratch.refused()) return;
  machine_.memory().UploadArray<int32_t>(all_tokens, tokens);
  machine_.memory().UploadArray<int32_t>(order, places);
  for (size_t i = 0; i < weights.parts().size(); ++i) {
    const SplitMatrix::Part& part = weights.parts()[i];
    const int64_t begin = begins[i], count = begins[i + 1] - begin;
    if (count == 0) continue;
    const Rows mine = {found.data + begin * out.cols, count, out.cols, out.cols};
    const Here here = {&machine_, part.device, {}};
    StepLayout some;
    some.host.tokens = std::span(tokens).subspan(size_t(begin), size_t(count));
    some.device.tokens = here.At(all_tokens, begin);
    machine_.On(part.device, "embed",
                [&](Backend& on) { on.Embed(part.weights, some, here.All(mine)); });
    machine_.Wrote(mine, Only(part.device));
  }
  Gather(found);
  GatherRows(found, order, out);
}

// Flags are 0 or 1: as floats the smallest numbers there are, whose sums are exact.
void SplitBackend::FiniteRows(const StepLayout& step, const ConstRows& x,
                              DevicePtr<uint8_t> finite) {
  const auto sequences = static_cast<int64_t>(step.host.sequences.size());
  ScratchArena& scratch = machine_.shared_scratch();
  const ScratchScope scope(scratch);
  const Rows others = {scratch.Floats(size_t(sequences)), 1, sequences, sequences};
  Gather(x, Only(kHome));
  if (scratch.refused()) return;
  const Here home = {&machine_, kHome, {}};
  const Rows all = {machine_.StepOn(kHome).spoilt.As<float>(), 1, sequences, sequences};
  for (int device = 1; device < count() && all.data; ++device) {
    machine_.memory().CopyBetween(device, machine_.StepOn(device).spoilt.As<const std::byte>(),
                                  kHome, home.At(others.data).As<std::byte>(),
                                  size_t(sequences) * sizeof(float));
    machine_.On(kHome, "join flags", [&](Backend& on) { on.Add(all, home.All(others), all); });
  }
  machine_.On(kHome, "finite rows", [&](Backend& on) {
    on.FiniteRows(home.step(), home.All(x), home.At(finite));
  });
  machine_.Wrote(finite, sequences);
}

}  // namespace reprise
