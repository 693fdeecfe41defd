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

// Where the largest of every row go: memory of the host, which looks for the signs. A copy behind
// the kernels, and waiting for the stream, would take as long as they do.
struct LargestView {
  ChosenToken* chosen = nullptr;   // [rows]
  uint32_t* signs = nullptr;       // [rows]: get the sign when everything else of the row is there
  const uint32_t* sign = nullptr;  // the host's, too: read before the kernel in front has ended
  // Bytes that go along with the first row.
  const uint8_t* flags = nullptr;
  uint8_t* flags_to = nullptr;
  int64_t flag_count = 0;
};
size_t LargestWorkspace(int64_t rows, int64_t vocab);
void ChooseLargest(Stream stream, const View& logits, const LargestView& largest,
                   std::byte* workspace);

}  // namespace reprise::cuda
