// SPDX-License-Identifier: Apache-2.0
// `reprise bench tokenize`: encoding in MB per second of CPU time, on one thread.
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "cli/bundled_model.h"
#include "cli/commands.h"
#include "model/model_text.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string tokenizer;
  std::vector<std::string> texts;
  int32_t line_kb = 10'000;
};

void Measure(const Tokenizer& tokenizer, const std::string& name, std::string_view text) {
  std::vector<int32_t> ids;
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    ids.clear();
    const double begin = ThreadSeconds();
    const Status status = tokenizer.Encode(text, {}, &ids);
    const double seconds = ThreadSeconds() - begin;
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

std::string Repeat(std::string_view unit, size_t size) {
  std::string text;
  while (text.size() < size) text += unit;
  text.resize(size / unit.size() * unit.size());
  return text;
}

// Characters of `alphabet`, with a space after every `word` of them unless that is 0.
std::string Random(std::string_view alphabet, size_t size, size_t word = 0) {
  Rng rng(1);
  std::string text;
  while (text.size() < size) {
    const bool space = word > 0 && text.size() % (word + 1) == word;
    text += space ? ' ' : alphabet[rng.Below(alphabet.size())];
  }
  return text;
}

// Characters of three bytes from `first` on.
std::string RandomCharacters(uint32_t first, uint32_t count, size_t size) {
  Rng rng(1);
  std::string text;
  while (text.size() < size) {
    const uint32_t code = first + static_cast<uint32_t>(rng.Below(count));
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 63));
    text += static_cast<char>(0x80 | (code & 63));
  }
  return text;
}

std::string RandomBytes(size_t size) {
  Rng rng(1);
  std::string text;
  while (text.size() < size) text += static_cast<char>(rng.Below(256));
  return text;
}

// Runs of one character each, up to the length of the longest tokens.
std::string RandomRuns(std::string_view alphabet, size_t size) {
  Rng rng(1);
  std::string text;
  while (text.size() < size) text.append(1 + rng.Below(96), alphabet[rng.Below(alphabet.size())]);
  return text;
}

// Lines that must not be much slower than text, however long they are: without a space in them a
// pre-tokenizer finds nothing to split, or they are nothing but what it splits at.
void MeasureLines(const Tokenizer& tokenizer, size_t size) {
  static constexpr std::string_view kLower = "abcdefghijklmnopqrstuvwxyz";
  static constexpr std::string_view kBase64 =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string_view letters = kBase64.substr(0, 52);
  const std::string_view letters_and_digits = kBase64.substr(0, 62);
  Measure(tokenizer, "one letter, 1/100", Repeat("a", size / 100));
  Measure(tokenizer, "one letter, 1/10", Repeat("a", size / 10));
  Measure(tokenizer, "one letter", Repeat("a", size));
  Measure(tokenizer, "two letters", Repeat("ab", size));
  Measure(tokenizer, "spaces", Repeat(" ", size));
  Measure(tokenizer, "newlines", Repeat("\n", size));
  Measure(tokenizer, "digits", Repeat("1234567890", size));
  Measure(tokenizer, "one CJK character", Repeat("\xE4\xB8\xAD", size));
  Measure(tokenizer, "one emoji", Repeat("\xF0\x9F\x99\x82", size));
  Measure(tokenizer, "random a-z, 1/100", Random(kLower, size / 100));
  Measure(tokenizer, "random a-z", Random(kLower, size));
  Measure(tokenizer, "random a-z, words of 12", Random(kLower, size, 12));
  Measure(tokenizer, "random a-z, words of 99", Random(kLower, size, 99));
  Measure(tokenizer, "random A-Za-z", Random(letters, size));
  Measure(tokenizer, "random A-Za-z0-9", Random(letters_and_digits, size));
  Measure(tokenizer, "base64", Random(kBase64, size));
  Measure(tokenizer, "random 0-1", Random("01", size));
  Measure(tokenizer, "random a-b", Random("ab", size));
  Measure(tokenizer, "random punctuation", Random("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", size));
  Measure(tokenizer, "random runs", RandomRuns("a-=*#. \n", size));
  Measure(tokenizer, "random CJK", RandomCharacters(0x4E00, 0x5200, size));
  Measure(tokenizer, "random Hangul", RandomCharacters(0xAC00, 0x2BA4, size));
  Measure(tokenizer, "random bytes", RandomBytes(size));
}

Status Run(const Options& options) {
  const double begin = ThreadSeconds();
  REPRISE_ASSIGN(const ModelText text, ReadTextFile(options.tokenizer));
  std::printf("%s: %d tokens, loaded in %.0f ms\n", options.tokenizer.c_str(),
              text.tokenizer->vocab_size(), (ThreadSeconds() - begin) * 1e3);
  for (const std::string& path : options.texts) {
    REPRISE_ASSIGN(const std::string file, ReadFile(path, Tokenizer::kTextBytesMax));
    Measure(*text.tokenizer, path.substr(path.rfind('/') + 1), file);
  }
  MeasureLines(*text.tokenizer, static_cast<size_t>(options.line_kb) * 1000);
  return OkStatus();
}

}  // namespace

void DefineTokenizeBench(Flags* bench) {
  auto options = std::make_shared<Options>();
  Flags* flags = bench->AddCommand("tokenize", "megabytes of text per second of one CPU");
  flags->Add("TOKENIZER", &options->tokenizer,
             "GGUF file, tokenizer.json, a folder that has one, SentencePiece model or RWKV's file "
             "(default: the bundled model)");
  flags->Add("--text", &options->texts, "also this file; may be used several times");
  flags->Add("--line-kb", &options->line_kb, "length of the lines that are made up, in kB",
             {.min = 1, .max = 200'000});
  flags->SetAction([=]() -> Status {
    if (options->tokenizer.empty()) {
      REPRISE_ASSIGN(options->tokenizer, FindBundledModel());
    }
    return Run(*options);
  });
}

}  // namespace reprise::cli
