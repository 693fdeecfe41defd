// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

constexpr int kPrecisionMax = 100;
constexpr int64_t kWidthMax = 1'000'000;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  bool grouped = false;
  int64_t width = 0;
  int precision = -1;
  char type = 0;
};

// Reads digits at *at; false if the number is absurd.
bool ReadNumber(std::string_view text, size_t* at, int64_t max, int64_t* number) {
  *number = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    *number = *number * 10 + (text[*at] - '0');
    if (*number > max) return false;
    ++*at;
  }
  return true;
}

Status BadSpec(std::string_view spec) {
  return InvalidArgument("unsupported format " + Repr(spec));
}

Result<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const auto take = [&](char c) { return at < text.size() && text[at] == c && ++at > 0; };
  const size_t first = text.empty() ? 0 : std::max<size_t>(1, Utf8SequenceLength(text));
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) {
    spec.sign = text[at++];
  }
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  if (!ReadNumber(text, &at, kWidthMax, &spec.width)) return BadSpec(text);
  spec.grouped = take(',');
  if (take('.')) {
    int64_t precision = 0;
    const size_t digits = at;
    if (!ReadNumber(text, &at, kPrecisionMax, &precision) || at == digits) return BadSpec(text);
    spec.precision = static_cast<int>(precision);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return BadSpec(text);
  return spec;
}

std::string Digits(uint64_t number, int base, bool upper) {
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, base);
  std::string out(buffer, end.ptr);
  return upper ? Upper(out) : out;
}

// A double with the C conversion e, f or g.
std::string Floating(double number, char type, int precision, bool alternate) {
  char format[16];
  std::snprintf(format, sizeof(format), "%%%s.*%c", alternate ? "#" : "", type);
  char buffer[512];  // 309 digits before the point, kPrecisionMax after it
  std::snprintf(buffer, sizeof(buffer), format, precision, number);
  return buffer;
}

std::string Grouped(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_of(".e"), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// Sign and digits of a number.
struct Number {
  std::string prefix;
  std::string digits;
};

Result<Number> FormatInteger(int64_t number, const Spec& spec) {
  Number out;
  const uint64_t magnitude =
      number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  out.prefix = number < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  int base = 10;
  if (spec.type == 'x' || spec.type == 'X') base = 16;
  if (spec.type == 'o') base = 8;
  if (spec.type == 'b') base = 2;
  if (spec.alternate && base != 10) out.prefix += std::string("0") + spec.type;
  out.digits = Digits(magnitude, base, spec.type == 'X');
  return out;
}

Result<Number> FormatFloating(double number, const Spec& spec) {
  Number out;
  const bool negative = std::signbit(number) && !std::isnan(number);
  out.prefix = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  double magnitude = std::fabs(number);
  char type = spec.type;
  if (type == 0 && spec.precision < 0) {
    out.digits = Repr(magnitude);
    return out;
  }
  const bool percent = type == '%';
  if (percent) {
    magnitude *= 100;
    type = 'f';
  }
  if (type == 0) type = 'g';
  out.digits = Floating(magnitude, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  if (percent) out.digits += '%';
  return out;
}

// Pads to the width; the prefix (a sign) stays in front of '=' padding.
Result<std::string> Padded(Budget* budget, const Spec& spec, const std::string& prefix,
                           const std::string& body, char default_align) {
  const auto size = static_cast<int64_t>(CodePointCount(prefix) + CodePointCount(body));
  const int64_t missing = std::max<int64_t>(0, spec.width - size);
  REPRISE_TRY(budget->AllocateProduct(static_cast<size_t>(missing), spec.fill.size()));
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align == 0 ? default_align : spec.align) {
    case '<':
      return prefix + body + fill(missing);
    case '^':
      return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
    case '=':
      return prefix + fill(missing) + body;
    default:
      return fill(missing) + prefix + body;
  }
}

Result<std::string> FormatValue(Budget* budget, const Value& value, const Spec& spec) {
  const std::string_view type(&spec.type, spec.type == 0 ? 0 : 1);
  const bool floating = std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_string() || value.is_undefined() || (!value.is_number() && spec.type == 0)) {
    if (!type.empty() && spec.type != 's') return BadSpec(type);
    REPRISE_ASSIGN(std::string text, Str(budget, value));
    if (spec.precision >= 0)
      text.resize(CodePointOffset(text, static_cast<size_t>(spec.precision)));
    return Padded(budget, spec, "", text, '<');
  }
  if (!value.is_number()) return BadSpec(type);
  if (spec.type == 'c' && value.is_integral()) {
    const int64_t code = value.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return BadSpec(type);
    std::string text;
    AppendUtf8(static_cast<uint32_t>(code), &text);
    return Padded(budget, spec, "", text, '<');
  }
  Number number;
  if (value.is_float() || floating) {
    if (!floating && spec.type != 0) return BadSpec(type);
    REPRISE_ASSIGN(number, FormatFloating(value.as_double(), spec));
  } else {
    if (spec.type != 0 && std::string_view("dboxXn").find(spec.type) == std::string_view::npos) {
      return BadSpec(type);
    }
    REPRISE_ASSIGN(number, FormatInteger(value.as_int(), spec));
  }
  if (spec.grouped) number.digits = Grouped(number.digits);
  return Padded(budget, spec, number.prefix, number.digits, '>');
}

// One %-conversion: flags, width, precision, type.
class PercentFormatter {
 public:
  PercentFormatter(Budget* budget, std::string_view format, const Value& arguments)
      : budget_(budget), format_(format), arguments_(arguments), out_(budget) {}

  Result<std::string> Run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      REPRISE_TRY(out_.Append(format_.substr(at_, percent - at_)));
      at_ = percent + 1;
      if (percent == format_.size()) break;
      REPRISE_TRY(Convert());
    }
    const bool all = !arguments_.is_tuple() || used_ == arguments_.items().size();
    const bool single = arguments_.is_tuple() || used_ == 1 || arguments_.is_dict() || by_name_;
    if (!all || !single) return TypeError("not all arguments converted during string formatting");
    return out_.Take();
  }

 private:
  bool Take(char c) { return at_ < format_.size() && format_[at_] == c && ++at_ > 0; }

  Result<Value> Next() {
    if (!arguments_.is_tuple()) {
      if (used_++ == 0) return arguments_;
    } else if (used_ < arguments_.items().size()) {
      return arguments_.items()[used_++];
    }
    return TypeError("not enough arguments for format string");
  }

  Result<Value> Named() {
    const size_t end = format_.find(')', at_);
    if (end == std::string_view::npos) return TypeError("incomplete format key");
    if (!arguments_.is_dict()) return TypeError("format requires a mapping");
    const std::string_view name = format_.substr(at_, end - at_);
    at_ = end + 1;
    by_name_ = true;
    const Value* found = arguments_.dict().Find(name);
    if (found == nullptr) return InvalidArgument("no key " + Repr(name) + " to format");
    return *found;
  }

  Status Convert() {
    Value value;
    if (Take('(')) {
      REPRISE_ASSIGN(value, Named());
    }
    Spec spec;
    for (bool flags = true; flags;) {
      if (Take('-')) {
        spec.align = '<';
      } else if (Take('0')) {
        if (spec.align == 0) spec.align = '=';
        spec.fill = "0";
      } else if (Take('+')) {
        spec.sign = '+';
      } else if (Take(' ')) {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (Take('#')) {
        spec.alternate = true;
      } else {
        flags = false;
      }
    }
    if (spec.align == '<') spec.fill = " ";
    int64_t precision = -1;
    if (!ReadNumber(format_, &at_, kWidthMax, &spec.width)) return BadSpec(format_);
    if (Take('.') && !ReadNumber(format_, &at_, kPrecisionMax, &precision)) return BadSpec(format_);
    spec.precision = static_cast<int>(precision);
    if (at_ >= format_.size()) return InvalidArgument("incomplete format");
    const char type = format_[at_++];
    if (type == '%') return out_.Append("%");
    if (value.is_missing()) {
      REPRISE_ASSIGN(value, Next());
    }
    return Emit(type, value, spec);
  }

  Status Emit(char type, Value value, Spec spec) {
    switch (type) {
      case 's':
      case 'r': {
        PaidText text(budget_);
        if (type == 'r') {
          REPRISE_TRY(AppendRepr(value, &text));
          value = Value::String(text.Take());
        } else {
          REPRISE_ASSIGN(value, SoftStr(budget_, value));
        }
        spec.type = 's';
        if (spec.align != '<') spec.align = '>';
        spec.fill = " ";
        break;
      }
      case 'd':
      case 'i':
      case 'u':
        if (value.is_float()) {
          if (!(std::fabs(value.as_double()) < 9e18)) return BadSpec("%d of a huge number");
          value = Value::Int(static_cast<int64_t>(value.as_double()));
        }
        spec.type = 'd';
        break;
      default:
        spec.type = type;
    }
    if (value.is_bool()) value = Value::Int(value.as_int());
    REPRISE_ASSIGN(const std::string text, FormatValue(budget_, value, spec));
    return out_.Append(text);
  }

  Budget* const budget_;
  const std::string_view format_;
  const Value& arguments_;
  PaidText out_;
  size_t at_ = 0;
  size_t used_ = 0;
  bool by_name_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(Budget* budget, const FormatFields& fields) : budget_(budget), fields_(fields) {}

  // `nesting` is 0 for the format itself and 1 inside a format specification.
  Result<std::string> Run(std::string_view format, int nesting) {
    PaidText out(budget_);
    size_t at = 0;
    while (at < format.size()) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      REPRISE_TRY(out.Append(format.substr(at, brace - at)));
      at = brace + 1;
      if (brace == format.size()) break;
      if (at < format.size() && format[at] == format[brace]) {
        REPRISE_TRY(out.Append(format.substr(at++, 1)));
        continue;
      }
      if (format[brace] == '}') return InvalidArgument("Single '}' encountered in format string");
      const size_t end = FieldEnd(format, at);
      if (end == std::string_view::npos) {
        return InvalidArgument("expected '}' before end of string");
      }
      if (nesting > 1) return InvalidArgument("Max string recursion exceeded");
      REPRISE_ASSIGN(const std::string text, Field(format.substr(at, end - at), nesting));
      REPRISE_TRY(out.Append(text));
      at = end + 1;
    }
    return out.Take();
  }

 private:
  static size_t FieldEnd(std::string_view format, size_t at) {
    int open = 0;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && open-- == 0) return at;
    }
    return std::string_view::npos;
  }

  Result<std::string> Field(std::string_view field, int nesting) {
    std::string_view spec_text;
    const size_t colon = field.find(':');
    if (colon != std::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    REPRISE_ASSIGN(Value value, Lookup(field));
    if (conversion == 'r') {
      PaidText text(budget_);
      REPRISE_TRY(AppendRepr(value, &text));
      value = Value::String(text.Take());
    } else if (conversion == 's') {
      REPRISE_ASSIGN(value, SoftStr(budget_, value));
    } else if (conversion != 0) {
      return BadSpec(std::string_view(&conversion, 1));
    }
    REPRISE_ASSIGN(const std::string spec, Run(spec_text, nesting + 1));
    if (spec.empty()) return Str(budget_, value);
    REPRISE_ASSIGN(const Spec parsed, ParseSpec(spec));
    return FormatValue(budget_, value, parsed);
  }

  // "name", "0", "" (the next one), then .attribute and [index] any number of times.
  Result<Value> Lookup(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    REPRISE_ASSIGN(Value value, Argument(field.substr(0, end)));
    size_t at = end;
    while (at < field.size()) {
      if (field[at] == '.') {
        const size_t stop = std::min(field.find_first_of(".[", at + 1), field.size());
        REPRISE_ASSIGN(value, fields_.attribute(value, field.substr(at + 1, stop - at - 1)));
        at = stop;
        continue;
      }
      const size_t stop = field.find(']', at);
      if (field[at] != '[' || stop == std::string_view::npos) return BadSpec(field);
      const std::string_view key = field.substr(at + 1, stop - at - 1);
      int64_t index = 0;
      size_t digits = 0;
      const bool number = ReadNumber(key, &digits, kWidthMax, &index) && digits == key.size();
      REPRISE_ASSIGN(value,
                     fields_.item(value, number && !key.empty() ? Value::Int(index)
                                                                : Value::String(std::string(key))));
      at = stop + 1;
    }
    return value;
  }

  Result<Value> Argument(std::string_view name) {
    int64_t index = 0;
    size_t digits = 0;
    if (!ReadNumber(name, &digits, kWidthMax, &index)) return BadSpec(name);
    if (digits < name.size()) {
      for (const auto& [key, value] : *fields_.named) {
        if (key == name) return value;
      }
      return InvalidArgument("no argument " + Repr(name) + " to format");
    }
    const size_t at = name.empty() ? next_++ : static_cast<size_t>(index);
    if (at >= fields_.positional->size()) {
      return InvalidArgument("Replacement index " + std::to_string(at) +
                             " out of range for positional args tuple");
    }
    return (*fields_.positional)[at];
  }

  Budget* const budget_;
  const FormatFields& fields_;
  size_t next_ = 0;
};

}  // namespace

Result<Value> FormatPercent(Budget* budget, const Value& format, const Value& arguments) {
  if (format.is_markup()) return Unimplemented("formatting a text marked as safe");
  REPRISE_ASSIGN(std::string text, PercentFormatter(budget, format.as_string(), arguments).Run());
  return Value::String(std::move(text));
}

Result<Value> FormatBraces(Budget* budget, const Value& format, const FormatFields& fields) {
  if (format.is_markup()) return Unimplemented("formatting a text marked as safe");
  REPRISE_ASSIGN(std::string text, BraceFormatter(budget, fields).Run(format.as_string(), 0));
  return Value::String(std::move(text));
}

}  // namespace reprise::jinja
