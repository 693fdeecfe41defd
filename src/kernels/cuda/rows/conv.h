// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

// Ops that carry a small state along each sequence of a step, with the bits of the CPU. The state
// of a sequence is f32 and lies `state_offset` bytes into its recurrent state
// (step.state_memory + id * step.state_bytes); it is read, and left after the sequence's last row
// and, on the way, in the state of every tap (TapView::row counts the rows of the step).
// REQUIRES: no tap names the state of a sequence of the step. Taps of a sequence ascend.
namespace reprise::cuda {

// Depth-wise causal convolution; state: [reach - 1, channels], oldest first; weight: [reach,
// channels]; bias: [channels] or null. REQUIRES: 2 <= reach <= kMaxConvReach, y is not x.
inline constexpr int kMaxConvReach = 16;
void ShortConv(Stream stream, const StepView& step, int64_t state_offset, const float* weight,
               const float* bias, int reach, bool silu, const View& x, const View& y);

// outs[i][t] = lerp(x[t], x[t - 1], mix[i]); state: [cols], the row before the first one.
// REQUIRES: no out is x.
struct ShiftedOutputs {
  static constexpr int kMost = 8;
  int count = 0;
  const float* mix[kMost] = {};  // [cols] each
  View out[kMost];
};
void TokenShift(Stream stream, const StepView& step, int64_t state_offset, const View& x,
                const ShiftedOutputs& outs);

// Griffin's recurrent unit; state: [channels]; rate: [channels]; r and i before their sigmoid. A
// row at position 0 starts anew.
void RgLru(Stream stream, const StepView& step, int64_t state_offset, const float* rate,
           const View& x, const View& r, const View& i, const View& y);

// Mamba-1; state: [keys, channels]; a: [keys, channels]; skip: [channels]; b, c: [rows, keys].
// REQUIRES: keys <= SelectiveKeysMax(shared memory of a block).
inline constexpr int kSelectiveThreads = 32;
constexpr int64_t SelectiveKeysMax(size_t block_shared) {
  return int64_t(block_shared / (kSelectiveThreads * sizeof(float)));
}
void SelectiveScan(Stream stream, const StepView& step, int64_t state_offset, const float* a,
                   const float* skip, const View& x, const View& dt, const View& b, const View& c,
                   const View& y);

}  // namespace reprise::cuda
