// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "kernels/cuda/packed/many.cuh"

namespace reprise::cuda {
namespace {

using many_packed::BestPlan;
using many_packed::Form;
using many_packed::FormOf;
using many_packed::kMatrices;
using many_packed::Run;
using many_packed::Shape;

// Rows of x in the tallest tiles.
template <PackedForm kForm>
constexpr int kTall = kForm == PackedForm::kSixes ? 128 : 160;
template <PackedForm kForm>
constexpr std::array kForms = {
    FormOf<Shape<kForm, 8, 1>>(4),
    FormOf<Shape<kForm, 16, 1>>(4),
    FormOf<Shape<kForm, 32, 1>>(4),
    FormOf<Shape<kForm, 64, 1>>(4),
    FormOf<Shape<kForm, 64, 2>>(4),
    FormOf<Shape<kForm, 128, 2>>(2),
    FormOf<Shape<kForm, kTall<kForm>, 2>>(1),
};

std::span<const Form> FormsOf(PackedForm form) {
  return OfForm<std::span<const Form>>(form, [](auto of) { return std::span(kForms<of()>); });
}

}  // namespace

void RunPackedMany(Stream stream, const HalfRows& x, std::span<const HalfProduct> products,
                   std::optional<PackedTiling> tiling) {
  for (size_t i = 0; i < products.size(); i += kMatrices) {
    const auto some = products.subspan(i, std::min<size_t>(kMatrices, products.size() - i));
    Run(stream, x, {}, some, BestPlan(FormsOf(some[0].weight.packed), x.rows, 0, some, tiling));
  }
}

}  // namespace reprise::cuda
