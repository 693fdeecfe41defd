// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/intern.h"
#include "grammar/regex/byte_set.h"
#include "grammar/stable_vector.h"

namespace reprise::grammar {

// A regular language over bytes, by its number in a RegexPool.
enum class RegexId : uint32_t {
  kNothing = 0,  // no text at all
  kEmpty = 1,    // the empty text alone
};

// Regular expressions over bytes as a pool of interned nodes, with union, intersection, complement
// and counted repetition, and their derivatives: Derive(r, b) is what may follow byte b in texts of
// r (Brzozowski 1964; Owens, Reppy, Turon 2009). A deterministic automaton comes for free: its
// states are ids, made when they are first met.
//
// Nodes are kept in a normal form (flat, sorted, without duplicates), so that equal ids mean equal
// languages often enough for the automaton to be finite and small.
//
// Nodes cost memory and steps, and expressions are hostile: beyond the budget the pool is
// exhausted() for good, and everything it returns means nothing.
//
// Thread safety: none. Copies are independent and have the same ids.
class RegexPool {
 public:
  struct Budget {
    size_t bytes = size_t{24} << 20;
    uint64_t steps = 4'000'000;  // nodes visited
  };

  RegexPool() : RegexPool(Budget{}) {}
  explicit RegexPool(const Budget& budget);

  RegexId Bytes(const ByteSet& set);
  RegexId Literal(std::string_view text);
  RegexId LiteralSet(std::vector<std::string_view> texts);  // any of them
  RegexId Concat(RegexId first, RegexId second);
  RegexId Concat(std::span<const RegexId> parts);
  RegexId Or(std::vector<RegexId> parts);
  RegexId Or(RegexId a, RegexId b) { return Or(std::vector<RegexId>{a, b}); }
  RegexId And(std::vector<RegexId> parts);
  RegexId And(RegexId a, RegexId b) { return And(std::vector<RegexId>{a, b}); }
  RegexId Not(RegexId r);
  RegexId AnyText() { return Not(RegexId::kNothing); }
  RegexId Optional(RegexId r) { return Or(r, RegexId::kEmpty); }

  static constexpr uint32_t kUnbounded = ~uint32_t{0};
  RegexId Repeat(RegexId r, uint32_t min, uint32_t max = kUnbounded);

  // Decimal numbers, written without an exponent, that are a multiple of modulus / 10^scale. Says
  // nothing about their syntax: to be intersected. REQUIRES: 0 < modulus < 2^56, scale < 64.
  RegexId Multiple(uint64_t modulus, uint32_t scale);

  bool Nullable(RegexId r) const { return nodes_[Index(r)].nullable; }
  RegexId Derive(RegexId r, uint8_t byte);

  // Whether something is counted inside of what is counted, as in (a{1,9}b){1,9}: such expressions
  // may have very many derivatives.
  bool CountsCounts(RegexId r) const { return nodes_[Index(r)].counts > 1; }

  // Whether the language has no text, by search where nodes alone do not tell. Bytes outside of
  // `alphabet()` count as unwritable.
  bool IsNothing(RegexId r);

  // How an expression begins, for those who know more about some forms.
  struct Form {
    enum class Kind : uint8_t {
      kOther,
      kRepeat,   // with `operand` up to `max` times
      kWithout,  // with a text of `operand`, but for finitely many
      kCounted,  // with one of `rest` that is `operand` `min` to `max` times and then `tail`
    };
    Kind kind = Kind::kOther;
    RegexId operand = RegexId::kNothing;
    uint32_t min = 0, max = 0;
    RegexId tail = RegexId::kEmpty;
    RegexId rest = RegexId::kNothing;
  };
  Form FormOf(RegexId r) const;

  // A text of an expression without `and` and `not`, a short one where that is easy to see.
  // Nothing: there is none, or to find it takes longer than it is worth.
  std::optional<std::string> SomeText(RegexId r) const;

  // Expressions of a pool that began as a copy of the same one as this did, in this pool.
  std::vector<RegexId> Copy(const RegexPool& from, std::span<const RegexId> expressions);

  // Byte classes between which the first byte of these expressions makes a difference (Owens,
  // Reppy, Turon 2009): for each class c the lowest one whose derivatives are those of c. At least
  // as fine as needed, and good until a new set comes.
  using GroupingId = uint32_t;
  static constexpr GroupingId kNoGrouping = ~uint32_t{0};
  GroupingId GroupClasses(std::span<const RegexId> expressions);
  std::span<const uint8_t> Groups(GroupingId grouping) const { return groupings_[grouping].groups; }

  // Restricts texts to some bytes: derivatives by others are nothing.
  void SetAlphabet(const ByteSet& alphabet) {
    alphabet_ = alphabet;
    groupings_ = {};
    grouping_index_ = {};
    grouping_of_.clear();
  }

  // Bytes of one class are never told apart by any expression of the pool. Classes are split when
  // new sets come, never joined.
  const std::array<uint8_t, 256>& classes() const { return class_of_; }
  std::span<const uint8_t> representatives() const { return representatives_; }

  // A new budget, with no steps taken. What is exhausted stays so.
  void SetBudget(const Budget& budget) {
    budget_ = budget;
    steps_ = 0;
  }
  bool exhausted() const { return exhausted_; }
  uint64_t steps() const { return steps_; }
  size_t bytes() const;
  size_t node_count() const { return nodes_.size(); }

 private:
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,
    kConcat,
    kOr,
    kAnd,
    kNot,
    kRepeat,
    kMultiple
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool exact = true;   // without kAnd and kNot: is nothing only as kNothing
    bool finite = true;  // certainly has finitely many texts
    uint8_t counts = 0;  // how deep bounded repetitions are nested; 2: or deeper
    uint32_t a = 0;      // kBytes: set; kConcat: first; n-ary: begin in children_; others: operand
    uint32_t b = 0;  // kConcat: second; n-ary: count; kRepeat: min; kMultiple: digits of fraction
    uint32_t c = 0;  // kRepeat: max; kMultiple: rule
    uint64_t rest = 0;  // kMultiple: remainder so far
  };
  struct MultipleRule {
    uint64_t modulus;
    uint32_t scale;
    bool operator==(const MultipleRule&) const = default;
  };
  static constexpr uint32_t kBeforePoint = ~uint32_t{0};  // kMultiple: b

  static uint32_t Index(RegexId r) { return static_cast<uint32_t>(r); }
  std::span<const RegexId> Children(const Node& node) const {
    return {children_.data() + node.a, node.b};
  }
  bool Spend(uint64_t steps);
  RegexId Intern(Node node);
  RegexId InternNary(Kind kind, std::span<const RegexId> parts);
  RegexId InternMultiple(uint32_t rule, uint32_t digits, uint64_t rest);
  uint32_t SetIndex(const ByteSet& set);
  void SplitClasses(const ByteSet& set);
  void Flatten(Kind kind, std::span<const RegexId> parts, std::vector<RegexId>* flat) const;
  std::vector<RegexId> JoinBytes(std::vector<RegexId> parts, bool intersect);
  std::vector<RegexId> FactorHeads(std::vector<RegexId> parts);
  bool IsStar(RegexId r) const;
  bool IsRest(RegexId r) const;
  void DeriveParts(RegexId r, uint8_t byte, std::vector<RegexId>* parts);
  bool Within(RegexId part, RegexId all);
  void Absorb(std::vector<RegexId>* parts);
  bool Excludes(std::span<const RegexId> parts);
  // The sets that the first byte of these expressions is looked up in, if they are not too many.
  bool FirstSets(std::span<const RegexId> expressions, std::vector<uint32_t>* sets);
  std::vector<uint8_t> GroupBySets(std::span<const uint32_t> sets) const;
  RegexId LiteralTrie(std::span<const std::string_view> sorted, size_t depth);
  RegexId DeriveNode(RegexId r, uint8_t byte);
  RegexId DeriveMultiple(const Node& node, uint8_t byte);
  bool CertainlyAlive(RegexId r) const;
  bool AppendSomeText(RegexId r, int* nodes_left, std::string* text) const;
  bool TryWitnesses(RegexId r);
  bool Search(RegexId r);

  Budget budget_;
  uint64_t steps_ = 0;
  bool exhausted_ = false;
  ByteSet alphabet_ = ~ByteSet();
  StableVector<Node> nodes_;
  std::vector<RegexId> children_;
  std::vector<ByteSet> sets_;
  std::vector<MultipleRule> rules_;
  InternIndex node_index_;
  InternIndex set_index_;
  std::array<uint8_t, 256> class_of_ = {};
  std::vector<uint8_t> representatives_ = {0};  // [classes] the lowest byte of each
  struct Derivative {
    uint32_t from;
    uint32_t byte;
    RegexId to;
  };
  StableVector<Derivative> derivatives_;
  InternIndex derivative_index_;
  struct Grouping {
    std::vector<uint32_t> sets;
    std::vector<uint8_t> groups;
  };
  bool IsCurrent(const Grouping& grouping) const {
    return grouping.groups.size() == representatives_.size();
  }
  StableVector<Grouping> groupings_;  // by the sets that make the difference
  InternIndex grouping_index_;
  std::vector<uint32_t> grouping_of_;  // [nodes] where it is known
  std::vector<uint32_t> met_;          // [nodes] scratch: when it was last met
  uint32_t met_now_ = 0;
  std::unordered_map<uint64_t, bool> within_;  // by pairs of nodes
  bool within_busy_ = false;
  enum : uint8_t { kUnknown, kAlive, kDead };
  std::vector<uint8_t> liveness_;       // [nodes] whether it has a text
  std::vector<std::string> witnesses_;  // what completed expressions before, the last first
};

}  // namespace reprise::grammar
