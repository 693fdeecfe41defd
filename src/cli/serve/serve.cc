// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/serve/config_file.h"
#include "cli/serve/fleet/model_list.h"
#include "cli/serve/fleet/preset_file.h"
#include "cli/serve/key_record.h"
#include "cli/serve/log_thread.h"
#include "cli/serve/server_stack.h"
#include "cli/serve/systemd.h"

namespace reprise::cli {
namespace {

struct Options {
  ServeOptions serve;
  std::vector<std::string> paths;  // of models that are named one by one
  std::string models_preset;
  std::vector<std::pair<std::string, Flags::Settings>> models;  // of the configuration
  std::vector<std::string> api_keys;
  int drain_seconds = 30;
  bool no_page = false;
  bool no_idle_work = false;
  bool keep_preambles = false;
  std::string log = "info";
  std::string log_format = "text";
};

volatile sig_atomic_t signals = 0;
volatile sig_atomic_t reloads = 0;
volatile sig_atomic_t loading = 1;

// While the model loads there is nothing to drain: the process ends at once.
void OnSignal(int) {
  if (loading != 0) ::_exit(0);
  signals = signals + 1;
}

// SIGHUP ends a server that has nothing to read again: its terminal was closed.
void CatchSignals(bool tls) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = [](int) { reloads = reloads + 1; };
  if (tls) ::sigaction(SIGHUP, &action, nullptr);
}

void ReloadTls(ServerStack* stack) {
  const Status status = stack->server().ReloadTls();
  if (status.ok()) return Log(LogLevel::kInfo, "the certificate was read again");
  Log(LogLevel::kError, "the certificate stays as it was: " + status.message());
}

// Large pieces go back to the system when they are freed, whatever was freed before: what requests
// have given back is not kept for others like them.
void ReturnMemory() {
#ifdef __GLIBC__
  constexpr int kLargeBytes = 1 << 20;
  (void)::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  (void)::mallopt(M_TRIM_THRESHOLD, 8 * kLargeBytes);
#endif
}

// Every connection is a file.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<Flags::Settings> ReadConfig(const std::string& path, Options* options) {
  REPRISE_ASSIGN(ConfigFile file, ReadConfigFile(path));
  for (const auto& [name, records] : file.records) {
    if (name != "keys") return InvalidArgument(path + ": there is no list '" + name + "'");
    for (const ConfigFile::Record& record : records) {
      REPRISE_ASSIGN(api::Tenants::Key key, ReadKey(path, record));
      options->serve.keys.push_back(std::move(key));
    }
  }
  options->models = std::move(file.models);
  return file.settings;
}

// One for each model, or none where the options themselves name the only one.
Result<std::vector<ServeOptions>> ListModels(const Options& options) {
  std::vector<ServeOptions> models;
  const bool further = !options.models.empty() || !options.serve.models_dir.empty() ||
                       !options.models_preset.empty() || options.paths.size() > 1;
  for (size_t i = 0; further && i < options.paths.size(); ++i) {
    ServeOptions& model = models.emplace_back(options.serve);
    model.model.path = options.paths[i];
    if (i == 0) continue;
    // What is said of one model is said of the first.
    model.aliases.clear();
    model.loras.clear();
    model.model.mmproj.clear();
  }
  for (const auto& [name, settings] : options.models) {
    REPRISE_ASSIGN(ServeOptions model, ReadModel(options.serve, name, settings));
    models.push_back(std::move(model));
  }
  if (!options.models_preset.empty()) {
    REPRISE_ASSIGN(const Presets presets, ReadPresets(options.models_preset));
    for (const std::string& name : presets.without_effect) {
      Log(LogLevel::kWarning, options.models_preset + ": " + name + " has no effect here");
    }
    for (const auto& [name, settings] : presets.models) {
      REPRISE_ASSIGN(ServeOptions model, ReadModel(options.serve, name, settings));
      models.push_back(std::move(model));
    }
  }
  if (options.serve.models_dir.empty()) return models;
  REPRISE_ASSIGN(std::vector<FoundModel> found, FindModels(options.serve.models_dir));
  for (FoundModel& one : found) {
    ServeOptions& model = models.emplace_back(options.serve);
    model.model.path = std::move(one.path);
    model.aliases = std::move(one.names);
  }
  return models;
}

// What the next start will be glad of, in what is left of the time.
void StoreState(ServerStack* stack, std::chrono::steady_clock::time_point end) {
  bool stored = false;
  do {  // in slices: a second signal ends it
    stored = stack->StoreState(std::chrono::milliseconds(500));
  } while (!stored && signals < 2 && std::chrono::steady_clock::now() < end);
  if (!stored) Log(LogLevel::kWarning, "some state was not stored: the time was over");
}

// The first lines on stdout: what is served, where, and a request to try. Programs may read the
// first one: "<model> on <url>".
std::string Greet(ServerStack* stack, const ServeOptions& options) {
  const std::string url = stack->url();
  const api::ServedModel& model = stack->service().model();
  const auto line = [](const char* what, const std::string& text) {
    return fmt::format("  {:<8} {}\n", what, text);
  };
  std::string text = fmt::format("{} on {}\n", stack->model_id(), url);
  if (options.page) text += line("page", url + "/ (chat in a browser)");
  text += line("API", url + "/v1 for OpenAI's clients, " + url + "/ for Anthropic's and Ollama's");
  text += line("context", fmt::format("{} tokens a request, {} requests at the same time",
                                      model.context_tokens, stack->service().options().slot_count));
  const std::string key = options.keys.empty() ? "" : " -H 'Authorization: Bearer KEY'";
  const bool chat = model.chat_template != nullptr;
  const std::string body = chat ? R"({"messages": [{"role": "user", "content": "Hello"}]})"
                                : R"({"prompt": "Hello", "max_tokens": 50})";
  text += line("try", fmt::format("curl {}/v1/{} -H 'Content-Type: application/json'{} -d '{}'",
                                  url, chat ? "chat/completions" : "completions", key, body));
  return text;
}

Status Serve(Options options) {
  const std::pair<const char*, LogLevel> levels[] = {{"debug", LogLevel::kDebug},
                                                     {"info", LogLevel::kInfo},
                                                     {"warning", LogLevel::kWarning},
                                                     {"error", LogLevel::kError}};
  for (const auto& [name, level] : levels) {
    if (options.log == name) SetLogLevel(level);
  }
  SetLogFormat(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  options.serve.page = !options.no_page;
  options.serve.idle_work = !options.no_idle_work;
  options.serve.strip_preambles = !options.keep_preambles;
  for (const std::string& key : options.api_keys) {
    options.serve.keys.emplace_back().key = key;
  }
  if (!options.paths.empty()) options.serve.model.path = options.paths.front();
  REPRISE_ASSIGN(std::vector<ServeOptions> models, ListModels(options));
  RaiseFileLimit();
  ReturnMemory();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);           // a file that may not grow is an error of that write
  LogThread log_thread(STDERR_FILENO);  // ends after all who log
  CatchSignals(!options.serve.tls_cert.empty());
  REPRISE_ASSIGN(const std::unique_ptr<ServerStack> stack,
                 ServerStack::Start(options.serve, std::move(models)));
  loading = 0;
  log_thread.Start();
  std::fputs(Greet(stack.get(), options.serve).c_str(), stdout);
  std::fflush(stdout);
  NotifySystemd("READY=1");
  for (sig_atomic_t reloaded = 0; signals == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (reloaded != reloads) {
      reloaded = reloads;
      ReloadTls(stack.get());
    }
  }

  NotifySystemd("STOPPING=1");
  Log(LogLevel::kInfo, "shutting down: finishing the running requests");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.drain_seconds);
  bool drained = false;
  do {
    drained = stack->Drain(std::chrono::milliseconds(100));
  } while (!drained && signals < 2 && std::chrono::steady_clock::now() < end);
  if (!drained) Log(LogLevel::kWarning, "some answers were cut off");
  stack->Stop();
  StoreState(stack.get(), end);
  return OkStatus();
}

void AddNetworkOptions(Flags* flags, Options* options) {
  ServeOptions* serve = &options->serve;
  flags->SetHeading("Network and access");
  flags->Add("--host", &serve->host, "address to listen on");
  flags->Add("--port", &serve->port, "port to listen on; 0: any free one",
             {.min = 0, .max = 65535});
  flags->Add("--api-key", &options->api_keys,
             "key that clients must send; repeat it for several tenants");
  flags->Add("--insecure", &serve->insecure, "listen beyond this machine without a key");
  flags->Add("--allow-host", &serve->allowed_hosts,
             "host name that clients without a key may use for this server, besides localhost and "
             "addresses; repeat it for several; '*': any");
  flags->Add("--cors-origin", &serve->cors_origins,
             "origin of web pages that may call the API, such as https://chat.example; repeat it "
             "for several; '*': any");
  flags->Add("--tls-cert", &serve->tls_cert,
             "certificate chain (PEM): serve https; read again on SIGHUP");
  flags->Add("--tls-key", &serve->tls_key, "private key of --tls-cert (PEM)");
  flags->Add("--no-page", &options->no_page, "serve the API only, without the chat page");
}

void AddRequestOptions(Flags* flags, Options* options) {
  ServeOptions* serve = &options->serve;
  flags->SetHeading("Requests");
  flags->Add("--queue", &serve->queue,
             "maximum requests that wait; more are answered 429; 0: four times --parallel, at "
             "least 256",
             {.min = 0, .max = 1 << 20});
  flags->Add("--connections", &serve->connections,
             "maximum open connections; more are answered 503", {.min = 1, .max = 1 << 20});
  flags->Add("--body-mib", &serve->body_mib, "maximum MiB of a request body",
             {.min = 1, .max = 1024});
  flags->Add("--request-mib", &serve->request_mib,
             "maximum MiB of memory that all requests hold together; one tenant gets at most half",
             {.min = 64, .max = 1 << 20});
  flags->Add("--head-seconds", &serve->head_seconds,
             "maximum seconds that a client takes to send the head of a request",
             {.min = 1, .max = 3600});
  flags->Add("--stall-seconds", &serve->stall_seconds,
             "maximum seconds that a client reads nothing of its answer before it is cut off",
             {.min = 1, .max = 3600});
  flags->Add("--drain-seconds", &options->drain_seconds,
             "maximum seconds that running answers take after SIGTERM", {.min = 0, .max = 3600});
  flags->Add("--workers", &serve->workers,
             "threads that parse, render and tokenise requests, half of them for heavy requests; "
             "0: from the machine",
             {.min = 0, .max = 256});
  flags->Add("--strict-fields", &serve->strict_fields,
             "refuse requests with a field that has no effect, instead of logging its name");
  flags->Add("--ignore-images", &serve->ignore_images,
             "replace images by a text instead of refusing them");
  flags->Add("--keep-preambles", &options->keep_preambles,
             "keep lines of system prompts of /v1/messages that change with every request");
}

void AddCacheOptions(Flags* flags, Options* options) {
  ServeOptions* serve = &options->serve;
  flags->SetHeading("Cache in memory");
  flags->Add("--host-mib", &serve->host_mib,
             "MiB of host memory, taken at the start, for state that does not fit on a GPU; 0: "
             "none (on a CPU raise --cache-mib instead: it is the same memory)",
             {.min = 0, .max = 1 << 26});
  flags->Add("--cache-entries", &serve->cache_entries, "maximum entries; 0: as many as fit",
             {.min = 0, .max = 1 << 30});
  flags->Add("--cache-ttl", &serve->cache_ttl_s,
             "seconds after which unused entries are dropped; 0: never",
             {.min = 0, .max = 1 << 30});
  flags->Add("--no-idle-work", &options->no_idle_work,
             "do not prepare the next turn of conversations in idle time");
}

void AddDiskOptions(Flags* flags, ServeOptions* serve) {
  flags->SetHeading("State on disk");
  flags->Add("--disk", &serve->disk,
             "folder that keeps state when this process ends; made if it does not exist");
  flags->Add("--disk-gib", &serve->disk_gib, "maximum GiB of the folder",
             {.min = 0.001, .max = 1 << 20});
  flags->Add("--disk-write-gib-day", &serve->disk_write_gib_day,
             "maximum GiB written to it in 24 hours; 0: no limit", {.min = 0, .max = 1 << 20});
  flags->Add("--disk-compress", &serve->disk_compress,
             "compress records, without loss: less room and fewer writes, more work");
  flags->Add("--state-key-file", &serve->state_key_file,
             "file of 32 bytes or 64 hexadecimal digits: records on disk and in the store are "
             "encrypted with it");
  flags->Add("--old-state-key-file", &serve->old_state_key_file,
             "the key before, while keys are changed: what it opens is read, and written with "
             "--state-key-file when it is used again");
  flags->Add("--snapshots", &serve->snapshots,
             "type of recurrent state on disk and in the store: f32, or bf16, half as large: lossy",
             {.one_of = {"f32", "bf16"}});
}

void AddStoreOptions(Flags* flags, ServeOptions* serve) {
  flags->SetHeading("Batches");
  flags->Add(
      "--files", &serve->files,
      "folder for files of requests and their answers: /v1/files and /v1/batches; made if it "
      "does not exist");
  flags->Add("--files-mib", &serve->files_mib, "maximum MiB of these files",
             {.min = 1, .max = 1 << 26});
  flags->SetHeading("State shared by several servers");
  flags->Add("--store", &serve->store,
             "Redis through which servers share state: redis://[[user]:password@]host[:port][/db], "
             "or rediss:// for TLS; needs --state-key-file");
  flags->Add("--store-timeout-ms", &serve->store_timeout_ms,
             "maximum milliseconds that a request waits for the store", {.min = 10, .max = 60000});
  flags->Add("--store-hours", &serve->store_hours, "hours that unused state stays in the store",
             {.min = 0.01, .max = 8760});
  flags->Add("--store-compress", &serve->store_compress,
             "compress what goes to the store, without loss: for slow networks");
  flags->Add("--store-ca", &serve->store_ca,
             "PEM file with the authority that signs the store's certificate (default: the "
             "system's)");
  flags->Add("--store-cert", &serve->store_cert,
             "PEM file with the certificate that this server shows the store");
  flags->Add("--store-cert-key", &serve->store_cert_key, "PEM file with the key of --store-cert");
  flags->Add("--kv-events", &serve->kv_events,
             "publish over ZeroMQ what the shared cache holds, for routers: tcp://address:port");
  flags->Add("--kv-events-replay", &serve->kv_events_replay,
             "where routers ask for events that they missed: tcp://address:port");
  flags->Add("--kv-events-topic", &serve->kv_events_topic, "topic of these events");
}

}  // namespace

void DefineServe(Flags* flags) {
  auto options = std::make_shared<Options>();
  ServeOptions* serve = &options->serve;
  AddModelOptions(flags, &serve->model, &options->paths);
  DefineOneModel(flags, serve, &serve->aliases);
  AddNetworkOptions(flags, options.get());
  AddRequestOptions(flags, options.get());
  AddCacheOptions(flags, options.get());
  AddDiskOptions(flags, serve);
  AddStoreOptions(flags, serve);
  flags->SetHeading("Several models");
  flags->Add(
      "--models-dir", &serve->models_dir,
      "serve every model of this folder: GGUF files, and folders with a config.json; each is "
      "loaded when a request names it, and POST /api/pull adds models of the hub");
  flags->Add("--models-preset", &options->models_preset,
             "serve the models of this INI file, as llama-server writes it");
  flags->Add("--memory-mib", &serve->memory_mib,
             "MiB of each device's memory for weights and state of all models there (default: from "
             "the machine; on a GPU --vram-mib, where it is given)",
             {.min = 1, .max = 1 << 30});
  flags->SetHeading("Settings, log and traces");
  flags->AddConfig("--config", "TOML file with any of these options",
                   [options](const std::string& path) { return ReadConfig(path, options.get()); });
  flags->Add("--log", &options->log, "lowest level that is logged",
             {.one_of = {"debug", "info", "warning", "error"}});
  flags->Add("--log-format", &options->log_format, "lines for people, or one JSON object a line",
             {.one_of = {"text", "json"}});
  flags->Add("--otlp-endpoint", &serve->otlp_endpoint,
             "collector that gets OpenTelemetry spans of every reply over HTTP, such as "
             "http://localhost:4318");
  flags->SetAction([options] { return Serve(*options); });
}

}  // namespace reprise::cli
