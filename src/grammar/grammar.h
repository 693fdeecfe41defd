// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "grammar/intern.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

enum class LexemeId : uint32_t {};
enum class RuleId : uint32_t {};
enum class StateId : uint32_t {};

// A context-free grammar as a network: each rule is a small automaton whose edges are lexemes
// (regular expressions over bytes), other rules, or nothing.
//
//   object: (0) --"{"--> (1) --pair--> (2) --"}"--> ((3))        rule `pair` is another automaton
//                         ^----","------|
//
// The language is exactly that of the rules with every lexeme replaced by its texts: there is no
// longest-match rule, lexemes may be ambiguous, share prefixes and follow each other without
// separators. Loops and options live inside a rule, so lists need no recursion.
//
// A Grammar is built by a front end, then Finish()ed, then immutable. What it costs to run is
// parse/automaton.h's business.
//
// Invariants after Finish():
//  (1) From every state that an edge leads to, the end of its rule can be reached: a text that fits
//      so far can always be completed.
//  (2) The start rule is used by no edge.
class Grammar {
 public:
  struct Budget {
    RegexPool::Budget regex = {};
    size_t states = 400'000;
    size_t edges = 800'000;
  };
  struct Edge {
    enum class Kind : uint32_t { kNothing, kLexeme, kRule };
    Kind kind;
    uint32_t symbol;
    StateId to;
  };

  explicit Grammar(const Budget& budget);
  Grammar() : Grammar(Budget{}) {}

  RegexPool& pool() { return pool_; }
  const RegexPool& pool() const { return pool_; }

  // The same expression is the same lexeme.
  LexemeId AddLexeme(RegexId regex);
  RuleId AddRule();
  StateId AddState();
  StateId Begin(RuleId rule) const { return rules_[Index(rule)].begin; }
  StateId End(RuleId rule) const { return rules_[Index(rule)].end; }

  void AddEmpty(StateId from, StateId to);
  // An expression that has the empty text may also be skipped; one without any text is no edge.
  void AddRegex(StateId from, RegexId regex, StateId to);
  void AddCall(StateId from, RuleId rule, StateId to);

  // Makes `rule` what texts are derived from and checks the whole. Fails with kInvalidArgument if
  // no text can be derived, with kResourceExhausted beyond the budget.
  Status Finish(RuleId rule);

  RuleId start() const { return start_; }
  size_t rule_count() const { return rules_.size(); }
  size_t state_count() const { return state_count_; }
  size_t lexeme_count() const { return lexemes_.size(); }
  RegexId regex(LexemeId lexeme) const { return lexemes_[static_cast<size_t>(lexeme)]; }
  bool Nullable(RuleId rule) const { return rules_[Index(rule)].nullable; }
  // Edges out of a state; the rule that ends there, if one does. After Finish().
  std::span<const Edge> Edges(StateId state) const {
    const auto at = static_cast<size_t>(state);
    return {edges_.data() + first_edge_[at], first_edge_[at + 1] - first_edge_[at]};
  }
  static constexpr RuleId kNoRule{~uint32_t{0}};
  RuleId EndOf(StateId state) const { return end_of_[static_cast<size_t>(state)]; }

  // Beyond the budget; Finish() will say so. For loops that build.
  bool exhausted() const { return exhausted_ || pool_.exhausted(); }
  size_t bytes() const;

 private:
  struct Rule {
    StateId begin;
    StateId end;
    bool nullable = false;
  };
  struct Draft {
    StateId from;
    Edge edge;
  };
  static size_t Index(RuleId rule) { return static_cast<size_t>(rule); }
  void AddDraft(StateId from, const Edge& edge);
  // Whether states reach the end of their rule: over all edges, or over those without text.
  std::vector<bool> ReachEnd(bool textless) const;
  void SortEdges();

  Budget budget_;
  RegexPool pool_;
  std::vector<RegexId> lexemes_;
  InternIndex lexeme_index_;
  std::vector<Rule> rules_;
  std::vector<Draft> drafts_;
  size_t state_count_ = 0;
  RuleId start_ = kNoRule;
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_edge_;  // [states + 1]
  std::vector<RuleId> end_of_;        // [states]
  bool exhausted_ = false;
};

}  // namespace reprise::grammar
