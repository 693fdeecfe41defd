// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

// *Plain* characters are those that stand in a JSON string as they are. Where any of them may come,
// inside of strings, most of a vocabulary is allowed without a look at it.

// How many plain characters may follow, whichever they are: any up to that many, or forever.
inline constexpr int kPlainMax = 16;
inline constexpr int kPlainForever = 127;

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
// means dead. It gives up, with what is known by then, after `steps_max` steps.
template <typename State, typename NextFn>
class PlainWalk {
 public:
  PlainWalk(const std::array<uint8_t, 256>& classes, NextFn next, int steps_max)
      : classes_(classes), next_(next), steps_left_(steps_max) {}

  // Where one plain character leads from any of `from`; nothing if one of them leads nowhere.
  std::optional<std::vector<State>> Char(const std::vector<State>& from) {
    std::vector<State> after;
    for (const PlainPath& path : kPlainPaths) {
      std::vector<State> at = from;
      for (int i = 0; i < path.length; ++i) {
        if (!Step(path.ranges[i], &at)) return std::nullopt;
      }
      after.insert(after.end(), at.begin(), at.end());
    }
    Sort(&after);
    return after;
  }

  // `known(state)` is a depth that holds at least, or 0.
  template <typename KnownFn>
  int Depth(State state, KnownFn known) {
    std::vector<State> seen;
    std::vector<State> level = {state};
    int bound = kPlainForever;  // by what is known of places on the way
    for (int depth = 0; depth < kPlainMax; ++depth) {
      std::vector<State> open;
      for (const State one : level) {
        if (std::ranges::find(seen, one) != seen.end()) continue;
        seen.push_back(one);
        const int reach = known(one);
        if (reach == 0) open.push_back(one);
        if (reach != 0 && reach != kPlainForever) bound = std::min(bound, depth + reach);
      }
      if (open.empty()) return bound == kPlainForever ? bound : std::min(bound, kPlainMax);
      if (bound <= depth) return bound;
      std::optional<std::vector<State>> after = Char(open);
      if (!after) return std::min(bound, depth);
      level = std::move(*after);
    }
    return std::min(bound, kPlainMax);
  }

 private:
  static constexpr size_t kStatesMax = 64;

  static void Sort(std::vector<State>* states) {
    std::sort(states->begin(), states->end());
    states->erase(std::unique(states->begin(), states->end()), states->end());
  }

  bool Step(const uint8_t (&range)[2], std::vector<State>* at) {
    std::vector<State> to;
    for (const State one : *at) {
      for (int byte = range[0], previous = -1; byte <= range[1]; ++byte) {
        const int byte_class = classes_[static_cast<size_t>(byte)];
        if (byte_class == previous) continue;
        previous = byte_class;
        if (--steps_left_ < 0) return false;
        const State next = next_(one, static_cast<uint8_t>(byte));
        if (next == State{}) return false;
        to.push_back(next);
      }
    }
    Sort(&to);
    *at = std::move(to);
    return at->size() <= kStatesMax;
  }

  const std::array<uint8_t, 256>& classes_;
  NextFn next_;
  int steps_left_;
};

// How many plain characters expressions take, mostly by their form: a string with its characters
// counted, a name that is none of some.
//
// Thread safety: none.
class PlainReach {
 public:
  // The pool must outlive this.
  explicit PlainReach(RegexPool& pool) : pool_(pool) {}

  // So many of any kind may follow, at least; up to kPlainMax, or kPlainForever.
  int Of(RegexId regex);

 private:
  static constexpr int kStepsMax = 1500;
  int ByForm(RegexId regex);
  // Whether any plain character is a text of it.
  bool IsChar(RegexId regex);

  RegexPool& pool_;
  std::unordered_map<uint32_t, int> known_;
  std::unordered_map<uint32_t, bool> chars_;
};

}  // namespace reprise::grammar
