// SPDX-License-Identifier: Apache-2.0
// Any bytes: the parser returns a document or an error, and every string of a document is valid
// UTF-8.
#include "base/json.h"
#include "base/utf8.h"

namespace {

void Visit(const reprise::JsonValue& value) {
  if (value.is_string()) CHECK(reprise::IsValidUtf8(value.as_string()));
  if (value.is_array()) {
    for (const auto& item : value.items()) Visit(item);
  }
  if (value.is_object()) {
    for (const auto& member : value.members()) Visit(member.value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = reprise::JsonDocument::Parse({reinterpret_cast<const char*>(data), size});
  if (parsed.ok()) Visit(parsed->root());
  return 0;
}
