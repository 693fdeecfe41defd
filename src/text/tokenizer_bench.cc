// SPDX-License-Identifier: Apache-2.0
// Measures encoding in MB per second of CPU time, on one thread.
//
//   tokenizer_bench VOCABULARY [TEXT...]
//
// Besides the given files: lines of 10 MB of one letter, of spaces, of digits, of one CJK character
// and of random letters, which must not be much slower than text; and the time to load.
#include <time.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/vocab/file.h"

namespace reprise {
namespace {

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

std::string Repeat(std::string_view unit) {
  std::string text;
  while (text.size() < kLineBytes) text += unit;
  return text;
}

int Run(const std::string& vocabulary, const std::vector<std::string>& files) {
  const double begin = CpuSeconds();
  auto spec = ReadVocabFile(vocabulary);
  if (!spec.ok()) {
    std::fprintf(stderr, "%s\n", spec.status().message().c_str());
    return 1;
  }
  const double parsed = CpuSeconds();
  auto tokenizer = Tokenizer::Make(std::move(*spec));
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  std::printf("load: %.0f ms to read, %.0f ms to build, %d tokens\n", (parsed - begin) * 1e3,
              (CpuSeconds() - parsed) * 1e3, (*tokenizer)->vocab_size());
  for (const std::string& file : files) {
    auto text = ReadFile(file, Tokenizer::kTextBytesMax);
    if (!text.ok()) {
      std::fprintf(stderr, "%s\n", text.status().message().c_str());
      return 1;
    }
    Measure(**tokenizer, file.substr(file.rfind('/') + 1), *text);
  }
  Rng rng(1);
  std::string letters;
  while (letters.size() < kLineBytes) letters += static_cast<char>('a' + rng.Below(26));
  Measure(**tokenizer, "one letter", Repeat("a"));
  Measure(**tokenizer, "spaces", Repeat(" "));
  Measure(**tokenizer, "newlines", Repeat("\n"));
  Measure(**tokenizer, "digits", Repeat("1234567890"));
  Measure(**tokenizer, "one CJK character", Repeat("中"));
  Measure(**tokenizer, "random letters", letters);
  return 0;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tokenizer_bench VOCABULARY [TEXT...]\n");
    return 2;
  }
  return reprise::Run(argv[1], std::vector<std::string>(argv + 2, argv + argc));
}
