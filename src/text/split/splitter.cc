// SPDX-License-Identifier: Apache-2.0
#include "text/split/splitter.h"

#include <algorithm>
#include <utility>

#include "text/subword/byte_alphabet.h"

namespace reprise {
namespace {

using Behavior = SplitStep::Behavior;
using Kind = SplitStep::Kind;
using Span = Regex::Span;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

void FindLiteral(std::string_view text, std::string_view literal, std::vector<Span>* spans) {
  const auto add = [&](size_t begin, size_t end, bool match) {
    if (begin < end) {
      spans->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), match});
    }
  };
  size_t gap = 0;
  for (size_t at = text.find(literal); at != text.npos; at = text.find(literal, gap)) {
    add(gap, at, false);
    gap = at + literal.size();
    add(at, gap, true);
  }
  add(gap, text.size(), false);
}

// Pieces from spans that cover a text. Empty spans cut but are not pieces.
void Resolve(const std::vector<Span>& spans, Behavior behavior, uint32_t base,
             std::vector<Piece>* pieces) {
  const size_t first = pieces->size();
  const auto add = [&](const Span& span) {
    if (span.begin < span.end) pieces->push_back({base + span.begin, base + span.end});
  };
  const auto extend = [&](const Span& span) { pieces->back().end = base + span.end; };
  bool last_match = false;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const bool has_piece = pieces->size() > first;
    switch (behavior) {
      case Behavior::kIsolated:
        add(span);
        break;
      case Behavior::kRemoved:
        if (!span.match) add(span);
        break;
      case Behavior::kContiguous:  // matches side by side are one
        if (has_piece && i > 0 && span.match == last_match) {
          extend(span);
        } else {
          add(span);
        }
        break;
      case Behavior::kMergedWithPrevious:
        if (span.match && !last_match && has_piece) {
          extend(span);
        } else {
          add(span);
        }
        break;
      case Behavior::kMergedWithNext:
        if (span.match && i + 1 < spans.size() && !spans[i + 1].match) {
          Span merged = span;
          merged.end = spans[++i].end;
          add(merged);
        } else {
          add(span);
        }
        break;
    }
    last_match = span.match;
  }
}

}  // namespace

Result<Splitter> Splitter::Make(const std::vector<SplitStep>& steps) {
  static constexpr size_t kStepsMax = 64;
  if (steps.size() > kStepsMax) {
    return Unimplemented("the pre-tokenizer has " + std::to_string(steps.size()) +
                         " steps, beyond the limit of 64");
  }
  Splitter splitter;
  for (const SplitStep& spec : steps) {
    Step step;
    step.spec = spec;
    if (spec.kind == Kind::kRegex) {
      if (spec.behavior == Behavior::kIsolated) step.scanner = FindScanner(spec.pattern);
      if (step.scanner == nullptr) {
        REPRISE_ASSIGN(step.regex, Regex::Compile(spec.pattern));
      }
    }
    if (spec.kind == Kind::kLiteral && spec.pattern.empty()) {
      return InvalidArgument("the pre-tokenizer splits at an empty string");
    }
    splitter.in_alphabet_ |= spec.kind == Kind::kAlphabet;
    splitter.steps_.push_back(std::move(step));
  }
  return splitter;
}

Status Splitter::Split(std::string_view text, bool at_start, Scratch* scratch) const {
  CHECK(text.size() <= kTextBytesMax);
  scratch->text = text;
  scratch->pieces.clear();
  if (text.empty()) return OkStatus();
  scratch->pieces.push_back({0, static_cast<uint32_t>(text.size())});
  for (const Step& step : steps_) {
    const bool cuts = step.spec.kind == Kind::kRegex || step.spec.kind == Kind::kLiteral;
    REPRISE_TRY(cuts ? Cut(step, scratch) : Rewrite(step.spec, at_start, scratch));
  }
  if (in_alphabet_) RestoreBytes(scratch);
  return OkStatus();
}

Status Splitter::Cut(const Step& step, Scratch* scratch) {
  if (step.regex != nullptr && scratch->regex == nullptr) scratch->regex = Regex::MakeScratch();
  scratch->next_pieces.clear();
  for (const Piece piece : scratch->pieces) {
    const std::string_view text = scratch->text.substr(piece.begin, piece.end - piece.begin);
    if (step.scanner != nullptr) {
      step.scanner(text, piece.begin, &scratch->next_pieces);
      continue;
    }
    scratch->spans.clear();
    if (step.regex != nullptr) {
      REPRISE_TRY(step.regex->FindAll(text, scratch->regex.get(), &scratch->spans));
    } else {
      FindLiteral(text, step.spec.pattern, &scratch->spans);
    }
    if (step.spec.invert) {
      for (Span& span : scratch->spans) span.match = !span.match;
    }
    Resolve(scratch->spans, step.spec.behavior, piece.begin, &scratch->next_pieces);
  }
  scratch->pieces.swap(scratch->next_pieces);
  return OkStatus();
}

namespace {

void AppendMetaspaced(std::string_view text, std::string* out) {
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    out->append(text.substr(at, space - at));
    if (space < text.size()) out->append(kMetaspace);
    at = space + 1;
  }
}

}  // namespace

// Rewrites every piece into a new buffer.
Status Splitter::Rewrite(const SplitStep& step, bool at_start, Scratch* scratch) {
  std::string& out = scratch->next_buffer;
  out.clear();
  for (Piece& piece : scratch->pieces) {
    const std::string_view text = scratch->text.substr(piece.begin, piece.end - piece.begin);
    const bool first = at_start && piece.begin == 0;
    piece.begin = static_cast<uint32_t>(out.size());
    if (step.kind == Kind::kAlphabet) {
      AppendAlphabetText(text, &out);
    } else if (step.kind == Kind::kPrefixSpace) {
      if (text[0] != ' ') out.push_back(' ');
      out.append(text);
    } else {
      const bool wanted = step.prepend == SplitStep::Prepend::kAlways ||
                          (step.prepend == SplitStep::Prepend::kFirst && first);
      if (wanted && text[0] != ' ' && !text.starts_with(kMetaspace)) out.append(kMetaspace);
      AppendMetaspaced(text, &out);
    }
    piece.end = static_cast<uint32_t>(out.size());
    if (out.size() > kTextBytesMax) {
      return ResourceExhausted("the pre-tokenizer makes this text longer than 1 GiB");
    }
  }
  scratch->buffer.swap(out);
  scratch->text = scratch->buffer;
  return OkStatus();
}

void Splitter::RestoreBytes(Scratch* scratch) {
  std::string& out = scratch->next_buffer;
  out.clear();
  for (Piece& piece : scratch->pieces) {
    const std::string_view text = scratch->text.substr(piece.begin, piece.end - piece.begin);
    piece.begin = static_cast<uint32_t>(out.size());
    AppendAlphabetBytes(text, &out);
    piece.end = static_cast<uint32_t>(out.size());
  }
  scratch->buffer.swap(out);
  scratch->text = scratch->buffer;
}

}  // namespace reprise
