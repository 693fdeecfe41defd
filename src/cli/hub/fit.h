// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/pull.h"
#include "tensor/dtype.h"
#include "weights/memory.h"

namespace reprise::cli {

// What a model costs beside its weights: read from its configuration, before they are fetched.
struct StateCard {
  int64_t context_tokens = 0;   // of the longest sequence that it was made for
  uint64_t token_bytes = 0;     // of K/V, per token
  uint64_t sequence_bytes = 0;  // once for a sequence: windows, recurrent state
  double step_share = 1;        // of the weights that one generated token reads
};

// Fetches config.json of a folder, or the head of a GGUF file (of each part), a few MiB at most,
// and asks the family. Fails with kUnimplemented or kInvalidArgument if Reprise cannot run such a
// model; with another code if the head could not be read.
Result<StateCard> ReadStateCard(const hub::Settings& settings, const hub::PullPlan& plan,
                                const hub::ModelFiles& files, DType kv);

// Whether weights of so many bytes leave room for a conversation.
struct FitVerdict {
  bool fits = false;
  int64_t context_tokens = 0;  // of one sequence, at most the model's
  uint64_t weight_bytes = 0;   // in memory
  uint64_t step_bytes = 0;     // of them that one generated token reads
  std::string why;             // one line for a person: numbers
};
FitVerdict JudgeFit(uint64_t file_bytes, const StateCard& card, const AvailableMemory& memory);

// What memory gives in a second, measured by reading as much as a token does (within bounds); 0: it
// could not be measured. Takes a part of a second.
double MeasureBandwidth(uint64_t step_bytes, const AvailableMemory& memory);

// The most tokens per second that one reply can have: every token reads step_bytes. 0: not known.
double MostTokensPerSecond(const FitVerdict& fit, double bytes_per_second);

// The verdict on every model of the offer, as a table; the largest that fits well is named.
std::string FitTable(const hub::PullPlan& plan, const StateCard* card,
                     const AvailableMemory& memory, double bytes_per_second);

}  // namespace reprise::cli
