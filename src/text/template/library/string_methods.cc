// SPDX-License-Identifier: Apache-2.0
// The methods of str. On a text marked as safe they return a text marked as safe, and escape their
// text arguments, as Markup does.
#include <algorithm>

#include "text/template/library/methods.h"
#include "text/template/python/format.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

// `text` as a string of the same sort as `self`.
Value Like(const Value& self, std::string_view text) {
  Value value = Value::String(std::string(text));
  return self.is_markup() ? value.AsMarkup() : value;
}

Status NoArguments(const char* name, const Arguments& arguments) {
  return ArgumentReader(name, arguments).Finish();
}

// Pays for looking through the text once and for a copy of it.
Status PayForCopy(Runtime* runtime, const Value& self) {
  return runtime->budget.Allocate(self.as_string().size());
}

template <Side side>
Result<Value> StripMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("strip", arguments);
  const Value chars = read.StringOrNone("chars");
  REPRISE_TRY(read.Finish());
  REPRISE_TRY(PayForCopy(runtime, self));
  if (chars.is_none()) return Like(self, Strip(self.as_string(), side));
  REPRISE_TRY(runtime->budget.Allocate(chars.as_string().size() * sizeof(uint32_t)));
  return Like(self, Strip(self.as_string(), side, chars.as_string()));
}

using Splitter = std::vector<std::string_view> (*)(std::string_view,
                                                   std::optional<std::string_view>, int64_t);
template <Splitter splitter>
Result<Value> SplitMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("split", arguments);
  const Value separator = read.StringOrNone("sep");
  const int64_t splits = read.OptionalInt("maxsplit", -1);
  REPRISE_TRY(read.Finish());
  if (separator.is_string() && separator.as_string().empty()) {
    return InvalidArgument("empty separator");
  }
  const std::string_view text = self.as_string();
  REPRISE_TRY(runtime->budget.Allocate(2 * text.size()));
  const auto parts = splitter(
      text, separator.is_none() ? std::nullopt : std::optional(separator.as_string()), splits);
  REPRISE_TRY(runtime->budget.AllocateProduct(parts.size(), 8 * sizeof(Value)));
  Value::Items items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Like(self, part));
  return Value::List(std::move(items));
}

Result<Value> SplitLinesMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("splitlines", arguments);
  const bool keep_ends = read.OptionalFlag("keepends", false);
  REPRISE_TRY(read.Finish());
  REPRISE_TRY(PayForCopy(runtime, self));
  const auto lines = SplitLines(self.as_string(), keep_ends);
  REPRISE_TRY(runtime->budget.AllocateProduct(lines.size(), 8 * sizeof(Value)));
  Value::Items items;
  for (const std::string_view line : lines) items.push_back(Like(self, line));
  return Value::List(std::move(items));
}

template <bool from_right>
Result<Value> PartitionMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("partition", arguments);
  const Value separator = read.RequiredString("sep");
  REPRISE_TRY(read.Finish());
  const std::string_view text = self.as_string();
  const std::string_view mark = separator.as_string();
  if (mark.empty()) return InvalidArgument("empty separator");
  REPRISE_TRY(runtime->budget.Allocate(2 * text.size()));
  const size_t found = from_right ? FindLast(text, mark) : FindFirst(text, mark);
  if (found == std::string_view::npos) {
    return from_right ? Value::Tuple({Like(self, ""), Like(self, ""), self})
                      : Value::Tuple({self, Like(self, ""), Like(self, "")});
  }
  return Value::Tuple({Like(self, text.substr(0, found)), Like(self, mark),
                       Like(self, text.substr(found + mark.size()))});
}

// The part of the text that the optional start and end of find() and startswith() select.
struct Window {
  std::string_view text;
  size_t skipped = 0;  // code points before it
  bool valid = true;   // false if start lies beyond the end
};

Result<Window> SelectWindow(const Value& self, ArgumentReader* read) {
  const Value start = read->Optional("start", Value::None());
  const Value end = read->Optional("end", Value::None());
  REPRISE_TRY(read->Finish());
  for (const Value* bound : {&start, &end}) {
    if (!bound->is_none() && !bound->is_integral())
      return TypeError("slice indices must be integers");
  }
  Window window{self.as_string()};
  if (start.is_none() && end.is_none()) return window;
  const auto count = static_cast<int64_t>(CodePointCount(window.text));
  const auto place = [&](const Value& bound, int64_t fallback) {
    if (bound.is_none()) return fallback;
    const int64_t at =
        bound.as_int() < 0 ? std::max(-count, bound.as_int()) + count : bound.as_int();
    return at;
  };
  const int64_t from = place(start, 0);
  const int64_t to = std::min(count, place(end, count));
  if (from > to) {
    window.valid = false;
    return window;
  }
  window.skipped = static_cast<size_t>(from);
  const size_t begin = CodePointOffset(window.text, window.skipped);
  window.text = window.text.substr(begin);
  window.text = window.text.substr(0, CodePointOffset(window.text, static_cast<size_t>(to - from)));
  return window;
}

template <bool at_end>
Result<Value> AffixMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read(at_end ? "endswith" : "startswith", arguments);
  const Value affixes = read.Required("affix");
  REPRISE_TRY(runtime->budget.Spend(1 + self.as_string().size() / 256));
  REPRISE_ASSIGN(const Window window, SelectWindow(self, &read));
  const auto matches = [&](const Value& affix) {
    return window.valid && (at_end ? window.text.ends_with(affix.as_string())
                                   : window.text.starts_with(affix.as_string()));
  };
  if (affixes.is_string()) return Value::Bool(matches(affixes));
  if (!affixes.is_tuple()) {
    if (affixes.is_undefined()) return UndefinedError(affixes);
    return TypeError(std::string(at_end ? "endswith" : "startswith") +
                     " first arg must be str or a tuple of str, not " + TypeName(affixes));
  }
  REPRISE_TRY(runtime->budget.Spend(affixes.weight()));
  for (const Value& affix : affixes.items()) {
    if (!affix.is_string()) return TypeError("a tuple for startswith() must contain only str");
    if (matches(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool from_right, bool must_exist>
Result<Value> FindMethodOfText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("find", arguments);
  const Value part = read.RequiredString("sub");
  REPRISE_TRY(runtime->budget.Allocate(self.as_string().size()));
  REPRISE_ASSIGN(const Window window, SelectWindow(self, &read));
  size_t found = std::string_view::npos;
  if (window.valid) {
    found = from_right ? FindLast(window.text, part.as_string())
                       : FindFirst(window.text, part.as_string());
  }
  if (found != std::string_view::npos) {
    const size_t index = window.skipped + CodePointCount(window.text.substr(0, found));
    return Value::Int(static_cast<int64_t>(index));
  }
  if (must_exist) return InvalidArgument("substring not found");
  return Value::Int(-1);
}

Result<Value> CountMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("count", arguments);
  const Value part = read.RequiredString("sub");
  REPRISE_TRY(runtime->budget.Spend(1 + self.as_string().size() / 8));
  REPRISE_ASSIGN(const Window window, SelectWindow(self, &read));
  return Value::Int(window.valid ? static_cast<int64_t>(CountOf(window.text, part.as_string()))
                                 : 0);
}

Result<Value> ReplaceMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("replace", arguments);
  const Value from = read.RequiredString("old");
  const Value to = read.RequiredString("new");
  const int64_t count = read.OptionalInt("count", -1);
  REPRISE_TRY(read.Finish());
  const auto html = [&](const Value& v) {
    return self.is_markup() && !v.is_markup() ? EscapedHtml(v.as_string())
                                              : std::string(v.as_string());
  };
  REPRISE_TRY(runtime->budget.Spend(self.as_string().size() / 8));  // there may be as many finds
  const std::string old_text(from.as_string());
  const std::string new_text = html(to);
  REPRISE_TRY(runtime->budget.Allocate(std::max(
      self.as_string().size(), ReplacedBytes(self.as_string(), old_text, new_text, count))));
  return Like(self, Replace(self.as_string(), old_text, new_text, count));
}

Result<Value> JoinMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("join", arguments);
  const Value parts = read.Required("iterable");
  REPRISE_TRY(read.Finish());
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, parts));
  PaidText out(&runtime->budget);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return TypeError("sequence item " + std::to_string(i) + ": expected str instance, " +
                       TypeName(items[i]) + " found");
    }
    if (i > 0) REPRISE_TRY(out.Append(self.as_string()));
    const bool escape = self.is_markup() && !items[i].is_markup();
    REPRISE_TRY(out.Append(escape ? EscapedHtml(items[i].as_string()) : items[i].as_string()));
  }
  return Like(self, out.Take());
}

Result<Value> FormatMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  FormatFields fields;
  fields.positional = &arguments.positional;
  fields.named = &arguments.named;
  fields.attribute = [runtime](const Value& object, std::string_view name) {
    return GetItem(runtime, object, Value::String(std::string(name)));
  };
  fields.item = [runtime](const Value& object, const Value& index) {
    return GetItem(runtime, object, index);
  };
  return FormatBraces(&runtime->budget, self, fields);
}

template <std::string (*transform)(std::string_view)>
Result<Value> TransformMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(NoArguments("case conversion", arguments));
  REPRISE_TRY(runtime->budget.Allocate(3 * self.as_string().size()));
  return Like(self, transform(self.as_string()));
}

template <bool (*predicate)(uint32_t), bool of_empty = false>
Result<Value> AllMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(NoArguments("predicate", arguments));
  REPRISE_TRY(runtime->budget.Spend(1 + self.as_string().size() / 16));
  CodePoints points(self.as_string());
  uint32_t code = 0;
  if (self.as_string().empty()) return Value::Bool(of_empty);
  while (points.Next(&code)) {
    if (!predicate(code)) return Value::Bool(false);
  }
  return Value::Bool(true);
}

bool IsAlnum(uint32_t code) { return IsAlpha(code) || IsNumeric(code); }
bool IsAsciiCode(uint32_t code) { return code < 0x80; }

// islower() and isupper(): at least one cased character, and none of the other case.
template <bool upper>
Result<Value> CaseMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(NoArguments("predicate", arguments));
  REPRISE_TRY(runtime->budget.Spend(1 + self.as_string().size() / 16));
  CodePoints points(self.as_string());
  bool any = false;
  for (uint32_t code; points.Next(&code);) {
    if (IsTitleCase(code) || (upper ? IsLowerCase(code) : IsUpperCase(code))) {
      return Value::Bool(false);
    }
    any = any || (upper ? IsUpperCase(code) : IsLowerCase(code));
  }
  return Value::Bool(any);
}

Result<Value> IsTitleMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(NoArguments("istitle", arguments));
  REPRISE_TRY(runtime->budget.Spend(1 + self.as_string().size() / 16));
  CodePoints points(self.as_string());
  bool any = false;
  bool in_word = false;
  for (uint32_t code; points.Next(&code);) {
    const bool head = IsUpperCase(code) || IsTitleCase(code);
    if (head ? in_word : IsLowerCase(code) && !in_word) return Value::Bool(false);
    in_word = head || IsLowerCase(code);
    any = any || in_word;
  }
  return Value::Bool(any);
}

enum class Align { kLeft, kRight, kCenter };

template <Align align>
Result<Value> AlignMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("center", arguments);
  const Value width = read.Required("width");
  const Value fill = read.OptionalString("fillchar", " ");
  REPRISE_TRY(read.Finish());
  if (!width.is_integral()) return TypeError("the width must be an integer");
  if (CodePointCount(fill.as_string()) != 1) {
    return TypeError("The fill character must be exactly one character long");
  }
  const auto size = static_cast<int64_t>(CodePointCount(self.as_string()));
  if (width.as_int() <= size) return self;
  const auto missing = static_cast<size_t>(width.as_int() - size);
  REPRISE_TRY(runtime->budget.AllocateProduct(missing, fill.as_string().size()));
  REPRISE_TRY(PayForCopy(runtime, self));
  size_t left = 0;
  if (align == Align::kRight) left = missing;
  if (align == Align::kCenter)
    left = missing / 2 + (missing & static_cast<size_t>(width.as_int()) & 1);
  std::string out;
  for (size_t i = 0; i < left; ++i) out += fill.as_string();
  out += self.as_string();
  for (size_t i = left; i < missing; ++i) out += fill.as_string();
  return Like(self, out);
}

Result<Value> ZfillMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("zfill", arguments);
  const int64_t width = read.OptionalInt("width", 0);
  REPRISE_TRY(read.Finish());
  std::string_view text = self.as_string();
  const auto size = static_cast<int64_t>(CodePointCount(text));
  if (width <= size) return self;
  REPRISE_TRY(runtime->budget.Allocate(static_cast<size_t>(width) + text.size()));
  std::string out;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    out += text[0];
    text.remove_prefix(1);
  }
  out.append(static_cast<size_t>(width - size), '0');
  out += text;
  return Like(self, out);
}

template <bool suffix>
Result<Value> RemoveAffixMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read(suffix ? "removesuffix" : "removeprefix", arguments);
  const Value affix = read.RequiredString("affix");
  REPRISE_TRY(read.Finish());
  REPRISE_TRY(PayForCopy(runtime, self));
  const std::string_view text = self.as_string();
  const std::string_view part = affix.as_string();
  if (suffix ? !text.ends_with(part) : !text.starts_with(part)) return self;
  return Like(self, suffix ? text.substr(0, text.size() - part.size()) : text.substr(part.size()));
}

Result<Value> Unsupported(Runtime*, const Value&, const Arguments&) {
  return Unimplemented(
      "this method of str (encode, expandtabs, format_map, isidentifier, "
      "maketrans or translate) is not supported");
}

constexpr Method kStringMethods[] = {
    {"capitalize", TransformMethod<Capitalized>},
    {"casefold", TransformMethod<Folded>},
    {"center", AlignMethod<Align::kCenter>},
    {"count", CountMethod},
    {"encode", Unsupported},
    {"endswith", AffixMethod<true>},
    {"expandtabs", Unsupported},
    {"find", FindMethodOfText<false, false>},
    {"format", FormatMethod},
    {"format_map", Unsupported},
    {"index", FindMethodOfText<false, true>},
    {"isalnum", AllMethod<IsAlnum>},
    {"isalpha", AllMethod<IsAlpha>},
    {"isascii", AllMethod<IsAsciiCode, true>},
    {"isdecimal", AllMethod<IsDecimal>},
    {"isdigit", AllMethod<IsDigit>},
    {"isidentifier", Unsupported},
    {"islower", CaseMethod<false>},
    {"isnumeric", AllMethod<IsNumeric>},
    {"isprintable", AllMethod<IsPrintable, true>},
    {"isspace", AllMethod<IsSpace>},
    {"istitle", IsTitleMethod},
    {"isupper", CaseMethod<true>},
    {"join", JoinMethod},
    {"ljust", AlignMethod<Align::kLeft>},
    {"lower", TransformMethod<Lower>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"maketrans", Unsupported},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemoveAffixMethod<false>},
    {"removesuffix", RemoveAffixMethod<true>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethodOfText<true, false>},
    {"rindex", FindMethodOfText<true, true>},
    {"rjust", AlignMethod<Align::kRight>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<SplitFromRight>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<Split>},
    {"splitlines", SplitLinesMethod},
    {"startswith", AffixMethod<false>},
    {"strip", StripMethod<Side::kBoth>},
    {"swapcase", TransformMethod<SwappedCase>},
    {"title", TransformMethod<Titled>},
    {"translate", Unsupported},
    {"upper", TransformMethod<Upper>},
    {"zfill", ZfillMethod},
};

static_assert(IsSorted(kStringMethods));

}  // namespace

std::span<const Method> StringMethods() { return kStringMethods; }

}  // namespace reprise::jinja
