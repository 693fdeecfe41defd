// SPDX-License-Identifier: Apache-2.0
#include "grammar/parse/plain.h"

namespace reprise::grammar {

bool PlainReach::IsChar(RegexId regex) {
  const auto key = static_cast<uint32_t>(regex);
  if (const auto found = chars_.find(key); found != chars_.end()) return found->second;
  const auto next = [&](RegexId at, uint8_t byte) { return pool_.Derive(at, byte); };
  PlainWalk<RegexId, decltype(next)> walk(pool_.classes(), next, kStepsMax);
  const auto after = walk.Char({regex});
  const bool is_char =
      after && std::ranges::all_of(*after, [&](RegexId at) { return pool_.Nullable(at); });
  chars_.emplace(key, is_char);
  return is_char;
}

// 0: the form does not tell.
int PlainReach::ByForm(RegexId regex) {
  const RegexPool::Form form = pool_.FormOf(regex);
  switch (form.kind) {
    case RegexPool::Form::Kind::kRepeat:
      if (!IsChar(form.operand)) return 0;
      if (form.max == RegexPool::kUnbounded) return kPlainForever;
      return static_cast<int>(std::min<uint32_t>(form.max, kPlainMax));
    case RegexPool::Form::Kind::kWithout:
      // Of infinitely many texts, only so many are missing.
      return Of(form.operand) == kPlainForever ? kPlainForever : 0;
    case RegexPool::Form::Kind::kOther:
      break;
  }
  return 0;
}

int PlainReach::Of(RegexId regex) {
  const auto key = static_cast<uint32_t>(regex);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  int reach = ByForm(regex);
  if (reach == 0) {
    const auto next = [&](RegexId at, uint8_t byte) { return pool_.Derive(at, byte); };
    PlainWalk<RegexId, decltype(next)> walk(pool_.classes(), next, kStepsMax);
    reach = walk.Depth(regex, [&](RegexId at) { return at == regex ? 0 : ByForm(at); });
  }
  if (!pool_.exhausted()) known_.emplace(key, reach);
  return reach;
}

}  // namespace reprise::grammar
