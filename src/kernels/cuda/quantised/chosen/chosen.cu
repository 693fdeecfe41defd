// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/chosen/chosen.cuh"

namespace reprise::cuda {
namespace {

bool Packed(const ChosenProduct& product) { return product.packed.packed != PackedForm::kNone; }

template <typename Call>
bool LaunchAny(const chosen::Target& target, const ChosenProduct& product, const Call& call) {
  if (Packed(product)) return LaunchChosenPacked(target, call);
  const DType type = product.quantised.layout.dtype;
  const bool wide = TraitsOf(type).block_elements == 256;
  return wide ? LaunchChosen256(target, type, call) : LaunchChosen32(target, type, call);
}

// Rows of inputs, a plan, and weights of its experts.
bool Fits(const View& x, const PlanView& plan, const ChosenProduct& product) {
  const int64_t rows =
      Packed(product) ? plan.experts * product.packed.rows : product.quantised.layout.rows;
  return x.rows > 0 && x.cols > 0 && x.cols <= chosen::kColumns && Aligned16(x.data, x.stride) &&
         plan.slots > 0 && plan.slots <= chosen::kSlots && product.y.cols > 0 &&
         rows == plan.experts * product.y.cols && rows <= INT32_MAX;
}
bool Alike(const ChosenProduct& a, const ChosenProduct& b) {
  if (Packed(a) || Packed(b)) return a.packed.packed == b.packed.packed;
  return a.quantised.layout.dtype == b.quantised.layout.dtype;
}

}  // namespace

bool MayRunChosenGates(const ChosenGates& gates) {
  return gates.x.rows == 1 && gates.up.y.cols == gates.gate.y.cols && Alike(gates.up, gates.gate) &&
         Fits(gates.x, gates.plan, gates.up) && Fits(gates.x, gates.plan, gates.gate) &&
         LaunchAny({}, gates.up, gates);
}
void RunChosenGates(Stream stream, const ChosenGates& gates) {
  LaunchAny({stream, true}, gates.up, gates);
}

bool MayRunChosenSum(const ChosenSum& sum) {
  return sum.x.rows == sum.plan.slots && Fits(sum.x, sum.plan, sum.down) &&
         LaunchAny({}, sum.down, sum);
}
void RunChosenSum(Stream stream, const ChosenSum& sum) { LaunchAny({stream, true}, sum.down, sum); }

}  // namespace reprise::cuda
