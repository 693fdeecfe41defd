// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <span>

#include "kernels/cuda/tensor/few/product_few.h"

namespace reprise::cuda {

// Which forms the weights of some products have.
class FormSet {
 public:
  FormSet(std::initializer_list<PackedForm> forms) {
    for (const PackedForm form : forms) Add(form);
  }
  explicit FormSet(std::span<const HalfProduct> products) {
    for (const HalfProduct& one : products) Add(one.weight.packed);
  }
  bool operator==(const FormSet&) const = default;

 private:
  void Add(PackedForm form) { bits_ |= 1u << unsigned(form); }
  unsigned bits_ = 0;
};

// As RunSmallProducts (tensor/few/small.h), of packed weights of the forms that it has code for:
// one, or two that files mix. False, and nothing is done: this call is no such.
bool RunSmallPacked(Stream stream, const FewProducts& few, const FormSet& forms);

}  // namespace reprise::cuda
