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
using many_packed::Plan;
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
    FormOf<Shape<kForm, 128, 2>>(4),
    FormOf<Shape<kForm, kTall<kForm>, 2>>(1),
};

std::span<const Form> FormsOf(PackedForm form) {
  switch (form) {
    case PackedForm::kNone:
      break;
    case PackedForm::kBytes:
      return kForms<PackedForm::kBytes>;
    case PackedForm::kNibbles:
      return kForms<PackedForm::kNibbles>;
    case PackedForm::kFives:
      return kForms<PackedForm::kFives>;
    case PackedForm::kSixes:
      return kForms<PackedForm::kSixes>;
  }
  return {};
}

// Rows [begin, end) of the matrix. begin is a multiple of kPackedRows.
HalfProduct RowsOf(const HalfProduct& product, int64_t begin, int64_t end) {
  HalfProduct part = product;
  const int64_t tile_bytes =
      product.weight.stride / kUnitCols * 2 * UnitBytes(product.weight.packed);
  part.weight.data = reinterpret_cast<const uint16_t*>(
      reinterpret_cast<const uint8_t*>(product.weight.data) + begin / kPackedRows * tile_bytes);
  part.weight.rows = end - begin;
  if (part.bias != nullptr) part.bias += begin;
  part.out.data += begin;
  part.out.cols = end - begin;
  return part;
}

// Tiles that fill all multiprocessors some times over, and what is left as a launch of its own,
// divided otherwise: a last turn in which half of them rest is lost time. False: no gain.
bool RunInTwo(Stream stream, const HalfRows& x, std::span<const HalfProduct> products,
              const Plan& whole) {
  constexpr double kGainLeast = 0.04;
  if (whole.form == nullptr || whole.team > 1) return false;
  const PackedTiling& tiling = whole.form->tiling;
  if (tiling.tokens < 64) return false;  // the weights' memory has the time, and is never idle
  const int64_t high = CeilDiv<int64_t>(x.rows, tiling.tokens);
  const int64_t at_once = ThisGpu().multiprocessors / high;  // columns of tiles
  int64_t columns = 0;
  for (const HalfProduct& one : products)
    columns += CeilDiv<int64_t>(one.weight.rows, 64 * tiling.groups);
  if (at_once == 0 || columns <= at_once) return false;
  int64_t left = columns / at_once * at_once;
  std::vector<HalfProduct> first, second;
  for (const HalfProduct& one : products) {
    const int64_t rows = one.weight.rows;
    const int64_t mine = std::min(left * 64 * tiling.groups, rows);
    left -= CeilDiv<int64_t>(mine, 64 * tiling.groups);
    if (mine > 0) first.push_back(RowsOf(one, 0, mine));
    if (mine < rows) second.push_back(RowsOf(one, mine, rows));
  }
  if (second.empty()) return false;
  const std::span<const Form> forms = FormsOf(products[0].weight.packed);
  const Plan head = BestPlan(forms, x.rows, 0, first, std::nullopt);
  const Plan tail = BestPlan(forms, x.rows, 0, second, std::nullopt);
  if (head.ns + tail.ns > (1 - kGainLeast) * whole.ns) return false;
  Run(stream, x, {}, first, head);
  Run(stream, x, {}, second, tail);
  return true;
}

}  // namespace

void RunPackedMany(Stream stream, const HalfRows& x, std::span<const HalfProduct> products,
                   std::optional<PackedTiling> tiling) {
  for (size_t i = 0; i < products.size(); i += kMatrices) {
    const auto some = products.subspan(i, std::min<size_t>(kMatrices, products.size() - i));
    const Plan whole = BestPlan(FormsOf(some[0].weight.packed), x.rows, 0, some, tiling);
    if (tiling || !RunInTwo(stream, x, some, whole)) Run(stream, x, {}, some, whole);
  }
}

}  // namespace reprise::cuda
