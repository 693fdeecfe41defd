// SPDX-License-Identifier: Apache-2.0
// The methods of str. On a text marked as safe they return a text marked as safe, and escape their
// text arguments, as Markup does. What they return has the origin of what it was made of: a part of
// a text that of the part; a text that was rewritten letter by letter is data if any of it was.
#include <algorithm>

#include "text/template/library/methods.h"
#include "text/template/python/format.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

// `text`, which was made of `self`, as a string of the same sort.
Value Like(const Value& self, Value text) { return self.is_markup() ? text.AsMarkup() : text; }

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
  if (chars.is_none()) return self.Part(Strip(self.as_string(), side));
  REPRISE_TRY(runtime->budget.Allocate(chars.as_string().size() * sizeof(uint32_t)));
  return self.Part(Strip(self.as_string(), side, chars.as_string()));
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
  for (const std::string_view part : parts) items.push_back(self.Part(part));
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
  for (const std::string_view line : lines) items.push_back(self.Part(line));
  return Value::List(std::move(items));
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

template <bool from_right>
Result<Value> FindMethodOfText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ArgumentReader read("find", arguments);
  const Value part = read.RequiredString("sub");
  REPRISE_TRY(runtime->budget.Allocate(self.as_string().size()));
  REPRISE_ASSIGN(const Window window, SelectWindow(self, &read));
  if (!window.valid) return Value::Int(-1);
  const size_t found = from_right ? FindLast(window.text, part.as_string())
                                  : FindFirst(window.text, part.as_string());
  if (found == std::string_view::npos) return Value::Int(-1);
  const size_t index = window.skipped + CodePointCount(window.text.substr(0, found));
  return Value::Int(static_cast<int64_t>(index));
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
  const bool escape = self.is_markup() && !to.is_markup();
  const Value with = escape ? Value::String(EscapedHtml(to.as_string()), to.origin()) : to;
  REPRISE_ASSIGN(Value text, ReplaceText(&runtime->budget, self, from.as_string(), with, count));
  return Like(self, std::move(text));
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
    if (i > 0) REPRISE_TRY(out.Append(self));
    if (self.is_markup() && !items[i].is_markup()) {
      REPRISE_TRY(out.Append(EscapedHtml(items[i].as_string()), items[i].origin()));
    } else {
      REPRISE_TRY(out.Append(items[i]));
    }
  }
  return Like(self, Value::Traced(out.Take()));
}

Result<Value> FormatMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  FormatFields fields;
  fields.positional = &arguments.positional;
  fields.named = &arguments.named;
  fields.item = [runtime](const Value& object, const Value& index) {
    return GetItem(runtime, object, index);
  };
  return FormatBraces(&runtime->budget, self, fields);
}

template <std::string (*transform)(std::string_view)>
Result<Value> TransformMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(NoArguments("case conversion", arguments));
  REPRISE_TRY(runtime->budget.Allocate(3 * self.as_string().size()));
  return Like(self, Value::String(transform(self.as_string()), self.origin()));
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
  return self.Part(suffix ? text.substr(0, text.size() - part.size()) : text.substr(part.size()));
}

// A method that str has and templates do not use.
template <size_t N>
struct MethodName {
  constexpr MethodName(const char (&name)[N]) { std::copy_n(name, N, text); }  // NOLINT
  char text[N] = {};
};

template <MethodName name>
Result<Value> NotSupported(Runtime*, const Value&, const Arguments&) {
  return Unimplemented("the method " + std::string(name.text) + "() of str is not supported");
}

constexpr Method kStringMethods[] = {
    {"capitalize", TransformMethod<Capitalized>},
    {"casefold", NotSupported<"casefold">},
    {"center", NotSupported<"center">},
    {"count", CountMethod},
    {"encode", NotSupported<"encode">},
    {"endswith", AffixMethod<true>},
    {"expandtabs", NotSupported<"expandtabs">},
    {"find", FindMethodOfText<false>},
    {"format", FormatMethod},
    {"format_map", NotSupported<"format_map">},
    {"index", NotSupported<"index">},
    {"isalnum", NotSupported<"isalnum">},
    {"isalpha", NotSupported<"isalpha">},
    {"isascii", NotSupported<"isascii">},
    {"isdecimal", NotSupported<"isdecimal">},
    {"isdigit", NotSupported<"isdigit">},
    {"isidentifier", NotSupported<"isidentifier">},
    {"islower", NotSupported<"islower">},
    {"isnumeric", NotSupported<"isnumeric">},
    {"isprintable", NotSupported<"isprintable">},
    {"isspace", NotSupported<"isspace">},
    {"istitle", NotSupported<"istitle">},
    {"isupper", NotSupported<"isupper">},
    {"join", JoinMethod},
    {"ljust", NotSupported<"ljust">},
    {"lower", TransformMethod<Lower>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"maketrans", NotSupported<"maketrans">},
    {"partition", NotSupported<"partition">},
    {"removeprefix", RemoveAffixMethod<false>},
    {"removesuffix", RemoveAffixMethod<true>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethodOfText<true>},
    {"rindex", NotSupported<"rindex">},
    {"rjust", NotSupported<"rjust">},
    {"rpartition", NotSupported<"rpartition">},
    {"rsplit", SplitMethod<SplitFromRight>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<Split>},
    {"splitlines", SplitLinesMethod},
    {"startswith", AffixMethod<false>},
    {"strip", StripMethod<Side::kBoth>},
    {"swapcase", NotSupported<"swapcase">},
    {"title", TransformMethod<Titled>},
    {"translate", NotSupported<"translate">},
    {"upper", TransformMethod<Upper>},
    {"zfill", NotSupported<"zfill">},
};

static_assert(IsSorted(kStringMethods));

}  // namespace

std::span<const Method> StringMethods() { return kStringMethods; }

}  // namespace reprise::jinja
