// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "state/spec.h"

namespace reprise {

// What the bookkeeping costs, measured on the index alone, for a model of this spec: a tree of
// 1,000,000 tokens (ten prompts of 100,000 that share half, and short ones).
struct BookkeepingCost {
  size_t tokens_stored = 0;
  double lookup_seconds = 0;  // of a prompt of 100,000 tokens; the least of many tries
  double metadata_share = 0;  // of the bytes of state
};
BookkeepingCost MeasureBookkeeping(const StateSpec& spec);

// What a step costs beside the forward pass, as far as the index is concerned: one request computes
// a long document, `waiting` others have questions about it, `running` sequences decode, `entries`
// others lie in the tree. Processor time of the thread.
struct StepLoad {
  int running = 256;
  int waiting = 256;
  int32_t prompt_tokens = 100'000;
  int entries = 100'000;
};
struct StepCost {
  double median_seconds = 0;
  double worst_seconds = 0;    // of all steps but the first, in which the requests arrive
  double landing_seconds = 0;  // of the step that finds the document computed
  double view_seconds = 0;     // of a picture of 200 nodes
};
StepCost MeasureStep(const StateSpec& spec, const StepLoad& load);

}  // namespace reprise
