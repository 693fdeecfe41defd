// SPDX-License-Identifier: Apache-2.0
#include "api/adapters/endpoints.h"

#include <string>
#include <utility>
#include <vector>

#include "api/body.h"
#include "api/fields.h"
#include "base/json_writer.h"
#include "base/log.h"

namespace reprise::api::adapters {
namespace {

using http::ExchangePtr;

constexpr size_t kPathBytesMax = 4096;

// Whether the request may change what is served here; if not, that was the answer.
bool MayChange(Service* service, const ExchangePtr& exchange) {
  if (!service->FindTenant(exchange->request())->admin) {
    Refuse(exchange, {403,
                      "to load and unload adapters needs an admin key (admin = true in the "
                      "configuration)"});
    return false;
  }
  if (service->model().adapters != nullptr) return true;
  Refuse(exchange, {501, "this server takes no adapters"});
  return false;
}

ApiError ErrorOf(const Status& status) {
  const bool room = status.code() == StatusCode::kResourceExhausted;
  const bool missing = status.code() == StatusCode::kNotFound;
  return {room ? 503 : missing ? 404 : 400, status.message()};
}

void Say(const ExchangePtr& exchange, std::string text) {
  http::Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(text);
  exchange->Respond(std::move(response));
}

// {"lora_name", "lora_path", "load_inplace"}. Read on this worker; streams go on meanwhile.
void Load(Service* service, const ExchangePtr& exchange) {
  if (!MayChange(service, exchange)) return;
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  std::string name, path;
  bool replace = false;
  float scale = 1;
  fields.Read("lora_name", AdapterShelf::kNameBytesMax, &name);
  fields.Read("lora_path", kPathBytesMax, &path);
  fields.Read("load_inplace", &replace);
  fields.Read("scale", -1e6, 1e6, &scale);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  if (name.empty() || path.empty()) {
    return Refuse(exchange, {400, "both 'lora_name' and 'lora_path' must be given"});
  }
  const ServedModel& model = service->model();
  if (!model.adapters->Has(name) && model.Answers(name)) {
    return Refuse(exchange, {400, "'" + name + "' is a name of the model itself", "lora_name"});
  }
  const Status added = model.adapters->Add(name, path, double(scale), replace);
  if (!added.ok()) return Refuse(exchange, ErrorOf(added));
  Log(LogLevel::kInfo, "adapter '" + name + "' was loaded");
  Say(exchange, "Success: LoRA adapter '" + name + "' added successfully.");
}

// {"lora_name"}. Requests that have it keep it to their end.
void Unload(Service* service, const ExchangePtr& exchange) {
  if (!MayChange(service, exchange)) return;
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  std::string name;
  fields.Read("lora_name", AdapterShelf::kNameBytesMax, &name);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  if (name.empty()) return Refuse(exchange, {400, "'lora_name' must be given"});
  const Status removed = service->model().adapters->Remove(name);
  if (!removed.ok()) return Refuse(exchange, ErrorOf(removed));
  Log(LogLevel::kInfo, "adapter '" + name + "' was unloaded");
  Say(exchange, "Success: LoRA adapter '" + name + "' removed successfully.");
}

// The scale is that of requests which name the model itself.
void List(Service* service, const ExchangePtr& exchange) {
  AdapterShelf* const shelf = service->model().adapters;
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginArray();
  if (shelf != nullptr) {
    const auto set = shelf->default_adapter();
    for (const AdapterShelf::Entry& entry : shelf->List()) {
      json.BeginObject().Member("id", entry.id).Member("path", entry.path);
      json.Member("scale", set && set->first == entry.id ? set->second : 0.0);
      json.Member("name", entry.name).EndObject();
    }
  }
  json.EndArray();
  exchange->Respond(std::move(response));
}

// [{"id", "scale"}, ...]: those that are not named have the scale 0.
void SetScales(Service* service, const ExchangePtr& exchange) {
  if (!MayChange(service, exchange)) return;
  const auto document = JsonDocument::Parse(exchange->request().body, kBodyLimits);
  if (!document.ok() || !document->root().is_array()) {
    return Refuse(exchange,
                  {400, "the body must be a list of {\"id\": NUMBER, \"scale\": NUMBER}"});
  }
  int64_t wanted = -1;
  double wanted_scale = 0;
  for (const JsonValue& one : document->root().items()) {
    const JsonValue* id = one.Find("id");
    const JsonValue* scale = one.Find("scale");
    if (id == nullptr || !id->is_int() || scale == nullptr || !scale->is_number()) {
      return Refuse(exchange,
                    {400, "the body must be a list of {\"id\": NUMBER, \"scale\": NUMBER}"});
    }
    if (scale->as_double() == 0) continue;
    if (wanted >= 0) {
      return Refuse(exchange, {400, "one adapter may have a scale that is not 0", "scale"});
    }
    wanted = id->as_int();
    wanted_scale = scale->as_double();
  }
  AdapterShelf& shelf = *service->model().adapters;
  if (wanted >= 0) {
    const Status set = shelf.SetDefault(wanted, wanted_scale);
    if (!set.ok()) return Refuse(exchange, ErrorOf(set));
  } else if (const auto set = shelf.default_adapter()) {
    (void)shelf.SetDefault(set->first, 0);
  }
  http::Response response;
  response.body = R"({"success":true})";
  exchange->Respond(std::move(response));
}

}  // namespace

void AddRoutes(Service* service, http::Router* router) {
  const auto add = [&](const char* method, const char* path,
                       void (*handle)(Service*, const ExchangePtr&)) {
    router->Add(method, path, http::RunOn::kWorker,
                [service, handle](const ExchangePtr& exchange) { handle(service, exchange); });
  };
  add("POST", "/v1/load_lora_adapter", Load);
  add("POST", "/v1/unload_lora_adapter", Unload);
  add("GET", "/lora-adapters", List);
  add("POST", "/lora-adapters", SetScales);
}

}  // namespace reprise::api::adapters
