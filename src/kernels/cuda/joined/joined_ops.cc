// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/joined/joined_ops.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/joined/normed_floats.h"
#include "kernels/cuda/rows/elementwise.h"
#include "kernels/cuda/rows/last_rows.h"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/tensor/round.h"

namespace reprise::cuda {
namespace {

bool Same(const View& a, const View& b) {
  return a.data == b.data && a.rows == b.rows && a.cols == b.cols && a.stride == b.stride;
}

DType TypeOf(const QuantisedProduct& product) { return product.weight.layout.dtype; }

// The widest blocks that a row is quantised in.
int64_t BlockOf(std::span<const QuantisedProduct> products) {
  int64_t block = 32;
  for (const QuantisedProduct& one : products) {
    block = std::max<int64_t>(block, TraitsOf(TypeOf(one)).block_elements);
  }
  return block;
}

}  // namespace

void MakeRows(Stream stream, const MadeRows& rows) {
  if (const auto* gated = std::get_if<GatedRows>(&rows)) {
    const auto gate = gated->op == OutputOp::kSwiGlu ? SwiGlu : GeGlu;
    return gate(stream, gated->gate, gated->up, gated->y);
  }
  const auto& [x, added, weight, eps, y] = std::get<NormedRows>(rows);
  if (added.data == nullptr) return RmsNorm(stream, x, weight, 1, eps, y);
  AddRmsNorm(stream, x, added, weight, eps, x, y);
}

void JoinedOps::Begin(const HostArrays& arrays) {
  open_ = true;
  if (arrays.bytes == 0) return;
  start_ = {arrays, {}, {}};
  if (!arrays.few()) RunStart();
}

void JoinedOps::Drop() {
  start_.reset(), norm_.reset(), products_.reset(), made_.reset(), heads_.reset(), route_.reset();
  gates_.reset(), experts_.reset(), flags_.reset(), gated_.reset();
  open_ = false;
}

// By themselves.
void JoinedOps::RunStart() {
  if (!start_) return;
  const WaitingStart waiting = *std::exchange(start_, std::nullopt);
  BringArrays(stream_, waiting.arrays);
  if (waiting.rows) cuda::Embed(stream_, *waiting.rows);
  MakeRopeAngles(stream_, waiting.angles);
}

bool JoinedOps::Embed(const EmbeddedRows& rows) {
  if (!start_ || start_->rows || rows.out.rows > kFloatRows) return false;
  start_->rows = rows;
  return true;
}

bool JoinedOps::Angles(const AngledRows& rows) {
  if (!start_ || !start_->rows || start_->angles.rows > 0 || norm_) return false;
  start_->angles = rows;
  return true;
}

// Whether x is what the step begins with, and nothing but its start waits.
bool JoinedOps::StartsWith(const View& x) const {
  return start_ && start_->rows && !norm_ && Same(start_->rows->out, x);
}

void JoinedOps::Run() {
  gated_.reset();
  if (products_) return RunProducts(OutputOp::kNone, {});
  RunStart();
  if (made_) {
    MakeRows(stream_, *made_);
    made_.reset();
  }
  if (heads_) {
    const WaitingHeads waiting = *heads_;
    heads_.reset();
    const auto& [inputs, q, k, v] = waiting.rows;
    StoreHeads(stream_, waiting.step, waiting.kv, inputs, q, k, v);
  }
  if (route_) {
    const WaitingRoute waiting = *route_;
    route_.reset();
    RouteExperts(stream_, waiting.logits, waiting.params, waiting.routing);
  }
  if (gates_) {
    RunChosenGates(stream_, *gates_);
    gates_.reset();
  }
  if (experts_) {
    RunChosenSum(stream_, *experts_);
    experts_.reset();
  }
  if (flags_) {
    FiniteSequences(stream_, flags_->step, flags_->x, flags_->finite);
    flags_.reset();
  }
  if (norm_) {
    const WaitingNorm waiting = *norm_;
    norm_.reset();
    RmsNorm(stream_, waiting.x, waiting.norm.weight, 1, waiting.norm.eps, waiting.norm.h);
  }
}

void JoinedOps::RunProducts(OutputOp op, const View& sum) {
  const WaitingProducts waiting = std::move(*products_);
  products_.reset();
  const bool starts = start_ && start_->rows;
  if (starts) {
    StartStep(stream_, start_->arrays, *start_->rows, start_->angles);
    start_.reset();
  }
  if (!waiting.quantised.empty()) return RunQuantised(waiting, op, sum, starts);
  FewProducts few;
  few.hold_next = starts;
  few.x = RoundedOnTheWay(norm_ ? norm_->x : waiting.x);
  if (norm_) few.norm = norm_->norm;
  norm_.reset();
  few.products = waiting.halves;
  few.floats = waiting.floats;
  few.op = op;
  few.sum = sum;
  RunFewProducts(stream_, few);
}

// One launch for each type of weights that lie side by side; the first leaves the normed row.
void JoinedOps::RunQuantised(const WaitingProducts& waiting, OutputOp op, const View& sum,
                             bool hold_next) {
  OneRowProducts one;
  one.hold_next = hold_next;
  one.x = norm_ ? norm_->x : waiting.x;
  if (norm_) one.norm = norm_->norm;
  norm_.reset();
  one.op = op;
  one.sum = sum;
  const std::span<const QuantisedProduct> all = waiting.quantised;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && TypeOf(all[end]) == TypeOf(all[begin])) ++end;
    one.products = all.subspan(begin, end - begin);
    RunOneRowProducts(stream_, one);
    one.norm.h = {};
  }
}

std::vector<View> JoinedOps::WaitingProducts::Outputs() const {
  std::vector<View> outputs;
  for (const HalfProduct& one : halves) outputs.push_back(one.out);
  for (const QuantisedProduct& one : quantised) outputs.push_back(one.y);
  return outputs;
}

bool JoinedOps::Norm(const View& x, const float* weight, float eps, const View& h) {
  const bool rounded = MayNormOnTheWay(x) && MayRoundOnTheWay(h);
  const bool quantised = MayNormAndQuantise(x, 32) && MayQuantiseOnTheWay(h, 32);
  if (!open_ || (!rounded && !quantised) || x.data == h.data) return false;
  if (!StartsWith(x)) Run();
  norm_ = {x, {weight, eps, h}};
  return true;
}

// Whether a norm is all that waits, and can ride along with products of x.
bool JoinedOps::NormRides(const View& x, bool fits) const {
  return norm_ && !products_ && fits && Same(norm_->norm.h, x);
}

bool JoinedOps::Products(const View& x, std::span<const HalfProduct> products,
                         std::span<const FloatProduct> floats) {
  if (!open_ || !MayRoundOnTheWay(x) || products.size() > FewProducts::kMost) return false;
  if (!NormRides(x, norm_ && MayNormOnTheWay(norm_->x))) Run();
  products_ = {x, {products.begin(), products.end()}, {}, {floats.begin(), floats.end()}};
  return true;
}

bool JoinedOps::Products(const View& x, std::span<const QuantisedProduct> products) {
  if (!open_ || !MayQuantiseOnTheWay(x, BlockOf(products))) return false;
  if (!NormRides(x, norm_ && MayNormAndQuantise(norm_->x, BlockOf(products)))) Run();
  products_ = {x, {}, {products.begin(), products.end()}, {}};
  return true;
}

bool JoinedOps::Products(const View& x, std::span<const FloatProduct> products) {
  if (!NormRides(x, true)) return false;
  RunStart();
  if (!RunNormedFloats(stream_, norm_->x, norm_->norm, products)) return false;
  norm_.reset();
  return true;
}

bool JoinedOps::Add(const View& sum, const View& y) {
  if (ExpertsAdd(sum, y)) return true;
  if (!products_ || !products_->floats.empty()) return false;
  const std::vector<View> outputs = products_->Outputs();
  if (outputs.size() != 1 || !Same(outputs[0], y)) return false;
  // The sum must not be what the products read.
  if (sum.data == products_->x.data || norm_) return false;
  RunProducts(OutputOp::kAdd, sum);
  return true;
}

bool JoinedOps::GateRides(const GatedRows& rows) const {
  if (!products_ || !products_->floats.empty()) return false;
  const std::vector<View> outputs = products_->Outputs();
  if (outputs.size() != 2 || !Same(outputs[0], rows.up) || !Same(outputs[1], rows.gate)) {
    return false;
  }
  const std::vector<HalfProduct>& halves = products_->halves;
  if (!halves.empty() && halves[0].weight.packed != halves[1].weight.packed) return false;
  const std::vector<QuantisedProduct>& quantised = products_->quantised;
  if (!quantised.empty() && TypeOf(quantised[0]) != TypeOf(quantised[1])) return false;
  return Same(rows.gate, rows.y);
}

bool JoinedOps::Gate(const GatedRows& rows) {
  if (ExpertsGate(rows)) return true;
  if (GateRides(rows)) {
    RunProducts(rows.op, {});
    return true;
  }
  return Make(rows);
}

bool JoinedOps::Make(const MadeRows& rows) {
  if (!open_ || ResultOf(rows).rows <= kFloatRows || !MayMakeAndRound(rows)) return false;
  Run();
  made_ = rows;
  return true;
}

std::optional<MadeRows> JoinedOps::Take(const View& x) {
  if (!made_ || !Same(ResultOf(*made_), x)) return std::nullopt;
  return std::exchange(made_, std::nullopt);
}

bool JoinedOps::Heads(const StepView& step, const KvView& kv, const HeadRowsView& heads) {
  if (!open_ || !HasOneRowAttention(step, kv, heads)) return false;
  Run();
  heads_ = {step, kv, heads};
  return true;
}

std::optional<HeadRowsView> JoinedOps::TakeHeads(const View& q) {
  if (!heads_ || !Same(heads_->rows.q, q)) return std::nullopt;
  const HeadRowsView rows = heads_->rows;
  heads_.reset();
  return rows;
}

bool JoinedOps::Flag(const StepView& step, const View& x, uint8_t* finite) {
  if (!open_ || !FewPerSequence(step)) return false;
  Run();
  flags_ = {step, x, finite};
  return true;
}

FlaggedRows JoinedOps::TakeFlagged() {
  if (!flags_) return {};
  const WaitingFlags flags = *std::exchange(flags_, std::nullopt);
  return {flags.step.sequences, flags.step.spoilt, flags.step.sequence_count, flags.x,
          flags.finite};
}

bool JoinedOps::Route(const View& logits, const RoutingParams& params, const RoutingView& routing) {
  if (!open_ || !MayRouteAndPlan(logits, params)) return false;
  Run();
  route_ = {logits, params, routing};
  return true;
}

bool JoinedOps::Plan(const RoutingView& routing, const PlanView& plan) {
  if (!route_ || route_->routing.experts != routing.experts ||
      plan.experts != route_->logits.cols) {
    return false;
  }
  const WaitingRoute waiting = *route_;
  route_.reset();
  RouteAndPlan(stream_, waiting.logits, waiting.params, waiting.routing, plan);
  return true;
}

bool JoinedOps::Experts(const ChosenGates& gates) {
  if (!open_ || !MayRunChosenGates(gates)) return false;
  Run();
  gates_ = gates;
  return true;
}

bool JoinedOps::ExpertsGate(const GatedRows& rows) {
  if (!gates_ || rows.op != OutputOp::kSwiGlu || !Same(rows.up, gates_->up.y) ||
      !Same(rows.gate, gates_->gate.y) || !Same(rows.gate, rows.y)) {
    return false;
  }
  ChosenGates gates = *gates_;
  gates.gated = true;
  gates_.reset();
  RunChosenGates(stream_, gates);
  gated_ = gates;
  return true;
}

bool JoinedOps::Experts(const ChosenSum& products) {
  if (!gated_ || gated_->plan.begin != products.plan.begin || !Same(gated_->gate.y, products.x) ||
      !MayRunChosenSum(products)) {
    return false;
  }
  Run();
  experts_ = products;
  return true;
}

bool JoinedOps::Combine(const RoutingView& routing, const PlanView& plan, const View& slots,
                        SumStart start, const View& y) {
  if (!experts_ || experts_->y.data != nullptr || experts_->plan.slot != plan.slot ||
      !Same(experts_->down.y, slots) || y.rows != 1 || routing.top_k != plan.slots) {
    return false;
  }
  if (y.data == slots.data || y.data == experts_->x.data) return false;
  experts_->routing = routing;
  experts_->start = start;
  experts_->y = y;
  return true;
}

bool JoinedOps::ExpertsAdd(const View& sum, const View& y) {
  if (!experts_ || experts_->y.data == nullptr || !Same(experts_->y, y)) return false;
  // The sum must not be what others read or write.
  const float* others[] = {y.data, experts_->x.data, experts_->down.y.data};
  if (std::find(std::begin(others), std::end(others), sum.data) != std::end(others)) return false;
  experts_->sum = sum;
  Run();
  return true;
}

}  // namespace reprise::cuda
