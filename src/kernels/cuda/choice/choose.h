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
  int32_t logprobs_max = 0;

  bool operator==(const ChoiceView&) const = default;
};

// What some row of a batch asks for: launches that none needs are left out.
struct ChoiceNeeds {
  bool adjusted = false;  // biases, penalties, masks
  bool drawn = false;     // a temperature
  bool logprobs = false;

  // The largest logit of every row is all there is to know.
  bool none() const { return !adjusted && !drawn && !logprobs; }
  bool operator==(const ChoiceNeeds&) const = default;
};

// Sequences of a step whose flags are made beside the choice: finite[s] = 1 if every value of x in
// the rows of sequence s is a finite number and the step has not spoilt it, else 0.
struct FlaggedRows {
  const SequenceView* sequences = nullptr;  // null: none
  const int32_t* spoilt = nullptr;          // of the step, or null
  int count = 0;
  View x;
  uint8_t* finite = nullptr;
};

// Where choices go: memory of the host, which looks for them there. A copy behind the kernels, and
// waiting for the stream, would take as long as they do. Every word has the sign above what it
// tells, so none waits for another on the way.
struct ToldView {
  // The words of a row: the token, or -1 if a logit is not finite; its logit. Where log
  // probabilities are asked for also ChosenToken's largest, listed and mass, low half first, and
  // token and logit of those that are listed.
  static constexpr int kWords = 2, kWordsBeforeListed = 6;

  uint64_t* chosen = nullptr;  // [rows, words]
  int32_t words = kWords;
  uint64_t* flags = nullptr;  // [flag_count]
  int64_t flag_count = 0;
  const uint32_t* sign = nullptr;  // the host's, too: read before the kernel in front has ended

  bool operator==(const ToldView&) const = default;
};

// Bytes of workspace, aligned to 256.
size_t ChooseWorkspace(int64_t rows, int64_t vocab, const ChoiceNeeds& needs);

// Chooses a token for every row, as kernels/reference/choice.h says. flags: those that go along
// with the first row, which may be those that are made from `flagged`. Two launches where the
// largest are enough, else three for some rows each; their sizes follow from the shape and the
// needs alone.
void ChooseTokens(Stream stream, const View& logits, const ChoiceView& choice,
                  const ChoiceNeeds& needs, const FlaggedRows& flagged, const uint8_t* flags,
                  const ToldView& told, std::byte* workspace);

}  // namespace reprise::cuda
