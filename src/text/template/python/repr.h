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
  Status Append(std::string_view text) {
    REPRISE_TRY(Pay(text.size()));
    text_ += text;
    return OkStatus();
  }
  Status AppendTimes(char c, size_t count) {
    REPRISE_TRY(Pay(count));
    text_.append(count, c);
    return OkStatus();
  }
  std::string Take() { return std::move(text_); }

 private:
  Status Pay(size_t more);
  Budget* const budget_;
  std::string text_;
  size_t paid_ = 0;
};

// repr() of a string and of a float.
std::string Repr(std::string_view text);
std::string Repr(double number);

Status AppendRepr(const Value& value, PaidText* out);
// str(): what printing a value yields. Undefined prints as nothing.
Result<std::string> Str(Budget* budget, const Value& value);
// The same as a string value; a string stays as it is (Markup included).
Result<Value> SoftStr(Budget* budget, const Value& value);

}  // namespace reprise::jinja
