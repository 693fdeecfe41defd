// SPDX-License-Identifier: Apache-2.0
#include "cli/draft/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "model/model_text.h"
#include "weights/format/stored_tensor.h"

namespace reprise::cli {
namespace {

// Of the memory that is free, what the state of a draft model may take.
constexpr size_t kFreePart = 8;

// A token as a sentence can show it.
std::string Shown(std::string_view bytes) {
  constexpr size_t kBytesMax = 24;
  return Quoted(bytes.substr(0, kBytesMax));
}

Status CheckVocabulary(const Tokenizer& draft, const Tokenizer& model) {
  for (int32_t id = 0; id < std::min(draft.vocab_size(), model.vocab_size()); ++id) {
    if (draft.TokenBytes(id) == model.TokenBytes(id)) continue;
    return InvalidArgument("a draft model needs the vocabulary of the model: its token " +
                           std::to_string(id) + " is " + Shown(draft.TokenBytes(id)) +
                           ", the model's is " + Shown(model.TokenBytes(id)));
  }
  if (draft.vocab_size() == model.vocab_size()) return OkStatus();
  return InvalidArgument("a draft model needs the vocabulary of the model: it has " +
                         std::to_string(draft.vocab_size()) + " tokens, the model has " +
                         std::to_string(model.vocab_size()));
}

}  // namespace

void AddSpeculateOptions(Flags* flags, SpeculateOptions* options) {
  flags->SetHeading("Speculation (docs/speculation.md)");
  flags->Add("--speculate", &options->mode,
             "guess the next tokens from earlier replies (tree), from prompt and reply (ngram), "
             "with the model's own block for it (mtp), with a small model (draft) or with all that "
             "there is (auto), and run them in one step: the same reply, sooner",
             {.one_of = {"auto", "off", "tree", "ngram", "mtp", "draft"}});
  flags->Add("--draft-model", &options->draft_model,
             "a small model of the same vocabulary that guesses the next tokens: GGUF file, "
             "Hugging Face folder, or hf:ORG/REPO[:QUANTISATION]");
}

Speculate ModeOn(const SpeculateOptions& options, bool device_chooses) {
  const Speculate mode = FindSpeculate(options.mode).value_or(Speculate::kOff);
  const bool named = mode != Speculate::kAuto || !options.draft_model.empty();
  return device_chooses && !named ? Speculate::kOff : mode;
}

ModelOptions::Mtp WantsMtp(const SpeculateOptions& options) {
  return options.mode == "mtp"    ? ModelOptions::Mtp::kAlways
         : options.mode == "auto" ? ModelOptions::Mtp::kByDefault
                                  : ModelOptions::Mtp::kNever;
}

Status CheckMtp(const SpeculateOptions& options, const LoadedModel& loaded) {
  const ModelCard& card = loaded.card();
  if (card.mtp_state || WantsMtp(options) == ModelOptions::Mtp::kNever) return OkStatus();
  const bool alone = options.mode == "mtp";
  if (card.mtp_absent.empty()) {
    return alone
               ? Unimplemented("--speculate mtp is for a model on one device; leave --devices out")
               : OkStatus();
  }
  if (alone) return FailedPrecondition("--speculate mtp: " + card.mtp_absent);
  if (card.mtp_declared) Log(LogLevel::kWarning, card.mtp_absent);
  return OkStatus();
}

Result<std::unique_ptr<DraftModel>> DraftModel::Load(const std::string& path,
                                                     const ModelOptions& model,
                                                     const Tokenizer& tokenizer) {
  ModelOptions options = model;
  options.path = path;
  // Small, and of another number of layers: it lies on the first device.
  options.device =
      model.devices.empty() ? model.device : model.devices.substr(0, model.devices.find(','));
  options.devices.clear();
  options.tensor_parallel = false;
  options.layers.clear();
  options.gpu_layers.reset();
  options.cpu_experts.clear();
  options.weights.clear();
  options.mtp = ModelOptions::Mtp::kNever;
  REPRISE_ASSIGN(std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options));
  REPRISE_ASSIGN(const ModelText text, ReadModelText(loaded->checkpoint()));
  REPRISE_TRY(CheckVocabulary(*text.tokenizer, tokenizer).Annotate("--draft-model " + path));
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(loaded)));
}

Result<std::shared_ptr<Drafter>> DraftModel::MakeDrafter(CacheOptions cache, size_t free_bytes,
                                                         const Clock& clock, size_t* bytes) {
  const ModelCard& card = executor_.card();
  cache.context_tokens =
      static_cast<int32_t>(std::min<int64_t>(cache.context_tokens, card.context_length));
  cache.snapshot_gap = DefaultSnapshotGap(card.state);
  cache.budget_bytes = std::max(DefaultBudget(card.state, free_bytes / kFreePart, cache),
                                LeastBudget(card.state, cache));
  REPRISE_ASSIGN(auto drafter, ModelDrafter::Create(executor_, cache, clock));
  *bytes = cache.budget_bytes;
  return std::shared_ptr<Drafter>(std::move(drafter));
}

}  // namespace reprise::cli
