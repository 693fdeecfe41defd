// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/intern.h"
#include "grammar/parse/plain.h"
#include "grammar/parse/row_table.h"
#include "grammar/parse/token_trie.h"
#include "grammar/span_arena.h"
#include "grammar/stable_vector.h"

namespace reprise::grammar {

// Everything that may still follow, by its number in an Automaton.
enum class PlaceId : uint32_t {
  kDead = 0,               // no text of the grammar begins so
  kUnknown = ~uint32_t{0}  // in tables only
};

// Runs a Grammar over bytes as a deterministic automaton that is made while it is walked.
//
// A *place* is all that the bytes so far leave possible: a set of threads, each a column of an
// Earley parser (which lexemes may come, and what they mean) with the state of the lexer inside of
// the lexeme under way. Places, columns and lexer states are interned: the same situation has the
// same number, however it was reached. So a loop in a grammar is a loop in the automaton, and a
// step that was taken once is a table lookup.
//
//   bytes:    {"n": [1, 2
//   column 7: items -> [ . value        lexer: {number: [0-9]*...}      (thread 1: the number goes
//   on) column 9: items -> [ value . , | ]  lexer: {",": ,  "]": ]}         (thread 2: it ended)
//
// A column is known by its kernel, the items that the last lexeme left, each with the column it
// began in; predictions and completions follow from them (Earley 1970; rules that end with a call
// are completed in one step, Leo 1991).
//
// By invariant (1) of Grammar every place but kDead can be completed to a text of the grammar.
//
// Memory grows with what was walked; over `bytes_max`, and over the steps that were allowed, the
// automaton is exhausted() and answers kDead. A caller then starts a new one and takes its places
// along (Import).
//
// Thread safety: none. Costs: Next is a lookup once known; new places cost what their columns and
// lexemes do.
class Automaton {
 public:
  Automaton(std::shared_ptr<const Grammar> grammar, size_t bytes_max);

  PlaceId start() const { return start_; }
  PlaceId Next(PlaceId place, uint8_t byte) {
    const uint8_t byte_class = class_of_[byte];
    const PlaceId to = next_[static_cast<size_t>(place)][byte_class];
    return to == PlaceId::kUnknown ? Compute(place, byte_class) : to;
  }
  // Whether the bytes so far are a text of the grammar.
  bool Accepts(PlaceId place) const { return places_[static_cast<size_t>(place)].accepts; }

  // Whether they are, and nothing may follow.
  bool Ends(PlaceId place) const {
    return Accepts(place) && places_[static_cast<size_t>(place)].threads.empty();
  }

  // The only byte that may follow, if there is just one and the text cannot end here; else -1.
  int OnlyByte(PlaceId place);

  // How many plain characters may follow, whichever they are (plain.h): at least so many.
  int PlainDepth(PlaceId place);
  // The same as far as the form of one lexeme tells: cheaper, and often all.
  int PlainByForm(PlaceId place);

  // Follows lexemes that count what is counted along the tokens that they may begin with, as masks
  // will. False if one of them takes more than `steps`, or all more than `steps_in_all`: the
  // automaton is no more use then.
  bool Prepare(const TokenTrie& trie, uint64_t steps, uint64_t steps_in_all = ~uint64_t{0} >> 1);

  // From here on it may take so many steps that were never taken before; about 100 ns each.
  void AllowSteps(uint64_t steps) { steps_max_ = this->steps() + steps; }
  uint64_t steps() const { return steps_taken_ + pool_.steps(); }

  // Makes places of another automaton of the same grammar places of this one.
  void Import(const Automaton& from, std::span<PlaceId> places);

  bool exhausted() const { return exhausted_; }
  // Soon exhausted: whoever has much to do should begin with a new one.
  bool crowded() const {
    return bytes() > bytes_max_ - bytes_max_ / 8 && bytes() > bytes_first_ + bytes_max_ / 4;
  }
  size_t bytes() const;
  size_t place_count() const { return places_.size(); }
  const Grammar& grammar() const { return *grammar_; }

 private:
  using ColumnId = uint32_t;
  using LexerId = uint32_t;
  using LexemeSetId = uint32_t;
  static constexpr ColumnId kSelf = ~uint32_t{0};  // as origin: the column itself
  static constexpr LexerId kDeadLexer = 0;
  static constexpr LexerId kUnknownLexer = ~uint32_t{0};

  struct Item {
    StateId state;
    ColumnId origin;
    auto operator<=>(const Item&) const = default;
  };
  struct Scan {
    LexemeId lexeme;
    Item next;
  };
  struct Wait {
    RuleId rule;
    Item next;
    // Where a completion ends up if this is the rule's only wait and nothing but the end of its own
    // rule follows: complete `top_rule` in column `top` instead.
    RuleId top_rule = Grammar::kNoRule;
    ColumnId top = 0;
  };
  struct Column {
    std::vector<Item> kernel;
    std::vector<Scan> scans;  // by lexeme
    std::vector<Wait> waits;  // by rule
    LexerId lexer = kDeadLexer;
    bool accepts = false;
  };
  struct LexerItem {
    LexemeId lexeme;
    RegexId rest;
    bool operator==(const LexerItem&) const = default;
  };
  struct Lexer {
    std::span<const LexerItem> items;  // by lexeme
    LexemeSetId complete = 0;          // lexemes that may end here
    bool goes_on = false;              // some lexeme has more to come
    int8_t plain_by_form = -1;         // of one of them, once it is known
    // Of classes with the same next state, in the pool, once it is known.
    RegexPool::GroupingId grouping = RegexPool::kNoGrouping;
  };
  struct Thread {
    ColumnId column;
    LexerId lexer;
    auto operator<=>(const Thread&) const = default;
  };
  struct Place {
    std::span<const Thread> threads;
    bool accepts = false;
    int8_t plain = -1;
    int16_t only = -2;
  };
  class ColumnBuilder;

  PlaceId Compute(PlaceId place, uint8_t byte_class);
  PlaceId InternPlace(std::vector<Thread> threads, bool accepts);
  LexerId InternLexer(std::vector<LexerItem> items);
  LexemeSetId InternLexemes(std::vector<LexemeId> lexemes);
  LexerId NextLexer(LexerId lexer, uint8_t byte_class);
  ColumnId InternColumn(std::vector<Item> kernel);
  ColumnId Advance(ColumnId column, LexemeSetId complete);
  std::span<const Wait> WaitsFor(const Column& column, RuleId rule) const;
  void FindTops(Column* column) const;
  int PlainByForm(LexerId lexer);
  bool Charge(size_t bytes);

  const std::shared_ptr<const Grammar> grammar_;
  const size_t bytes_max_;
  size_t bytes_first_ = 0;  // when it was new
  RegexPool pool_;          // grows by derivatives
  PlainReach plain_;
  std::array<uint8_t, 256> class_of_;
  size_t class_count_;
  std::vector<uint8_t> class_size_;  // [classes] bytes in each
  size_t charged_ = 0;
  uint64_t steps_taken_ = 0;  // besides those of the pool
  uint64_t steps_max_ = ~uint64_t{0};
  bool exhausted_ = false;

  StableVector<Column> columns_;
  InternIndex column_index_;
  StableVector<Lexer> lexers_;
  SpanArena<LexerItem> lexer_items_;
  InternIndex lexer_index_;
  RowTable<LexerId> lexer_next_;  // [lexers, classes]
  std::vector<std::vector<LexemeId>> lexeme_sets_;
  InternIndex lexeme_set_index_;
  struct Step {
    ColumnId from;
    LexemeSetId complete;
    ColumnId to;
  };
  StableVector<Step> steps_;
  InternIndex step_index_;
  StableVector<Place> places_;
  SpanArena<Thread> threads_;
  InternIndex place_index_;
  RowTable<PlaceId> next_;  // [places, classes]
  PlaceId start_ = PlaceId::kDead;
};

}  // namespace reprise::grammar
