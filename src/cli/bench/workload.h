// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace reprise::cli {

// Traffic as people have it, in random tokens: what `reprise bench` runs cold and warm.
//
//  chat    conversations over one system prompt of 200 tokens, turn by turn
//  rag     one document of 1,000 tokens, asked again and again
//  batch   100 different inputs behind one instruction of 50 tokens, all at once
//  agent   1,000 tokens of system prompt and tools, then a loop of tool calls
//  mixed   the above, interleaved
struct WorkloadTurn {
  int32_t conversation = 0;  // its history is the prompt's beginning
  int32_t message_tokens = 0;
  int32_t reply_tokens = 0;
  uint64_t message_seed = 0;
};

struct Workload {
  std::string name;
  std::vector<int32_t> system_tokens;  // by conversation
  std::vector<uint64_t> system_seed;   // equal seeds: equal system prompts
  std::vector<WorkloadTurn> turns;     // in order
  bool concurrent = false;             // all turns at once; else one after another
};

Result<Workload> MakeWorkload(std::string_view name);
inline constexpr const char* kWorkloads[] = {"chat", "rag", "batch", "agent", "mixed"};

// What one pass over a workload showed.
struct WorkloadRun {
  std::vector<double> first_token_ms;  // by turn
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t generated_tokens = 0;
  double seconds = 0;
  size_t cache_bytes = 0;  // held at the end

  void Add(const Completion& completion);
};

Result<WorkloadRun> RunWorkload(const Workload& workload, Executor& executor,
                                const CacheOptions& cache);

}  // namespace reprise::cli
