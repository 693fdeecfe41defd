// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/chat/chat.h"
#include "cli/chat/conversation.h"
#include "cli/chat/session.h"
#include "cli/commands.h"
#include "cli/line/history.h"
#include "cli/loaded_model.h"
#include "model/vision/seen_picture.h"
#include "model/vision/tower.h"

namespace reprise::cli {
namespace {

constexpr int kContextDefault = 8192;

struct Options {
  ModelOptions model;
  Session::Options session;
  std::string prompt;
  std::string system;
  GenerationDefaults chosen;  // on the command line; what is absent is for the model to say
  std::optional<uint64_t> seed;
  bool stats = false;
  bool no_history = false;
  std::vector<std::string> images;
  bool ignore_images = false;
};

void OnInterrupt(int) { interrupts = interrupts + 1; }

// Ctrl-C stops what is being generated.
void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

// No token where the model, as it was loaded, sees no pictures.
Result<Eyes> OpenEyes(const LoadedModel& loaded, const Tokenizer& tokenizer) {
  Eyes eyes;
  REPRISE_ASSIGN(eyes.token, loaded.FindPictureToken(tokenizer));
  if (eyes.token < 0) return eyes;
  eyes.see = [card = loaded.model().tower()->card()](std::string_view file) {
    return SeePicture(card, file);
  };
  return eyes;
}

Status Run(Options options) {
  SetLogLevel(LogLevel::kWarning);  // the conversation owns the terminal
  SamplingParams& sampling = options.session.sampling;
  sampling.seed = options.seed ? *options.seed : std::random_device()();
  if (options.model.context_tokens == 0) options.model.context_tokens = kContextDefault;
  options.model.mtp = WantsMtp(options.session.speculate);
  const bool may_see = options.prompt.empty() || !options.images.empty();
  options.model.tower = may_see && !options.session.plain && !options.ignore_images;
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  REPRISE_TRY(CheckMtp(options.session.speculate, *loaded));
  REPRISE_ASSIGN(const GenerationDefaults defaults, ReadGenerationDefaults(loaded->checkpoint()));
  Apply(defaults, &sampling);
  Apply(options.chosen, &sampling);
  REPRISE_TRY(Validate(sampling, loaded->model().vocab_size()));
  options.session.model = options.model;
  REPRISE_ASSIGN(const std::unique_ptr<Session> session,
                 Session::Create(loaded.get(), options.session));
  REPRISE_ASSIGN(Eyes eyes, OpenEyes(*loaded, *session->text().tokenizer));
  REPRISE_ASSIGN(Conversation conversation,
                 Conversation::Create(&session->text(), options.system, options.session.plain,
                                      std::move(eyes)));
  CatchInterrupts();
  Chat chat(session.get(), &conversation, options.no_history ? "" : HistoryPath(), options.stats);
  for (const std::string& image : options.images) REPRISE_TRY(chat.AddPicture(image).status());
  return options.prompt.empty() ? chat.Run() : chat.Talk(options.prompt);
}

}  // namespace

void DefineRun(Flags* flags) {
  auto options = std::make_shared<Options>();
  options->session.sampling = DefaultSampling();
  AddModelOptions(flags, &options->model);
  flags->SetHeading("Conversation");
  flags->Add("-p,--prompt", &options->prompt, "answer this and exit");
  flags->Add("-s,--system", &options->system, "system prompt");
  flags->Add("--image", &options->images,
             "a picture with the first message: PNG, JPEG, WebP or GIF; repeat it for several");
  flags->Add("--ignore-images", &options->ignore_images,
             "leave out what sees pictures, and its memory");
  flags->Add("--mmproj", &options->model.mmproj,
             "GGUF file of what sees pictures (default: the one beside a GGUF model)");
  flags->Add("-n,--max-tokens", &options->session.max_tokens,
             "maximum reply tokens (default: what the context leaves)", {.min = 0, .max = 1 << 20});
  flags->Add("-c,--context", &options->model.context_tokens,
             "maximum tokens of the conversation (default: the model's, at most 8192)",
             {.min = 64, .max = 1 << 24});
  flags->Add("--lora", &options->session.lora,
             "PATH[:SCALE]: with this LoRA adapter, a PEFT folder or a GGUF file");
  flags->Add("--plain", &options->session.plain,
             "complete text as it is, without the chat template");
  flags->Add("--tokenizer", &options->session.tokenizer,
             "tokenizer.json, or a folder with one, for a model without a tokenizer");
  flags->Add("--stats", &options->stats,
             "print after each reply what was reused and how fast it was");
  flags->Add("--no-history", &options->no_history,
             "do not keep what is typed in $XDG_STATE_HOME/reprise/history");
  flags->SetHeading("Sampling");
  SamplingParams* sampling = &options->session.sampling;
  GenerationDefaults* chosen = &options->chosen;
  flags->Add("-t,--temperature", &chosen->temperature,
             "0: always the most likely token (default: the model's, else 0.7)");
  flags->Add("--top-k", &chosen->top_k,
             "sample from this many of the most likely tokens; 0: all (default: the model's, else "
             "0)");
  flags->Add("--top-p", &chosen->top_p,
             "sample from the most likely tokens that together have this probability (default: the "
             "model's, else 0.95)");
  flags->Add("--min-p", &chosen->min_p,
             "leave out tokens less likely than this share of the most likely one (default: the "
             "model's, else 0)");
  flags->Add("--repetition-penalty", &chosen->repetition_penalty,
             "penalty of tokens in prompt or reply; 1: none (default: the model's, else 1)");
  flags->Add("--presence-penalty", &sampling->presence_penalty, "penalty of tokens in the reply");
  flags->Add("--frequency-penalty", &sampling->frequency_penalty,
             "penalty of tokens in the reply, for each time they occur");
  flags->Add("--seed", &options->seed, "the same seed gives the same replies (default: random)");
  AddSpeculateOptions(flags, &options->session.speculate);
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
