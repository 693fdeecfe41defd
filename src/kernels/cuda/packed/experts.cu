// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "kernels/cuda/packed/many.cuh"

namespace reprise::cuda {
namespace {

using many_packed::Form;
using many_packed::FormOf;
using many_packed::Shape;

template <PackedForm kForm>
constexpr std::array kForms = {
    FormOf<Shape<kForm, 8, 1, true>>(1),   FormOf<Shape<kForm, 16, 1, true>>(1),
    FormOf<Shape<kForm, 32, 1, true>>(1),  FormOf<Shape<kForm, 64, 2, true>>(1),
    FormOf<Shape<kForm, 128, 2, true>>(1),
};

std::span<const Form> FormsOf(PackedForm form) {
  return OfForm<std::span<const Form>>(form, [](auto of) { return std::span(kForms<of()>); });
}

}  // namespace

void RunPackedExperts(Stream stream, const HalfRows& x, const ExpertRows& experts,
                      std::span<const HalfProduct> products, std::optional<PackedTiling> tiling) {
  ForEachForm(products, [&](std::span<const HalfProduct> alike) {
    const std::span<const Form> forms = FormsOf(alike[0].weight.packed);
    for (size_t i = 0; i < alike.size(); i += many_packed::kMatrices) {
      const auto some =
          alike.subspan(i, std::min<size_t>(many_packed::kMatrices, alike.size() - i));
      many_packed::Run(stream, x, experts, some,
                       many_packed::BestPlan(forms, x.rows, experts.count, some, tiling));
    }
  });
}

}  // namespace reprise::cuda
