// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace reprise {

// Traces for tests that need no file beside the tree, in Mooncake's format: the two scans under
// which an order by age finds nothing, and conversations with the statistics of the public trace.
class TraceWriter {
 public:
  using Hashes = std::vector<int64_t>;  // each stands for 512 tokens

  Hashes NewHashes(int count) {
    Hashes hashes;
    for (int i = 0; i < count; ++i) hashes.push_back(++hash_count_);
    return hashes;
  }
  void Request(int64_t time_ms, const Hashes& hashes) {
    std::string ids;
    for (const int64_t hash : hashes) fmt::format_to(std::back_inserter(ids), "{}, ", hash);
    const size_t tokens = 512 * hashes.size() + 100;  // the rest never comes again
    lines_.emplace_back(
        time_ms, fmt::format(R"({{"timestamp": {}, "input_length": {}, "hash_ids": [{}{}]}})",
                             time_ms, tokens, ids, ++hash_count_));
  }
  std::string Take() {
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string text;
    for (const auto& [time_ms, line] : lines_) text += line + "\n";
    return text;
  }

 private:
  int64_t hash_count_ = 0;
  std::vector<std::pair<int64_t, std::string>> lines_;
};

// `conversations` of seven turns each, one request of them after another; between two of these,
// three documents that nobody asks for again.
inline std::string ConversationsAmongDocuments(int conversations) {
  TraceWriter trace;
  std::vector<TraceWriter::Hashes> histories;
  for (int i = 0; i < conversations; ++i) histories.push_back(trace.NewHashes(2));
  int64_t time_ms = 0;
  for (int turn = 0; turn < 7; ++turn) {
    for (TraceWriter::Hashes& history : histories) {
      trace.Request(time_ms += 1500, history);
      for (const int64_t hash : trace.NewHashes(1)) history.push_back(hash);
      for (int i = 0; i < 3; ++i) trace.Request(time_ms += 300, trace.NewHashes(12));
    }
  }
  return trace.Take();
}

// `documents`, read one after another, all of them `rounds` times.
inline std::string RoundRobin(int documents, int rounds) {
  TraceWriter trace;
  std::vector<TraceWriter::Hashes> all;
  for (int i = 0; i < documents; ++i) all.push_back(trace.NewHashes(12));
  int64_t time_ms = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const TraceWriter::Hashes& document : all) trace.Request(time_ms += 1000, document);
  }
  return trace.Take();
}

// Conversations as people have them with Mooncake's service: a request that brings little new text
// is followed by another in 65 of 100 cases, one that brings 8,000 tokens or more in 25; pauses are
// log-normal with a median of 100 s, and who was slow is slow again.
inline std::string PublicConversations(uint64_t seed, int conversations) {
  TraceWriter trace;
  Rng rng(seed);
  const auto normal = [&rng] {
    const double radius = std::sqrt(-2 * std::log(1 - double{rng.Uniform()}));
    return radius * std::cos(2 * std::numbers::pi * double{rng.Uniform()});
  };
  for (int i = 0; i < conversations; ++i) {
    double time_s = 0.6 * i;
    const double pace = 0.75 * normal();
    TraceWriter::Hashes history;
    for (bool goes_on = true; goes_on;) {
      const bool pasted = rng.Uniform() < (history.empty() ? 0.7 : 0.3);
      const double blocks = pasted ? std::exp(2.3 + normal()) : 1;
      const int more = std::clamp(static_cast<int>(blocks), 1, 120);
      for (const int64_t hash : trace.NewHashes(more)) history.push_back(hash);
      trace.Request(static_cast<int64_t>(1000 * time_s), history);
      time_s += 100 * std::exp(pace + 0.75 * normal());
      const double share = std::clamp(0.65 - 0.1 * std::log2(double(more)), 0.2, 0.65);
      goes_on = double{rng.Uniform()} < share;
    }
  }
  return trace.Take();
}

// Agents: a long system prompt that all have, then many short turns in quick succession.
inline std::string ToolLoops(uint64_t seed, int conversations) {
  TraceWriter trace;
  Rng rng(seed);
  const TraceWriter::Hashes system = trace.NewHashes(8);
  for (int i = 0; i < conversations; ++i) {
    double time_s = 5. * i;
    TraceWriter::Hashes history = system;
    const int turns = 4 + static_cast<int>(rng.Below(16));
    for (int turn = 0; turn < turns; ++turn) {
      for (const int64_t hash : trace.NewHashes(1)) history.push_back(hash);
      trace.Request(static_cast<int64_t>(1000 * time_s), history);
      time_s += 2 + 30 * double{rng.Uniform()};
    }
  }
  return trace.Take();
}

// A question and a second one, then never again.
inline std::string TwoQuestions(uint64_t seed, int conversations) {
  TraceWriter trace;
  Rng rng(seed);
  for (int i = 0; i < conversations; ++i) {
    TraceWriter::Hashes history = trace.NewHashes(1 + static_cast<int>(rng.Below(3)));
    trace.Request(1000 * int64_t{i}, history);
    history.push_back(trace.NewHashes(1).front());
    trace.Request(1000 * int64_t{i} + 5000 + int64_t(rng.Below(30'000)), history);
  }
  return trace.Take();
}

}  // namespace reprise
