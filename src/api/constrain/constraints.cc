// SPDX-License-Identifier: Apache-2.0
#include "api/constrain/constraints.h"

#include <optional>
#include <utility>

#include "api/constrain/language_constraint.h"
#include "grammar/regex/pattern.h"
#include "grammar/reply/reply_grammar.h"
#include "grammar/schema/json_schema.h"
#include "grammar/syntax/grammar_text.h"

namespace reprise::api {
namespace {

using grammar::Grammar;
using grammar::RegexId;
using grammar::RuleId;

constexpr int kSchemaDepthMax = 256;
constexpr size_t kChoicesMax = 4096;

RuleId AddRegexRule(Grammar* grammar, RegexId regex) {
  const RuleId rule = grammar->AddRule();
  grammar->AddRegex(grammar->Begin(rule), regex, grammar->End(rule));
  return rule;
}

Result<RuleId> AddSchemaText(Grammar* grammar, std::string_view text) {
  REPRISE_ASSIGN(const JsonDocument schema,
                 JsonDocument::Parse(text, {.depth_max = kSchemaDepthMax}));
  return AddJsonSchema(schema.root(), schema.root(), grammar);
}

Result<RuleId> AddAnswer(Grammar* grammar, const OutputRule& rule) {
  switch (rule.answer) {
    case OutputRule::Answer::kFree:
      break;
    case OutputRule::Answer::kJsonObject:
      return AddSchemaText(grammar, R"({"type": "object"})");
    case OutputRule::Answer::kJsonSchema:
      return AddSchemaText(grammar, rule.text);
    case OutputRule::Answer::kRegex: {
      REPRISE_ASSIGN(const grammar::Pattern pattern, grammar::Pattern::Parse(rule.text));
      REPRISE_ASSIGN(const RegexId regex,
                     pattern.Compile(grammar->pool(), grammar::Spelling::kPlain,
                                     grammar::Pattern::Match::kWhole));
      return AddRegexRule(grammar, regex);
    }
    case OutputRule::Answer::kChoice: {
      if (rule.choices.empty() || rule.choices.size() > kChoicesMax) {
        return InvalidArgument("there must be between 1 and 4096 choices");
      }
      return AddRegexRule(grammar,
                          grammar->pool().LiteralSet({rule.choices.begin(), rule.choices.end()}));
    }
    case OutputRule::Answer::kGrammar:
      return grammar::AddGrammarText(rule.text, grammar);
  }
  return Internal("nothing to add");
}

}  // namespace

Constraints::Constraints(const ServedModel* model, const Limits& limits)
    : model_(*model), limits_(limits) {}

Constraints::~Constraints() = default;

std::shared_ptr<TokenConstraint> Constraints::Start(
    std::shared_ptr<grammar::Language> language) const {
  return std::make_shared<LanguageConstraint>(std::move(language), model_.tokenizer);
}

std::shared_ptr<const grammar::TokenTrie> Constraints::Trie() {
  const std::lock_guard lock(trie_mutex_);
  if (trie_ != nullptr) return trie_;
  const Tokenizer& tokenizer = *model_.tokenizer;
  std::vector<std::string> special;  // keeps the bytes that are not the tokenizer's
  special.reserve(static_cast<size_t>(model_.vocab_size));
  std::vector<std::string_view> bytes(static_cast<size_t>(model_.vocab_size));
  const auto known =
      static_cast<int32_t>(std::min<int64_t>(model_.vocab_size, tokenizer.vocab_size()));
  for (int32_t id = 0; id < known; ++id) {
    const std::string_view text = tokenizer.TokenBytes(id);
    if (tokenizer.IsControl(id)) {
      bytes[static_cast<size_t>(id)] =
          special.emplace_back(grammar::kSpecialByte + std::string(text));
    } else if (text.find(grammar::kSpecialByte) == text.npos) {
      bytes[static_cast<size_t>(id)] = text;
    }
  }
  trie_ = std::make_shared<const grammar::TokenTrie>(bytes, tokenizer.eos_ids());
  return trie_;
}

std::vector<std::string> Constraints::SpecialNames(const OutputFormat& format) const {
  std::vector<std::string> names;
  if (format.shown == nullptr) return names;
  for (const int32_t id : *format.shown) {
    const std::string_view text = model_.tokenizer->TokenBytes(id);
    if (!text.empty() && model_.tokenizer->IsControl(id)) names.emplace_back(text);
  }
  return names;
}

Result<Grammar> Constraints::Build(const OutputRule& rule, const OutputFormat& format,
                                   const std::string& tools, bool one_call) {
  Grammar grammar;
  grammar::ByteSet alphabet = Trie()->single_bytes();
  alphabet.Add(static_cast<uint8_t>(grammar::kSpecialByte));
  grammar.pool().SetAlphabet(alphabet);
  grammar::ReplyGrammar reply(&grammar, SpecialNames(format));

  std::optional<RuleId> answer;
  if (rule.answer != OutputRule::Answer::kFree) {
    REPRISE_ASSIGN(answer, AddAnswer(&grammar, rule));
  }
  const bool may_call = rule.calls != OutputRule::Calls::kFree || (answer && !format.calls.empty());
  std::optional<RuleId> calls;
  if (may_call && !tools.empty()) {
    if (format.calls.empty()) {
      return Unimplemented("this model has no format of calls that could be enforced");
    }
    REPRISE_ASSIGN(const JsonDocument parsed,
                   JsonDocument::Parse(tools, {.depth_max = kSchemaDepthMax}));
    const grammar::ReplyGrammar::CallRules rules{.only = rule.only_tool, .one = one_call};
    REPRISE_ASSIGN(calls, reply.AddCalls(*format.calls.front(), parsed.root(), rules));
  }
  if (rule.calls == OutputRule::Calls::kRequired) {
    if (!calls) return InvalidArgument("there are no tools to call");
    answer.reset();
  } else if (rule.calls == OutputRule::Calls::kStrict && !answer && calls) {
    REPRISE_ASSIGN(calls, reply.AddTextThenCalls(*format.calls.front(), *calls));
  }
  std::vector<RuleId> either;
  if (answer) either.push_back(*answer);
  if (calls) either.push_back(*calls);
  if (either.empty()) return InvalidArgument("there is nothing to enforce");
  RuleId all = either.size() == 1 ? either[0] : reply.AddChoice(either);
  // Markers around the answer stand there without reasoning, too.
  const bool plain = format.reasoning != nullptr && format.reasoning->answer.empty() &&
                     format.reasoning->hidden.front().empty();
  if (format.reasoning != nullptr && !(format.thinking_over && plain)) {
    all = reply.AddReasoning(*format.reasoning, format.thinking_begun, all);
  }
  REPRISE_TRY(grammar.Finish(all));
  return grammar;
}

Result<std::shared_ptr<grammar::Language>> Constraints::Compile(const OutputRule& rule,
                                                                const OutputFormat& format,
                                                                const std::string& tools,
                                                                bool one_call) {
  CHECK(!rule.free());
  if (model_.tokenizer->eos_ids().empty()) {
    return Unimplemented("this model has no end token, so no reply could be held to a form");
  }
  // All that the grammar depends on, each part with its length.
  std::string key;
  const auto add = [&](std::string_view part) {
    key += std::to_string(part.size()) + ":";
    key += part;
  };
  add(std::to_string(static_cast<int>(rule.answer)) + std::to_string(static_cast<int>(rule.calls)) +
      (one_call ? "1" : "n") +
      (format.thinking_begun  ? "t"
       : format.thinking_over ? "o"
                              : "-"));
  add(rule.text);
  for (const std::string& choice : rule.choices) add(choice);
  add(rule.only_tool);
  add(tools);
  add(format.calls.empty() ? "" : format.calls.front()->name);
  add(format.reasoning == nullptr ? "" : format.reasoning->name);
  if (auto known = Find(key)) return known;
  REPRISE_ASSIGN(Grammar grammar, Build(rule, format, tools, one_call));
  auto language = std::make_shared<grammar::Language>(std::move(grammar), Trie());
  REPRISE_TRY(language->Prepare());
  Keep(std::move(key), language);
  return language;
}

std::shared_ptr<grammar::Language> Constraints::Find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->language;
}

void Constraints::Keep(std::string key, std::shared_ptr<grammar::Language> language) {
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  entries_.push_front({key, std::move(language)});
  by_key_.emplace(std::move(key), entries_.begin());
  size_t bytes = 0;
  size_t count = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += entry->key.size() + entry->language->bytes();
    const bool keep = ++count == 1 || (count <= limits_.languages && bytes <= limits_.bytes);
    if (!keep) by_key_.erase(entry->key);
    entry = keep ? std::next(entry) : entries_.erase(entry);
  }
}

size_t Constraints::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace reprise::api
