// SPDX-License-Identifier: Apache-2.0
// Forms as clients may send them: the first line is the content type, the rest the body.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "batches/multipart.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  const std::string_view body = text.substr(line + 1);
  const auto parts = reprise::batches::ParseMultipart(text.substr(0, line), body);
  if (!parts.ok()) return 0;
  for (const reprise::batches::FormPart& part : *parts) {
    CHECK(!part.name.empty());
    CHECK(part.content.data() >= body.data());
    CHECK(part.content.data() + part.content.size() <= body.data() + body.size());
  }
  return 0;
}
