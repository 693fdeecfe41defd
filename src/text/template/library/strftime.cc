// SPDX-License-Identifier: Apache-2.0
#include "text/template/library/strftime.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {

Result<std::string> FormatTime(std::string_view format, const std::tm& time) {
  constexpr std::string_view kFlags = "-_0^#";  // of the C library: "%-d" has no leading zero
  constexpr std::string_view kDirectives = "aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyY";
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    const size_t begin = at++;
    if (at < format.size() && kFlags.find(format[at]) != std::string_view::npos) ++at;
    const char directive = at < format.size() ? format[at] : '\0';
    if (directive == '%') {
      out += '%';
    } else if (directive == 'f') {
      out += "000000";  // microseconds: the clock given here has whole seconds
    } else if (directive == 'z' || directive == 'Z') {
      // A time without a zone prints none.
    } else if (directive != '\0' && kDirectives.find(directive) != std::string_view::npos) {
      char text[128];
      const std::string part(format.substr(begin, at - begin + 1));
      out.append(text, std::strftime(text, sizeof(text), part.c_str(), &time));
    } else {
      const size_t length = Utf8SequenceLength(format.substr(std::min(at, format.size())));
      return InvalidArgument("strftime_now: unknown directive " +
                             Repr(format.substr(begin, at - begin + length)));
    }
  }
  return out;
}

}  // namespace reprise::jinja
