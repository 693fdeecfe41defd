// SPDX-License-Identifier: Apache-2.0
// Products: the activations brought into the forms that the weights ask for, each once, then one
// launch a matrix; and what adapters add.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/packed/experts.h"
#include "kernels/cuda/product_float.h"
#include "kernels/cuda/quantised/product.h"
#include "kernels/cuda/quantised/quantise.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/tensor/round.h"
#include "kernels/cuda/views.h"

namespace reprise::cuda {
namespace {

// One input in the forms that were asked for so far; they lie in the scratch arena.
class Activations {
 public:
  // made: what makes x, if it has not run yet.
  Activations(Stream stream, ScratchArena& scratch, const HandedSums& handed, const ConstRows& x,
              std::optional<MadeRows> made = std::nullopt)
      : stream_(stream),
        scratch_(scratch),
        handed_(handed),
        x_(ViewOf(x)),
        made_(std::move(made)) {}

  const View& f32() {
    if (made_) MakeRows(stream_, *made_);
    made_.reset();
    return x_;
  }

  // Or, of few rows, as they are, to be rounded on the way.
  const HalfRows& half() {
    if (!MayRoundOnTheWay(x_)) return rounded();
    if (half_.rows == 0) half_ = RoundedOnTheWay(x_);
    return half_;
  }

  const HalfRows& rounded() {
    HalfRows& rows = half_;
    if (rows.data != nullptr) return rows;
    const int64_t stride = (x_.cols + 15) / 16 * 16;
    rows = {Raw(scratch_.Take<uint16_t>(size_t(x_.rows * stride))),
            Raw(scratch_.Floats(size_t(x_.rows))), x_.rows, x_.cols, stride};
    rows.handed = handed_;
    LookForRefusal();
    if (made_) {
      MakeAndRoundRows(stream_, *made_, rows);
      made_.reset();
    } else {
      RoundRows(stream_, x_, rows);
    }
    return rows;
  }

  // Rounded, a row for every slot of the plan; gather: x has those that plan.row speaks of.
  const HalfRows& slots(const PlanView& plan, bool gather) {
    HalfRows& rows = slots_;
    if (rows.rows > 0) return rows;
    const int64_t stride = (x_.cols + 15) / 16 * 16;
    rows = {Raw(scratch_.Take<uint16_t>(size_t(plan.slots * stride))),
            Raw(scratch_.Floats(size_t(plan.slots))), plan.slots, x_.cols, stride};
    LookForRefusal();
    if (gather) {
      RoundRowsToSlots(stream_, f32(), {plan.slot, static_cast<int>(plan.slots / x_.rows)}, rows);
    } else if (made_) {
      MakeAndRoundRows(stream_, *made_, rows);
      made_.reset();
    } else {
      RoundRows(stream_, x_, rows);
    }
    return rows;
  }

  const QuantisedView& quantised(ActivationForm form) {
    const bool small = form == ActivationForm::kBlock32;
    QuantisedView& rows = small ? block32_ : block256_;
    if (rows.q == nullptr) {
      const int64_t values = x_.rows * x_.cols;
      rows = {Raw(scratch_.Take<int8_t>(size_t(values))),
              Raw(scratch_.Floats(size_t(values / (small ? 32 : 256)))),
              Raw(scratch_.Take<int16_t>(size_t(values / (small ? 32 : 16)))), x_.rows, x_.cols};
      LookForRefusal();
      (small ? Quantise32 : Quantise256)(stream_, f32(), rows);
    }
    return rows;
  }

 private:
  // Nothing may be started on memory that is not there.
  void LookForRefusal() const {
    if (scratch_.refused()) Launches::On(stream_).Fail(scratch_.refusal());
  }

  Stream stream_;
  ScratchArena& scratch_;
  const HandedSums handed_;
  View x_;
  std::optional<MadeRows> made_;
  HalfRows half_, slots_;
  QuantisedView block32_, block256_;
};

// Matrix `index` of a stack, as a matrix of its own.
void RunHead(Stream stream, const CudaMatrix& stack, int64_t index, Activations& x,
             const float* bias, const View& out) {
  const MatrixShape& shape = stack.shape();
  switch (stack.form()) {
    case ActivationForm::kF32:
      return ProductF32(stream, stack.f32() + index * shape.rows * shape.cols, bias, x.f32(), out);
    case ActivationForm::kF16: {
      const HalfProduct one[] = {{stack.half(index), bias, out}};
      return Products(stream, x.half(), std::span<const HalfProduct>(one));
    }
    case ActivationForm::kBlock32:
    case ActivationForm::kBlock256: {
      return ProductQuantised(stream, stack.quantised_part(index), bias, x.quantised(stack.form()),
                              out);
    }
  }
}

// Those of one form together, whatever comes between them.
void RunProducts(Stream stream, Activations& x, const ProjectionGroup& group) {
  std::vector<HalfProduct> halves;
  std::vector<FloatProduct> floats;
  std::vector<QuantisedProduct> quantised[2];
  for (const Projection& projection : group.projections) {
    const CudaMatrix& weight = CudaMatrixOf(*projection.weight);
    const View out = ViewOf(projection.out);
    const float* bias = Raw(projection.bias);
    if (weight.form() == ActivationForm::kF16) {
      halves.push_back({weight.half(), bias, out});
    } else if (weight.form() == ActivationForm::kF32) {
      floats.push_back({weight.f32(), bias, out});
    } else {
      const bool small = weight.form() == ActivationForm::kBlock32;
      quantised[small ? 0 : 1].push_back({weight.quantised(), bias, out});
    }
  }
  if (!halves.empty()) x.half();  // first: it may make x on the way
  for (const ActivationForm form : {ActivationForm::kBlock32, ActivationForm::kBlock256}) {
    const auto& products = quantised[form == ActivationForm::kBlock32 ? 0 : 1];
    if (!products.empty()) ProductsQuantised(stream, products, x.quantised(form));
  }
  if (!floats.empty()) ProductsF32(stream, floats, x.f32());
  if (!halves.empty()) Products(stream, x.half(), halves);
}

}  // namespace

bool CudaBackend::JoinProducts(const ProjectionGroup& group) {
  std::vector<HalfProduct> halves;
  std::vector<QuantisedProduct> quantised;
  std::vector<FloatProduct> floats;
  for (const Projection& one : group.projections) {
    const CudaMatrix& weight = CudaMatrixOf(*one.weight);
    if (weight.form() == ActivationForm::kF16) {
      halves.push_back({weight.half(), Raw(one.bias), ViewOf(one.out)});
    } else if (weight.form() == ActivationForm::kF32) {
      floats.push_back({weight.f32(), Raw(one.bias), ViewOf(one.out)});
    } else {
      quantised.push_back({weight.quantised(), Raw(one.bias), ViewOf(one.out)});
    }
  }
  const View x = ViewOf(group.x);
  if (halves.empty() && quantised.empty()) return joined_.Products(x, floats);
  if (halves.empty() == quantised.empty()) return false;
  if (quantised.empty()) return joined_.Products(x, halves, floats);
  if (!joined_.Products(x, quantised)) return false;
  // A norm that they read runs with the others, which stream() sends off.
  if (!floats.empty()) ProductsF32(stream(), floats, x);
  return true;
}

void CudaBackend::Project(ScratchArena& scratch, std::span<const ProjectionGroup> groups) {
  for (const ProjectionGroup& group : groups) ProjectGroup(scratch, group, {});
}

void CudaBackend::ProjectGroup(ScratchArena& scratch, const ProjectionGroup& group,
                               std::span<LowRankCall> narrow) {
  const bool joined = JoinProducts(group);
  if (joined && narrow.empty()) return;
  const ScratchScope scope(scratch);
  std::optional<MadeRows> made;
  if (!joined) made = joined_.Take(ViewOf(group.x));
  Activations x(stream(), scratch, handed_, group.x, std::move(made));
  for (LowRankCall& call : narrow) {
    call.half = x.rounded();
    call.x = x.f32();
    call.sums = Raw(Room(scratch, size_t(LowRankSumFloats(call)) * sizeof(float)).As<float>());
    RunLowRankDown(stream(), call);
  }
  if (!joined) RunProducts(stream(), x, group);
  for (const LowRankCall& call : narrow) RunLowRankUp(stream(), call);
}

// Adapters of the rows that have tables: two kernels more, whatever adapters there are.
void CudaBackend::ProjectAdapted(ScratchArena& scratch, std::span<const ProjectionGroup> groups,
                                 const StepAdapters& adapters) {
  if (row_tables_ == nullptr) return Backend::ProjectAdapted(scratch, groups, adapters);
  for (const ProjectionGroup& group : groups) {
    std::vector<LowRankCall> calls;
    for (const Projection& projection : group.projections) {
      const auto weight = adapters.weights->find(projection.weight);
      if (weight == adapters.weights->end()) continue;
      int64_t rank = 0;
      for (const AdaptedRows& adapted : adapters.rows) {
        rank = std::max(rank, adapted.products[weight->second].down.rows());
      }
      if (rank == 0) continue;
      CHECK(group.x.rows == adapters.row_count);
      if (calls.empty() || calls.back().count == LowRankCall::kMost) calls.emplace_back();
      LowRankCall& call = calls.back();
      call.x = ViewOf(group.x);
      call.tables = row_tables_;
      call.weight[call.count] = static_cast<int>(weight->second);
      call.out[call.count++] = ViewOf(projection.out);
      call.ranks = std::max(call.ranks, static_cast<int>((rank + 15) / 16 * 16));
    }
    ProjectGroup(scratch, group, calls);
  }
}

Result<DeviceBuffer> CudaBackend::LowRankTable(std::span<const LowRank> products) {
  std::vector<LowRankView> table(products.size());
  // data, elements between rows, scale, whether they are floats
  const auto put = [](const CudaMatrix& from, const void** data, int32_t* stride, float* scale,
                      int32_t* floats) {
    *floats = from.form() == ActivationForm::kF32 ? 1 : 0;
    *data = *floats != 0 ? static_cast<const void*>(from.f32()) : from.half().data;
    *stride = static_cast<int32_t>(*floats != 0 ? from.shape().cols : from.half().stride);
    *scale = *floats != 0 ? 1 : from.half().scale;
  };
  for (size_t i = 0; i < products.size(); ++i) {
    if (products[i].empty()) continue;
    const CudaMatrix& down = CudaMatrixOf(products[i].down);
    const CudaMatrix& up = CudaMatrixOf(products[i].up);
    if (IsQuantised(down.shape().dtype) || IsQuantised(up.shape().dtype) ||
        down.shape().rows > kLowRankMost) {
      return DeviceBuffer();
    }
    LowRankView& view = table[i];
    view.rank = static_cast<int32_t>(down.shape().rows);
    view.scale = products[i].scale;
    put(down, &view.down, &view.down_stride, &view.down_scale, &view.down_floats);
    put(up, &view.up, &view.up_stride, &view.up_scale, &view.up_floats);
  }
  const auto bytes = std::as_bytes(std::span(table));
  REPRISE_ASSIGN(DeviceBuffer buffer, memory_->Allocate(bytes.size()));
  memory_->Upload(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

void CudaBackend::ProjectHeads(ScratchArena& scratch, const ConstRows& x, int64_t x_step,
                               std::span<const HeadProjection> projections) {
  const MatrixShape& shape = CudaMatrixOf(*projections.front().weights).shape();
  for (int64_t head = 0; head < shape.count; ++head) {
    const ScratchScope scope(scratch);
    Activations part(stream(), scratch, handed_, Columns(x, head * x_step, shape.cols));
    for (const HeadProjection& projection : projections) {
      const CudaMatrix& stack = CudaMatrixOf(*projection.weights);
      const int64_t rows = stack.shape().rows;
      const float* bias = projection.bias ? Raw(projection.bias) + head * rows : nullptr;
      RunHead(stream(), stack, head, part, bias,
              ViewOf(Columns(projection.out, head * projection.out_step, rows)));
    }
  }
}

bool CudaBackend::JoinExperts(const PlanView& plan, const View& x, ExpertInput input,
                              std::span<const ExpertProjection> projections) {
  ChosenProduct products[2];
  if (projections.size() > std::size(products)) return false;
  for (size_t i = 0; i < projections.size(); ++i) {
    const CudaMatrix& stack = CudaMatrixOf(*projections[i].weights);
    if (!IsQuantised(stack.shape().dtype) || stack.shape().count != plan.experts) return false;
    products[i].y = ViewOf(projections[i].out);
    if (stack.packed()) {
      products[i].packed = stack.half();
    } else {
      products[i].quantised = stack.quantised();
    }
  }
  if (input == ExpertInput::kRows && projections.size() == 2) {
    return joined_.Experts(ChosenGates{x, plan, products[0], products[1]});
  }
  if (input == ExpertInput::kSlots && projections.size() == 1) {
    ChosenSum sum;
    sum.x = x, sum.plan = plan, sum.down = products[0];
    return joined_.Experts(sum);
  }
  return false;
}

void CudaBackend::ProjectExperts(ScratchArena& scratch, const ExpertPlan& plan, const ConstRows& x,
                                 ExpertInput input, std::span<const ExpertProjection> projections) {
  const PlanView all = ViewOf(plan);
  if (JoinExperts(all, ViewOf(x), input, projections)) return;
  const bool gather = input == ExpertInput::kRows;
  const ScratchScope scope(scratch);
  std::optional<MadeRows> made = joined_.Take(ViewOf(x));
  Activations rows(stream(), scratch, handed_, x, std::move(made));
  std::vector<HalfProduct> packed;          // in one launch
  std::vector<QuantisedProduct> quantised;  // those of one form, in one launch
  for (size_t i = 0; i < projections.size(); ++i) {
    const CudaMatrix& stack = CudaMatrixOf(*projections[i].weights);
    const int count = static_cast<int>(stack.shape().count);
    PlanView view = all;
    view.experts = count;
    const View out = ViewOf(projections[i].out);
    switch (stack.form()) {
      case ActivationForm::kF32:
        ExpertsProductF32(stream(), stack.f32(), view, gather, rows.f32(), out);
        break;
      case ActivationForm::kF16:
        if (stack.packed()) {
          packed.push_back({stack.half(), nullptr, out});
          const auto alike = [&](const ExpertProjection& other) {
            const CudaMatrix& next = CudaMatrixOf(*other.weights);
            return next.packed() && next.shape().count == count;
          };
          if (i + 1 < projections.size() && alike(projections[i + 1])) break;
          RunPackedExperts(stream(), rows.slots(all, gather), {view.begin, count}, packed);
          packed.clear();
          break;
        }
        ProductGroups(stream(), rows.half(), stack.half(),
                      stack.half_groups(view.begin, gather ? view.row : nullptr), nullptr, out);
        break;
      case ActivationForm::kBlock32:
      case ActivationForm::kBlock256: {
        quantised.push_back({stack.quantised(), nullptr, out});
        const auto alike = [&](const ExpertProjection& other) {
          const CudaMatrix& next = CudaMatrixOf(*other.weights);
          return next.form() == stack.form() && next.shape().count == count;
        };
        if (i + 1 < projections.size() && alike(projections[i + 1])) break;
        ExpertsProductsQuantised(stream(), quantised, view, gather, rows.quantised(stack.form()));
        quantised.clear();
        break;
      }
    }
  }
}

}  // namespace reprise::cuda
