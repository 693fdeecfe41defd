// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/regex/byte_set.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

// *Plain* characters are those that stand in a JSON string as they are. Where any of them may come,
// inside of strings, most of a vocabulary is allowed without a look at it.

// How many plain characters may follow, whichever they are: any up to that many, or forever.
inline constexpr int kPlainMax = 126;
inline constexpr int kPlainForever = 127;
// More than most tokens have, and much more: how far it is worth to look.
inline constexpr int kPlainNear = 16;
inline constexpr int kPlainFar = 48;

// Plain characters by their bytes: each row is a path of ranges. (RFC 3629, without what a JSON
// string must escape.)
struct PlainPath {
  int length;
  uint8_t ranges[4][2];
};
inline constexpr PlainPath kPlainPaths[] = {
    {1, {{0x20, 0x21}}},
    {1, {{0x23, 0x5B}}},
    {1, {{0x5D, 0x7F}}},
    {2, {{0xC2, 0xDF}, {0x80, 0xBF}}},
    {3, {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
    {3, {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
};

// Walks any automaton over bytes along plain characters. `next(state, byte)` is its step, State{}
// means dead; `groups(state)` has for each byte a number that is the same only if the step is. It
// gives up, with what is known by then, when `steps_left` runs out.
template <typename State, typename NextFn, typename GroupsFn>
class PlainWalk {
 public:
  PlainWalk(NextFn next, GroupsFn groups, int* steps_left)
      : next_(next), groups_(groups), steps_left_(*steps_left) {}

  // Where one plain character leads; nothing if one of them leads nowhere.
  std::optional<std::vector<State>> Char(State from) {
    std::vector<State> after;
    for (const PlainPath& path : kPlainPaths) {
      std::vector<State> at = {from};
      for (int i = 0; i < path.length; ++i) {
        if (!Step(path.ranges[i], &at)) return std::nullopt;
      }
      after.insert(after.end(), at.begin(), at.end());
    }
    Sort(&after);
    return after;
  }

 private:
  static void Sort(std::vector<State>* states) {
    std::sort(states->begin(), states->end());
    states->erase(std::unique(states->begin(), states->end()), states->end());
  }

  bool Step(const uint8_t (&range)[2], std::vector<State>* at) {
    std::vector<State> to;
    for (const State one : *at) {
      const std::array<uint8_t, 256>& groups = groups_(one);
      ByteSet seen;
      for (size_t byte = range[0]; byte <= range[1]; ++byte) {
        if (seen.Has(groups[byte])) continue;
        seen.Add(groups[byte]);
        if (--steps_left_ < 0) return false;
        const State next = next_(one, static_cast<uint8_t>(byte));
        if (next == State{}) return false;
        to.push_back(next);
      }
    }
    Sort(&to);
    *at = std::move(to);
    return true;
  }

  NextFn next_;
  GroupsFn groups_;
  int& steps_left_;
};

// How many plain characters may follow `state`. `after(state)` is where one of them leads, as
// PlainWalk::Char has it; `known(state)` a depth that holds at least, or 0. Looks no further than
// `far`.
template <typename State, typename AfterFn, typename KnownFn>
int PlainDepthOf(State state, int far, AfterFn after, KnownFn known) {
  constexpr size_t kStatesMax = 64;  // after so many characters
  std::vector<State> seen;
  std::vector<State> level = {state};
  int bound = kPlainForever;  // by what is known of states on the way
  for (int depth = 0; depth < far; ++depth) {
    if (bound <= depth || level.size() > kStatesMax) return std::min(bound, depth);
    std::vector<State> next;
    bool over = true;
    for (const State one : level) {
      if (std::ranges::find(seen, one) != seen.end()) continue;
      seen.push_back(one);
      const int reach = known(one);
      if (reach == kPlainForever) continue;
      if (reach != 0) {
        bound = std::min(bound, depth + reach);
        continue;
      }
      over = false;
      const auto& to = after(one);
      if (!to) return std::min(bound, depth);
      next.insert(next.end(), to->begin(), to->end());
    }
    if (over) return bound == kPlainForever ? bound : std::min(bound, kPlainMax);
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    level = std::move(next);
  }
  return std::min(bound, far);
}

// How many plain characters expressions take: a string with its characters counted, under a
// pattern or not, a name that is none of some.
//
// Thread safety: none.
class PlainReach {
 public:
  // The pool must outlive this.
  explicit PlainReach(RegexPool& pool) : pool_(pool) {}

  // So many of any kind may follow, at least; up to kPlainMax, or kPlainForever.
  int Of(RegexId regex);
  // The same as far as its form tells: cheaper.
  int ByForm(RegexId regex);

 private:
  static constexpr int kStepsMax = 1500;
  static constexpr int kPatternStepsMax = 6000;  // for a pattern, once for all lengths

  static constexpr int kUnknown = -1;

  int8_t& Known(std::vector<int8_t>* known, RegexId regex);
  int FormReach(RegexId regex);
  int CountedReach(const RegexPool::Form& form);
  // Along plain characters: how far a pattern is alive, and the bytes that complete it at most,
  // wherever it is, within `all`.
  struct Course {
    int depth = 0;
    int longest = 0;
  };
  const Course& CourseOf(RegexId pattern, RegexId all);
  // Where one plain character leads, if that can be said in steps_left_.
  const std::optional<std::vector<RegexId>>& After(RegexId regex);
  // Whether any plain character is a text of it.
  bool IsChar(RegexId regex);
  // The length of some text of `regex` that is one of `all`, too; -1: none is known.
  int LengthWithin(RegexId regex, RegexId all);

  RegexPool& pool_;
  int steps_left_ = 0;
  std::vector<int8_t> known_;    // [nodes]
  std::vector<int8_t> by_form_;  // [nodes]
  std::unordered_map<uint32_t, std::optional<std::vector<RegexId>>> after_;
  std::unordered_map<uint64_t, int> lengths_;
  std::unordered_map<uint64_t, Course> courses_;
};

}  // namespace reprise::grammar
