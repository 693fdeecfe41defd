// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/fleet_routes.h"

#include <string>
#include <utility>

#include "api/body.h"
#include "api/errors.h"
#include "api/fields.h"

namespace reprise::cli {
namespace {

using http::ExchangePtr;
using http::RunOn;

constexpr size_t kNameBytesMax = 1024;

// {"model": "NAME"}: asks the fleet, and does not wait.
void Ask(Fleet* fleet, Status (Fleet::*what)(const std::string&), const ExchangePtr& exchange) {
  api::Service& service = fleet->front().service();
  if (!service.FindTenant(exchange->request())->admin) {
    return api::Refuse(exchange, {403,
                                  "to load and unload models needs an admin key (admin = true "
                                  "in the configuration)"});
  }
  const api::Body body = api::ParseBody(*exchange);
  if (body.error) return api::Refuse(exchange, *body.error);
  api::Fields fields(body.document->root());
  std::string name;
  fields.Read("model", kNameBytesMax, &name);
  if (!fields.ok()) return api::Refuse(exchange, *fields.error());
  if (name.empty())
    return api::Refuse(exchange, {400, "name a model: {\"model\": \"NAME\"}", "model"});
  if (!(fleet->*what)(name).ok()) {
    return api::Refuse(exchange, api::ModelNotFound(name, fleet->List()));
  }
  http::Response response;
  response.body = R"({"success":true})";
  exchange->Respond(std::move(response));
}

}  // namespace

void AddFleetRoutes(Fleet* fleet, http::Router* router) {
  if (fleet->several()) {
    for (const std::string base : {"", "/v1"}) {
      router->Add("POST", base + "/models/load", RunOn::kWorker,
                  [fleet](const ExchangePtr& e) { Ask(fleet, &Fleet::Load, e); });
      router->Add("POST", base + "/models/unload", RunOn::kWorker,
                  [fleet](const ExchangePtr& e) { Ask(fleet, &Fleet::Unload, e); });
      router->Add("GET", base + "/models/sse", RunOn::kQuick,
                  [fleet](const ExchangePtr& e) { fleet->Watch(e); });
    }
  }
  const auto& routes = fleet->front().router().routes();
  for (size_t i = 0; i < routes.size(); ++i) {
    router->Add(routes[i].method, routes[i].path, routes[i].run_on,
                [fleet, i](const ExchangePtr& exchange) { fleet->Handle(i, exchange); });
  }
}

}  // namespace reprise::cli
