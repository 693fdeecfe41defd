// SPDX-License-Identifier: Apache-2.0
#include "api/adapters/chosen_adapter.h"
#include "api/llamacpp/endpoints.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "api/body.h"
#include "api/chat/reply.h"
#include "api/fields/unsupported.h"
#include "api/llamacpp/completion_sink.h"
#include "api/llamacpp/infill.h"
#include "api/llamacpp/request.h"
#include "api/openai/params.h"
#include "api/openai/prompts.h"
#include "base/json_writer.h"

namespace reprise::api::llamacpp {
namespace {

using http::ExchangePtr;

void Start(Service* service, const ExchangePtr& exchange, CompletionRequest request,
           std::vector<Prompt> prompts, bool list) {
  ReplyPlan plan;
  plan.options = std::move(request.options);
  plan.cache = std::move(request.cache);
  plan.passed_fields = std::move(request.passed_fields);
  plan.tenant = service->FindTenant(exchange->request());
  if (auto error = Constrain(service, "", exchange->account().get(), &plan)) {
    return Refuse(exchange, *error);
  }
  plan.tell_tokens = plan.keep_tokens = request.return_tokens;
  plan.tell_progress = request.return_progress && request.stream;
  plan.prompts = std::move(prompts);
  auto sink = MakeCompletionSink(exchange, AnsweringName(service->model(), plan.options),
                                 request.return_tokens, request.stream, list);
  if (auto error = StartReply(service, exchange, std::move(plan), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

void Complete(Service* service, const ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange, service->model());
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  CompletionRequest request =
      ReadCompletion(service->options(), service->model().vocab_size, &fields);
  std::vector<Prompt> prompts;
  Account* const account = exchange->account().get();
  if (fields.ok()) openai::ReadPrompts(service->model(), false, account, &fields, &prompts);
  if (const auto error = ChooseAdapter(service->model(), &fields, &request.options)) {
    return Refuse(exchange, *error);
  }
  RefuseUnread(Dialect::kLlamaCpp, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  request.passed_fields = fields.passed();
  const JsonValue* prompt = fields.Find("prompt");
  const bool list = prompt->is_array() && !prompt->items().front().is_int();
  Start(service, exchange, std::move(request), std::move(prompts), list);
}

void Infill(Service* service, const ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange, service->model());
  if (body.error) return Refuse(exchange, *body.error);
  const ServedModel& model = service->model();
  const auto tokens = FindInfillTokens(*model.tokenizer);
  if (!tokens) {
    return Refuse(exchange, {501, "the model '" + model.id +
                                      "' cannot fill in: its vocabulary has no tokens for prefix, "
                                      "suffix and middle"});
  }
  Fields fields(body.document->root());
  CompletionRequest request = ReadCompletion(service->options(), model.vocab_size, &fields);
  std::vector<Prompt> prompts = {ReadInfill(model, *tokens, exchange->account().get(), &fields)};
  if (const auto error = ChooseAdapter(service->model(), &fields, &request.options)) {
    return Refuse(exchange, *error);
  }
  RefuseUnread(Dialect::kLlamaCpp, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  request.passed_fields = fields.passed();
  StopAtInfillTokens(*tokens, &request.options);
  Start(service, exchange, std::move(request), std::move(prompts), false);
}

// Requests here have no slots of their own: the first so many are those at work.
void Slots(Service* service, const ExchangePtr& exchange) {
  if (!service->FindTenant(exchange->request())->admin) {
    return Refuse(exchange, {403, "the state of the whole server needs an admin key"});
  }
  const int32_t running = service->engine().stats().running;
  const int32_t count = std::max(running, service->options().slot_count);
  if (running >= count && exchange->request().QueryValue("fail_on_no_slot") == "1") {
    return Refuse(exchange, {503, "no slot is free"});
  }
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginArray();
  for (int32_t i = 0; i < count; ++i) {
    json.BeginObject().Member("id", i).Member("n_ctx", service->model().context_tokens);
    json.Member("speculative", false).Member("is_processing", i < running).EndObject();
  }
  json.EndArray();
  exchange->Respond(std::move(response));
}

}  // namespace

void AddRoutes(Service* service, http::Router* router) {
  const auto add = [&](const char* method, const char* path,
                       void (*handle)(Service*, const ExchangePtr&)) {
    router->Add(method, path, http::RunOn::kWorker,
                [service, handle](const ExchangePtr& exchange) { handle(service, exchange); });
  };
  add("POST", "/completion", Complete);
  add("POST", "/infill", Infill);
  add("GET", "/slots", Slots);
}

}  // namespace reprise::api::llamacpp
