// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/chat/kept_budget.h"
#include "api/constrain/token_words.h"
#include "api/errors.h"
#include "api/ops/trace.h"
#include "api/served_model.h"
#include "api/tenants.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "http/cors.h"
#include "http/exchange.h"
#include "http/router.h"

namespace reprise::api {

class Metrics;
class ReportLog;
class CacheFeed;
class Constraints;
namespace responses {
class ResponseArchive;
class ResponseStore;
}  // namespace responses

class Exposition;
class Service;

// All models of a server, for what is said of all of them: lists and numbers.
class ModelSet {
 public:
  virtual ~ModelSet() = default;
  virtual std::vector<ModelBrief> List() const = 0;
  // Those that were loaded so far, by their names.
  virtual std::vector<std::pair<std::string, Service*>> Services() const = 0;
  // The numbers of all together.
  virtual void WriteMetrics(Exposition* page) const = 0;
};

struct ServiceOptions {
  std::vector<Tenants::Key> keys;
  bool next_turn = true;  // prefill what the next turn will begin with, when idle
  int32_t stop_count_max = 16;
  int64_t message_count_max = 4096;
  int64_t tool_count_max = 1024;
  bool strip_preambles = true;  // varying client headers in system prompts of /v1/messages
  bool ignore_images = false;   // an image becomes a text that says so; else it is refused
  bool sees = false;            // the model looks at pictures (ServedModel::see)
  bool strict_fields = false;   // a field that has no effect is refused, not passed
  SamplingParams sampling;      // where a request does not say: as the model's makers want it
  int32_t slot_count = 16;      // requests computed at the same time
  http::Origins cors_origins;   // pages of these sites may ask, too
  // Without keys: which names in a request's Host header are answered, so that a web page elsewhere
  // cannot reach the server through a name that it points here (DNS rebinding). Addresses in
  // numbers are no names, and localhost is this machine; kLoopback lets in only those that mean it.
  enum class Hosts { kAny, kLoopback, kAddresses };
  Hosts hosts = Hosts::kAny;
  std::vector<std::string> host_names;                  // and these
  std::shared_ptr<responses::ResponseArchive> archive;  // of /v1/responses; null: memory only
  std::shared_ptr<responses::ResponseStore> responses;  // that models share; null: its own
  std::shared_ptr<TraceSink> traces;                    // null: nobody wants them
  ModelSet* models = nullptr;                           // of the server; null: this one is alone
};

// The APIs over one engine: everything a handler needs, and the routes.
//
// Thread safety: handlers run on several threads; what they share is immutable or locks itself.
class Service {
 public:
  // All three must outlive the service.
  Service(const ServedModel* model, Engine* engine, const Clock* clock, ServiceOptions options);
  ~Service();

  const ServedModel& model() const { return *model_; }
  Engine& engine() { return *engine_; }
  const Clock& clock() const { return *clock_; }
  const ServiceOptions& options() const { return options_; }
  Metrics& metrics() { return *metrics_; }
  ReportLog& reports() { return *reports_; }
  CacheFeed& feed() { return *feed_; }
  Constraints& constraints() { return *constraints_; }
  KeptBudget& kept() { return kept_; }
  TokenWords& token_words() { return token_words_; }

  // All models of the server; this one first where it is alone.
  std::vector<ModelBrief> ListModels() const;
  std::vector<std::pair<std::string, Service*>> ListServices();

  // The tenant of a request (bearer token or x-api-key), or null.
  const Tenant* FindTenant(const http::Request& request) const;
  const Tenants& tenants() const { return tenants_; }

  // Every route of the APIs.
  void AddRoutes(http::Router* router);
  // For http::ServerOptions: keys on every route but /health and /live (and the page itself). The
  // answer to a request that is not let in.
  std::optional<http::Response> Admit(const http::Request& request,
                                      const http::Router::Route& route) const;

  // Runs idle work on a worker, if there are not too many of it already. `later` is set
  // once, before the server starts.
  void RunLater(std::function<void()> task);
  void SetLater(std::function<void(std::function<void()>)> later) { later_ = std::move(later); }

  void SetDraining() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  const ServedModel* const model_;
  Engine* const engine_;
  const Clock* const clock_;
  const ServiceOptions options_;
  const Tenants tenants_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<ReportLog> reports_;
  std::unique_ptr<CacheFeed> feed_;
  std::unique_ptr<Constraints> constraints_;
  KeptBudget kept_;
  TokenWords token_words_;
  std::function<void(std::function<void()>)> later_;
  std::atomic<int> later_count_{0};
  std::atomic<bool> draining_{false};
};

}  // namespace reprise::api
