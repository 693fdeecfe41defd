// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of any POST of the APIs, all the way through templates, tokenizer and
// engine: the answer is JSON or a stream of it, and afterwards nothing is left behind.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "api/test_service.h"
#include "base/check.h"
#include "base/json.h"

namespace {

constexpr std::string_view kPaths[] = {"/v1/chat/completions",
                                       "/v1/completions",
                                       "/v1/messages",
                                       "/v1/messages/count_tokens",
                                       "/tokenize",
                                       "/detokenize",
                                       "/apply-template",
                                       "/v1/cache/pins",
                                       "/v1/responses",
                                       "/v1/responses/input_tokens",
                                       "/api/chat",
                                       "/api/generate",
                                       "/api/show",
                                       "/completion",
                                       "/infill",
                                       "/v1/embeddings",
                                       "/v1/rerank",
                                       "/api/embed",
                                       "/api/embeddings",
                                       "/v1/cache/reset"};
constexpr size_t kPathCount = std::size(kPaths);

// A model that both embeds and ranks.
reprise::TextVectors Vectors() {
  reprise::TextVectors vectors;
  vectors.pooling = reprise::Pooling::kMean;
  vectors.rank_rows = {0.01f, -1.0f};
  vectors.rank_prompt = "<|im_start|>{query}<|im_end|>{document}<|im_end|>";
  return vectors;
}

// The path of a first byte. Its fourth bit says something else.
std::string_view PathOf(uint8_t byte) {
  const size_t index = (byte & 7u) | ((byte & 0x40u) >> 3) | ((byte & 0x80u) >> 3);
  return kPaths[index % kPathCount];
}

// Events, or lines of JSON.
void CheckStream(std::string_view body) {
  if (body.starts_with('{')) {
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find('\n', at);
      CHECK(reprise::JsonDocument::Parse(body.substr(at, end - at)).ok());
      at = end == body.npos ? body.size() : end + 1;
    }
    return;
  }
  for (size_t at = 0; (at = body.find("data: ", at)) != body.npos;) {
    at += 6;
    const std::string_view data = body.substr(at, body.find('\n', at) - at);
    CHECK(data == "[DONE]" || reprise::JsonDocument::Parse(data).ok());
  }
}

}  // namespace

// The first byte chooses the path and whether the client leaves in the middle.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto& service = *new reprise::api::TestService({}, Vectors());
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool leaves = (data[0] & 8) != 0;
  const auto answer = service.Send(service.MakePost(PathOf(data[0]), body), leaves ? 2 : SIZE_MAX);
  CHECK(answer.status >= 200 && answer.status <= 501);
  if (answer.streamed) {
    CheckStream(answer.body);
  } else {
    CHECK(reprise::JsonDocument::Parse(answer.body).ok());
  }
  const reprise::EngineStats stats = service.engine().stats();
  CHECK(stats.running == 0 && stats.waiting == 0);
  CHECK(service.engine().cache().CheckInvariants().ok());
  return 0;
}
