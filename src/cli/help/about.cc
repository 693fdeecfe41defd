// SPDX-License-Identifier: Apache-2.0
#include "cli/help/about.h"

#include <algorithm>
#include <vector>

#include "cli/help/manual_page.h"
#include "commit.gen.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/make_backend.h"
#include "version.gen.h"

namespace reprise::cli {
namespace {

constexpr char kCompiler[] =
#ifdef __clang__
    "Clang " __clang_version__;
#else
    "GCC " __VERSION__;
#endif

constexpr char kProcessor[] =
#ifdef __aarch64__
    "aarch64";
#else
    "x86-64";
#endif

}  // namespace

std::string DescribeVersion() {
  std::string text = kVersion;
  text += "\ncommit            " + std::string(kCommit);
  text += "\ncompiler          " + std::string(kCompiler) + ", for " + kProcessor;
  text += "\nbackends          ";
  for (size_t i = 0; i < BuiltBackends().size(); ++i) {
    text += (i == 0 ? "" : ", ") + BuiltBackends()[i];
  }
  if (BuiltBackends().size() == 1) text += " (built without CUDA; 'make cuda' adds it)";
  text += "\ninstruction sets  ";
  const std::vector<std::string> isas = cpu::AvailableIsas();
  for (size_t i = 0; i < isas.size(); ++i) text += (i == 0 ? "" : ", ") + isas[i];
  return text + " (of this CPU)";
}

std::string BuildDate() {
  const std::string commit = kCommit;  // "d3adbee of 2026-11-18"
  return ManualDate(commit.substr(std::min(commit.size(), commit.rfind(' ') + 1)));
}

std::string Welcome() {
  return std::string("Reprise ") + kVersion +
         R"( serves language models and never computes the same prefix twice.

Try it with the small model that comes with it:
  reprise run                  chat in the terminal
  reprise serve                a chat page and an API on http://127.0.0.1:8080

With your own model, a GGUF file or a Hugging Face folder:
  reprise serve model.gguf
  reprise run model.gguf
  reprise inspect model.gguf   what is in the file, and how much memory its state takes

More:
  reprise help                 all commands
  reprise help serve           the options of a command
)";
}

}  // namespace reprise::cli
