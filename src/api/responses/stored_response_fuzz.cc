// SPDX-License-Identifier: Apache-2.0
// Any bytes as a response that was stored: refused, or one that is written again in the same bytes,
// whose parts are within their bounds and become turns.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/responses/archive.h"
#include "api/responses/store.h"
#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace responses = reprise::api::responses;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto response = responses::DecodeResponse(bytes);
  if (!response.ok()) return 0;
  CHECK(responses::EncodeResponse(*response) == bytes);
  CHECK(response->input_begin <= response->input_end);
  CHECK(response->input_end <= response->items.size());
  CHECK(reprise::JsonDocument::Parse(response->body).ok());
  const auto turns = responses::MakeTurns("", response->items);
  CHECK(turns.size() <= response->items.size());
  return 0;
}
