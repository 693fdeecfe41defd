// SPDX-License-Identifier: Apache-2.0
// reprise diff A.json B.json: where the prompts of two requests part, and what that costs.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/bundled_model.h"
#include "cli/commands.h"
#include "cli/diff/difference.h"
#include "cli/diff/request_prompt.h"
#include "cli/loaded_model.h"
#include "cli/model_outline.h"
#include "cli/serve/served_text.h"
#include "weights/checkpoint.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string a, b;
  std::string model;
  std::string tokenizer;
};

// More than this share of a prompt computed again is worth a hint.
constexpr double kMuch = 0.1;

double Percent(size_t part, size_t whole) { return 100. * double(part) / double(whole); }

void PrintPlace(const RequestPrompt& a, const RequestPrompt& b, const Difference& found) {
  constexpr size_t kPathsShown = 4;
  const std::string &text_a = a.prompt.text, &text_b = b.prompt.text;
  const size_t at = found.same_bytes;
  if (at == text_a.size() && at == text_b.size()) {
    std::printf("their text is equal, but in one of them a part of it is a control token\n");
  } else if (at == text_a.size() || at == text_b.size()) {
    std::printf("%s goes on where %s ends:\n", at == text_a.size() ? "B" : "A",
                at == text_a.size() ? "A" : "B");
    std::printf("  both  %s\n", TextBefore(text_b, at).c_str());
    std::printf("  %s     %s\n", at == text_a.size() ? "B" : "A",
                TextBehind(at == text_a.size() ? text_b : text_a, at).c_str());
  } else {
    std::printf("they part here:\n");
    std::printf("  both  %s\n", TextBefore(text_b, at).c_str());
    std::printf("  A     %s\n", TextBehind(text_a, at).c_str());
    std::printf("  B     %s\n", TextBehind(text_b, at).c_str());
  }
  const auto paths = DifferingPaths(a.body.root(), b.body.root(), kPathsShown + 1);
  if (paths.empty()) return;
  std::printf("different in the bodies: ");
  for (size_t i = 0; i < std::min(paths.size(), kPathsShown); ++i) {
    std::printf("%s%s", i == 0 ? "" : ", ", paths[i].c_str());
  }
  std::printf("%s\n", paths.size() > kPathsShown ? ", ..." : "");
}

void PrintCost(const Difference& found) {
  const size_t computed = found.tokens_b - found.reused;
  std::printf("after A, B computes %zu of its %zu tokens (%.1f %%)\n", computed, found.tokens_b,
              Percent(computed, found.tokens_b));
  const size_t most = std::min(found.same_tokens, found.tokens_b - 1);
  if (found.reused < most) {
    std::printf(
        "  %zu of them are the same in both: the recurrent layers of this model go on from "
        "stored states only, and the last one is after %zu tokens\n",
        most - found.reused, found.reused);
    if (found.reused_later > found.reused) {
      std::printf("  a later request that parts here finds the state after %zu tokens\n",
                  found.reused_later);
    }
  }
  if (double(found.same_again) < kMuch * double(found.tokens_b)) return;
  const size_t differing = found.tokens_b - found.same_tokens - found.same_again;
  std::printf(
      "  %zu of them are the same in A, behind what differs: move what changes (%zu tokens) "
      "to the end, and they are reused, too\n",
      found.same_again, differing);
}

Status Run(const Options& options) {
  REPRISE_ASSIGN(const std::string path, FindModel(options.model));
  REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
  REPRISE_ASSIGN(const ModelOutline outline, ReadModelOutline(checkpoint, DType::kF16, 0));
  ServedText text;
  REPRISE_TRY(text.Read(checkpoint, options.tokenizer));
  api::ServedModel served;
  served.vocab_size = outline.card.vocab_size;
  served.context_tokens = static_cast<int32_t>(outline.card.context_length);
  text.Describe(&served);
  REPRISE_ASSIGN(const RequestPrompt a, ReadRequestPrompt(served, options.a));
  REPRISE_ASSIGN(const RequestPrompt b, ReadRequestPrompt(served, options.b));
  REPRISE_ASSIGN(const Difference found, Compare(a.prompt, b.prompt, outline.card.state,
                                                 DefaultSnapshotGap(outline.card.state)));
  std::printf("A has %zu tokens, B %zu; the first %zu are the same\n", found.tokens_a,
              found.tokens_b, found.same_tokens);
  if (found.equal()) {
    std::printf("the prompts are equal: after A, B computes %zu\n", found.tokens_b - found.reused);
    return OkStatus();
  }
  PrintPlace(a, b, found);
  PrintCost(found);
  return OkStatus();
}

}  // namespace

void DefineDiff(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("A", &options->a, "JSON file: the body of the first request", {.required = true});
  flags->Add("B", &options->b, "JSON file: the body of the second request", {.required = true});
  flags->Add("-m,--model", &options->model,
             "GGUF file or Hugging Face folder with tokenizer and chat template (default: the "
             "bundled model)");
  flags->Add("--tokenizer", &options->tokenizer,
             "tokenizer.json, or a folder with one, for a model without a tokenizer");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
