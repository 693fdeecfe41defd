// SPDX-License-Identifier: Apache-2.0
// Any text with any stops, in any pieces: what is sent is the text up to the first stop to end, as
// a plain search finds it, and nothing of it is ever taken back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/stop_strings.h"

namespace {

// The plain search: at the first end of any stop, the longest that ends there.
bool Find(const std::vector<std::string>& stops, std::string_view text, std::string* before,
          std::string* matched) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops) {
      if (!stop.empty() && stop.size() > matched->size() && text.substr(0, end).ends_with(stop)) {
        *matched = stop;
      }
    }
    if (!matched->empty()) {
      *before = text.substr(0, end - matched->size());
      return true;
    }
  }
  *before = text;
  return false;
}

}  // namespace

// Lines: the stops, then the text; the first byte is the size of the pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  const size_t piece = 1 + data[0] % 16;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<std::string> stops;
  for (size_t end; stops.size() < 4 && (end = rest.find('\n')) != rest.npos;) {
    stops.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  std::string want;
  std::string want_stop;
  const bool want_stopped = Find(stops, rest, &want, &want_stop);

  reprise::StopStrings watch(stops);
  std::string sent;
  for (size_t at = 0; at < rest.size(); at += piece) {
    watch.Append(rest.substr(at, piece), &sent);
    CHECK(std::string_view(want).starts_with(sent));
  }
  watch.Finish(&sent);
  CHECK(sent == want);
  CHECK(watch.stopped() == want_stopped);
  CHECK(watch.matched() == want_stop);
  return 0;
}
