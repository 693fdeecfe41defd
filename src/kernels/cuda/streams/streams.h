// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

// The ops of activation_ops.h on rows of several streams, on lengths of rows and by positions, with
// the bits of the CPU.
namespace reprise::cuda {

// y may be x or like.
void MatchMagnitude(Stream stream, const View& x, const View& like, float least, const View& y);
// positions: [rows]; y may be x.
void ScaleByPosition(Stream stream, const int32_t* positions, const float* factors, int period,
                     const View& x, const View& y);
// y is neither x nor factors.
void MixStreams(Stream stream, const View& x, const View& factors, int streams, const View& y);
void AddToStreams(Stream stream, const View& x, const View& factors, const View& y);

}  // namespace reprise::cuda
