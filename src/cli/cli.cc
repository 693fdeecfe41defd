// SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace reprise::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  Action (*define)(CLI::App* app);
};

constexpr Command kCommands[] = {
    {"run", "chat with a model in the terminal", DefineRun},
    {"logits", "logits of given tokens: safetensors in, safetensors out", DefineLogits},
    {"audit", "prove on this machine that reuse equals recompute", DefineAudit},
    {"inspect", "what is in a GGUF file, a safetensors file or a model folder", DefineInspect},
    {"bench", "tokens per second, and how far from the machine's peak", DefineBench},
    {"convert", "write a Hugging Face folder as a GGUF file", DefineConvert},
    {"synth", "write a model with random weights in a published geometry", DefineSynth},
};

// The sentence for a first word that is no command, or nothing.
std::string UnknownCommand(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::string known;
  for (const Command& command : kCommands) {
    if (std::strcmp(command.name, argv[1]) == 0) return "";
    known += (known.empty() ? "" : ", ") + std::string(command.name);
  }
  return "there is no command '" + std::string(argv[1]) + "' (known: " + known + ")";
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "reprise: %s\n", message.c_str());
  return 1;
}

}  // namespace

int Main(int argc, char** argv) {
  if (const std::string unknown = UnknownCommand(argc, argv); !unknown.empty()) {
    return Fail(unknown);
  }
  CLI::App app{"Reprise runs language models and never computes the same prefix twice.", "reprise"};
  app.require_subcommand(1);
  app.footer("reprise COMMAND --help tells more about a command.");
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    actions.emplace_back(sub, command.define(sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(std::string(error.what()) + " (see reprise --help)");
  }
  for (const auto& [sub, action] : actions) {
    if (!sub->parsed()) continue;
    const Status status = action();
    return status.ok() ? 0 : Fail(status.message());
  }
  return 0;
}

}  // namespace reprise::cli
