// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api/tenants.h"
#include "cli/draft/draft_model.h"
#include "cli/loaded_model.h"
#include "model/snapkv/keep_list.h"

namespace reprise::cli {

inline constexpr int32_t kContextDefault = 32768;  // of a request, where nobody says

// How many requests may wait. Clients that send all they have at the same moment are served: on a
// GPU, where 256 run, a burst of 1,024 more.
inline int WaitingMax(int queue, int parallel) {
  return queue > 0 ? queue : std::max(256, 4 * parallel);
}

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
  int parallel = 0;                        // 0: from the device
  int queue = 0;  // 0: from how many run at the same time
  int64_t cache_mib = 0;     // 0: from the machine
  int snapshot_gap = 0;      // 0: from the model
  int cache_entries = 0;     // 0: no cap
  int cache_ttl_s = 0;       // 0: never
  double snapkv_budget = 0;  // tokens, or a share below 1; 0: off
  int snapkv_window = SnapKv::kWindow;
  int snapkv_redecode = 0;
  SpeculateOptions speculate;
  std::vector<std::string> loras;  // NAME=PATH[:SCALE]
  int64_t lora_mib = 4096;         // of the weights of adapters
  int64_t host_mib = 0;            // of the host's memory below the device's; 0: none
  std::string disk;                // folder for state; empty: memory only
  double disk_gib = 16;            // of all that lies there
  double disk_write_gib_day = 0;   // 0: no limit
  bool disk_compress = false;
  std::string store;  // address of a Redis for state; empty: none
  int store_timeout_ms = 1000;
  double store_hours = 24;  // that unused state stays there
  bool store_compress = false;
  std::string store_ca;    // PEM file; empty: the system's
  std::string store_cert;  // PEM file; empty: none is shown
  std::string store_cert_key;
  std::string state_key_file;      // empty: records are checked, not encrypted
  std::string old_state_key_file;  // of the key before, while keys are changed
  std::string snapshots = "f32";   // of records; "bf16": recurrent state is rounded
  std::string kv_events;           // address for events of the cache; empty: none
  std::string kv_events_replay;    // where to ask for those that were missed; empty: nowhere
  std::string kv_events_topic;
  int stream_gap_ms = 0;  // 0: from the device
  int connections = 4000;
  int body_mib = 32;
  int head_seconds = 10;
  int stall_seconds = 30;
  int workers = 0;            // 0: from the machine
  int64_t memory_mib = 0;     // of weights and state of several models; 0: from the machine
  int request_mib = 1024;     // of memory that all requests together may hold
  std::string files;          // folder of files and batches; empty: none
  int64_t files_mib = 4096;   // of all that lies there
  std::string otlp_endpoint;  // of a collector of spans; empty: none
  bool page = true;
  bool idle_work = true;
  bool strip_preambles = true;
  bool strict_fields = false;
  bool access_log = true;
  bool ignore_images = false;
  std::vector<std::string> cors_origins;  // of web pages that may ask; "*": any
  std::string tls_cert;                   // PEM files; empty: no TLS
  std::string tls_key;
  // Where one server has several models:
  std::string models_dir;  // they lie there, and further ones may come; empty: nowhere
  bool pin = false;        // its weights never leave memory
  bool preload = false;    // loaded at the start
  int keep_alive_s = 0;    // its weights leave memory when unused that long; 0: when it is wanted
};

}  // namespace reprise::cli
