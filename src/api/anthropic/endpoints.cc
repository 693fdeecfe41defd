// SPDX-License-Identifier: Apache-2.0
#include "api/adapters/chosen_adapter.h"
#include "api/anthropic/endpoints.h"

#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "api/anthropic/diagnostics.h"
#include "api/anthropic/message_sink.h"
#include "api/anthropic/messages_request.h"
#include "api/body.h"
#include "api/chat/next_turn.h"
#include "api/chat/prompt.h"
#include "api/chat/reply.h"
#include "base/json_writer.h"

namespace reprise::api::anthropic {
namespace {

// A request that was understood, with its prompt; or why not.
struct Prepared {
  MessagesRequest request;
  Prompt prompt;
  std::optional<ApiError> error;
};

Prepared Prepare(const Service& service, const http::ExchangePtr& exchange, bool count_only) {
  Prepared prepared;
  const Body body = ParseBody(*exchange);
  if (body.error) {
    prepared.error = body.error;
    return prepared;
  }
  Fields fields(body.document->root());
  prepared.request = ReadMessagesRequest(service.options(), count_only, &fields);
  if (!fields.ok()) {
    prepared.error = fields.error();
  } else if (!service.model().Answers(prepared.request.model)) {
    prepared.error = ModelNotFound(prepared.request.model, service.model());
  } else if (const auto wrong = ChooseAdapter(service.model(), prepared.request.model, &fields,
                                              &prepared.request.job.options)) {
    prepared.error = wrong;
  } else if (const Status planned = PlanThinking(service.model(), &prepared.request.job);
             !planned.ok()) {
    prepared.error = {400, "output_config.effort: " + planned.message(), "output_config.effort"};
  } else {
    auto prompt = RenderChat(service.model(), &prepared.request.job, exchange->account().get(),
                             count_only ? Wanted::kAll : Wanted::kWhatFits);
    if (prompt.ok()) {
      prepared.prompt = std::move(*prompt);
    } else {
      prepared.error = ApiError::FromPrompt(prompt.status());
    }
  }
  return prepared;
}

void WriteModel(const ModelBrief& model, const std::string& id, JsonWriter* json) {
  const std::time_t created = static_cast<std::time_t>(model.created);
  std::tm time = {};
  ::gmtime_r(&created, &time);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &time);
  json->BeginObject().Member("type", "model").Member("id", id).Member("display_name", id);
  json->Member("created_at", text).Member("lifecycle", "active");
  json->Member("max_input_tokens", model.context_tokens).EndObject();
}

}  // namespace

std::string FormatModel(const ModelBrief& model, const std::string& id) {
  std::string body;
  JsonWriter json(&body);
  WriteModel(model, id, &json);
  return body;
}

std::string FormatModels(std::span<const ModelBrief> models) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Key("data").BeginArray();
  for (const ModelBrief& model : models) {
    for (const std::string& id : model.Names()) WriteModel(model, id, &json);
  }
  json.EndArray().Member("has_more", false).Member("first_id", models.front().id);
  json.Member("last_id", models.back().Names().back()).EndObject();
  return body;
}

namespace {

void HandleMessages(Service* service, PromptHistory* history, const http::ExchangePtr& exchange) {
  Prepared prepared = Prepare(*service, exchange, false);
  if (prepared.error) return Refuse(exchange, *prepared.error);
  MessagesRequest& request = prepared.request;
  const ServedModel& model = service->model();
  MessageHead head =
      MakeHead(model, prepared.prompt, request.hour_breakpoints, request.show_thinking);
  head.model = AnsweringName(model, request.job.options);

  const Tenant* tenant = service->FindTenant(exchange->request());
  PromptParts parts = TakeParts(request.job, tenant->name, prepared.prompt.ids.size());
  if (request.diagnose && !request.previous_message_id.empty()) {
    head.miss = CompareParts(history->Find(request.previous_message_id, tenant->name), parts);
  }
  if (!request.job.cache.forget) history->Add(head.id, std::move(parts));

  ReplyPlan plan;
  if (auto error = PlanReply(service, request.job, std::move(prepared.prompt), tenant,
                             exchange->account().get(), &plan)) {
    return Refuse(exchange, *error);
  }
  // A request that only warms the cache has no next turn.
  if (plan.options.max_tokens != 0) {
    plan.done = PrepareNextTurn(service, *plan.tenant, std::move(request.job));
  }
  auto sink = request.stream ? MakeStreamSink(exchange, std::move(head))
                             : MakeWholeSink(exchange, std::move(head));
  if (auto error = StartReply(service, exchange, std::move(plan), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

void HandleCountTokens(Service* service, const http::ExchangePtr& exchange) {
  const Prepared prepared = Prepare(*service, exchange, true);
  if (prepared.error) return Refuse(exchange, *prepared.error);
  http::Response response;
  response.headers.emplace_back("request-id", exchange->request().id);
  JsonWriter(&response.body)
      .BeginObject()
      .Member("input_tokens", static_cast<int64_t>(prepared.prompt.ids.size()))
      .EndObject();
  exchange->Respond(std::move(response));
}

}  // namespace

void AddRoutes(Service* service, http::Router* router) {
  const auto history = std::make_shared<PromptHistory>();
  router->Add("POST", "/v1/messages", http::RunOn::kWorker,
              [service, history](const http::ExchangePtr& exchange) {
                HandleMessages(service, history.get(), exchange);
              });
  router->Add(
      "POST", "/v1/messages/count_tokens", http::RunOn::kWorker,
      [service](const http::ExchangePtr& exchange) { HandleCountTokens(service, exchange); });
}

}  // namespace reprise::api::anthropic
