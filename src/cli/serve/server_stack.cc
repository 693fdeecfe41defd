// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/server_stack.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "api/ops/cache_feed.h"
#include "api/ops/metrics.h"
#include "api/ops/openapi.h"
#include "api/responses/background.h"
#include "api/responses/store.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "batches/routes.h"
#include "cli/serve/fleet/fleet_routes.h"
#include "cli/serve/state_tiers.h"
#include "cli/serve/trace/span_exporter.h"
#include "device/processors.h"
#include "web/page.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

const api::ApiError kLoading{503, "the model is being loaded; try again later"};

// Of the connections: one in so many is for other addresses than the one that has the most.
constexpr size_t kOtherAddresses = 8;

// Threads that read requests: small and heavy ones have half of them each, and of heavy ones at
// least three, so that one tenant leaves some to others.
int DefaultWorkers() { return std::clamp(FindProcessors().at_once, 6, 16); }

// An address as sockets want it: people also write names and brackets.
std::string AddressOf(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// Whether further models may come: where several share the memory, and one alone has nothing that
// several cannot have.
bool MayGrow(const ServeOptions& options, size_t models) {
  if (options.models_dir.empty()) return false;
  return models > 1 || (options.model.devices.empty() && options.kv_events.empty() &&
                        options.speculate.draft_model.empty());
}

// One line per answer: what, how it went, how long, and of a refusal why. Never what was said.
void LogAnswer(const http::Answered& answer) {
  if (!LogEnabled(LogLevel::kInfo)) return;
  const http::Request& request = answer.request;
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("event", "http").Member("id", request.id);
  json.Member("method", request.method).Member("path", request.path);
  json.Member("status", answer.status);
  if (!answer.reason.empty()) json.Member("reason", answer.reason);
  json.Member("ms", static_cast<double>(answer.taken.count()) / 1000).EndObject();
  Log(LogLevel::kInfo, line);
}

}  // namespace

Result<std::unique_ptr<ServerStack>> ServerStack::Start(const ServeOptions& options,
                                                        std::vector<ServeOptions> models) {
  REPRISE_TRY(api::Tenants::Check(options.keys));
  if (!IsLoopback(AddressOf(options.host)) && options.keys.empty() && !options.insecure) {
    return InvalidArgument("listening on " + options.host +
                           " lets others in: give an --api-key, or --insecure if that is wanted");
  }
  std::unique_ptr<ServerStack> stack(new ServerStack(options));
  REPRISE_TRY(stack->Listen());
  if (models.empty()) models.push_back(options);
  REPRISE_TRY(stack->OpenModels(std::move(models)));
  REPRISE_TRY(stack->OpenRoutes());
  return stack;
}

ServerStack::~ServerStack() { Stop(); }

// A server that can say that it is loading.
Status ServerStack::Listen() {
  http::ServerOptions server;
  server.host = AddressOf(options_.host);
  server.port = static_cast<uint16_t>(options_.port);
  server.worker_count = options_.workers > 0 ? options_.workers : DefaultWorkers();
  server.connection_count_max = static_cast<size_t>(options_.connections);
  server.address_count_max =
      server.connection_count_max - server.connection_count_max / kOtherAddresses;
  Ledger::Limits memory;
  memory.bytes = static_cast<size_t>(options_.request_mib) << 20;
  memory.share_bytes = memory.bytes / 2;
  server.ledger = std::make_shared<Ledger>(memory);
  server.limits.body_bytes_max = static_cast<size_t>(options_.body_mib) << 20;
  server.head_max = std::chrono::seconds(options_.head_seconds);
  server.stall_max = std::chrono::seconds(options_.stall_seconds);
  server.cors_origins = options_.cors_origins;
  server.tls_cert = options_.tls_cert;
  server.tls_key = options_.tls_key;
  server.refuse = [this](int status, const std::string& message, const http::Request* request) {
    if (!routed_ && status == 404) return api::ErrorResponse(kLoading, request);
    return api::ErrorResponse({status, message}, request);
  };
  server.admit = [this](const http::Request& request, const http::Router::Route& route) {
    return ready_ ? service().Admit(request, route) : std::nullopt;
  };
  server.share_of = [this](const http::Request& request) {
    // Without keys everybody is the same tenant: then each address is for itself.
    const bool keys = ready_ && !service().tenants().open();
    const api::Tenant* tenant = keys ? service().FindTenant(request) : nullptr;
    return tenant != nullptr ? tenant->name : std::string();
  };
  server.answered = [this](const http::Answered& answer) {
    if (ready_) service().metrics().CountAnswer(answer.status);
    if (options_.access_log) LogAnswer(answer);
  };
  http::Router loading;
  loading.Add("GET", "/live", http::RunOn::kServer, [](const http::ExchangePtr& exchange) {
    http::Response response;
    response.body = R"({"status":"alive"})";
    exchange->Respond(std::move(response));
  });
  server_ = std::make_unique<http::Server>(std::move(server), std::move(loading));
  return server_->Start();
}

// What the models share: clients, keys, responses, and, if there are several, memory.
Status ServerStack::OpenModels(std::vector<ServeOptions> models) {
  ModelStack::Shared shared;
  shared.clock = &clock_;
  shared.grows = MayGrow(options_, models.size());
  if (models.size() > 1 || shared.grows) {
    if (!options_.kv_events.empty()) {
      return InvalidArgument("--kv-events is for a server with one model: events name no model");
    }
    REPRISE_ASSIGN(shared.budgets, DeviceBudgets::Open(options_, models));
    for (const auto& [device, budget] : shared.budgets.all()) {
      Log(LogLevel::kInfo, "the models on " + device + " share " + FormatBytes(budget.bytes) +
                               " for weights and state");
    }
  }
  using api::responses::ResponseStore;
  shared.responses = [this, store = std::shared_ptr<ResponseStore>()]() mutable
      -> Result<std::shared_ptr<ResponseStore>> {
    if (store != nullptr) return store;
    REPRISE_ASSIGN(const auto archive, OpenArchive(options_));
    store = std::make_shared<ResponseStore>(archive);
    return store;
  };
  shared.service.next_turn = options_.idle_work;
  shared.service.strip_preambles = options_.strip_preambles;
  shared.service.strict_fields = options_.strict_fields;
  shared.service.ignore_images = options_.ignore_images;
  shared.service.keys = options_.keys;
  if (!options_.otlp_endpoint.empty()) {
    REPRISE_ASSIGN(shared.service.traces, SpanExporter::Open(options_.otlp_endpoint));
  }
  shared.service.cors_origins = options_.cors_origins;
  using Hosts = api::ServiceOptions::Hosts;
  const bool local = IsLoopback(AddressOf(options_.host));
  shared.service.hosts = local ? Hosts::kLoopback : Hosts::kAddresses;
  shared.service.host_names = options_.allowed_hosts;
  const auto& names = shared.service.host_names;
  if (std::find(names.begin(), names.end(), "*") != names.end()) shared.service.hosts = Hosts::kAny;
  shared.later = [this](std::function<void()> task) { server_->Work(std::move(task)); };
  REPRISE_ASSIGN(fleet_, Fleet::Open(std::move(models), std::move(shared)));
  return OkStatus();
}

Status ServerStack::OpenRoutes() {
  http::Router router;
  AddFleetRoutes(fleet_.get(), &router);
  if (fleet_->grows()) {
    puller_ = std::make_unique<ModelPuller>(options_, fleet_.get());
    puller_->AddRoutes(&router);
  }
  if (!options_.files.empty()) {
    const auto bytes_max = static_cast<uint64_t>(options_.files_mib) << 20;
    REPRISE_ASSIGN(files_, batches::FileStore::Open(options_.files + "/files", bytes_max));
    // Lines go to the routes of the models, not to those of batches.
    const auto lines = std::make_shared<http::Router>(router);
    const auto known = [this](const std::string& owner) {
      const api::Tenant* tenant = service().tenants().FindName(batches::NameOf(owner));
      return tenant != nullptr && batches::OwnerOf(*tenant) == owner;
    };
    REPRISE_ASSIGN(batches_, batches::BatchRunner::Open(options_.files + "/batches", files_.get(),
                                                        {server_.get(), lines}, known));
    batches::AddRoutes(
        files_.get(), batches_.get(),
        [this](const http::Request& request) { return service().FindTenant(request); }, &router);
  }
  if (options_.page) web::AddRoutes(&router);
  api::ops::AddOpenApi(&router);
  ready_ = true;
  server_->SetRouter(std::move(router));
  routed_ = true;
  return OkStatus();
}

std::string ServerStack::url() const {
  const std::string address = AddressOf(options_.host);
  const bool six = address.find(':') != std::string::npos;
  const std::string scheme = options_.tls_cert.empty() ? "http://" : "https://";
  return scheme + (six ? "[" + address + "]" : address) + ":" + std::to_string(port());
}

bool ServerStack::Drain(std::chrono::milliseconds timeout) {
  for (const auto& [name, service] : fleet_->Services()) {
    service->SetDraining();
    service->feed().Close();
  }
  fleet_->EndWatches();
  batches_.reset();  // they go on after the next start
  if (puller_ != nullptr) puller_->Stop();
  if (!server_->Drain(timeout)) return false;
  // Nobody may be waiting for them, but they were promised.
  const auto computes = [](const auto& one) {
    return one.second->options().responses->background().running() > 0;
  };
  if (std::ranges::none_of(fleet_->Services(), computes)) return true;
  std::this_thread::sleep_for(timeout / 4);
  return false;
}

// Memory of the host ends with the process: nothing is put there in the end.
bool ServerStack::StoreState(std::chrono::milliseconds timeout) {
  const bool outlives = !options_.disk.empty() || !options_.store.empty();
  bool stored = true;
  if (fleet_ == nullptr || !outlives) return stored;
  for (const auto& [name, service] : fleet_->Services()) {
    stored = service->engine().StoreState(timeout) && stored;
  }
  return stored;
}

void ServerStack::Stop() {
  batches_.reset();
  if (puller_ != nullptr) puller_->Stop();
  if (fleet_ != nullptr) fleet_->Stop();
  if (server_ != nullptr) server_->Stop();
}

}  // namespace reprise::cli
