// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/product_half.h"

// Products of 16-bit activations with packed weights (packed.h). The bits are those of products
// with the same weights in f16 (product_half.h), whatever the number of rows and the form.
namespace reprise::cuda {

// Calls run(products of one form) for each form that there is; in the order in which they come.
template <typename Run>
void ForEachForm(std::span<const HalfProduct> products, const Run& run) {
  std::vector<HalfProduct> left(products.begin(), products.end());
  while (!left.empty()) {
    std::vector<HalfProduct> alike, others;
    for (const HalfProduct& one : left) {
      (one.weight.packed == left[0].weight.packed ? alike : others).push_back(one);
    }
    run(std::span<const HalfProduct>(alike));
    left = std::move(others);
  }
}

// What `of`, called with a form as its std::integral_constant, returns; nothing for kNone.
template <typename Result, typename Of>
Result OfForm(PackedForm form, const Of& of) {
  switch (form) {
    case PackedForm::kNone:
      break;
    case PackedForm::kBytes:
      return of(std::integral_constant<PackedForm, PackedForm::kBytes>());
    case PackedForm::kNibbles:
      return of(std::integral_constant<PackedForm, PackedForm::kNibbles>());
    case PackedForm::kFives:
      return of(std::integral_constant<PackedForm, PackedForm::kFives>());
    case PackedForm::kSixes:
      return of(std::integral_constant<PackedForm, PackedForm::kSixes>());
  }
  return {};
}

// Rows that blocks round themselves, with what rides along. REQUIRES: x.f32, no groups, one number
// of columns of all weights; of a gate one form of both.
void RunPackedFew(Stream stream, const FewProducts& few);

// How a product of rows that are rounded is divided: tiles of so many rows of x by 64 or 128 rows
// of the matrix, and among how many blocks the slices of K of a tile.
struct PackedTiling {
  int tokens;      // 8, 16, 32, 64, 128 or (not of kSixes) 160
  int groups;      // 1: 64 rows of the matrix, 2: 128
  int team;        // 1, 2 or 4 blocks
  int blocks = 0;  // at most; they share tiles then. 0: as is quickest
};
// With wgmma and the copy engine.
// REQUIRES: one form and one number of columns of all weights. tiling: to be measured or tested,
// else the quickest.
void RunPackedMany(Stream stream, const HalfRows& x, std::span<const HalfProduct> products,
                   std::optional<PackedTiling> tiling = std::nullopt);

// The same on any GPU, in at most 99 KiB of shared memory: tiles of so many rows of x by so many
// of the matrix, in a block whose warps divide the slices of K among so many groups.
struct PackedTile {
  int tokens, rows, along;
  bool operator==(const PackedTile&) const = default;
};
std::vector<PackedTile> PackedTiles();
void RunPackedTiles(Stream stream, const HalfRows& x, std::span<const HalfProduct> products,
                    std::optional<PackedTile> tile = std::nullopt);

}  // namespace reprise::cuda
