// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/rope.cuh"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) AnglesOfRows(AngledRows rows) {
  LetNextStart();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  // Positions come with the step, so only what is written waits. Every block must.
  if (index >= rows.rows * rows.angles.half) return WaitForInputs();
  const Angle angle(rows, index);
  WaitForInputs();
  angle.Store(rows, index);
}

__global__ void __launch_bounds__(kThreads) AnglesOfPlaces(AngledRows rows) {
  WaitForInputs();
  LetNextStart();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= rows.rows * rows.angles.half) return;
  Angle(static_cast<float>(rows.positions[index]), rows.inverse_frequency[index % rows.angles.half],
        rows.magnitude)
      .Store(rows, index);
}

// One thread a pair of channels.
__global__ void __launch_bounds__(kThreads)
    RotateRows(RopeAngles angles, int heads, int offset, View x) {
  WaitForInputs();
  LetNextStart();
  const int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index >= heads * angles.half) return;
  const int head = index / angles.half;
  const int i = index % angles.half;
  const int64_t channel = head * (x.cols / heads) + offset + i;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    float* at = x.data + row * x.stride + channel;
    const float cos = angles.cos[row * angles.half + i];
    const float sin = angles.sin[row * angles.half + i];
    const float a = at[0];
    const float b = at[angles.half];
    at[0] = fmaf(a, cos, -(b * sin));
    at[angles.half] = fmaf(b, cos, a * sin);
  }
}

}  // namespace

void MakeRopeAngles(Stream stream, const AngledRows& rows) {
  if (rows.rows == 0 || rows.angles.half == 0) return;
  const unsigned blocks = Blocks(rows.rows * rows.angles.half, kThreads);
  LaunchEarly(AnglesOfRows, blocks, kThreads, 0, stream, rows);
}

void MakePlacedAngles(Stream stream, const AngledRows& rows) {
  if (rows.rows == 0 || rows.angles.half == 0) return;
  const unsigned blocks = Blocks(rows.rows * rows.angles.half, kThreads);
  LaunchInTurn(AnglesOfPlaces, blocks, kThreads, 0, stream, rows);
}

void Rope(Stream stream, const RopeAngles& angles, int heads, int offset, const View& x) {
  if (x.rows == 0 || angles.half == 0 || heads == 0) return;
  const dim3 grid(Blocks(int64_t{heads} * angles.half, kThreads), RowBlocks(x.rows));
  LaunchEarly(RotateRows, grid, kThreads, 0, stream, angles, heads, offset, x);
}

}  // namespace reprise::cuda
