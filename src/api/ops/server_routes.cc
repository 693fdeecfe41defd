// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "api/anthropic/endpoints.h"
#include "api/body.h"
#include "api/ops/endpoints.h"
#include "api/ops/exposition.h"
#include "api/ops/metrics.h"
#include "base/json_writer.h"
#include "version.gen.h"

namespace reprise::api::ops {
namespace {

using http::ExchangePtr;
using http::RunOn;

void Health(Service* service, const ExchangePtr& exchange) {
  http::Response response;
  if (service->draining()) {
    return exchange->Respond(ErrorResponse({503, "the server is shutting down"}, nullptr));
  }
  response.body = R"({"status":"ok"})";
  exchange->Respond(std::move(response));
}

void WriteModel(const ModelBrief& model, const std::string& id, JsonWriter* json) {
  json->BeginObject().Member("id", id).Member("object", "model");
  json->Member("created", model.created).Member("owned_by", "reprise");
  if (model.context_tokens > 0) json->Member("max_model_len", model.context_tokens);
  if (!model.family.empty()) json->Member("family", model.family);
  const auto& adapters = model.adapters;
  const bool adapter = std::find(adapters.begin(), adapters.end(), id) != adapters.end();
  if (adapter) json->Member("parent", model.id);
  if (!model.quantization.empty()) json->Member("quantization", model.quantization);
  if (!model.capabilities.empty()) {
    json->Key("capabilities").BeginArray();
    for (const std::string& one : model.capabilities) json->String(one);
    json->EndArray();
  }
  json->Key("status").BeginObject().Member("value", model.status);
  if (!model.error.empty()) json->Member("failed", true).Member("error", model.error);
  json->EndObject().EndObject();
}

void Models(Service* service, const ExchangePtr& exchange) {
  const std::vector<ModelBrief> models = service->ListModels();
  http::Response response;
  if (SpeaksAnthropic(exchange->request())) {
    response.body = anthropic::FormatModels(models);
    return exchange->Respond(std::move(response));
  }
  JsonWriter json(&response.body);
  json.BeginObject().Member("object", "list").Key("data").BeginArray();
  for (const ModelBrief& model : models) {
    for (const std::string& name : model.Names()) WriteModel(model, name, &json);
    for (const std::string& name : model.adapters) WriteModel(model, name, &json);
  }
  json.EndArray().EndObject();
  exchange->Respond(std::move(response));
}

void OneModel(Service* service, const ExchangePtr& exchange) {
  constexpr std::string_view kBefore = "/models/";
  const std::string& path = exchange->request().path;
  const std::string id = path.substr(path.find(kBefore) + kBefore.size());
  const std::vector<ModelBrief> models = service->ListModels();
  const auto model = std::find_if(models.begin(), models.end(),
                                  [&](const ModelBrief& one) { return one.Answers(id); });
  if (model == models.end()) return Refuse(exchange, ModelNotFound(id, models));
  http::Response response;
  if (SpeaksAnthropic(exchange->request())) {
    response.body = anthropic::FormatModel(*model, id);
    return exchange->Respond(std::move(response));
  }
  JsonWriter json(&response.body);
  WriteModel(*model, id, &json);
  exchange->Respond(std::move(response));
}

// How the model's text is made.
void WriteText(const ServedModel& model, JsonWriter* json) {
  json->Member("chat_template", model.template_source);
  for (const auto& [name, text] : model.special_tokens) json->Member(name, text);
}

void Props(Service* service, const ExchangePtr& exchange) {
  const ServedModel& model = service->model();
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("model", model.id).Member("family", model.family);
  json.Key("default_generation_settings").BeginObject();
  json.Member("n_ctx", model.context_tokens).Key("params").BeginObject();
  const SamplingParams& sampling = service->options().sampling;
  json.Member("temperature", sampling.temperature).Member("top_k", sampling.top_k);
  json.Member("top_p", sampling.top_p).Member("min_p", sampling.min_p);
  json.Member("repeat_penalty", sampling.repetition_penalty);
  json.EndObject().EndObject();
  json.Member("context_tokens", model.context_tokens).Member("vocab_size", model.vocab_size);
  // Whether a request may say "enable_thinking" and be heard.
  json.Member("thinking", model.output.reasoning != nullptr || model.thinking.can_toggle());
  WriteText(model, &json);
  json.EndObject();
  exchange->Respond(std::move(response));
}

// vLLM's way to ask for the tokenizer of a model; evaluation harnesses do.
void TokenizerInfo(Service* service, const ExchangePtr& exchange) {
  const ServedModel& model = service->model();
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("tokenizer_class", "reprise");
  json.Member("model_max_length", model.context_tokens).Member("vocab_size", model.vocab_size);
  WriteText(model, &json);
  json.EndObject();
  exchange->Respond(std::move(response));
}

void ShowVersion(Service*, const ExchangePtr& exchange) {
  http::Response response;
  JsonWriter(&response.body).BeginObject().Member("version", kVersion).EndObject();
  exchange->Respond(std::move(response));
}

// Whether the whole server may be shown; if not, that was the answer.
bool MaySeeAll(Service* service, const ExchangePtr& exchange) {
  if (service->FindTenant(exchange->request())->admin) return true;
  Refuse(exchange, {403,
                    "the numbers of the whole server need an admin key (admin = true in the "
                    "configuration)"});
  return false;
}

// What routers that know SGLang ask a worker: what it serves,
void ServerInfo(Service* service, const ExchangePtr& exchange) {
  const ServedModel& model = service->model();
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("version", kVersion).Member("model_path", model.id);
  json.Member("served_model_name", model.id).Member("context_length", model.context_tokens);
  json.Member("max_running_requests", service->options().slot_count);
  json.Member("tp_size", 1).Member("dp_size", 1).Member("page_size", int{kBlockTokens});
  json.EndObject();
  exchange->Respond(std::move(response));
}

// and how much it has to do.
void Loads(Service* service, const ExchangePtr& exchange) {
  if (!MaySeeAll(service, exchange)) return;
  const EngineStats stats = service->engine().stats();
  const CacheStats& cache = stats.cache;
  const double usage = static_cast<double>(cache.bytes_leased) /
                       static_cast<double>(std::max<size_t>(1, cache.bytes_budget));
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("version", kVersion).Member("dp_rank_count", 1);
  json.Key("loads").BeginArray().BeginObject().Member("dp_rank", 0);
  json.Member("num_running_reqs", stats.running).Member("num_waiting_reqs", stats.waiting);
  json.Member("num_total_reqs", stats.running + stats.waiting).Member("token_usage", usage);
  json.Member("max_running_requests", service->options().slot_count).EndObject().EndArray();
  json.Key("aggregate").BeginObject().Member("total_running_reqs", stats.running);
  json.Member("total_waiting_reqs", stats.waiting);
  json.Member("total_reqs", stats.running + stats.waiting).Member("avg_token_usage", usage);
  json.EndObject().EndObject();
  exchange->Respond(std::move(response));
}

// What requests hold.
void WriteLedger(const Ledger& ledger, std::string* out) {
  Exposition page(out);
  page.Gauge("reprise_request_memory_bytes", "Memory held by requests, without the cache.", "",
             ledger.bytes());
  page.Gauge("reprise_request_memory_most_bytes", "Maximum memory held by requests so far.", "",
             ledger.bytes_most());
  page.Gauge("reprise_request_memory_budget_bytes", "Budget of memory for requests.", "",
             ledger.limits().bytes);
  page.Counter("reprise_request_memory_refusals_total",
               "Requests refused because this budget was full.", "", ledger.refusals());
}

// A page of metrics, for those who run the server.
void ShowMetrics(Service* service, const ExchangePtr& exchange,
                 std::string (Metrics::*format)(Service*) const, bool with_ledger) {
  if (!MaySeeAll(service, exchange)) return;
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> pages;
  for (const auto& [name, one] : service->ListServices()) {
    pages.emplace_back(name, (one->metrics().*format)(one));
  }
  response.body = pages.size() == 1 ? std::move(pages.front().second) : JoinPages(pages);
  if (with_ledger) WriteLedger(*exchange->account()->ledger(), &response.body);
  Exposition page(&response.body);
  ModelSet* const models = service->options().models;
  if (with_ledger && models != nullptr) models->WriteMetrics(&page);
  exchange->Respond(std::move(response));
}

void OwnMetrics(Service* service, const ExchangePtr& exchange) {
  ShowMetrics(service, exchange, &Metrics::FormatOwn, true);
}

void VllmMetrics(Service* service, const ExchangePtr& exchange) {
  ShowMetrics(service, exchange, &Metrics::FormatVllm, false);
}

}  // namespace

void AddServerRoutes(Service* service, http::Router* router) {
  const auto add = [&](const std::string& path, RunOn run_on,
                       void (*handle)(Service*, const ExchangePtr&)) {
    router->Add("GET", path, run_on,
                [service, handle](const ExchangePtr& e) { handle(service, e); });
  };
  add("/health", RunOn::kServer, Health);
  add("/v1/health", RunOn::kServer, Health);
  router->Add("GET", "/live", RunOn::kServer, [](const ExchangePtr& exchange) {
    http::Response response;
    response.body = R"({"status":"alive"})";
    exchange->Respond(std::move(response));
  });
  for (const std::string base : {"/v1", ""}) {
    add(base + "/models", RunOn::kQuick, Models);
    add(base + "/models/*", RunOn::kQuick, OneModel);
  }
  add("/props", RunOn::kQuick, Props);
  add("/tokenizer_info", RunOn::kWorker, TokenizerInfo);
  add("/version", RunOn::kServer, ShowVersion);
  add("/server_info", RunOn::kQuick, ServerInfo);
  add("/v1/loads", RunOn::kQuick, Loads);
  add("/metrics", RunOn::kQuick, OwnMetrics);
  add("/metrics/vllm", RunOn::kQuick, VllmMetrics);
}

}  // namespace reprise::api::ops
