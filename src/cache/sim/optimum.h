// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/sim/trace.h"

namespace reprise {

// What a cache that knows the future would reach: prompts in blocks of 64 tokens, K/V only. It
// drops what is used again last (Belady); as a block is used whenever one behind it is, that never
// takes a block away under another, so for attention-only models no policy can do better.
//
// Returns, for each fraction, the prompt tokens found in a cache that may hold this share of all
// distinct blocks of the trace.
std::vector<uint64_t> FindOptimum(const Trace& trace, std::span<const double> fractions);

}  // namespace reprise
