// SPDX-License-Identifier: Apache-2.0
#include "api/service.h"

#include <utility>

#include "api/adapters/endpoints.h"
#include "api/anthropic/endpoints.h"
#include "api/constrain/constraints.h"
#include "api/llamacpp/endpoints.h"
#include "api/ollama/endpoints.h"
#include "api/openai/endpoints.h"
#include "api/ops/cache_feed.h"
#include "api/ops/endpoints.h"
#include "api/ops/metrics.h"
#include "api/ops/report_log.h"
#include "api/responses/background.h"
#include "api/responses/endpoints.h"
#include "api/responses/store.h"
#include "api/vectors/endpoints.h"

namespace reprise::api {
namespace {

// Later work that waits is bounded; it is all for idle time.
constexpr int kLaterMax = 16;

bool IsPublic(const std::string& path) {
  return path == "/health" || path == "/v1/health" || path == "/live" || path == "/" ||
         path == "/assets/*";
}

std::string_view KeyOf(const http::Request& request) {
  const std::string_view authorization = request.Header("authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.size() > kBearer.size() &&
      http::EqualIgnoringCase(authorization.substr(0, kBearer.size()), kBearer)) {
    return authorization.substr(kBearer.size());
  }
  return request.Header("x-api-key");
}

// Whether a web page of another site makes a browser change something here. Browsers say so
// (Sec-Fetch-Site; older ones Origin), and let pages send it without asking as long as it looks
// like a form. Programs say neither.
bool IsFromOtherSite(const http::Request& request) {
  if (request.method == "GET" || request.method == "HEAD") return false;
  const std::string_view site = request.Header("sec-fetch-site");
  if (!site.empty()) return site != "same-origin" && site != "none";
  const std::string_view origin = request.Header("origin");
  if (origin.empty()) return false;
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ||
         !http::EqualIgnoringCase(origin.substr(scheme + 3), request.Header("host"));
}

// "localhost:8080" -> "localhost".
std::string_view WithoutPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
  return has_port ? host.substr(0, colon) : host;
}

// Whether a host (without its port) is one that the server answers to. Numbers are: no name server
// has a say in them.
bool AnswersTo(const ServiceOptions& options, std::string_view host) {
  if (options.hosts == ServiceOptions::Hosts::kAny || host.empty()) return true;
  if (http::EqualIgnoringCase(host, "localhost")) return true;
  for (const std::string& name : options.host_names) {
    if (http::EqualIgnoringCase(host, name)) return true;
  }
  const bool six = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool four = host.find_first_not_of("0123456789.") == std::string_view::npos;
  if (options.hosts == ServiceOptions::Hosts::kAddresses) return six || four;
  return host == "[::1]" || (four && host.starts_with("127."));
}

ServiceOptions WithStore(ServiceOptions options) {
  if (options.responses == nullptr) {
    options.responses = std::make_shared<responses::ResponseStore>(options.archive);
  }
  return options;
}

}  // namespace

Service::Service(const ServedModel* model, Engine* engine, const Clock* clock,
                 ServiceOptions options)
    : model_(model),
      engine_(engine),
      clock_(clock),
      options_(WithStore(std::move(options))),
      tenants_(options_.keys),
      metrics_(std::make_unique<Metrics>()),
      reports_(std::make_unique<ReportLog>()),
      feed_(std::make_unique<CacheFeed>(this)),
      constraints_(std::make_unique<Constraints>(model)),
      token_words_(model->tokenizer) {
  engine_->SetObserver([this] { feed_->Wake(); });
}

Service::~Service() {
  options_.responses->background().Abandon(this);
  engine_->SetObserver(nullptr);
}

std::vector<ModelBrief> Service::ListModels() const {
  if (options_.models != nullptr) return options_.models->List();
  return {model_->Brief()};
}

std::vector<std::pair<std::string, Service*>> Service::ListServices() {
  if (options_.models != nullptr) return options_.models->Services();
  return {{model_->id, this}};
}

const Tenant* Service::FindTenant(const http::Request& request) const {
  if (!request.as_tenant.empty()) return tenants_.FindName(request.as_tenant);
  return tenants_.Find(KeyOf(request));
}

std::optional<http::Response> Service::Admit(const http::Request& request,
                                             const http::Router::Route& route) const {
  if (tenants_.open()) {
    if (!AnswersTo(options_, WithoutPort(request.Header("host")))) {
      return ErrorResponse({403,
                            "this server does not answer to that name; give it an API key, or the "
                            "name with --allow-host"},
                           &request);
    }
    if (IsFromOtherSite(request) &&
        !http::IsAllowed(options_.cors_origins, request.Header("origin"))) {
      return ErrorResponse({403, "without an API key, pages of other sites may not ask"}, &request);
    }
    return std::nullopt;
  }
  if (IsPublic(route.path) || FindTenant(request) != nullptr) return std::nullopt;
  http::Response response =
      ErrorResponse({401,
                     "this server needs an API key that it knows: send it as 'Authorization: "
                     "Bearer KEY' or 'x-api-key: KEY'",
                     "", "invalid_api_key"},
                    &request);
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

void Service::AddRoutes(http::Router* router) {
  openai::AddRoutes(this, router);
  responses::AddRoutes(this, router);
  anthropic::AddRoutes(this, router);
  llamacpp::AddRoutes(this, router);
  adapters::AddRoutes(this, router);
  ollama::AddRoutes(this, router);
  vectors::AddRoutes(this, router);
  ops::AddServerRoutes(this, router);
  ops::AddTextRoutes(this, router);
  ops::AddCacheRoutes(this, router);
}

void Service::RunLater(std::function<void()> task) {
  if (!later_) return;
  if (later_count_.fetch_add(1) >= kLaterMax) {
    --later_count_;
    return;
  }
  later_([this, task = std::move(task)] {
    task();
    --later_count_;
  });
}

}  // namespace reprise::api
