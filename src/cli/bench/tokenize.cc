// SPDX-License-Identifier: Apache-2.0
// `reprise bench tokenize`: encoding in MB per second of CPU time, on one thread.
#include <time.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "cli/commands.h"
#include "model/model_text.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string tokenizer;
  std::vector<std::string> texts;
};

constexpr size_t kLineBytes = 10'000'000;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Measure(const Tokenizer& tokenizer, const std::string& name, std::string_view text) {
  std::vector<int32_t> ids;
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    ids.clear();
    const double begin = CpuSeconds();
    const Status status = tokenizer.Encode(text, {}, &ids);
    const double seconds = CpuSeconds() - begin;
    if (!status.ok()) {
      std::printf("%-24s %s\n", name.c_str(), status.message().c_str());
      return;
    }
    if (round == 0 || seconds < best) best = seconds;
  }
  const double megabytes = static_cast<double>(text.size()) * 1e-6;
  std::printf("%-24s %8.2f MB %10zu ids %8.1f MB/s\n", name.c_str(), megabytes, ids.size(),
              megabytes / best);
}

std::string Repeat(std::string_view unit, size_t size = kLineBytes) {
  std::string text;
  while (text.size() < size) text += unit;
  return text;
}

// Lines that must not be much slower than text, however long they are.
void MeasureLines(const Tokenizer& tokenizer) {
  Rng rng(1);
  std::string letters;
  while (letters.size() < kLineBytes) letters += static_cast<char>('a' + rng.Below(26));
  Measure(tokenizer, "one letter, 0.1 MB", Repeat("a", kLineBytes / 100));
  Measure(tokenizer, "one letter, 1 MB", Repeat("a", kLineBytes / 10));
  Measure(tokenizer, "one letter", Repeat("a"));
  Measure(tokenizer, "spaces", Repeat(" "));
  Measure(tokenizer, "newlines", Repeat("\n"));
  Measure(tokenizer, "digits", Repeat("1234567890"));
  Measure(tokenizer, "one CJK character", Repeat("\xE4\xB8\xAD"));
  Measure(tokenizer, "random letters", letters);
}

Status Run(const Options& options) {
  const double begin = CpuSeconds();
  REPRISE_ASSIGN(const ModelText text, ReadTextFile(options.tokenizer));
  std::printf("%s: %d tokens, loaded in %.0f ms\n", options.tokenizer.c_str(),
              text.tokenizer->vocab_size(), (CpuSeconds() - begin) * 1e3);
  for (const std::string& path : options.texts) {
    REPRISE_ASSIGN(const std::string file, ReadFile(path, Tokenizer::kTextBytesMax));
    Measure(*text.tokenizer, path.substr(path.rfind('/') + 1), file);
  }
  MeasureLines(*text.tokenizer);
  return OkStatus();
}

}  // namespace

void DefineTokenizeBench(Flags* bench) {
  auto options = std::make_shared<Options>();
  Flags* flags = bench->AddCommand("tokenize", "megabytes of text per second of one CPU");
  flags->Add("TOKENIZER", &options->tokenizer,
             "GGUF file, tokenizer.json, a folder that has one, SentencePiece model or RWKV's file",
             {.required = true});
  flags->Add("--text", &options->texts, "also this file; may be used several times");
  flags->SetAction([=] { return Run(*options); });
}

}  // namespace reprise::cli
