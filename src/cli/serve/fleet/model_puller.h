// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/serve/fleet/fleet.h"
#include "cli/serve/serve_options.h"
#include "http/exchange.h"
#include "http/router.h"

namespace reprise::cli {

// Ollama's /api/pull and /api/delete, and llama-server's POST and DELETE /models, for a server of a
// folder of models: what is pulled lies in the cache that the hub's tools share, a file in the
// folder names it (model_list.h), and the fleet serves it from then on, without a restart.
//
// 1. With keys, only an admin's may pull and delete.
// 2. A pull of Ollama's ends with its client; what has come stays, and the next one continues. One
// of
//    llama-server's is answered at once, and /models/sse says how it goes on.
// 3. At most kPullsMax at the same time, a thread each.
//
// Thread safety: handlers from any thread.
class ModelPuller {
 public:
  static constexpr size_t kPullsMax = 4;

  // `server`: the options that a model has which does not say. The fleet outlives this.
  // REQUIRES: fleet->grows().
  ModelPuller(const ServeOptions& server, Fleet* fleet) : server_(server), fleet_(fleet) {}
  ~ModelPuller() { Stop(); }
  // Ends all pulls, and lets no other begin.
  void Stop();

  void AddRoutes(http::Router* router);

 private:
  struct Job {
    http::ExchangePtr exchange;  // null: it was answered
    std::string name;
    bool stream = true;
    std::atomic<bool> cancelled = false;
    std::atomic<bool> done = false;
    std::thread thread;
  };

  bool LetIn(const http::ExchangePtr& exchange) const;
  void Pull(const http::ExchangePtr& exchange, bool background);
  void Delete(const http::ExchangePtr& exchange, const std::string& text);
  void DeleteNamed(const http::ExchangePtr& exchange);
  void Run(Job* job);
  void Answer(Job* job, const Status& fetched);
  Status Fetch(Job* job);

  const ServeOptions server_;
  Fleet* const fleet_;
  std::mutex adding_;  // held while a model is named in the folder and added to the fleet
  std::mutex mutex_;   // guards what follows; once stopped, Stop alone has the jobs
  bool stopped_ = false;
  std::list<Job> jobs_;
};

}  // namespace reprise::cli
