// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "device/scratch.h"

namespace reprise {

class Backend;
struct AttentionParams;
struct ConstRows;
struct KvShape;
struct ScoredRows;
struct StepAdapters;

// Sees every op of a context begin and end: for profiles and tests.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void Begin(std::string_view op) = 0;
  virtual void End() = 0;
  // What ScoreKeys works on, before it does.
  virtual void Scores(const KvShape&, const AttentionParams&, const ConstRows& /*q*/,
                      const ScoredRows&) {}
};

// What an op needs besides its operands: passed, never global, so two engines can live in one
// process.
struct OpContext {
  Backend* backend = nullptr;
  ScratchArena* scratch = nullptr;  // reset by the caller of a step, not by ops
  OpObserver* observer = nullptr;
  const StepAdapters* adapters = nullptr;  // low_rank_ops.h; null: no row of the step has one
};

}  // namespace reprise
