// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/choice_ops.h"
#include "kernels/cuda/choice/choose.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/view.h"

namespace reprise::cuda {

// How the tokens of a batch are chosen, as one piece of memory. Batches of about the same size take
// the same room, so that steps of one shape have everything in the same places.
ChoiceNeeds NeedsOf(const ChoiceBatch& batch);
size_t OperandBytes(const ChoiceBatch& batch);  // a multiple of 16
// Writes them to memory of the host; as kernels will find them at `device`.
ChoiceView PutOperands(const ChoiceBatch& batch, std::byte* host, std::byte* device);

// The tokens of a step as kernels choose them and tell them to the host: asked for with the step,
// as a part of its graph, or behind it.
//
//   choices.Prepare(batch, operands, vocab, flags);
//   choices.Ask(stream, logits, flagged, flags);  // or a graph that has these launches
//   choices.Take(stream, results);
//
// Thread safety: none.
class Choices {
 public:
  explicit Choices(CudaMemory& memory) : memory_(memory), told_(memory) {}

  // Everything that launches see beside the logits and flags: where two are equal, so are the
  // launches.
  struct Asked {
    int64_t rows = 0;
    ChoiceNeeds needs;
    ChoiceView operands;
    ToldView told;
    std::byte* workspace = nullptr;

    bool operator==(const Asked&) const = default;
  };

  // Memory for all of it, in places that move only to grow, and a sign that was not seen there yet.
  // Whatever was asked for before must have been taken. Fails if there is no memory: nothing may be
  // asked for then.
  Status Prepare(const ChoiceBatch& batch, const ChoiceView& operands, int64_t vocab,
                 int64_t flags);
  const Asked& asked() const { return asked_; }

  // flags: as many as were prepared for, or null: none. flagged: those that are still to be made.
  void Ask(Stream stream, const View& logits, const FlaggedRows& flagged, const uint8_t* flags);
  // Waits for what was asked of the stream. results.flags may be fewer.
  void Take(Stream stream, const ChoiceResults& results);

 private:
  CudaMemory& memory_;
  DeviceBuffer workspace_;
  Pinned told_;
  Asked asked_;
  uint32_t sign_ = 0;
};

}  // namespace reprise::cuda
