// SPDX-License-Identifier: Apache-2.0
#include "api/constrain/constraints.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/constrain/language_constraint.h"
#include "base/sha256.h"
#include "grammar/regex/pattern.h"
#include "grammar/reply/reply_grammar.h"
#include "grammar/schema/json_schema.h"
#include "grammar/syntax/grammar_text.h"

namespace reprise::api {
namespace {

using grammar::Grammar;
using grammar::RegexId;
using grammar::RuleId;

constexpr char kCompiling[] = "compiling the grammar";
constexpr int kSchemaDepthMax = 256;
constexpr size_t kBytesPerStep = 64;             // that a grammar may take, of what its steps make
constexpr size_t kBytesLeast = size_t{1} << 20;  // and without any
constexpr size_t kChoicesMax = 4096;
constexpr size_t kOncePart = 4;  // of the bytes that are kept: for what was asked for once

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

Result<std::shared_ptr<const grammar::TokenTrie>> Constraints::Trie(Account* account) {
  const std::lock_guard lock(trie_mutex_);
  if (trie_ != nullptr) return trie_;
  REPRISE_TRY(account->Spend(static_cast<uint64_t>(model_.vocab_size), kCompiling));
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

Status Constraints::Build(const OutputRule& rule, const OutputFormat& format,
                          const std::string& tools, bool one_call, Grammar* grammar) const {
  grammar::ReplyGrammar reply(grammar, SpecialNames(format));

  std::optional<RuleId> answer;
  if (rule.answer != OutputRule::Answer::kFree) {
    REPRISE_ASSIGN(answer, AddAnswer(grammar, rule));
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
  return grammar->Finish(all);
}

Constraints::Key Constraints::KeyOf(const OutputRule& rule, const OutputFormat& format,
                                    const std::string& tools, bool one_call) {
  std::string key;  // each part with its length
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
  return Sha256(key);
}

// With what the account has left, if that is less than a grammar may take.
Result<std::shared_ptr<grammar::Language>> Constraints::Make(
    const OutputRule& rule, const OutputFormat& format, const std::string& tools, bool one_call,
    std::shared_ptr<const grammar::TokenTrie> trie, Account* account) {
  const uint64_t left = account->work_left();
  Grammar::Budget budget;
  budget.regex.steps = std::min(budget.regex.steps, left);
  budget.regex.bytes = std::min(budget.regex.bytes, kBytesLeast + left * kBytesPerStep);
  budget.states = std::min(budget.states, left);
  budget.edges = std::min(budget.edges, 2 * left);
  // The grammar, and its copy in the automaton that follows it.
  const size_t bytes = 2 * budget.regex.bytes;
  Status room = account->TakeReading(bytes, kCompiling);
  while (room.code() == StatusCode::kFailedPrecondition && DropUnused(*account, bytes)) {
    room = account->TakeReading(bytes, kCompiling);
  }
  REPRISE_TRY(room);
  ++compilations_;
  Grammar grammar(budget);
  grammar::ByteSet alphabet = trie->single_bytes();
  alphabet.Add(static_cast<uint8_t>(grammar::kSpecialByte));
  grammar.pool().SetAlphabet(alphabet);
  const Status built = Build(rule, format, tools, one_call, &grammar);
  const bool all = budget.regex.steps == Grammar::Budget().regex.steps;
  const uint64_t spent = grammar.pool().steps() + grammar.state_count();
  REPRISE_TRY(account->Spend(grammar.exhausted() && !all ? left + 1 : spent, kCompiling));
  REPRISE_TRY(built);
  grammar::Language::Limits limits;
  limits.ledger = account->ledger();
  limits.share = account->share();
  auto language = std::make_shared<grammar::Language>(std::move(grammar), std::move(trie), limits);
  const uint64_t before = language->steps();
  const Status prepared =
      language->Prepare(std::min(account->work_left(), grammar::Language::kPrepareSteps));
  REPRISE_TRY(account->Spend(language->steps() - before, kCompiling));
  REPRISE_TRY(prepared);
  const Status full =
      FailedPrecondition("the server has no memory left for another grammar; try again later");
  while (!language->Hold()) {
    if (!DropUnused(*account, language->bytes())) return full;
  }
  // The first mask is made here, not in the step of everybody.
  const uint64_t steps = std::min(account->work_left(), grammar::Matcher::kTokenSteps);
  const uint64_t begun = language->steps();
  TokenMask first(language->trie().vocab_size());
  const Status filled = grammar::Matcher(language).Fill(first.words(), steps);
  if (!filled.ok() && !language->Hold()) return full;
  const bool short_of_steps = !filled.ok() && steps < grammar::Matcher::kTokenSteps;
  const uint64_t taken = language->steps() - std::min(begun, language->steps());
  REPRISE_TRY(account->Spend(short_of_steps ? steps + 1 : taken, kCompiling));
  if (!filled.ok()) return InvalidArgument(filled.message());
  return language;
}

Result<std::shared_ptr<grammar::Language>> Constraints::Compile(const OutputRule& rule,
                                                                const OutputFormat& format,
                                                                const std::string& tools,
                                                                bool one_call, Account* account) {
  CHECK(!rule.free());
  if (model_.tokenizer->eos_ids().empty()) {
    return Unimplemented("this model has no end token, so no reply could be held to a form");
  }
  const Key key = KeyOf(rule, format, tools, one_call);
  if (auto known = Find(key)) return known;
  if (auto refusal = FindRefusal(key)) return *refusal;
  REPRISE_ASSIGN(auto trie, Trie(account));
  auto language = Make(rule, format, tools, one_call, std::move(trie), account);
  if (language.ok()) {
    Keep(key, account->share(), *language);
  } else if (language.status().code() != StatusCode::kFailedPrecondition &&
             account->Spend(0, kCompiling).ok()) {
    KeepRefusal(key, language.status());  // of the grammar, not of the account
  }
  return language;
}

std::shared_ptr<grammar::Language> Constraints::Find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  found->second->again = true;
  return found->second->language;
}

std::optional<Status> Constraints::FindRefusal(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = refusals_.find(key);
  return found == refusals_.end() ? std::nullopt : std::optional<Status>(found->second);
}

void Constraints::KeepRefusal(const Key& key, const Status& status) {
  const std::lock_guard lock(mutex_);
  if (!refusals_.emplace(key, status).second) return;
  refusals_in_order_.push_back(key);
  if (refusals_in_order_.size() <= limits_.refusals) return;
  refusals_.erase(refusals_in_order_.front());
  refusals_in_order_.pop_front();
}

// Forgets the language that was used longest ago, of those that nobody uses: one of the account's
// share, or of another where the share itself has room. False: there is none.
bool Constraints::DropUnused(const Account& account, size_t bytes_wanted) {
  const Ledger& ledger = *account.ledger();
  const bool of_others =
      ledger.bytes_of(account.share()) + bytes_wanted <= ledger.limits().share_bytes;
  std::shared_ptr<grammar::Language> dropped;  // freed without the lock
  const std::lock_guard lock(mutex_);
  const auto unused = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
    return entry.language.use_count() == 1 && (of_others || entry.share == account.share());
  });
  if (unused == entries_.rend()) return false;
  dropped = std::move(unused->language);
  by_key_.erase(unused->key);
  entries_.erase(std::next(unused).base());
  return true;
}

void Constraints::Keep(const Key& key, const std::string& share,
                       std::shared_ptr<grammar::Language> language) {
  std::list<Entry> dropped;  // freed without the lock: large ones take long, and others look here
  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    known->second->again = true;  // two requests have compiled it
    return;
  }
  entries_.push_front({key, share, std::move(language)});
  by_key_.emplace(key, entries_.begin());
  size_t bytes = 0, bytes_once = 0;
  size_t count = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    const size_t takes = entry->language->bytes();
    const bool over = bytes + takes > limits_.bytes ||
                      (!entry->again && bytes_once + takes > limits_.bytes / kOncePart);
    if (entry != entries_.begin() && (over || count == limits_.languages)) {
      by_key_.erase(entry->key);
      dropped.splice(dropped.end(), entries_, entry);
    } else {
      ++count;
      bytes += takes;
      if (!entry->again) bytes_once += takes;
    }
    entry = next;
  }
}

size_t Constraints::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace reprise::api
