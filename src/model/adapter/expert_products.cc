// SPDX-License-Identifier: Apache-2.0
#include "model/adapter/expert_products.h"

#include <algorithm>
#include <string>
#include <utility>

namespace reprise {
namespace {

bool IsWhole(const StoredLowRank& stored) { return stored.down.shape.rank() == 3; }  // GGUF

// Rows that the weight has for an expert.
int64_t RowsOfExpert(const PlannedTensor& tensor, const FusedTensor* fused) {
  if (fused == nullptr) return tensor.rows;
  return fused->transposed ? fused->step * tensor.rows : fused->rows / tensor.slices;
}

// The row among them that row `row` of our expert is.
int64_t RowInExpert(const PlannedTensor& tensor, const FusedTensor* fused, int64_t expert,
                    int64_t row) {
  if (fused == nullptr) return row;
  if (fused->transposed) return fused->first_column + fused->step * row;
  return fused->RowOf(expert * tensor.rows + row) - expert * (fused->rows / tensor.slices);
}

// "model.layers.0.mlp.experts.weight" and "layers.0.mlp.experts.up_proj" ->
// "model.layers.0.mlp.experts.up_proj": what PEFT's patterns are matched with.
std::string ParameterName(const StoredLowRank& stored, const std::string& weight) {
  const std::string module = stored.weight.substr(0, stored.weight.rfind('.'));
  return module + weight.substr(weight.rfind('.'));
}

}  // namespace

Result<bool> ExpertProducts::Add(const AdapterFile& file, const StoredLowRank& stored,
                                 const PlannedTensor& tensor, size_t index,
                                 const FusedTensor* fused, int64_t expert) {
  const Shape& down = stored.down.shape;
  const Shape& up = stored.up.shape;
  const int64_t experts = tensor.slices, rows = RowsOfExpert(tensor, fused);
  int64_t rank = down[0];
  double scale = stored.scale;
  if (expert >= 0) {
    if (IsWhole(stored) || expert >= experts || up[0] != rows || down[1] != tensor.cols) {
      return false;
    }
  } else if (IsWhole(stored)) {
    rank = down[1];
    if (down[0] != experts || down[2] != tensor.cols || up[1] != rows) return false;
  } else {
    if (rank % experts != 0 || down[1] != tensor.cols || up[0] != rows) return false;
    rank /= experts;
    const std::string& weight = fused != nullptr ? fused->hf : tensor.hf;
    REPRISE_ASSIGN(scale, file.ScaleOf(ParameterName(stored, weight), rank));
  }
  Found& found = found_[index];
  if (found.of.empty()) {
    found = {&tensor, fused, {}, rank, scale};
    found.of.resize(expert < 0 ? 1 : size_t(experts));
  }
  const size_t place = expert < 0 ? 0 : size_t(expert);
  if (place >= found.of.size() || (expert < 0) != (found.of.size() == 1) ||
      found.of[place] != nullptr) {
    return InvalidArgument("the adapter changes " + Quoted(stored.weight) + " under two names");
  }
  if (found.rank != rank || found.scale != scale) {
    return Unimplemented("the adapter's products for the experts of " + Quoted(stored.weight) +
                         " differ in rank or scale, which is not supported");
  }
  found.of[place] = &stored;
  return true;
}

Result<ExpertProducts::Stack> ExpertProducts::JoinOne(const Found& found) {
  const PlannedTensor& tensor = *found.tensor;
  const int64_t experts = tensor.slices, rank = found.rank;
  const bool single = found.of.size() == 1 && experts > 1;
  DType dtype = DType::kF32;
  if (found.of.front() != nullptr) dtype = HeldAs(found.of.front()->down);
  for (const StoredLowRank* stored : found.of) {
    if (stored == nullptr) {
      return Unimplemented("the adapter changes some experts of a layer and leaves others out (" +
                           Quoted(tensor.hf) + "), which is not supported");
    }
    if (HeldAs(stored->down) != dtype || HeldAs(stored->up) != dtype) dtype = DType::kF32;
  }
  Stack stack{found.scale, AdapterValues(dtype, experts * rank, tensor.cols),
              AdapterValues(dtype, experts * tensor.rows, rank)};
  std::vector<float> row(size_t(std::max(tensor.cols, experts * rank)));
  std::vector<float> some(static_cast<size_t>(rank));
  for (int64_t e = 0; e < experts; ++e) {
    const StoredLowRank& stored = *found.of[single ? 0 : size_t(e)];
    const bool whole = IsWhole(stored);
    for (int64_t r = 0; r < rank; ++r) {
      ReadFloats(stored.down, single ? e * rank + r : r, row.data());
      stack.down.SetRow(e * rank + r, row.data());
    }
    const int64_t rows = RowsOfExpert(tensor, found.fused);
    for (int64_t i = 0; i < tensor.rows; ++i) {
      const int64_t at = RowInExpert(tensor, found.fused, e, i);
      ReadFloats(stored.up, whole ? e * rows + at : at, row.data());
      if (single && !whole) {
        for (int64_t r = 0; r < rank; ++r) some[size_t(r)] = row[size_t(r * experts + e)];
      }
      stack.up.SetRow(e * tensor.rows + i, single && !whole ? some.data() : row.data());
    }
  }
  return stack;
}

Result<std::map<size_t, ExpertProducts::Stack>> ExpertProducts::Join() const {
  std::map<size_t, Stack> stacks;
  for (const auto& [index, found] : found_) {
    REPRISE_ASSIGN(Stack stack, JoinOne(found));
    stacks.emplace(index, std::move(stack));
  }
  return stacks;
}

}  // namespace reprise
