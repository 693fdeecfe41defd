// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/choice_ops.h"
#include "kernels/cuda/choice/choose.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/view.h"

namespace reprise::cuda {

// The largest logit of every row of a step, and its flags, as kernels tell them to the host: asked
// for with the step, as a part of its graph, or behind it.
//
//   told.Prepare(rows, flags);
//   told.Ask(stream, logits, flagged, flags, workspace);  // or a graph that has these launches
//   told.Take(stream, results);
//
// Thread safety: none.
class ToldChoices {
 public:
  // Room for so many, in a place that moves only to grow, and a sign that was not seen there yet.
  // Whatever was asked for before must have been taken.
  Status Prepare(int64_t rows, int64_t flags);
  const void* place() const { return memory_.data(); }

  // workspace: LargestWorkspace. flags: as many as were prepared for, or null: none. flagged: those
  // that are still to be made.
  void Ask(Stream stream, const View& logits, const FlaggedRows& flagged, const uint8_t* flags,
           std::byte* workspace);
  // Waits for what was asked of the stream. results.flags may be fewer.
  void Take(Stream stream, const ChoiceResults& results);

 private:
  Pinned memory_;
  LargestView view_;
  int64_t rows_ = 0;
  uint32_t sign_ = 0;
};

}  // namespace reprise::cuda
