// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/cuda/tensor/product_half.h"

// The forms that products of many rows have. Which one is chosen decides how long a product takes,
// and nothing else.
namespace reprise::cuda {

// Whose rows a warpgroup has 64 of, and how results leave.
enum class Way {
  kStaged,  // those of x; through shared memory and the copy engine, quicker where K is short
  kDirect,  // those of x; written by threads, which leaves more room for stages
  kTurned,  // those of the matrix: rows of x need only be a multiple of eight
};

// A tile: so many rows of x by so many of the matrix. Blocks may be in teams whose tiles stand side
// by side; those in a line read what they have in common once.
struct Tiling {
  int tokens;
  int outputs;
  Way way = Way::kDirect;
  int team_tokens = 1;
  int team_outputs = 1;
};

// What a product takes: a launch, and turns of all multiprocessors, each of so much for every 64
// along K and for its tile. Measured on an H200; on another GPU it is the ratios that count.
struct ProductForm {
  Tiling tiling;
  int step_ns;
  int tile_ns;
  int launch_ns;
};
// The first is that of groups. Of two that take as long the first is chosen.
inline constexpr std::array kProductForms = {
    ProductForm{{128, 128, Way::kStaged, 1, 2}, 358, 1800, 5500},
    ProductForm{{128, 128, Way::kDirect, 1, 2}, 372, 2700, 2500},
    ProductForm{{128, 192, Way::kStaged, 2, 1}, 540, 1500, 3000},
    ProductForm{{128, 208, Way::kStaged, 2, 1}, 575, 2400, 2500},
    ProductForm{{128, 96}, 272, 3575, 1750},
    ProductForm{{128, 64}, 211, 2968, 1000},
    ProductForm{{64, 96}, 190, 2600, 1000},
    ProductForm{{64, 64, Way::kDirect, 2, 1}, 134, 1460, 1750},
    ProductForm{{64, 64}, 141, 1887, 1250},
    ProductForm{{64, 32}, 127, 350, 2750},
    ProductForm{{16, 32}, 118, 700, 3500},
    ProductForm{{80, 192, Way::kTurned, 2, 1}, 346, 4350, 1750},
    ProductForm{{80, 128, Way::kTurned, 2, 1}, 234, 3900, 1000},
    ProductForm{{80, 64, Way::kTurned, 2, 1}, 151, 2000, 1750},
    ProductForm{{104, 192, Way::kTurned, 2, 1}, 470, 3450, 1000},
    ProductForm{{104, 128, Way::kTurned, 2, 1}, 306, 3800, 1000},
    ProductForm{{104, 64, Way::kTurned, 2, 1}, 186, 2450, 1000},
    ProductForm{{112, 192, Way::kTurned, 2, 1}, 507, 3050, 1000},
    ProductForm{{112, 128, Way::kTurned, 2, 1}, 326, 4270, 1000},
    ProductForm{{136, 128, Way::kTurned, 2, 1}, 401, 3030, 1000},
    ProductForm{{136, 64, Way::kTurned, 2, 1}, 222, 3000, 1000},
    ProductForm{{152, 128, Way::kTurned, 2, 1}, 466, 3030, 1000},
    ProductForm{{152, 64, Way::kTurned, 2, 1}, 242, 3110, 1000},
    ProductForm{{168, 128, Way::kTurned, 2, 1}, 503, 3500, 1000},
};

inline constexpr int kMatricesMost = 4;  // of one launch

// How a product is run: in one form, or the first rows of its matrix in one and the rest, which
// would not keep all multiprocessors busy, in another. Forms are places in the table.
struct ProductPlan {
  size_t form = 0;
  int64_t outputs = 0;  // of the first form; 0: all
  size_t rest = 0;
};
// The quickest one for so many rows. REQUIRES: one product, or up to kMatricesMost of one stride.
ProductPlan PlanOf(int64_t rows, std::span<const HalfProduct> products);

}  // namespace reprise::cuda
