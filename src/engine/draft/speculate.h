// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reprise {

// Which drafters a request asks.
enum class Speculate : uint8_t { kOff, kAuto, kTree, kNgram, kMtp, kDraft };
// "off", "auto", "tree", "ngram", "mtp", "draft"
std::string_view NameOf(Speculate mode);
std::optional<Speculate> FindSpeculate(std::string_view name);

// Where drafts come from.
enum class Drafts : uint8_t {
  kTree,        // what earlier requests were answered behind the same tokens
  kPrediction,  // what the client expects the reply to be
  kNgram,       // what followed the same few tokens in prompt and reply
  kMtp,         // what the model's own block for further tokens says
  kModel,       // what a small model says
  kOther,       // a drafter that the engine was given
};
inline constexpr size_t kDraftsCount = 6;
std::string_view NameOf(Drafts source);

// Drafts that are about as likely to be right.
enum class DraftGrade : uint8_t {
  kTree,
  kPrediction,
  kLongNgram,
  kShortNgram,
  kMtp,
  kModel,
  kOther,
};
inline constexpr size_t kDraftGradeCount = 7;

// Why the last step of a request that could have had drafts had none.
enum class DraftRest : uint8_t {
  kNone,     // it had some
  kOff,      // the request or the server said so
  kNothing,  // no drafter had anything
  kCost,     // they would have cost more time than they were likely to save
  kMemory,   // there was no room for their state
  kSlow,     // what the reply must look like takes long to ask for
  kSpoilt,   // the state of a step with drafts was not finite: it goes on without
  kShort,    // the reply has no tokens to draft
};
std::string_view NameOf(DraftRest rest);  // "off", "nothing_to_draft", ...

struct DraftCount {
  uint64_t run = 0;       // drafts that were rows of a step
  uint64_t accepted = 0;  // of them, those that are tokens now
};
using DraftCounts = std::array<DraftCount, kDraftsCount>;  // by source

// What speculation came to in one request.
struct SpeculationReport {
  DraftCounts drafts;
  DraftRest rest = DraftRest::kShort;

  DraftCount total() const {
    DraftCount sum;
    for (const DraftCount& one : drafts) {
      sum.run += one.run;
      sum.accepted += one.accepted;
    }
    return sum;
  }
};

}  // namespace reprise
