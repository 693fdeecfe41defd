// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/split/splitter.h"
#include "text/unicode/classes.h"
#include "text/unicode/nfc.h"

namespace reprise {
namespace {

using Kind = NormalizeStep::Kind;

bool IsSpaceAt(std::string_view text, size_t at, size_t* length) {
  const auto c = unicode::DecodeChar(text.data() + at, text.data() + text.size());
  *length = c.length;
  return (unicode::ClassOf(c.code) & unicode::kSpace) != 0;
}

std::string_view Strip(std::string_view text, bool left, bool right) {
  size_t length = 0;
  while (left && !text.empty() && IsSpaceAt(text, 0, &length)) text.remove_prefix(length);
  if (right) {
    size_t end = 0;  // of the last character that is not a space
    for (size_t at = 0; at < text.size(); at += length) {
      if (!IsSpaceAt(text, at, &length)) end = at + length;
    }
    text = text.substr(0, end);
  }
  return text;
}

// False if there was nothing to replace. Stops soon after `size_max`.
bool Replace(std::string_view text, std::string_view from, std::string_view to, size_t size_max,
             std::string* out) {
  size_t at = text.find(from);
  if (at == text.npos) return false;
  size_t begin = 0;
  for (; at != text.npos && out->size() <= size_max; at = text.find(from, begin)) {
    out->append(text.substr(begin, at - begin)).append(to);
    begin = at + from.size();
  }
  out->append(text.substr(begin));
  return true;
}

// False if the text is valid.
bool MakeValid(std::string_view text, std::string* out) {
  if (IsValidUtf8(text)) return false;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8SequenceLength(text.substr(at));
    out->append(length > 0 ? text.substr(at, length) : std::string_view("\xEF\xBF\xBD"));
    at += std::max<size_t>(length, 1);
  }
  return true;
}

}  // namespace

Result<Normalizer> Normalizer::Make(const std::vector<NormalizeStep>& steps) {
  static constexpr size_t kStepsMax = 64;
  if (steps.size() > kStepsMax) {
    return Unimplemented("the normalizer has " + std::to_string(steps.size()) +
                         " steps, beyond the limit of 64");
  }
  Normalizer normalizer;
  for (const NormalizeStep& spec : steps) {
    Step step;
    step.spec = spec;
    if (spec.kind == Kind::kReplace && spec.from.empty()) {
      return InvalidArgument("the normalizer replaces an empty string");
    }
    if (spec.kind == Kind::kReplaceRegex) {
      REPRISE_ASSIGN(step.regex, Regex::Compile(spec.from));
    }
    if (spec.kind == Kind::kCharsMap) {
      REPRISE_ASSIGN(CharsMap map, CharsMap::Parse(spec.from));
      step.chars_map = std::make_unique<CharsMap>(std::move(map));
    }
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

Result<std::string_view> Normalizer::Apply(std::string_view text, Scratch* scratch) const {
  // No published normaliser makes more of a text than this; one made to would fill the memory.
  const size_t size_max = std::min(Splitter::kTextBytesMax, (size_t{64} << 10) + 32 * text.size());
  for (const Step& step : steps_) {
    std::string& out = scratch->next;
    out.clear();
    bool changed = true;
    switch (step.spec.kind) {
      case Kind::kNfc:
        changed = !unicode::IsSurelyNfc(text);
        if (changed) unicode::AppendNfc(text, &out);
        break;
      case Kind::kPrepend:
        changed = !text.empty();
        out.append(step.spec.to).append(text);
        break;
      case Kind::kReplace:
        changed = Replace(text, step.spec.from, step.spec.to, size_max, &out);
        break;
      case Kind::kReplaceRegex: {
        if (scratch->regex == nullptr) scratch->regex = Regex::MakeScratch();
        scratch->spans.clear();
        REPRISE_TRY(step.regex->FindAll(text, scratch->regex.get(), &scratch->spans));
        for (const Regex::Span& span : scratch->spans) {
          if (out.size() > size_max) break;
          out.append(span.match ? std::string_view(step.spec.to)
                                : text.substr(span.begin, span.end - span.begin));
        }
        break;
      }
      case Kind::kStrip:
        text = Strip(text, !step.spec.from.empty(), !step.spec.to.empty());
        changed = false;
        break;
      case Kind::kCharsMap:
        step.chars_map->Append(text, size_max, &out);
        break;
      case Kind::kMakeValid:
        changed = MakeValid(text, &out);
        break;
    }
    if (!changed) continue;
    if (out.size() > size_max) {
      return ResourceExhausted("the normalizer makes this text far too long");
    }
    scratch->text.swap(out);
    text = scratch->text;
  }
  return text;
}

}  // namespace reprise
