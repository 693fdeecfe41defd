// SPDX-License-Identifier: Apache-2.0
// Any bytes as a body of /v1/responses: refused with the name of a field, or understood; and then
// its parts are within their bounds and what is repeated of it is JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/responses/request.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;  // NOLINT
  namespace responses = api::responses;
  const auto body =
      JsonDocument::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok() || !body->root().is_object()) return 0;
  static const api::Tenant& tenant = *new api::Tenant{"t", "", 1, false, nullptr};
  static const responses::ResponseStore& store = *[] {
    auto* made = new responses::ResponseStore();
    responses::StoredResponse response;
    response.items = {{responses::Item::Kind::kMessage, "msg_a_0", "assistant", "Hi", "", ""}};
    made->Add(tenant.name, "resp_a", std::move(response));
    return made;
  }();
  api::Fields fields(body->root());
  Account account;
  const auto request = responses::ReadResponsesRequest(api::ServiceOptions(), 1000, store, tenant,
                                                       &account, &fields);
  if (!fields.ok()) {
    CHECK(!fields.error()->param.empty() && fields.error()->status == 400);
    return 0;
  }
  const api::ChatJob& job = request.job;
  CHECK(!job.turns.empty() && job.turns.size() <= 4096);
  CHECK(request.conversation.input_begin <= request.conversation.input_end);
  CHECK(request.conversation.input_end == request.conversation.items.size());
  CHECK(Validate(job.options.sampling, 1000).ok());
  CHECK(job.options.choices == 1);
  CHECK(JsonDocument::Parse("{" + request.settings + "}").ok());
  CHECK(job.tools.empty() || JsonDocument::Parse(job.tools).ok());
  return 0;
}
