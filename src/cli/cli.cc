// SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "cli/help/about.h"
#include "hub/names/model_name.h"
#include "cli/help/completion.h"
#include "cli/help/manual_page.h"

namespace reprise::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  void (*define)(Flags* flags);
};

constexpr Command kCommands[] = {
    {"serve", "serve a model: chat page, and OpenAI, Anthropic and Ollama APIs", DefineServe},
    {"run", "chat with a model in the terminal", DefineRun},
    {"pull", "fetch a model of the Hugging Face hub by its name", DefinePull},
    {"models", "list, verify and remove models that were fetched", DefineModels},
    {"doctor", "show what this machine has for a model, what fits, and what to do", DefineDoctor},
    {"logits", "compute logits of given tokens: safetensors in, safetensors out", DefineLogits},
    {"audit", "prove on this machine that reuse equals recompute", DefineAudit},
    {"inspect", "show what is in a GGUF file, a safetensors file or a model folder", DefineInspect},
    {"bench", "measure speed, and how far it is from the machine's peak", DefineBench},
    {"diff", "show where the prompts of two requests part, and what that costs", DefineDiff},
    {"state", "list, verify and prune a folder of state (serve --disk)", DefineState},
    {"convert", "write a Hugging Face folder as a GGUF file", DefineConvert},
    {"synth", "write a model with random weights in a published geometry", DefineSynth},
};

// A model where a command belongs: the sentence shows both commands that people want then.
Status CheckForModel(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  for (const Command& command : kCommands) {
    if (word == command.name) return OkStatus();
  }
  std::error_code error;
  const bool folder = std::filesystem::exists(word + "/config.json", error);
  if (!folder && !word.ends_with(".gguf") && !hub::ModelName::Claims(word)) return OkStatus();
  return InvalidArgument("'" + word + "' is a model, not a command: try 'reprise run " + word +
                         "' to chat, or 'reprise serve " + word + "'");
}

// For who makes packages: "help --man FOLDER" writes the manual pages, "help --completion SHELL"
// prints what a shell completes. Nothing if the command line is another.
std::optional<Status> WritePages(const Flags& flags, int argc, char** argv) {
  if (argc != 4 || argv[1] != std::string_view("help")) return std::nullopt;
  const std::string_view what = argv[2];
  if (what == "--man") return WriteManualPages(flags.Describe(), argv[3], BuildDate());
  if (what != "--completion") return std::nullopt;
  const Result<std::string> script = Completion(argv[3], flags.Describe());
  if (!script.ok()) return script.status();
  const bool printed = std::fputs(script->c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? OkStatus() : Internal("cannot write to the standard output");
}

}  // namespace

int Main(int argc, char** argv) {
  if (argc < 2) return std::fputs(Welcome().c_str(), stdout) < 0 ? 1 : 0;
  Flags flags("reprise", "Reprise runs language models and never computes the same prefix twice.");
  flags.SetVersion(DescribeVersion);
  for (const Command& command : kCommands) {
    command.define(flags.AddCommand(command.name, command.summary));
  }
  Status status = CheckForModel(argc, argv);
  const std::optional<Status> pages = WritePages(flags, argc, argv);
  if (pages) status = *pages;
  if (status.ok() && !pages) status = flags.Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "reprise: %s\n", status.message().c_str());
  return 1;
}

}  // namespace reprise::cli
