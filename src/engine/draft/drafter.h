// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/state_cache.h"
#include "engine/draft/draft_memory.h"
#include "engine/draft/speculate.h"

namespace reprise {

struct GenerateRequest;

// A sequence that could run drafts in the next step.
struct DraftJob {
  Lease* lease = nullptr;  // its last token is the one to be run; nothing of it is reserved
  const GenerateRequest* request = nullptr;
  DraftMemory* memory = nullptr;
  Speculate mode = Speculate::kAuto;
  bool has_pictures = false;    // rows of its prompt stand for pictures
  int32_t count = 0;            // drafts at most
  std::vector<TokenId> tokens;  // out: drafts, the first for the place behind the last token
  DraftGrade grade = DraftGrade::kOther;
  bool dear = false;  // a drafter was not asked: its guesses take longer than they save
};

// Guesses what a model will say. Guesses change no answer, only how soon it comes: each is run as a
// row of the step and kept if the model's own choice is the same.
//
// A drafter sees all sequences of a step at once, so that one which runs a model runs it once: that
// of a block for several tokens (MTP), or a small one. What it remembers of a sequence is in
// DraftMemory.
//
// Thread safety: none; the engine's thread.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual Drafts source() const = 0;
  // Whether requests in this mode ask it.
  virtual bool Serves(Speculate mode) const = 0;
  // Fills `tokens` and `grade` of jobs for which it has something. REQUIRES: it serves them all,
  // and they have no tokens yet.
  virtual void Propose(std::span<DraftJob* const> jobs) = 0;

  // Whether its guesses are worth more than drafts that are less likely to be right, which another
  // drafter already has for nothing.
  virtual bool improves() const { return false; }
  // Milliseconds that a draft takes to guess, for all sequences of a step together; 0: none to
  // speak of. Who takes time is asked for as many as are worth it.
  virtual double draft_ms() const { return 0; }
  // Of its drafts. REQUIRES: draft_ms() > 0.
  virtual DraftGrade grade() const { return DraftGrade::kOther; }
  // The sequence has ended, and what it has computed stays.
  virtual void End(DraftMemory* /*memory*/) {}
};

}  // namespace reprise
