// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "model/adapter/adapter_file.h"
#include "model/adapter/adapter_values.h"
#include "model/tensor_plan.h"

namespace reprise {

// What an adapter adds to stacks of experts, brought together. Files have it in three forms:
//  * a pair of matrices for each expert ("experts.3.up_proj");
//  * one pair for all, as PEFT has it for parameters of three dimensions: down [experts * rank,
//    cols], expert by expert, up [rows, rank * experts], where the experts of one place in the rank
//    stand together. The name is that of the module alone, so the shape says which parameter it is;
//  * GGUF: down [experts, rank, cols], up [experts, rows, rank].
class ExpertProducts {
 public:
  // `fused`: the weight holds more than the stack, which is these rows of it; null: it is the
  // stack. `expert`: the pair is of that one; -1: of all. False: it is of another weight.
  // The file outlives this.
  Result<bool> Add(const AdapterFile& file, const StoredLowRank& stored,
                   const PlannedTensor& tensor, size_t index, const FusedTensor* fused,
                   int64_t expert);

  struct Stack {
    double scale = 1;
    AdapterValues down;  // [experts * rank, cols]
    AdapterValues up;    // [experts * rows, rank]
  };
  // By the places of the weights in the plan. Fails if experts of a stack are missing or differ.
  Result<std::map<size_t, Stack>> Join() const;

 private:
  struct Found {
    const PlannedTensor* tensor = nullptr;
    const FusedTensor* fused = nullptr;
    std::vector<const StoredLowRank*> of;  // one, or for each expert
    int64_t rank = 0;
    double scale = 1;
  };
  static Result<Stack> JoinOne(const Found& found);

  std::map<size_t, Found> found_;
};

}  // namespace reprise
