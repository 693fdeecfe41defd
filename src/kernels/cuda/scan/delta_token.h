// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/scan/lane_scan.h"
#include "kernels/cuda/view.h"

// A GatedDeltaNet layer between its projections (kernels/joint_ops.h) for one token a sequence, in
// one kernel: a decoded token is bound by the number of kernels. The bits are those of the ops.
namespace reprise::cuda {

struct DeltaTokenLayer {
  LaneScanShape shape;
  int reach = 0;
  int64_t conv_offset = 0;  // of the states
  int64_t delta_offset = 0;
  const float* conv = nullptr;
  const float* exp_a = nullptr;
  const float* dt_bias = nullptr;
  const float* norm = nullptr;
  float l2_eps = 0;
  float norm_eps = 0;
  float q_scale = 1;
};

// Whether there is a kernel for layers of this shape; and for many sequences.
bool HasDeltaToken(const DeltaTokenLayer& layer);
bool HasDeltaTokens(const DeltaTokenLayer& layer);
// REQUIRES: HasDeltaToken(layer); every sequence of the step has one row (and so no tap); rows of
// qkv start at multiples of 16 bytes.
void DeltaToken(Stream stream, const StepView& step, const DeltaTokenLayer& layer, const View& qkv,
                const View& a, const View& b, const View& z, const View& y);
// The same for many sequences, in three kernels: bound by reading and writing the states. mixed:
// room as large as qkv; a and b are not kept.
// REQUIRES: HasDeltaTokens(layer), and as above; rows of mixed and y start at multiples of 16
// bytes.
void DeltaTokens(Stream stream, const StepView& step, const DeltaTokenLayer& layer, const View& qkv,
                 const View& a, const View& b, const View& z, const View& mixed, const View& y);

}  // namespace reprise::cuda
