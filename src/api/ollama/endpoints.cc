// SPDX-License-Identifier: Apache-2.0
#include "api/adapters/chosen_adapter.h"
#include "api/ollama/endpoints.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "api/body.h"
#include "api/chat/next_turn.h"
#include "api/chat/prompt.h"
#include "api/chat/reply.h"
#include "api/fields/unsupported.h"
#include "api/ollama/answer_sink.h"
#include "api/ollama/request.h"
#include "api/openai/params.h"
#include "base/json_writer.h"

namespace reprise::api::ollama {
namespace {

using http::ExchangePtr;

// Of the Ollama whose API this is: clients refuse to talk to old ones.
constexpr char kApiVersion[] = "0.12.6";

// The prompt of a request: rendered, or as it is.
Result<Prompt> MakePrompt(const ServedModel& model, OllamaRequest& request,
                          const ExchangePtr& exchange) {
  if (!request.raw) {
    return RenderChat(model, &request.job, exchange->account().get(), Wanted::kWhatFits);
  }
  Prompt prompt = request.infill;
  if (!prompt.ids.empty() || prompt.tokens_too_many > 0) return prompt;
  REPRISE_TRY(EncodeText(model, request.prompt, {true, true}, Wanted::kWhatFits,
                         exchange->account().get(), &prompt));
  return prompt;
}

// Whatever the reply is, it is text.
std::optional<ApiError> PlanRaw(Service* service, const ChatJob& job, Prompt prompt,
                                const Tenant* tenant, Account* account, ReplyPlan* plan) {
  plan->options = job.options;
  plan->cache = job.cache;
  plan->passed_fields = job.passed_fields;
  plan->tenant = tenant;
  plan->prompts.push_back(std::move(prompt));
  return Constrain(service, "", account, plan);
}

void Answer(Service* service, const ExchangePtr& exchange, AnswerShape shape) {
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  const ServedModel& model = service->model();
  const auto read = shape == AnswerShape::kChat ? ReadChat : ReadGenerate;
  OllamaRequest request = read(service->options(), model, exchange->account().get(), &fields);
  RefuseUnread(Dialect::kOllama, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  NotePassed(fields, &request.job);
  if (!model.Answers(request.model)) {
    return Refuse(exchange, ModelNotFound(request.model, model));
  }
  if (const auto error =
          ChooseAdapter(model, request.model, &fields, &request.job.options)) {
    return Refuse(exchange, *error);
  }
  std::string name = request.model.empty() ? model.id : request.model;
  if (request.load_only) return exchange->Respond(AnswerLoaded(name, shape));
  if (!request.raw) {
    const Status planned = PlanThinking(model, &request.job);
    if (!planned.ok()) return Refuse(exchange, {400, "think: " + planned.message(), "think"});
  }
  auto prompt = MakePrompt(model, request, exchange);
  if (!prompt.ok()) return Refuse(exchange, ApiError::FromPrompt(prompt.status()));
  ReplyPlan plan;
  const Tenant* tenant = service->FindTenant(exchange->request());
  const auto make = request.raw ? PlanRaw : PlanReply;
  const auto wrong =
      make(service, request.job, std::move(*prompt), tenant, exchange->account().get(), &plan);
  if (wrong) return Refuse(exchange, *wrong);
  if (!request.raw) plan.done = PrepareNextTurn(service, *plan.tenant, std::move(request.job));
  auto sink = MakeAnswerSink(exchange, std::move(name), shape, request.stream);
  if (auto error = StartReply(service, exchange, std::move(plan), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

// "1.2B", "494M"; empty if it is not known.
std::string SizeOf(int64_t parameters) {
  if (parameters == 0) return "";
  const double count = static_cast<double>(parameters);
  return count >= 1e9 ? fmt::format("{:.1f}B", count / 1e9) : fmt::format("{:.4g}M", count / 1e6);
}

void WriteDetails(const ModelBrief& model, JsonWriter* json) {
  json->Key("details").BeginObject().Member("parent_model", "").Member("format", "gguf");
  json->Member("family", model.family).Key("families").BeginArray().String(model.family).EndArray();
  json->Member("parameter_size", SizeOf(model.parameter_count));
  json->Member("quantization_level", model.quantization).EndObject();
}

void WriteModel(const ModelBrief& model, const std::string& name, JsonWriter* json) {
  const std::string tagged = name.find(':') == std::string::npos ? name + ":latest" : name;
  json->BeginObject().Member("name", tagged).Member("model", tagged);
  json->Member("modified_at", FormatTime(model.created * 1'000'000))
      .Member("size", static_cast<int64_t>(model.bytes));
  json->Member("digest", model.digest);
  WriteDetails(model, json);
}

void Tags(Service* service, const ExchangePtr& exchange) {
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Key("models").BeginArray();
  for (const ModelBrief& model : service->ListModels()) {
    for (const std::string& name : model.Names()) {
      WriteModel(model, name, &json);
      json.EndObject();
    }
  }
  json.EndArray().EndObject();
  exchange->Respond(std::move(response));
}

// Models whose weights are in memory. They stay until their memory is wanted for another one.
void Running(Service* service, const ExchangePtr& exchange) {
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Key("models").BeginArray();
  for (const ModelBrief& model : service->ListModels()) {
    if (model.status != "loaded") continue;
    WriteModel(model, model.id, &json);
    json.Member("expires_at", "9999-12-31T23:59:59Z").Member("size_vram", 0);
    json.Member("context_length", model.context_tokens).EndObject();
  }
  json.EndArray().EndObject();
  exchange->Respond(std::move(response));
}

void Show(Service* service, const ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  const std::string name = ReadModelName(&fields);
  RefuseUnread(Dialect::kOllama, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  const ServedModel& model = service->model();
  if (!model.Answers(name)) return Refuse(exchange, ModelNotFound(name, model));
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("modelfile", "").Member("parameters", "").Member("license", "");
  json.Member("template", model.template_source);
  WriteDetails(model.Brief(), &json);
  json.Key("model_info").BeginObject().Member("general.architecture", model.family);
  json.Member("general.basename", model.id);
  json.Member("general.parameter_count", model.parameter_count);
  json.Member(model.family + ".context_length", model.context_tokens);
  json.Member(model.family + ".vocab_size", model.vocab_size);
  json.Member(model.family + ".embedding_length", model.dim).EndObject();
  json.Key("capabilities").BeginArray();
  for (const std::string& one : model.Capabilities()) json.String(one);
  json.EndArray().Member("modified_at", FormatTime(model.created * 1'000'000)).EndObject();
  exchange->Respond(std::move(response));
}

void ShowVersion(Service*, const ExchangePtr& exchange) {
  http::Response response;
  JsonWriter(&response.body).BeginObject().Member("version", kApiVersion).EndObject();
  exchange->Respond(std::move(response));
}

}  // namespace

void AddRoutes(Service* service, http::Router* router) {
  const auto add = [&](const char* method, const char* path, auto handle) {
    router->Add(method, path, http::RunOn::kWorker,
                [service, handle](const ExchangePtr& exchange) { handle(service, exchange); });
  };
  add("POST", "/api/chat",
      [](Service* s, const ExchangePtr& e) { Answer(s, e, AnswerShape::kChat); });
  add("POST", "/api/generate",
      [](Service* s, const ExchangePtr& e) { Answer(s, e, AnswerShape::kGenerate); });
  add("POST", "/api/show", Show);
  add("GET", "/api/tags", Tags);
  add("GET", "/api/ps", Running);
  add("GET", "/api/version", ShowVersion);
}

}  // namespace reprise::api::ollama
