// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/attention/attention.cuh"

namespace reprise::cuda {

// The scores of one row become weights, by one warp, which has two keys a lane: the arithmetic of
// Weigh. Returns the top. The weights, two by two, may take the place of the scores.
template <Half kType>
__device__ __forceinline__ float WeighRow(const AttentionView& params, int position, int page,
                                          const float* scores, uint32_t* weights) {
  const int key = 2 * static_cast<int>(threadIdx.x % kWarp);
  const int first = FirstSeen(params, position) - page * kKeys;
  const int end = position + 1 - page * kKeys;
  const float unit = reference::UnitOfScores(params.scale, params.softcap);
  const float2 two = *reinterpret_cast<const float2*>(scores + key);
  float score[2] = {two.x, two.y};
  if (params.softcap != 0) {
#pragma unroll
    for (float& s : score) s = Softcap(s * params.scale, params.softcap);
  }
  const auto visible = [&](int e) { return key + e >= first && key + e < end; };
  float most = kMinusInfinity;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    if (visible(e)) most = fmaxf(score[e], most);
  }
  // As integers that are ordered as the floats are, the largest of a warp is one instruction.
  const auto turn = [](int bits) { return bits ^ (bits >> 31 & 0x7FFFFFFF); };
  most = __int_as_float(turn(__reduce_max_sync(kFullWarp, turn(__float_as_int(most)))));
  const float top = reference::TopOfScores(most, unit);
  const float shift = reference::ShiftOfTop(top);
  float weight[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) weight[e] = reference::WeightOfScore(score[e], unit, shift);
  __syncwarp();  // all have read the scores
  weights[key / 2] =
      Pack2<kType>(visible(0) ? weight[0] : 0.0f, visible(1) ? weight[1] : 0.0f);
  return top;
}

}  // namespace reprise::cuda
