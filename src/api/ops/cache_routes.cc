// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <utility>

#include "api/body.h"
#include "api/chat/prompt.h"
#include "api/fields/unsupported.h"
#include "api/openai/params.h"
#include "api/ops/cache_feed.h"
#include "api/ops/cache_view.h"
#include "api/ops/endpoints.h"
#include "base/json_writer.h"

namespace reprise::api::ops {
namespace {

using http::ExchangePtr;

void Show(Service* service, const ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const Tenant* tenant = service->FindTenant(request);
  size_t nodes_max = kViewNodesMax;
  const std::string limit = request.QueryValue("nodes");
  if (!limit.empty()) {
    const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), nodes_max);
    if (error != std::errc() || end != limit.data() + limit.size() ||
        nodes_max > 4 * kViewNodesMax) {
      return Refuse(exchange, {400, "nodes must be a number of at most 8192", "nodes"});
    }
  }
  CollectView(service, *tenant, tenant->Namespace(request.QueryValue("salt")), nodes_max,
              [service, exchange, tenant](CacheView view) {
                auto shared = std::make_shared<CacheView>(std::move(view));
                exchange->Post([service, exchange, tenant, shared] {
                  http::Response response;
                  response.body = FormatView(service, *tenant, *shared);
                  exchange->Respond(std::move(response));
                });
              });
}

void Watch(Service* service, const ExchangePtr& exchange) {
  const Tenant* tenant = service->FindTenant(exchange->request());
  const std::string salt = tenant->Namespace(exchange->request().QueryValue("salt"));
  if (!service->feed().Watch(exchange, tenant, salt)) {
    Refuse(exchange, {429, "too many are watching the cache already"});
  }
}

// Forgets the tenant's own state; with {"all": true}, for admins, everybody's.
void Reset(Service* service, const ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const Tenant* tenant = service->FindTenant(request);
  bool all = false;
  std::string salt;
  if (!request.body.empty()) {
    const Body body = ParseBody(*exchange);
    if (body.error) return Refuse(exchange, *body.error);
    Fields fields(body.document->root());
    fields.Read("all", &all);
    fields.Read("cache_salt", 1024, &salt);
    RefuseUnread(Dialect::kOwn, service->options(), &fields);
    if (!fields.ok()) return Refuse(exchange, *fields.error());
  }
  if (all && !tenant->admin) {
    return Refuse(exchange, {403, "only an admin key may reset state of other keys", "all"});
  }
  const NamespaceKey key{service->model().digest, tenant->Namespace(salt)};
  service->engine().Post([exchange, key, all](StateCache& cache) {
    all ? cache.ResetAll() : cache.Reset(key);
    http::Response response;
    response.body = R"({"object":"cache.reset","done":true})";
    exchange->Respond(std::move(response));
  });
}

// Keeps a prefix that is stored: {"messages" | "prompt", "ttl": "1h"}; DELETE lets go of it.
void Pin(Service* service, const ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const Tenant* tenant = service->FindTenant(request);
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  std::string salt;
  std::string ttl = "1h";
  int64_t ms = 0;
  fields.Read("cache_salt", 1024, &salt);
  fields.Read("ttl", 32, &ttl);
  if (!openai::ParseTtl(ttl, &ms)) fields.Fail("ttl", "must be a duration such as 30m or 1h");
  if (request.method == "DELETE") ms = 0;
  std::vector<TokenId> ids;
  if (fields.Find("messages") != nullptr) {
    ChatJob job;
    openai::ReadMessages(service->options(), &fields, &job);
    openai::ReadTools(service->options(), &fields, &job);
    openai::ReadThinking(service->model(), &fields, &job);
    RefuseUnread(Dialect::kPrompt, service->options(), &fields);
    if (!fields.ok()) return Refuse(exchange, *fields.error());
    auto prompt = RenderChat(service->model(), &job, exchange->account().get());
    if (!prompt.ok()) return Refuse(exchange, ApiError::FromPrompt(prompt.status()));
    ids = std::move(prompt->ids);
  } else {
    std::string text;
    fields.Read("prompt", size_t{1} << 30, &text);
    if (text.empty()) fields.Fail("messages", "is required (or prompt)");
    RefuseUnread(Dialect::kOwn, service->options(), &fields);
    if (!fields.ok()) return Refuse(exchange, *fields.error());
    Prompt prompt;
    const Status encoded = EncodeText(service->model(), text, {true, true}, Wanted::kAll,
                                      exchange->account().get(), &prompt);
    if (!encoded.ok()) return Refuse(exchange, ApiError::From(encoded));
    ids = std::move(prompt.ids);
  }
  const NamespaceKey key{service->model().digest, tenant->Namespace(salt)};
  service->engine().Post([exchange, key, ids = std::move(ids), ms](StateCache& cache) {
    const int32_t kept = cache.Pin(key, ids, ms);
    http::Response response;
    JsonWriter json(&response.body);
    json.BeginObject().Member("object", "cache.pin").Member("prompt_tokens", uint64_t{ids.size()});
    json.Member(ms > 0 ? "pinned_tokens" : "unpinned_tokens", kept);
    json.Member("ttl_seconds", ms / 1000).EndObject();
    exchange->Respond(std::move(response));
  });
}

}  // namespace

void AddCacheRoutes(Service* service, http::Router* router) {
  const auto add = [&](const char* method, const char* path,
                       void (*handle)(Service*, const ExchangePtr&)) {
    router->Add(method, path, http::RunOn::kWorker,
                [service, handle](const ExchangePtr& e) { handle(service, e); });
  };
  add("GET", "/v1/cache", Show);
  add("GET", "/v1/cache/events", Watch);
  add("POST", "/v1/cache/reset", Reset);
  add("POST", "/reset_prefix_cache", Reset);  // vLLM's name for it
  add("POST", "/v1/cache/pins", Pin);
  add("DELETE", "/v1/cache/pins", Pin);
}

}  // namespace reprise::api::ops
