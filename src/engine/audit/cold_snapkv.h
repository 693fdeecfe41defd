// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "model/executor.h"
#include "model/snapkv/keep_list.h"

namespace reprise {

// The logits [tokens.size(), vocab] of a request whose first `prompt_tokens` tokens were its prompt
// and that left out K/V as `options` say, from nothing, with neither engine nor cache: what audits
// hold such requests against. `space`: see SequenceSlice; the adapter counts from a position on.
// REQUIRES: executor.keeps(), CheckSnapKv says yes.
void RunColdSnapKv(Executor& executor, uint32_t space, std::span<const TokenId> tokens,
                   int32_t prompt_tokens, const SnapKv& options, float* logits,
                   const Adapter* adapter = nullptr, int32_t adapted_from = 0);

}  // namespace reprise
