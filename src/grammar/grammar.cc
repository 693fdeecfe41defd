// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <algorithm>

namespace reprise::grammar {

Grammar::Grammar(const Budget& budget) : budget_(budget), pool_(budget.regex) {}

size_t Grammar::bytes() const {
  return pool_.bytes() + (drafts_.capacity() * sizeof(Draft)) + edges_.capacity() * sizeof(Edge) +
         rules_.capacity() * sizeof(Rule) + state_count_ * 2 * sizeof(uint32_t);
}

LexemeId Grammar::AddLexeme(RegexId regex) {
  const uint64_t hash =
      FoldedMultiply(HashSeed() ^ static_cast<uint64_t>(regex), 0x9e3779b97f4a7c15ull);
  const uint32_t found =
      lexeme_index_.Find(hash, [&](uint32_t id) { return lexemes_[id] == regex; });
  if (found != InternIndex::kNone) return LexemeId{found};
  const auto id = static_cast<uint32_t>(lexemes_.size());
  lexemes_.push_back(regex);
  lexeme_index_.Insert(hash, id);
  return LexemeId{id};
}

RuleId Grammar::AddRule() {
  const StateId begin = AddState();
  rules_.push_back({.begin = begin, .end = AddState()});
  return RuleId{static_cast<uint32_t>(rules_.size() - 1)};
}

StateId Grammar::AddState() {
  if (state_count_ >= budget_.states) {
    exhausted_ = true;
    return StateId{0};
  }
  return StateId{static_cast<uint32_t>(state_count_++)};
}

void Grammar::AddDraft(StateId from, const Edge& edge) {
  if (drafts_.size() >= budget_.edges) exhausted_ = true;
  if (!exhausted_) drafts_.push_back({from, edge});
}

void Grammar::AddEmpty(StateId from, StateId to) { AddDraft(from, {Edge::Kind::kNothing, 0, to}); }

void Grammar::AddRegex(StateId from, RegexId regex, StateId to) {
  if (regex == RegexId::kNothing) return;
  if (pool_.Nullable(regex)) AddEmpty(from, to);
  if (regex == RegexId::kEmpty) return;
  AddDraft(from, {Edge::Kind::kLexeme, static_cast<uint32_t>(AddLexeme(regex)), to});
}

void Grammar::AddCall(StateId from, RuleId rule, StateId to) {
  AddDraft(from, {Edge::Kind::kRule, static_cast<uint32_t>(rule), to});
}

std::vector<bool> Grammar::ReachEnd(bool textless) const {
  // Backwards from the ends. An edge over a rule waits until that rule's begin is reached.
  std::vector<std::vector<uint32_t>> into(state_count_);      // edges by the state they lead to
  std::vector<std::vector<uint32_t>> calls(rules_.size());    // edges by the rule they are over
  std::vector<std::vector<uint32_t>> rules_at(state_count_);  // rules by the state they begin at
  for (size_t i = 0; i < drafts_.size(); ++i) {
    const Edge& edge = drafts_[i].edge;
    if (textless && edge.kind == Edge::Kind::kLexeme) continue;
    into[static_cast<size_t>(edge.to)].push_back(static_cast<uint32_t>(i));
    if (edge.kind == Edge::Kind::kRule) calls[edge.symbol].push_back(static_cast<uint32_t>(i));
  }
  std::vector<bool> reached(state_count_, false);
  std::vector<size_t> work;
  const auto reach = [&](StateId state) {
    const auto at = static_cast<size_t>(state);
    if (reached[at]) return;
    reached[at] = true;
    work.push_back(at);
  };
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    rules_at[static_cast<size_t>(rules_[rule].begin)].push_back(static_cast<uint32_t>(rule));
    reach(rules_[rule].end);
  }
  const auto over = [&](uint32_t draft) {
    const auto& [from, edge] = drafts_[draft];
    if (!reached[static_cast<size_t>(edge.to)]) return;
    if (edge.kind == Edge::Kind::kRule &&
        !reached[static_cast<size_t>(rules_[edge.symbol].begin)]) {
      return;
    }
    reach(from);
  };
  while (!work.empty()) {
    const size_t at = work.back();
    work.pop_back();
    for (const uint32_t draft : into[at]) over(draft);
    for (const uint32_t rule : rules_at[at]) {
      for (const uint32_t draft : calls[rule]) over(draft);
    }
  }
  return reached;
}

void Grammar::SortEdges() {
  std::stable_sort(drafts_.begin(), drafts_.end(),
                   [](const Draft& a, const Draft& b) { return a.from < b.from; });
  first_edge_.assign(state_count_ + 1, 0);
  for (const Draft& draft : drafts_) ++first_edge_[static_cast<size_t>(draft.from) + 1];
  for (size_t i = 0; i < state_count_; ++i) first_edge_[i + 1] += first_edge_[i];
  edges_.reserve(drafts_.size());
  for (const Draft& draft : drafts_) edges_.push_back(draft.edge);
  drafts_ = {};
}

Status Grammar::Finish(RuleId rule) {
  CHECK(start_ == kNoRule);
  start_ = AddRule();
  AddCall(Begin(start_), rule, End(start_));
  std::erase_if(drafts_, [&](const Draft& draft) {
    return draft.edge.kind == Edge::Kind::kLexeme && pool_.IsNothing(lexemes_[draft.edge.symbol]);
  });
  if (exhausted()) return ResourceExhausted("the grammar is too large to be compiled");

  const std::vector<bool> alive = ReachEnd(/*textless=*/false);
  const auto begins = [&](uint32_t index) { return static_cast<size_t>(rules_[index].begin); };
  if (!alive[begins(static_cast<uint32_t>(start_))]) {
    return InvalidArgument("nothing can fulfil it: it allows no text at all");
  }
  std::erase_if(drafts_, [&](const Draft& draft) {
    return !alive[static_cast<size_t>(draft.edge.to)] ||
           (draft.edge.kind == Edge::Kind::kRule && !alive[begins(draft.edge.symbol)]);
  });
  const std::vector<bool> textless = ReachEnd(/*textless=*/true);
  end_of_.assign(state_count_, kNoRule);
  for (size_t i = 0; i < rules_.size(); ++i) {
    rules_[i].nullable = textless[static_cast<size_t>(rules_[i].begin)];
    end_of_[static_cast<size_t>(rules_[i].end)] = RuleId{static_cast<uint32_t>(i)};
  }
  SortEdges();
  return OkStatus();
}

}  // namespace reprise::grammar
