// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/cuda/rows/last_rows.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) CopyRows(View x, const int32_t* index, View out) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= out.cols) return;
  for (int64_t i = blockIdx.y; i < out.rows; i += gridDim.y) {
    out.data[i * out.stride + column] = x.data[index[i] * x.stride + column];
  }
}

__global__ void __launch_bounds__(kThreads)
    SetFlags(int count, const int32_t* spoilt, uint8_t* flags) {
  WaitForInputs();
  LetNextStart();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < count) flags[i] = spoilt == nullptr || spoilt[i] == 0;
}

__global__ void __launch_bounds__(kThreads)
    ClearFlags(const int32_t* row_sequence, View x, uint8_t* finite) {
  WaitForInputs();
  LetNextStart();
  const bool all = AreFinite(x, blockIdx.x, 1);
  if (threadIdx.x == 0 && !all) finite[row_sequence[blockIdx.x]] = 0;  // by whoever comes
}

// One block a sequence.
__global__ void __launch_bounds__(kThreads)
    FlagSequences(const SequenceView* sequences, const int32_t* spoilt, View x, uint8_t* finite) {
  LetNextStart();  // few blocks: there is room beside them
  const SequenceView sequence = sequences[blockIdx.x];
  WaitForInputs();
  const bool all = AreFinite(x, sequence.row_begin, sequence.row_count);
  const bool whole = spoilt == nullptr || spoilt[blockIdx.x] == 0;
  if (threadIdx.x == 0) finite[blockIdx.x] = all && whole ? 1 : 0;
}

}  // namespace

void GatherRows(Stream stream, const View& x, const int32_t* index, const View& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 grid(Blocks(out.cols, kThreads), RowBlocks(out.rows));
  LaunchEarly(CopyRows, grid, kThreads, 0, stream, x, index, out);
}

bool FewPerSequence(const StepView& step) { return step.rows <= 2 * step.sequence_count; }

void FiniteSequences(Stream stream, const StepView& step, const View& x, uint8_t* finite) {
  if (step.sequence_count == 0) return;
  const auto rows = static_cast<unsigned>(step.rows);
  const auto sequences = static_cast<unsigned>(step.sequence_count);
  if (FewPerSequence(step)) {  // a decoded token waits for one kernel
    return LaunchEarly(FlagSequences, sequences, kThreads, 0, stream, step.sequences, step.spoilt,
                       x, finite);
  }
  const unsigned blocks = Blocks(step.sequence_count, kThreads);
  LaunchEarly(SetFlags, blocks, kThreads, 0, stream, step.sequence_count, step.spoilt, finite);
  if (step.rows == 0) return;
  LaunchEarly(ClearFlags, rows, kThreads, 0, stream, step.row_sequence, x, finite);
}

}  // namespace reprise::cuda
