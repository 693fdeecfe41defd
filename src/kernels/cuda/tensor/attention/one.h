// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/attention/attention.h"

// Attention of one row a sequence, a decoded token, from its projections on: StoreHeads and Attend
// (attention.h) in one kernel, or two where there are many pages. The bits are theirs; q stays as
// it was.
namespace reprise::cuda {

struct HeadRowsView {
  HeadsView inputs;
  View q, k, v;
};

bool HasOneRowAttention(const StepView& step, const KvView& kv, const HeadRowsView& heads);
// REQUIRES: HasOneRowAttention(...). workspace: as for Attend, though not every division needs it.
void AttendOneRow(Stream stream, const StepView& step, int64_t longest, const KvView& kv,
                  const AttentionView& params, const HeadRowsView& heads, const View& out,
                  void* workspace);

}  // namespace reprise::cuda
