// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/joined/riders.h"
#include "kernels/cuda/quantised/product.h"

// Products of one row with quantised weights, of types that are not packed (packed/packed.h): bound
// by reading the weights and by the number of kernels. So the row is quantised, and normed before
// it, by every block on the way, and what is done with the outputs is done where they come out.
namespace reprise::cuda {

struct OneRowProducts {
  static constexpr size_t kMost = 4;  // matrices of one launch

  View x;
  InputNorm norm;
  // Of one type of weights, each [rows, x.cols]; of any number, where there is no op. One to add
  // to a sum; {up, gate} for a gate.
  std::span<const QuantisedProduct> products;
  OutputOp op = OutputOp::kNone;
  View sum;
  bool hold_next = false;  // see StartStep
};
// REQUIRES: MayQuantiseOnTheWay(x), with a norm MayNormAndQuantise(x), for the blocks of the
// weights; h and the norm's weights are aligned to 16 bytes; nothing that is written is read.
void RunOneRowProducts(Stream stream, const OneRowProducts& call);
// Whether blocks can quantise this row themselves, for weights in blocks of `block`; with a norm
// before it.
bool MayQuantiseOnTheWay(const View& x, int64_t block);
bool MayNormAndQuantise(const View& x, int64_t block);

}  // namespace reprise::cuda
