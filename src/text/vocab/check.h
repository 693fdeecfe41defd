// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// Checks everything about `spec` that later code relies on: sizes within limits, parallel arrays of
// equal length, every id in range. Fails with kDataLoss and one sentence.
Status CheckVocab(const VocabSpec& spec);

// Adds to spec->eos_ids the special tokens by which published models end a turn ("<|im_end|>",
// "<|eot_id|>"...), for files that name only one of several.
void AddKnownEndTokens(VocabSpec* spec);

}  // namespace reprise
