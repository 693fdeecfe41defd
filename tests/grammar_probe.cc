// SPDX-License-Identifier: Apache-2.0
// The grammar engine on standard input, for tools/maskbench.py and tests: one JSON object a line
// in, one out.
//
//   {"schema": {...}, "tests": [{"text": "...", "valid": true}]}
//   -> {"compile_us": 812, "masks_us": [..], "tests": [true, false], "reached": [..], "steps_max":
//   9} or {"error": "..."}
//
// A test is true if the text, cut into tokens, is accepted to its end. In place of a schema there
// may be a "grammar" as people write them.
//
//   {"schema": {...}, "arrange": [value, ...]}  ->  {"arranged": [true, ..], "reached": [..]}
//
// Whether a value is accepted with the members of its objects in some order: schemas have theirs.
//
//   {"schema": {...}, "generate": 20, "seed": 7, "temperatures": [0, 1.5]}  ->  {"texts": ["...",
//   null]}
//
// Texts as a model without any sense would write them: random logits, sampled at each temperature
// in turn, of those tokens that are allowed; null where the limit of tokens came first.
//
//   {"tools": [...], "format": "hermes", "generate": 20, ...}  ->  {"replies": [{"text": "...",
//   "content": "", "calls": [{"name": "f", "arguments": "{}", "complete": true}]}, null]}
//
// The same for replies that must call, in a format of calls, read back as the server reads them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/rng.h"
#include "grammar/matcher.h"
#include "grammar/reply/reply_grammar.h"
#include "grammar/schema/json_schema.h"
#include "grammar/syntax/grammar_text.h"
#include "model/model_text.h"
#include "text/output/formats.h"
#include "text/output/output_parser.h"
#include "text/tokenizer.h"

namespace reprise::grammar {
namespace {

// Processor time: other programs do not count.
double MicrosSince(double start) { return (ThreadSeconds() - start) * 1e6; }

struct Vocabulary {
  const Tokenizer* tokenizer;
  std::shared_ptr<const TokenTrie> trie = {};
};

Result<Grammar> CompileGrammarText(std::string_view text, const ByteSet& alphabet) {
  Grammar grammar;
  grammar.pool().SetAlphabet(alphabet);
  REPRISE_ASSIGN(const RuleId rule, AddGrammarText(text, &grammar));
  REPRISE_TRY(grammar.Finish(rule));
  return grammar;
}

const CallFormat* FindFormat(std::string_view name) {
  for (const CallFormat& format : CallFormats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

Result<Grammar> CompileCalls(const JsonValue& tools, std::string_view format,
                             const ByteSet& alphabet) {
  const CallFormat* calls = FindFormat(format);
  if (calls == nullptr) return NotFound("no such format");
  Grammar grammar;
  grammar.pool().SetAlphabet(alphabet);
  REPRISE_ASSIGN(const RuleId rule, ReplyGrammar(&grammar, {}).AddCalls(*calls, tools, {}));
  REPRISE_TRY(grammar.Finish(rule));
  return grammar;
}

Result<Grammar> CompileGrammar(const JsonValue& line, const ByteSet& alphabet) {
  if (const JsonValue* tools = line.Find("tools")) {
    return CompileCalls(*tools, line.Find("format")->as_string(), alphabet);
  }
  if (const JsonValue* text = line.Find("grammar")) {
    return CompileGrammarText(text->as_string(), alphabet);
  }
  return CompileJsonSchema(*line.Find("schema"), {.alphabet = alphabet});
}

Result<std::shared_ptr<Language>> Compile(const JsonValue& line, const Vocabulary& vocabulary) {
  REPRISE_ASSIGN(Grammar grammar, CompileGrammar(line, vocabulary.trie->single_bytes()));
  auto language = std::make_shared<Language>(std::move(grammar), vocabulary.trie);
  REPRISE_TRY(language->Prepare());
  return language;
}

std::string Run(const JsonValue& line, const Vocabulary& vocabulary, bool masks) {
  std::string out;
  JsonWriter json(&out);
  const double start = ThreadSeconds();
  const auto compiled = Compile(line, vocabulary);
  if (!compiled.ok()) {
    json.BeginObject().Member("error", compiled.status().message());
    json.Member("compile_us", MicrosSince(start)).EndObject();
    return out;
  }
  const std::shared_ptr<Language>& language = *compiled;
  json.BeginObject().Member("compile_us", MicrosSince(start));
  std::vector<double> times;
  uint64_t steps_max = 0;
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
        const uint64_t steps = language->steps();
        const Status filled = matcher.Fill(mask);
        times.push_back(MicrosSince(begin));
        steps_max = std::max(steps_max, language->steps() - std::min(steps, language->steps()));
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
  json.Member("steps_max", steps_max);
  if (!problem.empty()) json.Member("problem", problem);
  json.EndObject();
  return out;
}

// Writes a value, choosing for each object an order of members that the language has.
class Arranger {
 public:
  explicit Arranger(std::shared_ptr<Language> language) : matcher_(std::move(language)) {}

  bool Write(const JsonValue& value) {
    if (value.is_object()) {
      std::vector<const JsonValue::Member*> left;
      for (const auto& member : value.members()) left.push_back(&member);
      return Text("{") && Members(std::move(left), /*first=*/true);
    }
    if (value.is_array()) {
      bool first = true;
      if (!Text("[")) return false;
      for (const JsonValue& item : value.items()) {
        if (!std::exchange(first, false) && !Text(", ")) return false;
        if (!Write(item)) return false;
      }
      return Text("]");
    }
    std::string text;
    JsonWriter(&text).Value(value);
    return Text(text);
  }
  bool complete() { return matcher_.complete(); }
  size_t reached() const { return reached_; }

 private:
  bool Text(std::string_view text) {
    if (++steps_ > kStepsMax || !matcher_.AcceptBytes(text).ok()) return false;
    reached_ = std::max(reached_, matcher_.text().size());
    return true;
  }

  bool Members(std::vector<const JsonValue::Member*> left, bool first) {
    if (left.empty()) return Text("}");
    for (size_t i = 0; i < left.size(); ++i) {
      std::string name;
      JsonWriter(&name).String(left[i]->key);
      const Matcher before = matcher_;
      if (Text((first ? "" : ", ") + name + ": ") && Write(left[i]->value)) {
        std::vector<const JsonValue::Member*> rest = left;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
        if (Members(std::move(rest), /*first=*/false)) return true;
      }
      matcher_ = before;
    }
    return false;
  }

  static constexpr size_t kStepsMax = 200'000;
  Matcher matcher_;
  size_t steps_ = 0;
  size_t reached_ = 0;  // bytes of the longest try
};

std::string Arrange(const JsonValue& line, const Vocabulary& vocabulary) {
  std::string out;
  JsonWriter json(&out);
  const auto compiled = Compile(line, vocabulary);
  if (!compiled.ok()) {
    json.BeginObject().Member("error", compiled.status().message()).EndObject();
    return out;
  }
  const std::shared_ptr<Language>& language = *compiled;
  std::vector<size_t> reached;
  json.BeginObject().Key("arranged").BeginArray();
  for (const JsonValue& value : line.Find("arrange")->items()) {
    Arranger arranger(language);
    json.Bool(arranger.Write(value) && arranger.complete());
    reached.push_back(arranger.reached());
  }
  json.EndArray().Key("reached").BeginArray();
  for (const size_t bytes : reached) json.Uint(bytes);
  json.EndArray().EndObject();
  return out;
}

// Random logits for each token and place, a little higher for single bytes (so that strings end),
// and the shortest way out when it has become long.
int32_t Choose(const std::vector<uint64_t>& mask, const TokenTrie& trie, size_t length,
               double temperature, Rng* rng) {
  int32_t best = -1;
  double best_score = 0;
  std::array<int32_t, 256> bytes;
  bytes.fill(-1);
  bool may_end = false;
  const uint64_t place = rng->Next();
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const auto id = static_cast<int32_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
      const std::string_view text = trie.bytes(id);
      const bool end = std::ranges::find(trie.ends(), id) != trie.ends().end();
      may_end |= end;
      if (!end && text.size() == 1) bytes[static_cast<uint8_t>(text[0])] = id;
      Rng logit(place ^ (static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15ull));
      double score = logit.Uniform() * 10 + (end || text.size() == 1 ? 4 : 0);
      if (temperature > 0) score -= temperature * std::log(-std::log(rng->Uniform() + 1e-12));
      if (best >= 0 && score <= best_score) continue;
      best = id;
      best_score = score;
    }
  }
  if (may_end && (length > 40 || rng->Below(2) == 0)) return trie.ends()[0];
  if (length > 60) {
    for (const uint8_t wanted : {'"', '}', ']'}) {
      if (bytes[wanted] >= 0) return bytes[wanted];
    }
  }
  return best;
}

void WriteCalls(const JsonValue& tools, std::string_view format, std::string_view text,
                JsonWriter* json) {
  OutputFormat output;
  output.calls = {FindFormat(format)};
  const ParsedOutput parsed = ParseOutput(output, &tools, text);
  json->BeginObject().Member("text", text).Member("content", parsed.content);
  json->Key("calls").BeginArray();
  for (const ParsedOutput::Call& call : parsed.calls) {
    json->BeginObject().Member("name", call.name).Member("arguments", call.arguments);
    json->Key("complete").Bool(call.complete).EndObject();
  }
  json->EndArray().EndObject();
}

std::string Generate(const JsonValue& line, const Vocabulary& vocabulary) {
  constexpr size_t kTokensMax = 400;
  std::string out;
  JsonWriter json(&out);
  const auto compiled = Compile(line, vocabulary);
  if (!compiled.ok()) {
    json.BeginObject().Member("error", compiled.status().message()).EndObject();
    return out;
  }
  const std::shared_ptr<Language>& language = *compiled;
  const JsonValue* seed = line.Find("seed");
  const JsonValue* temperatures = line.Find("temperatures");
  Rng rng(seed != nullptr ? static_cast<uint64_t>(seed->as_int()) : 0);
  const JsonValue* tools = line.Find("tools");
  json.BeginObject().Key(tools != nullptr ? "replies" : "texts").BeginArray();
  std::vector<uint64_t> mask((vocabulary.trie->vocab_size() + 63) / 64);
  for (int64_t i = 0; i < line.Find("generate")->as_int(); ++i) {
    Matcher matcher(language);
    Status status;
    const double temperature =
        temperatures == nullptr || temperatures->items().empty()
            ? 1
            : temperatures->items()[static_cast<size_t>(i) % temperatures->items().size()]
                  .as_double();
    for (size_t length = 0; length < kTokensMax && !matcher.ended() && status.ok(); ++length) {
      status = matcher.Fill(mask);
      const int32_t token = Choose(mask, *vocabulary.trie, length, temperature, &rng);
      if (token < 0) status = Internal("a dead end");
      if (status.ok()) status = matcher.Accept(token);
    }
    if (!status.ok()) {
      json.String("FAILED: " + status.message() + " after " + matcher.text());
    } else if (matcher.ended() && tools != nullptr) {
      WriteCalls(*tools, line.Find("format")->as_string(), matcher.text(), &json);
    } else if (matcher.ended()) {
      json.String(matcher.text());
    } else {
      json.Null();
    }
  }
  json.EndArray().EndObject();
  return out;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar_probe TOKENIZER [masks]\n");
    return 2;
  }
  const auto text_model = ReadTextFile(argv[1]);
  if (!text_model.ok()) {
    std::fprintf(stderr, "%s\n", text_model.status().message().c_str());
    return 1;
  }
  Vocabulary vocabulary{.tokenizer = text_model->tokenizer.get()};
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
    const auto document = JsonDocument::Parse(text, {.depth_max = 512});
    if (!document.ok()) {
      std::printf("{\"error\": \"not JSON\"}\n");
    } else {
      const JsonValue& root = document->root();
      const std::string answer = root.Find("generate") != nullptr ? Generate(root, vocabulary)
                                 : root.Find("arrange") != nullptr
                                     ? Arrange(root, vocabulary)
                                     : Run(root, vocabulary, argc > 2);
      std::printf("%s\n", answer.c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace reprise::grammar

int main(int argc, char** argv) { return reprise::grammar::Main(argc, argv); }
