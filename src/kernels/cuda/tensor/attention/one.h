// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/attention/attention.h"

// Attention of one row a sequence, a decoded token, from its projections on: StoreHeads and Attend
// (attention.h) in one kernel. The bits are theirs; q stays as it was.
namespace reprise::cuda {

struct HeadRowsView {
  HeadsView inputs;
  View q, k, v;
};

bool HasOneRowAttention(const StepView& step, const KvView& kv, const HeadRowsView& heads);
// Whether it is quicker than the two of them: it is, but for many pages.
bool PrefersOneRow(const StepView& step, const DepthView& depth, const KvView& kv,
                   const AttentionView& params);
// REQUIRES: HasOneRowAttention(...).
void AttendOneRow(Stream stream, const StepView& step, const DepthView& depth, const KvView& kv,
                  const AttentionView& params, const HeadRowsView& heads, const View& out);

}  // namespace reprise::cuda
