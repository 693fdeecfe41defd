// SPDX-License-Identifier: Apache-2.0
#include "grammar/parse/plain.h"

namespace reprise::grammar {

const std::optional<std::vector<RegexId>>& PlainReach::After(RegexId regex) {
  static const std::optional<std::vector<RegexId>> kNowhere;
  const auto key = static_cast<uint32_t>(regex);
  if (const auto found = after_.find(key); found != after_.end()) return found->second;
  const auto next = [&](RegexId at, uint8_t byte) { return pool_.Derive(at, byte); };
  std::array<uint8_t, 256> by_byte;
  const auto groups = [&](RegexId at) -> const std::array<uint8_t, 256>& {
    const std::span<const uint8_t> by_class = pool_.Groups(pool_.GroupClasses({&at, 1}));
    for (size_t byte = 0; byte < 256; ++byte) by_byte[byte] = by_class[pool_.classes()[byte]];
    return by_byte;
  };
  auto after =
      PlainWalk<RegexId, decltype(next), decltype(groups)>(next, groups, &steps_left_).Char(regex);
  if (steps_left_ < 0) return kNowhere;
  return after_.emplace(key, std::move(after)).first->second;
}

bool PlainReach::IsChar(RegexId regex) {
  const std::optional<std::vector<RegexId>>& after = After(regex);
  return after && std::ranges::all_of(*after, [&](RegexId at) { return pool_.Nullable(at); });
}

int PlainReach::LengthWithin(RegexId regex, RegexId all) {
  const auto [found, is_new] = lengths_.try_emplace(uint64_t{static_cast<uint32_t>(all)} << 32 |
                                                    static_cast<uint32_t>(regex));
  if (!is_new) return found->second;
  found->second = -1;
  const std::optional<std::string> text = pool_.SomeText(regex);
  if (!text) return -1;
  for (const char byte : *text) all = pool_.Derive(all, static_cast<uint8_t>(byte));
  if (pool_.Nullable(all)) found->second = static_cast<int>(text->size());
  return found->second;
}

const PlainReach::Course& PlainReach::CourseOf(RegexId pattern, RegexId all) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(all)} << 32 | static_cast<uint32_t>(pattern);
  if (const auto found = courses_.find(key); found != courses_.end()) return found->second;
  Course course;
  const auto after = [&](RegexId at) -> std::optional<std::vector<RegexId>> {
    const std::optional<std::vector<RegexId>>& to = After(at);
    if (!to) return std::nullopt;
    for (const RegexId one : *to) {
      const int length = LengthWithin(one, all);
      if (length < 0) return std::nullopt;
      course.longest = std::max(course.longest, length);
    }
    return to;
  };
  course.depth = PlainDepthOf(pattern, kPlainFar, after, [](RegexId) { return 0; });
  return courses_.emplace(key, course).first->second;
}

// Texts of a pattern, counted in characters. As long as plain characters keep the pattern alive,
// and it can be completed in what is left of the count, they keep both alive: if they are too few,
// more of them may follow.
int PlainReach::CountedReach(const RegexPool::Form& form) {
  if (!IsChar(form.operand)) return 0;
  const Course& course =
      CourseOf(form.rest, pool_.Concat(pool_.Repeat(form.operand, 0), form.tail));
  const int64_t left = int64_t{form.max} - course.longest;
  const int64_t reach =
      course.depth == kPlainForever ? left : std::min<int64_t>(course.depth, left);
  return reach < int64_t{form.min} ? 0 : static_cast<int>(std::clamp<int64_t>(reach, 0, kPlainMax));
}

// 0: the form does not tell.
int PlainReach::FormReach(RegexId regex) {
  const RegexPool::Form form = pool_.FormOf(regex);
  switch (form.kind) {
    case RegexPool::Form::Kind::kRepeat:
      if (!IsChar(form.operand)) return 0;
      if (form.max == RegexPool::kUnbounded) return kPlainForever;
      return static_cast<int>(std::min<uint32_t>(form.max, kPlainMax));
    case RegexPool::Form::Kind::kWithout:
      // Of infinitely many texts, only so many are missing.
      return ByForm(form.operand) == kPlainForever ? kPlainForever : 0;
    case RegexPool::Form::Kind::kCounted:
      return CountedReach(form);
    case RegexPool::Form::Kind::kOther:
      break;
  }
  return 0;
}

int PlainReach::ByForm(RegexId regex) {
  if (const int known = Known(&by_form_, regex); known != kUnknown) return known;
  steps_left_ = kPatternStepsMax;
  const int reach = FormReach(regex);
  if (!pool_.exhausted()) Known(&by_form_, regex) = static_cast<int8_t>(reach);
  return reach;
}

int PlainReach::Of(RegexId regex) {
  if (const int known = Known(&known_, regex); known != kUnknown) return known;
  int reach = ByForm(regex);
  if (reach == 0) {
    int steps = kStepsMax;
    reach = PlainDepthOf(
        regex, kPlainFar,
        [&](RegexId at) -> const auto& {
          steps_left_ = steps;
          const auto& after = After(at);
          steps = steps_left_;
          return after;
        },
        [&](RegexId at) { return at == regex ? 0 : ByForm(at); });
  }
  if (!pool_.exhausted()) Known(&known_, regex) = static_cast<int8_t>(reach);
  return reach;
}

int8_t& PlainReach::Known(std::vector<int8_t>* known, RegexId regex) {
  if (static_cast<size_t>(regex) >= known->size()) known->resize(pool_.node_count(), kUnknown);
  return (*known)[static_cast<size_t>(regex)];
}

}  // namespace reprise::grammar
