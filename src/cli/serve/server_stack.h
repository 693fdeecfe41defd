// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/service.h"
#include "base/clock.h"
#include "base/status.h"
#include "batches/file_store.h"
#include "batches/runner.h"
#include "cli/serve/fleet/fleet.h"
#include "cli/serve/fleet/model_puller.h"
#include "cli/serve/serve_options.h"
#include "engine/engine.h"
#include "http/server.h"

namespace reprise::cli {

// Everything between model files and the sockets, in the order in which it is built. Tests and
// benchmarks run the same stack as `reprise serve`.
//
// Thread safety: none; the parts have their own.
class ServerStack {
 public:
  // Listens, loads the first model (meanwhile /live is well and /health says 503), and serves.
  // `models`: each with options of its own; empty: the one of `options`. Refuses to listen beyond
  // this machine without a key, unless that is said to be wanted.
  static Result<std::unique_ptr<ServerStack>> Start(const ServeOptions& options,
                                                    std::vector<ServeOptions> models = {});
  ~ServerStack();

  // No new requests; waits for those under way. Returns whether all were answered.
  bool Drain(std::chrono::milliseconds timeout);
  void Stop();
  // After Stop: stores in the lower tier, if there is one, what is worth keeping. Returns whether
  // all of it was; false: the time was over.
  bool StoreState(std::chrono::milliseconds timeout);

  const std::string& model_id() const { return fleet_->front().served().id; }
  uint16_t port() const { return server_->port(); }
  std::string url() const;  // "http://127.0.0.1:8080"
  Fleet& fleet() { return *fleet_; }
  // Of the first model.
  Engine& engine() { return fleet_->front().engine(); }
  api::Service& service() { return fleet_->front().service(); }
  http::Server& server() { return *server_; }

 private:
  explicit ServerStack(const ServeOptions& options) : options_(options) {}
  Status OpenModels(std::vector<ServeOptions> models);
  Status Listen();
  Status OpenRoutes();

  const ServeOptions options_;
  SteadyClock clock_;
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<ModelPuller> puller_;  // null: no models come
  std::unique_ptr<batches::FileStore> files_;
  std::unique_ptr<batches::BatchRunner> batches_;  // asks the server and its models
  std::atomic<bool> ready_{false};                 // fleet_ may be used
  std::atomic<bool> routed_ = false;               // the routes of the models are in place
};

}  // namespace reprise::cli
