// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/choice_ops.h"
#include "kernels/cuda/view.h"

namespace reprise::cuda {

// The operands of choosing, all where the device reaches them.
struct ChoiceView {
  const ChoiceRow* rows = nullptr;
  const TokenBias* biases = nullptr;
  const TokenSaid* said = nullptr;
  const uint64_t* masks = nullptr;
  ChosenToken* chosen = nullptr;
  ListedToken* listed = nullptr;
  int32_t logprobs_max = 0;
};

// What some row of a batch asks for: launches that none needs are left out.
struct ChoiceNeeds {
  bool adjusted = false;  // biases, penalties, masks
  bool drawn = false;     // a temperature
  bool logprobs = false;

  // The largest logit of every row is all there is to know.
  bool none() const { return !adjusted && !drawn && !logprobs; }
};

// Bytes of workspace, aligned to 256, for so many rows.
size_t ChooseWorkspace(int64_t rows, int64_t vocab, const ChoiceNeeds& needs);

// Five launches at most, whose sizes follow from the shape and the needs alone.
void ChooseTokens(Stream stream, const View& logits, const ChoiceView& choice,
                  const ChoiceNeeds& needs, std::byte* workspace);

// Sequences of a step whose flags are made beside the largest: finite[s] = 1 if every value of x in
// the rows of sequence s is a finite number, else 0.
struct FlaggedRows {
  const SequenceView* sequences = nullptr;  // null: none
  int count = 0;
  View x;
  uint8_t* finite = nullptr;
};

// Where the largest of every row go: memory of the host, which looks for them there. A copy behind
// the kernels, and waiting for the stream, would take as long as they do. Every word has the sign
// above what it tells, so none waits for another on the way.
struct LargestView {
  uint64_t* chosen = nullptr;    // [rows, 2]: the token, or -1 if a logit is not finite; its logit
  uint64_t* flags_to = nullptr;  // [flag_count]
  const uint32_t* sign = nullptr;  // the host's, too: read before the kernel in front has ended
  FlaggedRows flagged;
  // Go along with the first row; they may be those that were just made.
  const uint8_t* flags = nullptr;
  int64_t flag_count = 0;
};
size_t LargestWorkspace(int64_t rows, int64_t vocab);
void ChooseLargest(Stream stream, const View& logits, const LargestView& largest,
                   std::byte* workspace);

}  // namespace reprise::cuda
