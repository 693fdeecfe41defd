// SPDX-License-Identifier: Apache-2.0
// The grammar engine on standard input, for tools/maskbench.py and tests: one JSON object a line
// in, one out.
//
//   {"schema": {...}, "tests": [{"text": "...", "valid": true}]}
//   -> {"compile_us": 812, "masks_us": [..], "tests": [true, false], "reached": [..]} or {"error":
//   "..."}
//
// A test is true if the text, cut into tokens, is accepted to its end.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "grammar/matcher.h"
#include "grammar/schema/json_schema.h"
#include "text/tokenizer.h"
#include "text/vocab/file.h"

namespace reprise::grammar {
namespace {

// Processor time: other programs do not count.
double MicrosSince(double start) { return (ThreadSeconds() - start) * 1e6; }

struct Vocabulary {
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie = {};
};

std::string Run(const JsonValue& line, const Vocabulary& vocabulary, bool masks) {
  std::string out;
  JsonWriter json(&out);
  const double start = ThreadSeconds();
  auto grammar =
      CompileJsonSchema(*line.Find("schema"), {.alphabet = vocabulary.trie->single_bytes()});
  if (!grammar.ok()) {
    json.BeginObject().Member("error", grammar.status().message());
    json.Member("compile_us", MicrosSince(start)).EndObject();
    return out;
  }
  const auto language = std::make_shared<Language>(std::move(grammar).value(), vocabulary.trie);
  json.BeginObject().Member("compile_us", MicrosSince(start));
  std::vector<double> times;
  std::vector<uint64_t> mask((vocabulary.trie->vocab_size() + 63) / 64);
  json.Key("tests").BeginArray();
  std::string problem;
  std::vector<size_t> reached;
  for (const JsonValue& test : line.Find("tests")->items()) {
    std::vector<int32_t> ids;
    const Status encoded =
        vocabulary.tokenizer->Encode(test.Find("text")->as_string(), {.add_special = false}, &ids);
    if (!encoded.ok()) problem = encoded.message();
    Matcher matcher(language);
    bool accepted = true;
    size_t at = 0;
    for (; at < ids.size() && accepted; ++at) {
      if (masks) {
        const double begin = ThreadSeconds();
        const Status filled = matcher.Fill(mask);
        times.push_back(MicrosSince(begin));
        if (!filled.ok()) problem = filled.message();
        const auto id = static_cast<size_t>(ids[at]);
        accepted = filled.ok() && (mask[id / 64] >> (id % 64) & 1) != 0;
        const Status taken = matcher.Accept(ids[at]);
        if (taken.ok() != accepted) problem = "mask and Accept differ: " + taken.message();
      } else {
        accepted = matcher.Accept(ids[at]).ok();
      }
    }
    json.Bool(accepted && matcher.complete());
    reached.push_back(matcher.text().size());
  }
  json.EndArray();
  json.Key("reached").BeginArray();  // bytes
  for (const size_t bytes : reached) json.Uint(bytes);
  json.EndArray();
  json.Key("masks_us").BeginArray();
  for (const double time : times) json.Double(time);
  json.EndArray().Member("bytes", static_cast<uint64_t>(language->bytes()));
  if (!problem.empty()) json.Member("problem", problem);
  json.EndObject();
  return out;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar_probe tokenizer.json [masks]\n");
    return 2;
  }
  auto spec = ReadVocabFile(argv[1]);
  if (!spec.ok()) {
    std::fprintf(stderr, "%s\n", spec.status().message().c_str());
    return 1;
  }
  auto tokenizer = Tokenizer::Make(std::move(spec).value());
  if (!tokenizer.ok()) return 1;
  Vocabulary vocabulary{.tokenizer = std::move(tokenizer).value()};
  std::vector<std::string_view> bytes;
  for (int32_t id = 0; id < vocabulary.tokenizer->vocab_size(); ++id) {
    bytes.push_back(vocabulary.tokenizer->IsSpecial(id) ? ""
                                                        : vocabulary.tokenizer->TokenBytes(id));
  }
  const double start = ThreadSeconds();
  vocabulary.trie = std::make_shared<const TokenTrie>(bytes, vocabulary.tokenizer->eos_ids());
  std::fprintf(stderr, "%zu tokens, trie %.0f ms, %d single bytes\n", bytes.size(),
               MicrosSince(start) / 1000, vocabulary.trie->single_bytes().count());
  std::string text;
  while (std::getline(std::cin, text)) {
    const auto document = JsonDocument::Parse(text, 512);
    if (!document.ok()) {
      std::printf("{\"error\": \"not JSON\"}\n");
    } else {
      std::printf("%s\n", Run(document->root(), vocabulary, argc > 2).c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace reprise::grammar

int main(int argc, char** argv) { return reprise::grammar::Main(argc, argv); }
