// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/quantised/layout.h"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/view.h"
#include "tensor/dtype.h"

// Rows of tables in, and what is read off rows of logits: the two ends of a step.
namespace reprise::cuda {

// out[t] = row tokens[t] of the table, as f32: exactly tensor/dequantise.cc.
// REQUIRES: every token is a row of the table.
void EmbedF32(Stream stream, const float* table, const int32_t* tokens, const View& out);
void EmbedHalf(Stream stream, const HalfMatrix& table, const int32_t* tokens, const View& out);
void EmbedQuantised(Stream stream, const QuantisedMatrix& table, const int32_t* tokens,
                    const View& out);

// out[i] = x[index[i]], for the rows of out.
void GatherRows(Stream stream, const View& x, const int32_t* index, const View& out);

// finite[s] = 1 if every value of x in the rows of sequence s is a finite number, else 0. x has the
// rows of the step.
void FiniteSequences(Stream stream, const StepView& step, const View& x, uint8_t* finite);
// Whether that is one kernel, or a part of another: a block for a sequence has little to do.
bool FewPerSequence(const StepView& step);
// The same for single rows: [x.rows].
void FiniteRows(Stream stream, const View& x, uint8_t* finite);
// The index of the largest value of each row, the lowest of equals; -1 if any is not finite.
void ArgMaxRows(Stream stream, const View& x, int32_t* index);

}  // namespace reprise::cuda
