// SPDX-License-Identifier: Apache-2.0
#include "api/responses/endpoints.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <utility>

#include "api/adapters/chosen_adapter.h"
#include "api/body.h"
#include "api/chat/next_turn.h"
#include "api/chat/prompt.h"
#include "api/chat/reply.h"
#include "api/openai/format.h"
#include "api/openai/params.h"
#include "api/responses/background.h"
#include "api/responses/request.h"
#include "api/responses/response_sink.h"
#include "api/responses/store.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace reprise::api::responses {
namespace {

using http::ExchangePtr;
using StorePtr = std::shared_ptr<ResponseStore>;

// A request that was understood, with its prompt; or why not.
struct Prepared {
  ResponsesRequest request;
  Prompt prompt;
  const Tenant* tenant = nullptr;
  std::optional<ApiError> error;
};

Prepared Prepare(Service* service, const ResponseStore& store, const ExchangePtr& exchange,
                 Wanted wanted) {
  const http::Request& http = exchange->request();
  Prepared prepared;
  const Body body = ParseBody(*exchange, service->model());
  if (body.error) {
    prepared.error = body.error;
    return prepared;
  }
  Fields fields(body.document->root());
  prepared.tenant = service->FindTenant(http);
  prepared.request = ReadResponsesRequest(service->options(), service->model().vocab_size, store,
                                          *prepared.tenant, exchange->account().get(), &fields);
  if (!fields.ok()) {
    prepared.error = fields.error();
    return prepared;
  }
  prepared.error = ChooseAdapter(service->model(), &fields, &prepared.request.job.options);
  if (prepared.error) return prepared;
  const Status planned = PlanThinking(service->model(), &prepared.request.job);
  if (!planned.ok()) {
    prepared.error = ApiError{400, planned.message(), "reasoning.effort", "unsupported_value"};
    return prepared;
  }
  auto prompt =
      RenderChat(service->model(), &prepared.request.job, exchange->account().get(), wanted);
  if (prompt.ok()) {
    prepared.prompt = std::move(*prompt);
  } else {
    prepared.error = ApiError::FromPrompt(prompt.status());
  }
  return prepared;
}

// Keeps a reply with the conversation before it.
Keep MakeKeep(const StorePtr& store, const Tenant& tenant, std::string id,
              StoredResponse conversation) {
  auto kept = std::make_shared<StoredResponse>(std::move(conversation));
  return [store, kept, tenant = tenant.name, id = std::move(id)](std::string body, Items reply) {
    kept->body = std::move(body);
    for (Item& item : reply) kept->items.push_back(std::move(item));
    store->Add(tenant, id, std::move(*kept));
  };
}

// Starts a reply that nobody has to wait for, and answers that it is queued.
void StartInBackground(Service* service, const StorePtr& store, const ExchangePtr& exchange,
                       ReplyPlan plan, BackgroundReply::Parts parts) {
  if (!exchange->request().as_tenant.empty()) {
    return Refuse(exchange, {400, "a line of a batch cannot run in the background", "background"});
  }
  parts.tenant = plan.tenant->name;
  parts.owner = service;
  const bool streams = parts.streams;
  const Keep keep = parts.keep;
  const ResponseHead head = parts.head;
  BackgroundReplies& all = store->background();
  const auto reply = std::make_shared<BackgroundReply>(std::move(parts));
  if (!all.Add(reply)) {
    return Refuse(exchange, {429, fmt::format("{} responses of this key are computed in the "
                                              "background; wait for one, or cancel it",
                                              BackgroundReplies::kRunningMax)});
  }
  const auto started = [reply] { reply->SetStarted(); };
  const ExchangePtr inner = BackgroundReply::MakeExchange(reply, exchange);
  auto sink = streams ? MakeStreamSink(inner, head, keep, started)
                      : MakeWholeSink(inner, head, keep, started);
  if (auto error = StartReply(service, inner, std::move(plan), std::move(sink))) {
    reply->Abandon();
    all.Remove(reply->parts().tenant, reply->id());
    return Refuse(exchange, *error);
  }
  if (streams) return reply->Attach(exchange, 0);
  http::Response response;
  response.body = reply->Body();
  exchange->Respond(std::move(response));
}

void Create(Service* service, const StorePtr& store, const ExchangePtr& exchange) {
  Prepared prepared = Prepare(service, *store, exchange, Wanted::kWhatFits);
  if (prepared.error) return Refuse(exchange, *prepared.error);
  ResponsesRequest& request = prepared.request;
  const ServedModel& model = service->model();
  ResponseHead head;
  head.id = MakeRandomId(kResponsePrefix);
  head.model = AnsweringName(model, request.job.options);
  head.created = openai::NowSeconds();
  head.settings = std::move(request.settings);
  head.namespaces = std::move(request.namespaces);
  head.custom = std::move(request.custom);
  head.seal_reasoning = request.seal_reasoning;
  head.logprobs = request.logprobs;
  head.background = request.background;
  Keep keep;
  if (request.store) {
    keep = MakeKeep(store, *prepared.tenant, head.id, std::move(request.conversation));
  }
  ReplyPlan plan;
  if (auto error = PlanReply(service, request.job, std::move(prepared.prompt), prepared.tenant,
                             exchange->account().get(), &plan)) {
    return Refuse(exchange, *error);
  }
  plan.tell_tokens = plan.keep_tokens = request.logprobs;
  plan.done = PrepareNextTurn(service, *plan.tenant, std::move(request.job));
  if (request.background) {
    return StartInBackground(service, store, exchange, std::move(plan),
                             {.tenant = {},
                              .head = std::move(head),
                              .keep = std::move(keep),
                              .streams = request.stream});
  }
  auto sink = request.stream ? MakeStreamSink(exchange, std::move(head), std::move(keep))
                             : MakeWholeSink(exchange, std::move(head), std::move(keep));
  if (auto error = StartReply(service, exchange, std::move(plan), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

void CountTokens(Service* service, const StorePtr& store, const ExchangePtr& exchange) {
  const Prepared prepared = Prepare(service, *store, exchange, Wanted::kAll);
  if (prepared.error) return Refuse(exchange, *prepared.error);
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("object", "response.input_tokens");
  json.Member("input_tokens", uint64_t{prepared.prompt.ids.size()}).EndObject();
  exchange->Respond(std::move(response));
}

constexpr std::string_view kBelow = "/responses/";
constexpr std::string_view kInputItems = "/input_items";
constexpr std::string_view kCancel = "/cancel";

ApiError NotFound(const std::string& id) {
  return {404, "there is no response '" + id.substr(0, 100) + "' that this server remembers", "id",
          "response_not_found"};
}

std::string IdOf(const http::Request& request) {
  return request.path.substr(request.path.find(kBelow) + kBelow.size());
}

std::string FormatInputItems(const std::string& id, const StoredResponse& response) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Member("object", "list").Key("data").BeginArray();
  std::string first;
  std::string last;
  // The latest first, as OpenAI lists them.
  for (size_t i = response.input_end; i-- > response.input_begin;) {
    const Item& item = response.items[i];
    last = item.id.empty() ? MakeItemId("in_", id, i) : item.id;
    if (first.empty()) first = last;
    WriteInputItem(item, last, &json);
  }
  json.EndArray().Member("first_id", first).Member("last_id", last).Member("has_more", false);
  json.EndObject();
  return body;
}

// The events of a response in the background, behind the one that its client has seen last.
void ShowEvents(const BackgroundReplyPtr& reply, const ExchangePtr& exchange) {
  if (reply == nullptr || !reply->parts().streams) {
    return Refuse(exchange, {400,
                             "this response has no events to be read: it was not begun with stream "
                             "and background, or it ended long ago; ask without stream",
                             "stream"});
  }
  const std::string after = exchange->request().QueryValue("starting_after");
  uint64_t number = 0;
  const auto [end, wrong] = std::from_chars(after.data(), after.data() + after.size(), number);
  const bool whole = wrong == std::errc() && end == after.data() + after.size();
  if (!after.empty() && (!whole || number > INT64_MAX)) {
    return Refuse(exchange, {400, "must be the sequence_number of an event", "starting_after"});
  }
  reply->Attach(exchange, after.empty() ? 0 : number + 1);
}

void Show(Service* service, const StorePtr& store, const ExchangePtr& exchange) {
  std::string id = IdOf(exchange->request());
  const bool input = id.ends_with(kInputItems);
  if (input) id.resize(id.size() - kInputItems.size());
  const std::string& tenant = service->FindTenant(exchange->request())->name;
  const auto running = store->background().Find(tenant, id);
  const bool stream = exchange->request().QueryValue("stream") == "true";
  http::Response response;
  if (running != nullptr && !running->over() && !input && !stream) {
    response.body = running->Body();
    return exchange->Respond(std::move(response));
  }
  const auto found = store->Find(tenant, id);
  if (found == nullptr && running == nullptr) return Refuse(exchange, NotFound(id));
  if (stream) return ShowEvents(running, exchange);
  if (found == nullptr) return Refuse(exchange, NotFound(id));
  response.body = input ? FormatInputItems(id, *found) : found->body;
  exchange->Respond(std::move(response));
}

void RespondStored(const ResponseStore& store, const std::string& tenant, const std::string& id,
                   const ExchangePtr& exchange) {
  const auto found = store.Find(tenant, id);
  if (found == nullptr) return Refuse(exchange, NotFound(id));
  http::Response response;
  response.body = found->body;
  exchange->Respond(std::move(response));
}

// POST below /responses/: nothing but the end of a response in the background.
void Cancel(Service* service, const StorePtr& store, const ExchangePtr& exchange) {
  std::string id = IdOf(exchange->request());
  if (!id.ends_with(kCancel)) {
    return Refuse(exchange, {404, "there is no such endpoint; cancel one with POST ID/cancel"});
  }
  id.resize(id.size() - kCancel.size());
  const std::string& tenant = service->FindTenant(exchange->request())->name;
  if (const auto running = store->background().Find(tenant, id)) {
    return running->Cancel(exchange, BackgroundReply::Want::kKeep, [store, tenant, id, exchange] {
      RespondStored(*store, tenant, id, exchange);
    });
  }
  const auto found = store->Find(tenant, id);
  if (found == nullptr) return Refuse(exchange, NotFound(id));
  const auto body = JsonDocument::Parse(found->body);
  const JsonValue* background = body.ok() ? body->root().Find("background") : nullptr;
  if (background == nullptr || !background->is_bool() || !background->as_bool()) {
    return Refuse(exchange, {400, "only a response with background can be cancelled", "id"});
  }
  RespondStored(*store, tenant, id, exchange);
}

void Delete(Service* service, const StorePtr& store, const ExchangePtr& exchange) {
  const std::string id = IdOf(exchange->request());
  const std::string tenant = service->FindTenant(exchange->request())->name;
  const auto running = store->background().Find(tenant, id);
  if (!store->Remove(tenant, id) && running == nullptr) return Refuse(exchange, NotFound(id));
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("id", id).Member("object", "response").Member("deleted", true);
  json.EndObject();
  if (running == nullptr) return exchange->Respond(std::move(response));
  running->Cancel(exchange, BackgroundReply::Want::kForget,
                  [store, tenant, id, exchange, response = std::move(response)]() mutable {
                    store->background().Remove(tenant, id);
                    store->Remove(tenant, id);
                    exchange->Respond(std::move(response));
                  });
}

}  // namespace

void AddRoutes(Service* service, http::Router* router) {
  const StorePtr store = service->options().responses;
  const auto add = [&](const char* method, const std::string& path, auto handle) {
    router->Add(method, path, http::RunOn::kWorker,
                [service, store, handle](const ExchangePtr& e) { handle(service, store, e); });
  };
  for (const std::string base : {"/v1", ""}) {
    add("POST", base + "/responses", Create);
    add("POST", base + "/responses/input_tokens", CountTokens);
    add("POST", base + "/responses/*", Cancel);
    add("GET", base + "/responses/*", Show);
    add("DELETE", base + "/responses/*", Delete);
  }
}

}  // namespace reprise::api::responses
