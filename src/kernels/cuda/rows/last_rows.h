// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

// What the end of a step has to do with rows: those that have logits, and whether all are
// numbers.
namespace reprise::cuda {

// out[i] = x[index[i]], for the rows of out.
void GatherRows(Stream stream, const View& x, const int32_t* index, const View& out);

// finite[s] = 1 if every value of x in the rows of sequence s is a finite number and no op has
// spoilt the sequence, else 0. x has the rows of the step.
void FiniteSequences(Stream stream, const StepView& step, const View& x, uint8_t* finite);
// Whether that is one kernel, or a part of another: a block for a sequence has little to do.
bool FewPerSequence(const StepView& step);

}  // namespace reprise::cuda
