// SPDX-License-Identifier: Apache-2.0
// Any bytes as a body of /v1/messages: refused with the name of a field, or understood; and then
// every breakpoint lies inside the turns.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/anthropic/messages_request.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;  // NOLINT
  const auto body =
      JsonDocument::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok() || !body->root().is_object()) return 0;
  api::Fields fields(body->root());
  const auto request =
      api::anthropic::ReadMessagesRequest(api::ServiceOptions(), size % 2 == 0, &fields);
  if (!fields.ok()) {
    CHECK(!fields.error()->param.empty() && fields.error()->status == 400);
    return 0;
  }
  const api::ChatJob& job = request.job;
  CHECK(!job.turns.empty() || job.cache.breakpoints.empty());
  CHECK(job.cache.breakpoints.size() <= 4);
  for (const api::Breakpoint& place : job.cache.breakpoints) {
    CHECK(place.turn >= -1 && place.turn < static_cast<int32_t>(job.turns.size()));
    if (place.turn < 0) continue;
    CHECK(place.content_bytes <= job.turns[static_cast<size_t>(place.turn)].content.size());
  }
  for (const std::string& json : {job.tools, job.variables}) {
    CHECK(json.empty() || JsonDocument::Parse(json).ok());
  }
  return 0;
}
