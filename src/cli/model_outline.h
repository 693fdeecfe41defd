// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "model/model.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace reprise::cli {

// What a model needs, read from the headers of its files: no weight is touched. For commands that
// talk about a model without running it (inspect, diff, doctor).
struct ModelOutline {
  ModelCard card;             // its `weight_bytes` and `step_bytes` are those of a loaded model
  uint64_t weight_bytes = 0;  // of all tensors as stored
  // About what one generated token reads of them: all but a table of embeddings that is not the
  // head as well, and of experts the share that a token goes to.
  uint64_t step_bytes = 0;
  // Of one that is loaded with its block that predicts further tokens: mtp_state, or mtp_absent.
  ModelCard with_mtp;
  double step_share = 1;  // of all weights; known without a tensor, too, from the configuration
};

// `context_tokens`: of the longest request, which chooses a rotary regime where there are several;
// 0: the model's own. Fails if the family is unknown.
Result<ModelOutline> ReadModelOutline(const Checkpoint& checkpoint, DType kv,
                                      int64_t context_tokens);

}  // namespace reprise::cli
