// SPDX-License-Identifier: Apache-2.0
// Any bytes as a body of /v1/chat/completions: refused with the name of a field, or understood; and
// then everything lies within its bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/body.h"
#include "api/openai/params.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;  // NOLINT
  http::Request request;
  request.headers = {{"Content-Type", "application/json"}};
  request.body.assign(reinterpret_cast<const char*>(data), size);
  const api::Body body = api::ParseBody(request);
  if (body.error) {
    CHECK(body.error->status == 400 && !body.error->message.empty());
    return 0;
  }
  constexpr int64_t kVocab = 1000;
  api::Fields fields(body.document->root());
  api::ChatJob job;
  const api::ServiceOptions options;
  api::openai::ReadMessages(options, &fields, &job);
  api::openai::ReadTools(options, &fields, &job);
  api::openai::ReadReplyOptions(options, kVocab, &fields, &job.options);
  api::openai::ReadCacheControl(&fields, &job.cache);
  if (!fields.ok()) {
    CHECK(fields.error()->status == 400 && !fields.error()->param.empty());
    return 0;
  }
  CHECK(!job.turns.empty() && job.turns.size() <= 4096);
  CHECK(job.cache.breakpoints.size() <= 4);
  for (const api::Breakpoint& place : job.cache.breakpoints) {
    CHECK(place.turn >= 0 && place.turn < static_cast<int32_t>(job.turns.size()));
    CHECK(place.content_bytes <= job.turns[static_cast<size_t>(place.turn)].content.size());
  }
  CHECK(Validate(job.options.sampling, kVocab).ok());
  CHECK(job.options.choices >= 1 && job.options.choices <= 128);
  CHECK(job.options.stop.size() <= 16);
  CHECK(job.cache.pin_ms >= 0 && job.cache.min_tokens >= 0);
  for (const std::string& json : {job.tools, job.variables}) {
    CHECK(json.empty() || JsonDocument::Parse(json).ok());
  }
  return 0;
}
