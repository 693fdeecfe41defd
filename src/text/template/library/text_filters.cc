// SPDX-License-Identifier: Apache-2.0
// Filters on text and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/library/attributes.h"
#include "text/template/library/filters.h"
#include "text/template/python/format.h"
#include "text/template/python/json.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

// Calls a method of str on the subject, turned into a string if it is none.
Result<Value> CallStringMethod(Runtime* runtime, std::string_view name, const Value& subject,
                               const Arguments& arguments) {
  REPRISE_ASSIGN(const Value text, SoftStr(&runtime->budget, subject));
  return FindMethod(text, name)->function(runtime, text, arguments);
}

Result<Value> Trim(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return CallStringMethod(runtime, "strip", subject, arguments);
}
Result<Value> UpperFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return CallStringMethod(runtime, "upper", subject, arguments);
}
Result<Value> LowerFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return CallStringMethod(runtime, "lower", subject, arguments);
}
Result<Value> Capitalize(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return CallStringMethod(runtime, "capitalize", subject, arguments);
}
// Jinja's title: a word begins after white space or one of -({[<.
Result<Value> Title(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("title", arguments).Finish());
  REPRISE_ASSIGN(const Value text, SoftStr(&runtime->budget, subject));
  REPRISE_TRY(runtime->budget.Allocate(3 * text.as_string().size()));
  std::string out;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = CodePointOffset(word, 1);
    out += Upper(std::string_view(word).substr(0, first));
    out += Lower(std::string_view(word).substr(first));
    word.clear();
  };
  CodePoints points(text.as_string());
  uint32_t code = 0;
  for (size_t begin = 0; points.Next(&code); begin = points.offset()) {
    const std::string_view character = text.as_string().substr(begin, points.offset() - begin);
    const bool breaks =
        IsSpace(code) || (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                             std::string_view::npos);
    if (breaks) flush();
    (breaks ? out : word) += character;
  }
  flush();
  return Value::String(std::move(out), text.origin());
}

Result<Value> StringFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("string", arguments).Finish());
  return SoftStr(&runtime->budget, subject);
}

Result<Value> ReplaceFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("replace", arguments);
  const Value from = read.Required("old");
  const Value to = read.Required("new");
  const Value count = read.Optional("count", Value::None());
  REPRISE_TRY(read.Finish());
  if (!count.is_none() && !count.is_integral()) return TypeError("the count must be an integer");
  REPRISE_ASSIGN(const Value text, SoftStr(&runtime->budget, subject));
  REPRISE_ASSIGN(const Value old_text, SoftStr(&runtime->budget, from));
  REPRISE_ASSIGN(const Value new_text, SoftStr(&runtime->budget, to));
  return ReplaceText(&runtime->budget, text, old_text.as_string(), new_text,
                     count.is_none() ? -1 : count.as_int());
}

Result<Value> Indent(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("indent", arguments);
  const Value width = read.Optional("width", Value::Int(4));
  const bool first = read.OptionalFlag("first", false);
  const bool blank = read.OptionalFlag("blank", false);
  REPRISE_TRY(read.Finish());
  if (subject.is_undefined()) return UndefinedError(subject);
  if (!subject.is_string() || !(width.is_string() || width.is_integral())) {
    return TypeError("indent takes a string and a width, not " + TypeName(subject) + " and " +
                     TypeName(width));
  }
  Value indentation = width;
  if (width.is_integral()) {
    const auto spaces = static_cast<size_t>(std::max<int64_t>(0, width.as_int()));
    REPRISE_TRY(runtime->budget.Allocate(spaces));
    indentation = Value::String(std::string(spaces, ' '), Origin::kTemplate);
  }
  // As if a line break stood at the end: a last line that is empty is one.
  std::vector<std::string_view> lines = SplitLines(subject.as_string(), false);
  const std::string_view text = subject.as_string();
  const bool broken =
      !lines.empty() && (text.ends_with('\r') ||
                         lines.back().data() + lines.back().size() == text.data() + text.size());
  if (!broken) lines.push_back(text.substr(text.size()));
  PaidText out(&runtime->budget);
  if (first) REPRISE_TRY(out.Append(indentation));
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      REPRISE_TRY(out.Append("\n"));
      if (blank || !lines[i].empty()) REPRISE_TRY(out.Append(indentation));
    }
    REPRISE_TRY(out.AppendPart(subject, lines[i]));
  }
  Value result = Value::Traced(out.Take());
  return subject.is_markup() ? result.AsMarkup() : result;
}

Result<Value> Safe(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("safe", arguments).Finish());
  REPRISE_ASSIGN(const Value text, SoftStr(&runtime->budget, subject));
  return text.AsMarkup();
}

Result<Value> FormatFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return InvalidArgument("can't handle positional and keyword arguments at the same time");
  }
  REPRISE_ASSIGN(const Value format, SoftStr(&runtime->budget, subject));
  if (arguments.named.empty()) {
    return FormatPercent(&runtime->budget, format, Value::Tuple(arguments.positional));
  }
  DictBuilder named;
  for (const auto& [key, value] : arguments.named)
    named.Set(Value::View(key, Origin::kData), value);
  return FormatPercent(&runtime->budget, format, named.Build());
}

// int(text, base) with Python's liberties: white space, a sign, underscores, a prefix.
bool ParseInteger(std::string_view text, int base, int64_t* number) {
  text = Strip(text, Side::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char prefix = static_cast<char>(text[1] | 0x20);
    if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') ||
        (base == 2 && prefix == 'b')) {
      text.remove_prefix(2);
    }
  }
  std::string digits(negative ? "-" : "");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return false;
    }
  }
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, *number, base);
  return error == std::errc() && end == last;
}

bool ParseFloat(std::string_view text, double* number) {
  text = Strip(text, Side::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

Result<Value> IntFilter(Runtime*, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("int", arguments);
  const Value fallback = read.Optional("default", Value::Int(0));
  const int64_t base = read.OptionalInt("base", 10);
  REPRISE_TRY(read.Finish());
  if (subject.is_undefined()) return UndefinedError(subject);
  if (base < 2 || base > 36) return fallback;
  if (subject.is_integral()) return Value::Int(subject.as_int());
  int64_t number = 0;
  double floating = 0;
  if (subject.is_string()) {
    if (ParseInteger(subject.as_string(), static_cast<int>(base), &number)) {
      return Value::Int(number);
    }
    if (!ParseFloat(subject.as_string(), &floating)) return fallback;
  } else if (subject.is_float()) {
    floating = subject.as_double();
  } else {
    return fallback;
  }
  if (!(std::fabs(floating) < 9.2e18)) return fallback;
  return Value::Int(static_cast<int64_t>(floating));
}

Result<Value> FloatFilter(Runtime*, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("float", arguments);
  const Value fallback = read.Optional("default", Value::Float(0));
  REPRISE_TRY(read.Finish());
  if (subject.is_undefined()) return UndefinedError(subject);
  if (subject.is_number()) return Value::Float(subject.as_double());
  double number = 0;
  if (subject.is_string() && ParseFloat(subject.as_string(), &number)) return Value::Float(number);
  return fallback;
}

Result<Value> ToJsonFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("tojson", arguments);
  JsonStyle style;
  style.ensure_ascii = read.OptionalFlag("ensure_ascii", false);
  const Value indent = read.Optional("indent", Value::None());
  const Value separators = read.Optional("separators", Value::None());
  style.sort_keys = read.OptionalFlag("sort_keys", false);
  REPRISE_TRY(read.Finish());
  if (indent.is_integral()) {
    const int64_t width = std::max<int64_t>(0, indent.as_int());
    REPRISE_TRY(runtime->budget.Allocate(static_cast<size_t>(width)));
    style.indent = std::string(static_cast<size_t>(width), ' ');
  } else if (indent.is_string()) {
    style.indent = std::string(indent.as_string());
    style.origin = indent.origin();
  } else if (!indent.is_none()) {
    return TypeError("tojson: indent must be an integer or a string, not " + TypeName(indent));
  }
  if (style.indent) style.item_separator = ",";
  if (!separators.is_none()) {
    if (!(separators.is_tuple() || separators.is_list()) || separators.items().size() != 2 ||
        !separators.items()[0].is_string() || !separators.items()[1].is_string()) {
      return TypeError("tojson: separators must be two strings");
    }
    style.item_separator = separators.items()[0].as_string();
    style.key_separator = separators.items()[1].as_string();
    for (const Value& part : separators.items()) {
      if (part.origin() == Origin::kData) style.origin = Origin::kData;
    }
  }
  REPRISE_ASSIGN(TracedText text, ToJson(&runtime->budget, subject, style));
  return Value::Traced(std::move(text));
}

// Not Jinja's own: llama.cpp has it, and templates that came through there use it.
Result<Value> FromJsonFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("from_json", arguments).Finish());
  if (subject.is_undefined()) return UndefinedError(subject);
  if (!subject.is_string()) return TypeError("from_json takes a string, not " + TypeName(subject));
  return ParseJson(&runtime->budget, subject.as_string());
}

constexpr Filter kFilters[] = {
    {"capitalize", Capitalize},
    {"float", FloatFilter},
    {"format", FormatFilter},
    {"from_json", FromJsonFilter},
    {"indent", Indent},
    {"int", IntFilter},
    {"lower", LowerFilter},
    {"replace", ReplaceFilter},
    {"safe", Safe},
    {"string", StringFilter},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"upper", UpperFilter},
};

}  // namespace

std::span<const Filter> TextFilters() { return kFilters; }

}  // namespace reprise::jinja
