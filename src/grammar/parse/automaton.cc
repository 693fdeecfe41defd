// SPDX-License-Identifier: Apache-2.0
#include "grammar/parse/automaton.h"

#include <algorithm>

#include "grammar/parse/trie_walk.h"

namespace reprise::grammar {
namespace {

constexpr int kPlainStepsMax = 1500;
constexpr uint64_t kLexerSteps = 8;  // what a new state of the lexer costs besides its derivatives

uint64_t HashPair(uint32_t a, uint32_t b) {
  return FoldedMultiply(HashSeed() ^ (uint64_t{a} << 32 | b), 0x9e3779b97f4a7c15ull);
}

}  // namespace

// The closure of a kernel: predictions, completions, and what may be skipped.
class Automaton::ColumnBuilder {
 public:
  explicit ColumnBuilder(Automaton& automaton)
      : automaton_(automaton), grammar_(*automaton.grammar_) {}

  Column Build(std::vector<Item> kernel) {
    for (const Item& item : kernel) Add(item);
    column_.kernel = std::move(kernel);
    for (size_t at = 0; at < items_.size(); ++at) Visit(items_[at]);
    std::sort(column_.scans.begin(), column_.scans.end(),
              [](const Scan& a, const Scan& b) { return a.lexeme < b.lexeme; });
    std::sort(column_.waits.begin(), column_.waits.end(),
              [](const Wait& a, const Wait& b) { return a.rule < b.rule; });
    return std::move(column_);
  }

 private:
  void Add(const Item& item) {
    const uint64_t hash = HashPair(static_cast<uint32_t>(item.state), item.origin);
    if (index_.Find(hash, [&](uint32_t id) { return items_[id] == item; }) != InternIndex::kNone) {
      return;
    }
    index_.Insert(hash, static_cast<uint32_t>(items_.size()));
    items_.push_back(item);
  }

  void Visit(const Item item) {
    for (const Grammar::Edge& edge : grammar_.Edges(item.state)) {
      const Item next{edge.to, item.origin};
      switch (edge.kind) {
        case Grammar::Edge::Kind::kNothing:
          Add(next);
          break;
        case Grammar::Edge::Kind::kLexeme:
          column_.scans.push_back({LexemeId{edge.symbol}, next});
          break;
        case Grammar::Edge::Kind::kRule: {
          const RuleId rule{edge.symbol};
          column_.waits.push_back({rule, next});
          Add({grammar_.Begin(rule), kSelf});
          if (grammar_.Nullable(rule)) Add(next);
          break;
        }
      }
    }
    const RuleId ended = grammar_.EndOf(item.state);
    if (ended == Grammar::kNoRule) return;
    if (ended == grammar_.start()) column_.accepts = true;
    // A rule that ends where it began was skipped when it was predicted.
    if (item.origin != kSelf) Complete(ended, item.origin);
  }

  void Complete(RuleId rule, ColumnId origin) {
    auto waits = automaton_.WaitsFor(automaton_.columns_[origin], rule);
    if (waits.size() == 1 && waits[0].top_rule != Grammar::kNoRule) {
      const Wait& wait = waits[0];
      if (wait.top_rule == grammar_.start()) column_.accepts = true;
      origin = wait.top;
      waits = automaton_.WaitsFor(automaton_.columns_[origin], wait.top_rule);
    }
    for (const Wait& wait : waits) {
      Add({wait.next.state, wait.next.origin == kSelf ? origin : wait.next.origin});
    }
  }

  Automaton& automaton_;
  const Grammar& grammar_;
  Column column_;
  std::vector<Item> items_;
  InternIndex index_;
};

Automaton::Automaton(std::shared_ptr<const Grammar> grammar, size_t bytes_max)
    : grammar_(std::move(grammar)),
      bytes_max_(bytes_max),
      pool_(grammar_->pool()),
      plain_(pool_),
      class_of_(pool_.classes()),
      class_count_(pool_.representatives().size()),
      class_size_(class_count_, 0),
      lexer_next_(class_count_),
      next_(class_count_) {
  pool_.SetBudget({.bytes = bytes_max, .steps = 100 * bytes_max / 64});
  for (const uint8_t byte_class : class_of_) {
    if (class_size_[byte_class] < 255) ++class_size_[byte_class];
  }
  lexeme_sets_.emplace_back();
  lexers_.emplace_back();
  lexer_next_.Add(kDeadLexer);
  places_.emplace_back();
  next_.Add(PlaceId::kDead);
  const ColumnId first = InternColumn({{grammar_->Begin(grammar_->start()), kSelf}});
  start_ = InternPlace({{first, columns_[first].lexer}}, columns_[first].accepts);
  bytes_first_ = bytes();
}

size_t Automaton::bytes() const { return charged_ + pool_.bytes(); }

bool Automaton::Charge(size_t bytes) {
  charged_ += bytes;
  if (pool_.exhausted() || charged_ + pool_.bytes() > bytes_max_) exhausted_ = true;
  return !exhausted_;
}

std::span<const Automaton::Wait> Automaton::WaitsFor(const Column& column, RuleId rule) const {
  const auto range = std::ranges::equal_range(column.waits, rule, {}, &Wait::rule);
  return {range.begin(), range.end()};
}

void Automaton::FindTops(Column* column) const {
  const auto ends_in = [&](StateId state) {
    // Nothing but the end of the rule may follow.
    while (grammar_->EndOf(state) == Grammar::kNoRule) {
      const auto edges = grammar_->Edges(state);
      if (edges.size() != 1 || edges[0].kind != Grammar::Edge::Kind::kNothing) break;
      if (edges[0].to == state) break;
      state = edges[0].to;
    }
    return grammar_->Edges(state).empty() ? grammar_->EndOf(state) : Grammar::kNoRule;
  };
  std::vector<Wait>& waits = column->waits;
  for (size_t i = 0; i < waits.size(); ++i) {
    const bool alone = (i == 0 || waits[i - 1].rule != waits[i].rule) &&
                       (i + 1 == waits.size() || waits[i + 1].rule != waits[i].rule);
    if (!alone || waits[i].next.origin == kSelf) continue;
    const RuleId ended = ends_in(waits[i].next.state);
    if (ended == Grammar::kNoRule) continue;
    const ColumnId origin = waits[i].next.origin;
    const auto above = WaitsFor(columns_[origin], ended);
    const bool chained = above.size() == 1 && above[0].top_rule != Grammar::kNoRule;
    waits[i].top_rule = chained ? above[0].top_rule : ended;
    waits[i].top = chained ? above[0].top : origin;
  }
}

Automaton::ColumnId Automaton::InternColumn(std::vector<Item> kernel) {
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  const uint64_t hash = HashSpan(std::span<const Item>(kernel));
  const uint32_t found =
      column_index_.Find(hash, [&](uint32_t id) { return columns_[id].kernel == kernel; });
  if (found != InternIndex::kNone) return found;

  Column column = ColumnBuilder(*this).Build(std::move(kernel));
  steps_taken_ += column.scans.size() + column.waits.size();
  FindTops(&column);
  std::vector<LexerItem> items;
  for (const Scan& scan : column.scans) {
    if (items.empty() || items.back().lexeme != scan.lexeme) {
      items.push_back({scan.lexeme, grammar_->regex(scan.lexeme)});
    }
  }
  column.lexer = InternLexer(std::move(items));
  Charge(sizeof(Column) + column.kernel.size() * sizeof(Item) + column.scans.size() * sizeof(Scan) +
         column.waits.size() * sizeof(Wait) + 32);
  const auto id = static_cast<ColumnId>(columns_.size());
  columns_.push_back(std::move(column));
  column_index_.Insert(hash, id);
  return id;
}

Automaton::LexemeSetId Automaton::InternLexemes(std::vector<LexemeId> lexemes) {
  if (lexemes.empty()) return 0;
  const uint64_t hash = HashSpan(std::span<const LexemeId>(lexemes));
  const uint32_t found =
      lexeme_set_index_.Find(hash, [&](uint32_t id) { return lexeme_sets_[id] == lexemes; });
  if (found != InternIndex::kNone) return found;
  Charge(sizeof(lexemes) + lexemes.size() * sizeof(LexemeId) + 32);
  lexeme_sets_.push_back(std::move(lexemes));
  lexeme_set_index_.Insert(hash, static_cast<uint32_t>(lexeme_sets_.size() - 1));
  return static_cast<LexemeSetId>(lexeme_sets_.size() - 1);
}

Automaton::LexerId Automaton::InternLexer(std::vector<LexerItem> items) {
  if (items.empty()) return kDeadLexer;
  const uint64_t hash = HashSpan(std::span<const LexerItem>(items));
  const uint32_t found = lexer_index_.Find(
      hash, [&](uint32_t id) { return std::ranges::equal(lexers_[id].items, items); });
  if (found != InternIndex::kNone) return found;
  std::vector<LexemeId> complete;
  for (const LexerItem& item : items) {
    if (pool_.Nullable(item.rest)) complete.push_back(item.lexeme);
  }
  Charge(sizeof(Lexer) + items.size() * sizeof(LexerItem) + class_count_ * sizeof(LexerId) + 32);
  const LexemeSetId set = InternLexemes(std::move(complete));
  const bool goes_on = std::ranges::any_of(
      items, [](const LexerItem& item) { return item.rest != RegexId::kEmpty; });
  lexers_.push_back({lexer_items_.Keep(items), set, goes_on});
  lexer_next_.Add(kUnknownLexer);
  lexer_index_.Insert(hash, static_cast<uint32_t>(lexers_.size() - 1));
  return static_cast<LexerId>(lexers_.size() - 1);
}

Automaton::LexerId Automaton::NextLexer(LexerId lexer, uint8_t byte_class) {
  LexerId& known = lexer_next_[lexer][byte_class];  // rows never move
  if (known != kUnknownLexer) return known;
  RegexPool::GroupingId& grouping = lexers_[lexer].grouping;
  if (grouping == RegexPool::kNoGrouping) {
    std::vector<RegexId> rests;
    for (const LexerItem& item : lexers_[lexer].items) rests.push_back(item.rest);
    grouping = pool_.GroupClasses(rests);
  }
  const uint8_t group = pool_.Groups(grouping)[byte_class];
  if (group != byte_class) return known = NextLexer(lexer, group);
  const uint8_t byte = pool_.representatives()[byte_class];
  std::vector<LexerItem> items;
  for (const LexerItem& item : lexers_[lexer].items) {
    const RegexId rest = pool_.Derive(item.rest, byte);
    if (rest != RegexId::kNothing) items.push_back({item.lexeme, rest});
  }
  if (pool_.exhausted()) {
    exhausted_ = true;
    return kDeadLexer;
  }
  steps_taken_ += kLexerSteps;
  return known = InternLexer(std::move(items));
}

Automaton::ColumnId Automaton::Advance(ColumnId column, LexemeSetId complete) {
  const uint64_t hash = HashPair(column, complete);
  const uint32_t found = step_index_.Find(hash, [&](uint32_t id) {
    return steps_[id].from == column && steps_[id].complete == complete;
  });
  if (found != InternIndex::kNone) return steps_[found].to;
  std::vector<Item> kernel;
  const std::vector<LexemeId>& lexemes = lexeme_sets_[complete];
  auto lexeme = lexemes.begin();
  for (const Scan& scan : columns_[column].scans) {
    while (lexeme != lexemes.end() && *lexeme < scan.lexeme) ++lexeme;
    if (lexeme == lexemes.end()) break;
    if (*lexeme != scan.lexeme) continue;
    kernel.push_back({scan.next.state, scan.next.origin == kSelf ? column : scan.next.origin});
  }
  const ColumnId to = InternColumn(std::move(kernel));
  Charge(sizeof(Step) + 32);
  steps_.push_back({column, complete, to});
  step_index_.Insert(hash, static_cast<uint32_t>(steps_.size() - 1));
  return to;
}

PlaceId Automaton::InternPlace(std::vector<Thread> threads, bool accepts) {
  std::erase_if(threads, [](const Thread& thread) { return thread.lexer == kDeadLexer; });
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  if (threads.empty() && !accepts) return PlaceId::kDead;
  const uint64_t hash = HashSpan(std::span<const Thread>(threads)) ^ (accepts ? 1 : 0);
  const uint32_t found = place_index_.Find(hash, [&](uint32_t id) {
    return places_[id].accepts == accepts && std::ranges::equal(places_[id].threads, threads);
  });
  if (found != InternIndex::kNone) return PlaceId{found};
  Charge(sizeof(Place) + threads.size() * sizeof(Thread) + class_count_ * sizeof(PlaceId) + 32);
  places_.push_back({.threads = threads_.Keep(threads), .accepts = accepts});
  next_.Add(PlaceId::kUnknown);
  const auto id = static_cast<uint32_t>(places_.size() - 1);
  place_index_.Insert(hash, id);
  return PlaceId{id};
}

PlaceId Automaton::Compute(PlaceId place, uint8_t byte_class) {
  if (exhausted_) return PlaceId::kDead;
  std::vector<Thread> threads;
  bool accepts = false;
  const size_t count = places_[static_cast<size_t>(place)].threads.size();
  for (size_t i = 0; i < count; ++i) {
    const Thread thread = places_[static_cast<size_t>(place)].threads[i];
    const LexerId lexer = NextLexer(thread.lexer, byte_class);
    if (lexer == kDeadLexer) continue;
    if (lexers_[lexer].goes_on) threads.push_back({thread.column, lexer});
    const LexemeSetId complete = lexers_[lexer].complete;
    if (complete == 0) continue;
    const ColumnId column = Advance(thread.column, complete);
    accepts |= columns_[column].accepts;
    threads.push_back({column, columns_[column].lexer});
  }
  steps_taken_ += 1 + count;
  const PlaceId to = InternPlace(std::move(threads), accepts);
  if (steps() > steps_max_) exhausted_ = true;
  if (exhausted_) return PlaceId::kDead;
  return next_[static_cast<size_t>(place)][byte_class] = to;
}

void Automaton::Import(const Automaton& from, std::span<PlaceId> places) {
  // Columns that threads stand in, and those that theirs began in: always earlier ones.
  std::vector<ColumnId> columns;
  std::vector<bool> seen(from.columns_.size(), false);
  const auto need = [&](ColumnId column) {
    if (column == kSelf || seen[column]) return;
    seen[column] = true;
    columns.push_back(column);
  };
  for (const PlaceId place : places) {
    for (const Thread& thread : from.places_[static_cast<size_t>(place)].threads) {
      need(thread.column);
    }
  }
  for (size_t at = 0; at < columns.size(); ++at) {
    for (const Item& item : from.columns_[columns[at]].kernel) need(item.origin);
  }
  std::sort(columns.begin(), columns.end());
  std::vector<ColumnId> column_of(from.columns_.size(), kSelf);
  for (const ColumnId column : columns) {
    std::vector<Item> kernel = from.columns_[column].kernel;
    for (Item& item : kernel) {
      if (item.origin != kSelf) item.origin = column_of[item.origin];
    }
    column_of[column] = InternColumn(std::move(kernel));
  }
  // Lexers, with all of their expressions at once.
  std::vector<LexerId> lexer_of(from.lexers_.size(), kUnknownLexer);
  std::vector<LexerId> lexers;
  std::vector<RegexId> rests;
  for (const PlaceId place : places) {
    for (const Thread& thread : from.places_[static_cast<size_t>(place)].threads) {
      if (lexer_of[thread.lexer] != kUnknownLexer) continue;
      lexer_of[thread.lexer] = kDeadLexer;
      lexers.push_back(thread.lexer);
      for (const LexerItem& item : from.lexers_[thread.lexer].items) rests.push_back(item.rest);
    }
  }
  rests = pool_.Copy(from.pool_, rests);
  auto rest = rests.begin();
  for (const LexerId lexer : lexers) {
    std::vector<LexerItem> items(from.lexers_[lexer].items.begin(),
                                 from.lexers_[lexer].items.end());
    for (LexerItem& item : items) item.rest = *rest++;
    lexer_of[lexer] = InternLexer(std::move(items));
  }
  for (PlaceId& place : places) {
    const Place& old = from.places_[static_cast<size_t>(place)];
    std::vector<Thread> threads;
    for (const Thread& thread : old.threads) {
      threads.push_back({column_of[thread.column], lexer_of[thread.lexer]});
    }
    place = InternPlace(std::move(threads), old.accepts);
  }
  if (pool_.exhausted()) exhausted_ = true;
}

int Automaton::OnlyByte(PlaceId place) {
  if (const int known = places_[static_cast<size_t>(place)].only; known != -2) return known;
  int only = -1;
  int count = Accepts(place) ? 2 : 0;
  for (size_t byte_class = 0; byte_class < class_count_ && count < 2; ++byte_class) {
    const uint8_t byte = pool_.representatives()[byte_class];
    if (Next(place, byte) == PlaceId::kDead) continue;
    count += class_size_[byte_class];
    only = byte;
  }
  if (count != 1) only = -1;
  if (!exhausted_) places_[static_cast<size_t>(place)].only = static_cast<int16_t>(only);
  return only;
}

int Automaton::PlainByForm(LexerId lexer) {
  if (const int known = lexers_[lexer].plain_by_form; known >= 0) return known;
  int depth = 0;
  for (const LexerItem& item : lexers_[lexer].items) {
    depth = std::max(depth, plain_.ByForm(item.rest));
    if (depth == kPlainForever) break;
  }
  if (pool_.exhausted()) exhausted_ = true;
  if (!exhausted_) lexers_[lexer].plain_by_form = static_cast<int8_t>(depth);
  return depth;
}

int Automaton::PlainByForm(PlaceId place) {
  int depth = 0;
  for (const Thread& thread : places_[static_cast<size_t>(place)].threads) {
    depth = std::max(depth, PlainByForm(thread.lexer));
  }
  return depth;
}

int Automaton::PlainDepth(PlaceId place) {
  if (const int known = places_[static_cast<size_t>(place)].plain; known >= 0) return known;
  // One lexeme that takes them is enough. Only where none does are lexemes looked at together.
  int depth = PlainByForm(place);
  const auto has_enough = [&] { return depth >= kPlainNear; };
  for (const Thread& thread : places_[static_cast<size_t>(place)].threads) {
    for (const LexerItem& item : lexers_[thread.lexer].items) {
      if (!has_enough()) depth = std::max(depth, plain_.Of(item.rest));
    }
  }
  if (!has_enough()) {
    const auto next = [&](PlaceId at, uint8_t byte) { return Next(at, byte); };
    const auto groups = [&](PlaceId) -> const auto& { return class_of_; };
    int steps_left = kPlainStepsMax;
    PlainWalk<PlaceId, decltype(next), decltype(groups)> walk(next, groups, &steps_left);
    const auto after = [&](PlaceId at) { return walk.Char(at); };
    depth = std::max(depth, PlainDepthOf(place, kPlainNear, after, [](PlaceId) { return 0; }));
  }
  if (pool_.exhausted()) exhausted_ = true;
  if (!exhausted_) places_[static_cast<size_t>(place)].plain = static_cast<int8_t>(depth);
  return depth;
}

bool Automaton::Prepare(const TokenTrie& trie, uint64_t steps, uint64_t steps_in_all) {
  TrieWalk<LexerId> walk;
  const uint64_t last = this->steps() + steps_in_all;
  for (size_t i = 0; i < grammar_->lexeme_count(); ++i) {
    const LexemeId lexeme{static_cast<uint32_t>(i)};
    if (!pool_.CountsCounts(grammar_->regex(lexeme))) continue;
    const LexerId first = InternLexer({{lexeme, grammar_->regex(lexeme)}});
    const uint64_t end = std::min(last, this->steps() + steps);
    // Also from behind the quotation mark, which tokens often end with.
    for (const LexerId from : {first, NextLexer(first, class_of_['"'])}) {
      if (from == kDeadLexer) continue;
      walk.Run(
          trie, from, PlainByForm(from),
          [&](LexerId lexer, uint8_t byte) {
            return this->steps() > end ? kDeadLexer : NextLexer(lexer, class_of_[byte]);
          },
          [&](LexerId lexer) { return PlainByForm(lexer); }, [](const TokenTrie::Part&) {},
          [](int32_t) {});
    }
    if (exhausted_ || this->steps() > end) return false;
  }
  return true;
}

}  // namespace reprise::grammar
