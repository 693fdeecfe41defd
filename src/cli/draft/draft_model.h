// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "cli/flags.h"
#include "cli/loaded_model.h"
#include "engine/draft/model_drafter.h"
#include "engine/draft/speculate.h"
#include "model/executor.h"
#include "text/tokenizer.h"

namespace reprise::cli {

// How the commands that answer speculate (docs/speculation.md).
struct SpeculateOptions {
  std::string mode = "auto";
  std::string draft_model;  // empty: none
};
void AddSpeculateOptions(Flags* flags, SpeculateOptions* options);
// How requests speculate that do not say, on a device that chooses tokens (a GPU) or another:
// `auto` has no drafts on a GPU unless there is a draft model.
Speculate ModeOn(const SpeculateOptions& options, bool device_chooses);
// Whether the model's own block guesses, where it has one.
ModelOptions::Mtp WantsMtp(const SpeculateOptions& options);
// Fails if the options want that block alone and the model has none; if it has a part of one, says
// so in the log.
Status CheckMtp(const SpeculateOptions& options, const LoadedModel& loaded);

// A small model that guesses what a large one says: its weights, its state, and the drafter that
// runs it.
class DraftModel {
 public:
  // `model`: how the large one is run; `tokenizer` is its own. Refuses another vocabulary, with the
  // first token that differs.
  static Result<std::unique_ptr<DraftModel>> Load(const std::string& path,
                                                  const ModelOptions& model,
                                                  const Tokenizer& tokenizer);

  // Its state takes a part of `free_bytes`, which *bytes says: what one sequence needs, or more.
  // `cache`: of the large model. The drafter must not outlive this.
  Result<std::shared_ptr<Drafter>> MakeDrafter(CacheOptions cache, size_t free_bytes,
                                               const Clock& clock, size_t* bytes);

 private:
  explicit DraftModel(std::unique_ptr<LoadedModel> loaded)
      : loaded_(std::move(loaded)), executor_(loaded_->model(), loaded_->context()) {}

  const std::unique_ptr<LoadedModel> loaded_;
  ModelExecutor executor_;
};

}  // namespace reprise::cli
