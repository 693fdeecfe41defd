// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/repr.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "text/template/python/operators.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

Status AppendItems(const Value::Items& items, PaidText* out) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) REPRISE_TRY(out->Append(", "));
    first = false;
    REPRISE_TRY(AppendRepr(item, out));
  }
  return OkStatus();
}

Status AppendRange(const Value::Items& items, PaidText* out) {
  const int64_t first = items.empty() ? 0 : items.front().as_int();
  const int64_t step = items.size() > 1 ? items[1].as_int() - first : 1;
  const int64_t stop = items.empty() ? 0 : items.back().as_int() + step;
  std::string text = "range(" + std::to_string(first) + ", " + std::to_string(stop);
  if (step != 1) text += ", " + std::to_string(step);
  return out->Append(text + ")");
}

Status AppendSequence(const Value& value, PaidText* out) {
  const Value::Items& items = value.items();
  switch (value.sequence()) {
    case Value::Sequence::kList:
      REPRISE_TRY(out->Append("["));
      REPRISE_TRY(AppendItems(items, out));
      return out->Append("]");
    case Value::Sequence::kTuple:
      REPRISE_TRY(out->Append("("));
      REPRISE_TRY(AppendItems(items, out));
      return out->Append(items.size() == 1 ? ",)" : ")");
    case Value::Sequence::kRange:
      return AppendRange(items, out);
    default:
      REPRISE_TRY(out->Append(TypeName(value) + "(["));
      REPRISE_TRY(AppendItems(items, out));
      return out->Append("])");
  }
}

Status AppendDict(const Value::Pairs& pairs, PaidText* out) {
  REPRISE_TRY(out->Append("{"));
  bool first = true;
  for (const auto& [key, value] : pairs) {
    if (!first) REPRISE_TRY(out->Append(", "));
    first = false;
    REPRISE_TRY(AppendRepr(key, out));
    REPRISE_TRY(out->Append(": "));
    REPRISE_TRY(AppendRepr(value, out));
  }
  return out->Append("}");
}

std::string Escaped(uint32_t code) {
  char text[16];
  const char* format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof(text), format, code);
  return text;
}

}  // namespace

Status PaidText::Pay(size_t more) {
  constexpr size_t kChunk = 1024;
  const size_t needed = text_.size() + more;
  if (needed <= paid_) return OkStatus();
  const size_t chunk = std::max(needed - paid_, std::min(text_.size(), kChunk));
  REPRISE_TRY(budget_->Allocate(chunk));
  paid_ += chunk;
  return OkStatus();
}

std::string Repr(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  CodePoints points(text);
  uint32_t code = 0;
  while (points.Next(&code)) {
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (!IsPrintable(code)) {
      out += Escaped(code);
    } else {
      AppendUtf8(code, &out);
    }
  }
  return out + quote;
}

std::string Repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // The shortest digits that read back, in scientific form; then Python's choice of notation.
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::scientific);
  std::string_view text(digits, static_cast<size_t>(end.ptr - digits));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent >= -4 && exponent < 16) {
    char fixed[512];
    const auto stop = std::to_chars(fixed, fixed + sizeof(fixed), number, std::chars_format::fixed);
    std::string out(fixed, stop.ptr);
    if (out.find('.') == std::string::npos) out += ".0";
    return out;
  }
  std::string out(text.substr(0, e));
  char suffix[16];
  std::snprintf(suffix, sizeof(suffix), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  return out + suffix;
}

std::string ReprFloat(const Value& number) {
  const std::string_view spelling = number.spelling();
  return spelling.empty() ? Repr(number.as_double()) : std::string(spelling);
}

Status AppendRepr(const Value& value, PaidText* out) {
  switch (value.kind()) {
    case Value::Kind::kMissing:
    case Value::Kind::kUndefined:
      return out->Append("Undefined");
    case Value::Kind::kNone:
      return out->Append("None");
    case Value::Kind::kBool:
      return out->Append(value.as_bool() ? "True" : "False");
    case Value::Kind::kInt:
      return out->Append(std::to_string(value.as_int()));
    case Value::Kind::kFloat:
      return out->Append(ReprFloat(value));
    case Value::Kind::kString:
      if (!value.is_markup()) return out->Append(Repr(value.as_string()), value.origin());
      return out->Append("Markup(" + Repr(value.as_string()) + ")", value.origin());
    case Value::Kind::kSequence:
      return AppendSequence(value, out);
    case Value::Kind::kDict:
      return AppendDict(value.dict().pairs(), out);
    case Value::Kind::kObject:
      return out->Append("<" + value.object()->type_name() + " object>");
  }
  return OkStatus();
}

Result<TracedText> Str(Budget* budget, const Value& value) {
  if (value.is_undefined()) return TracedText();
  PaidText out(budget);
  if (value.is_string()) {
    REPRISE_TRY(out.Append(value));
    return out.Take();
  }
  REPRISE_TRY(AppendRepr(value, &out));
  return out.Take();
}

Result<Value> SoftStr(Budget* budget, const Value& value) {
  if (value.is_string()) return value;
  REPRISE_ASSIGN(TracedText text, Str(budget, value));
  return Value::Traced(std::move(text));
}

}  // namespace reprise::jinja
