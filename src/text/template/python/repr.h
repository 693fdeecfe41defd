// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/python/budget.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// Text that is paid for as it grows: a value may be small and yet print without end, because it
// shares its parts.
class PaidText {
 public:
  explicit PaidText(Budget* budget) : budget_(budget) {}
  Status Append(std::string_view text, Origin origin) {
    REPRISE_TRY(Pay(text.size()));
    text_.Append(text, origin);
    return OkStatus();
  }
  // What is neither: brackets, commas, the digits of a number.
  Status Append(std::string_view text) { return Append(text, Origin::kTemplate); }
  // A string, or a part of one. REQUIRES: as Value::Part.
  Status Append(const Value& string) { return AppendPart(string, string.as_string()); }
  Status AppendPart(const Value& string, std::string_view part) {
    REPRISE_TRY(Pay(part.size()));
    string.AppendPartTo(part, &text_);
    return OkStatus();
  }
  TracedText Take() { return std::move(text_); }

 private:
  Status Pay(size_t more);
  Budget* const budget_;
  TracedText text_;
  size_t paid_ = 0;
};

// repr() of a string and of a float.
std::string Repr(std::string_view text);
std::string Repr(double number);
std::string ReprFloat(const Value& number);  // as it was spelled, if it was

Status AppendRepr(const Value& value, PaidText* out);
// str(): what printing a value yields. Undefined prints as nothing.
Result<TracedText> Str(Budget* budget, const Value& value);
// The same as a string value; a string stays as it is (Markup included).
Result<Value> SoftStr(Budget* budget, const Value& value);

}  // namespace reprise::jinja
