// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/service.h"
#include "base/clock.h"
#include "base/status.h"
#include "cache/tier/tier.h"
#include "cli/loaded_model.h"
#include "engine/engine.h"
#include "events/publisher.h"
#include "http/server.h"
#include "model/executor.h"
#include "model/model_text.h"
#include "tier/record_store.h"

namespace reprise::cli {

struct ServeOptions {
  ModelOptions model;
  std::string tokenizer;
  std::string pooling;               // of vectors, for a model that does not say; empty: none
  std::vector<std::string> aliases;  // of the model; in one, '*' stands for any text
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  std::vector<api::Tenants::Key> keys;
  bool insecure = false;
  std::vector<std::string> allowed_hosts;  // names in Host, where there are no keys; "*": any
  int context_tokens = 0;                  // 0: the model's, at most kContextDefault
  int parallel = 16;
  int queue = 256;
  int64_t cache_mib = 0;     // 0: from the machine
  int snapshot_gap = 0;      // 0: from the model
  int cache_entries = 0;     // 0: no cap
  int cache_ttl_s = 0;       // 0: never
  double snapkv_budget = 0;  // tokens, or a share below 1; 0: off
  int snapkv_window = SnapKv::kWindow;
  int snapkv_redecode = 0;
  int64_t host_mib = 0;           // of the host's memory below the device's; 0: none
  std::string disk;               // folder for state; empty: memory only
  double disk_gib = 16;           // of all that lies there
  double disk_write_gib_day = 0;  // 0: no limit
  bool disk_compress = false;
  std::string store;  // address of a Redis for state; empty: none
  int store_timeout_ms = 1000;
  double store_hours = 24;  // that unused state stays there
  bool store_compress = false;
  std::string store_ca;           // PEM file; empty: the system's
  std::string store_cert;         // PEM file; empty: none is shown
  std::string store_cert_key;
  std::string state_key_file;     // empty: records are checked, not encrypted
  std::string snapshots = "f32";  // of records; "bf16": recurrent state is rounded
  std::string kv_events;          // address for events of the cache; empty: none
  std::string kv_events_replay;   // where to ask for those that were missed; empty: nowhere
  std::string kv_events_topic;
  int stream_gap_ms = 0;     // 0: from the device
  int connections = 4000;
  int body_mib = 32;
  int head_seconds = 10;
  int stall_seconds = 30;
  int workers = 0;         // 0: from the machine
  int request_mib = 1024;  // of memory that all requests together may hold
  bool page = true;
  bool idle_work = true;
  bool strip_preambles = true;
  bool strict_fields = false;
  bool access_log = true;
  bool ignore_images = false;
  std::vector<std::string> cors_origins;  // of web pages that may ask; "*": any
  std::string tls_cert;                   // PEM files; empty: no TLS
  std::string tls_key;
};

// Everything between a model file and the sockets, in the order in which it is built. Tests and
// benchmarks run the same stack as `reprise serve`.
//
// Thread safety: none; the parts have their own.
class ServerStack {
 public:
  static constexpr int32_t kContextDefault = 32768;

  // Listens, loads the model (meanwhile /live is well and /health says 503), and serves. Refuses
  // to listen beyond this machine without a key, unless that is said to be wanted.
  static Result<std::unique_ptr<ServerStack>> Start(const ServeOptions& options);
  ~ServerStack();

  // No new requests; waits for those under way. Returns whether all were answered.
  bool Drain(std::chrono::milliseconds timeout);
  void Stop();
  // After Stop: stores in the lower tier, if there is one, what is worth keeping. Returns whether
  // all of it was; false: the time was over.
  bool StoreState(std::chrono::milliseconds timeout);

  const std::string& model_id() const { return served_.id; }
  uint16_t port() const { return server_->port(); }
  std::string url() const;  // "http://127.0.0.1:8080"
  Engine& engine() { return *engine_; }
  http::Server& server() { return *server_; }
  api::Service& service() { return *service_; }

 private:
  explicit ServerStack(const ServeOptions& options) : options_(options) {}
  Status LoadText();
  Status BuildEngine();
  Result<SnapKv> ReadSnapKv() const;
  Status AttachTier(StateCache* cache);
  Status OpenEvents(StateCache* cache);
  Result<std::unique_ptr<Tier>> OpenHost(const StateCache& cache) const;
  Result<std::unique_ptr<RecordStore>> OpenDisk(const StateKey& key);
  Result<std::unique_ptr<RecordStore>> OpenStore(const StateKey& key) const;
  Status Listen();
  void OpenRoutes();

  const ServeOptions options_;
  SteadyClock clock_;
  std::unique_ptr<LoadedModel> loaded_;
  std::optional<ModelText> text_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> encoder_;
  api::ServedModel served_;
  SamplingParams sampling_;  // where a request does not say
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<EventPublisher> events_;  // the engine's cache tells it
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<api::responses::ResponseArchive> archive_;
  std::unique_ptr<api::Service> service_;
  std::unique_ptr<http::Server> server_;
  std::atomic<bool> ready_{false};    // service_ may be used
  std::atomic<bool> routed_ = false;  // the routes of the model are in place
};

}  // namespace reprise::cli
