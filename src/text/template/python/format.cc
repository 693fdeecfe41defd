// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

Status BadFormat(std::string_view format) {
  return Unimplemented("the format " + Repr(format) + " is not supported");
}

// The number that a text is, if it is nothing but digits.
std::optional<size_t> ParseIndex(std::string_view text) {
  size_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (text.empty() || error != std::errc() || end != last) return std::nullopt;
  return number;
}

class PercentFormatter {
 public:
  PercentFormatter(Budget* budget, const Value& format, const Value& arguments)
      : budget_(budget),
        format_(format),
        text_(format.as_string()),
        arguments_(arguments),
        out_(budget) {}

  Result<Value> Run() {
    while (at_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      REPRISE_TRY(out_.AppendPart(format_, text_.substr(at_, percent - at_)));
      at_ = percent + 1;
      if (percent == text_.size()) break;
      REPRISE_TRY(Convert());
    }
    const bool all = !arguments_.is_tuple() || used_ == arguments_.items().size();
    const bool single = arguments_.is_tuple() || used_ == 1 || arguments_.is_dict() || by_name_;
    if (!all || !single) return TypeError("not all arguments converted during string formatting");
    return Value::Traced(out_.Take());
  }

 private:
  Result<Value> Next() {
    if (!arguments_.is_tuple()) {
      if (used_++ == 0) return arguments_;
    } else if (used_ < arguments_.items().size()) {
      return arguments_.items()[used_++];
    }
    return TypeError("not enough arguments for format string");
  }

  Result<Value> Named() {
    const size_t end = text_.find(')', at_);
    if (end == std::string_view::npos) return TypeError("incomplete format key");
    if (!arguments_.is_dict()) return TypeError("format requires a mapping");
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    by_name_ = true;
    const Value* found = arguments_.dict().Find(name);
    if (found == nullptr) return InvalidArgument("no key " + Repr(name) + " to format");
    return *found;
  }

  // What stands after a percent sign.
  Status Convert() {
    const size_t begin = at_;
    Value value;
    if (at_ < text_.size() && text_[at_] == '(') {
      ++at_;
      REPRISE_ASSIGN(value, Named());
    }
    if (at_ >= text_.size()) return InvalidArgument("incomplete format");
    const char type = text_[at_++];
    if (type == '%') return out_.AppendPart(format_, text_.substr(at_ - 1, 1));
    if (value.is_missing()) {
      REPRISE_ASSIGN(value, Next());
    }
    switch (type) {
      case 's': {
        REPRISE_ASSIGN(const Value text, SoftStr(budget_, value));
        return out_.Append(text);
      }
      case 'r':
        return AppendRepr(value, &out_);
      case 'd':
      case 'i':
        return AppendInteger(value);
      default:
        return BadFormat("%" + std::string(text_.substr(begin, at_ - begin)));
    }
  }

  Status AppendInteger(const Value& value) {
    if (value.is_undefined()) return UndefinedError(value);
    if (!value.is_number()) {
      return TypeError("%d format: a real number is required, not " + TypeName(value));
    }
    if (value.is_integral()) return out_.Append(std::to_string(value.as_int()));
    if (!(std::fabs(value.as_double()) < 9e18)) return BadFormat("%d of a huge number");
    return out_.Append(std::to_string(static_cast<int64_t>(value.as_double())));
  }

  Budget* const budget_;
  const Value& format_;
  const std::string_view text_;
  const Value& arguments_;
  PaidText out_;
  size_t at_ = 0;
  size_t used_ = 0;
  bool by_name_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(Budget* budget, const Value& format, const FormatFields& fields)
      : budget_(budget), format_(format), fields_(fields), out_(budget) {}

  Result<Value> Run() {
    const std::string_view text = format_.as_string();
    size_t at = 0;
    while (at < text.size()) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      REPRISE_TRY(out_.AppendPart(format_, text.substr(at, brace - at)));
      at = brace + 1;
      if (brace == text.size()) break;
      if (at < text.size() && text[at] == text[brace]) {
        REPRISE_TRY(out_.AppendPart(format_, text.substr(at++, 1)));
        continue;
      }
      if (text[brace] == '}') return InvalidArgument("Single '}' encountered in format string");
      const size_t end = text.find('}', at);
      if (end == std::string_view::npos) {
        return InvalidArgument("expected '}' before end of string");
      }
      REPRISE_TRY(AppendField(text.substr(at, end - at)));
      at = end + 1;
    }
    return Value::Traced(out_.Take());
  }

 private:
  Status AppendField(std::string_view field) {
    if (field.find_first_of("{:") != std::string_view::npos) return BadFormat(field);
    char conversion = 's';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    REPRISE_ASSIGN(const Value value, Lookup(field));
    if (conversion == 'r') return AppendRepr(value, &out_);
    if (conversion != 's') return BadFormat(std::string("!") + conversion);
    REPRISE_ASSIGN(const Value text, SoftStr(budget_, value));
    return out_.Append(text);
  }

  // "name", "0", "" (the next one), then .attribute and [index] any number of times.
  Result<Value> Lookup(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    REPRISE_ASSIGN(Value value, Argument(field.substr(0, end)));
    size_t at = end;
    while (at < field.size()) {
      if (field[at] == '.') {
        const size_t stop = std::min(field.find_first_of(".[", at + 1), field.size());
        const std::string_view name = field.substr(at + 1, stop - at - 1);
        REPRISE_ASSIGN(value, fields_.item(value, format_.Part(name)));
        at = stop;
        continue;
      }
      const size_t stop = field.find(']', at);
      if (field[at] != '[' || stop == std::string_view::npos) return BadFormat(field);
      const std::string_view key = field.substr(at + 1, stop - at - 1);
      const std::optional<size_t> index = ParseIndex(key);
      REPRISE_ASSIGN(value, fields_.item(value, index ? Value::Int(static_cast<int64_t>(*index))
                                                      : format_.Part(key)));
      at = stop + 1;
    }
    return value;
  }

  Result<Value> Argument(std::string_view name) {
    const std::optional<size_t> index = ParseIndex(name);
    if (!index && !name.empty()) {
      for (const auto& [key, value] : *fields_.named) {
        if (key == name) return value;
      }
      return InvalidArgument("no argument " + Repr(name) + " to format");
    }
    const size_t at = index ? *index : next_++;
    if (at >= fields_.positional->size()) {
      return InvalidArgument("Replacement index " + std::to_string(at) +
                             " out of range for positional args tuple");
    }
    return (*fields_.positional)[at];
  }

  Budget* const budget_;
  const Value& format_;
  const FormatFields& fields_;
  PaidText out_;
  size_t next_ = 0;
};

}  // namespace

Result<Value> FormatPercent(Budget* budget, const Value& format, const Value& arguments) {
  if (format.is_markup()) return Unimplemented("formatting a text marked as safe");
  return PercentFormatter(budget, format, arguments).Run();
}

Result<Value> FormatBraces(Budget* budget, const Value& format, const FormatFields& fields) {
  if (format.is_markup()) return Unimplemented("formatting a text marked as safe");
  return BraceFormatter(budget, format, fields).Run();
}

}  // namespace reprise::jinja
