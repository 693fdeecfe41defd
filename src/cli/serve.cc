// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "api/ops/cache_feed.h"
#include "api/ops/metrics.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/loaded_model.h"
#include "engine/engine.h"
#include "http/server.h"
#include "model/executor.h"
#include "model/model_text.h"
#include "web/page.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string tokenizer;
  std::string alias;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::vector<std::string> api_keys;
  bool insecure = false;
  int context_tokens = 0;
  int parallel = 16;
  int queue = 256;
  int64_t cache_mib = 0;
  int connections = 4000;
  int drain_seconds = 30;
  bool no_page = false;
  bool no_idle_work = false;
  bool keep_preambles = false;
};

volatile sig_atomic_t signals = 0;

void OnSignal(int) { signals = signals + 1; }

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

// Every connection is a file.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool IsLoopback(const std::string& host) { return host == "127.0.0.1" || host == "::1"; }

// Everything between a model file and the sockets, in the order in which it is built.
class Stack {
 public:
  static Result<std::unique_ptr<Stack>> Create(const Options& options);

  Status Serve();

 private:
  explicit Stack(const Options& options) : options_(options) {}
  Status LoadText();
  Status BuildEngine();
  Status BuildServer();

  const Options& options_;
  SteadyClock clock_;
  std::unique_ptr<LoadedModel> loaded_;
  std::optional<ModelText> text_;
  std::optional<ChatTemplate> template_;
  api::ServedModel served_;
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<api::Service> service_;
  std::unique_ptr<http::Server> server_;
};

Result<std::unique_ptr<Stack>> Stack::Create(const Options& options) {
  std::unique_ptr<Stack> stack(new Stack(options));
  REPRISE_ASSIGN(stack->loaded_, LoadedModel::Load(options.model));
  REPRISE_TRY(stack->LoadText());
  REPRISE_TRY(stack->BuildEngine());
  REPRISE_TRY(stack->BuildServer());
  return stack;
}

Status Stack::LoadText() {
  auto text = options_.tokenizer.empty() ? ReadModelText(loaded_->checkpoint())
                                         : ReadTextFile(options_.tokenizer);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound && options_.tokenizer.empty()) {
    return text.status().Annotate("give one with --tokenizer");
  }
  if (!text.ok()) return text.status();
  text_.emplace(std::move(*text));
  const ModelCard& card = loaded_->model().card();
  if (text_->tokenizer->vocab_size() > card.vocab_size) {
    return InvalidArgument("the tokenizer has " + std::to_string(text_->tokenizer->vocab_size()) +
                           " tokens, the model only " + std::to_string(card.vocab_size));
  }
  if (!text_->chat_templates.empty()) {
    auto parsed = ChatTemplate::Parse(text_->chat_templates.front().source);
    if (parsed.ok()) {
      template_.emplace(std::move(*parsed));
    } else {
      Log(LogLevel::kWarning,
          "the model's chat template cannot be used, chat is off: " + parsed.status().message());
    }
  }
  served_.id = options_.alias.empty() ? std::filesystem::path(loaded_->path()).stem().string()
                                      : options_.alias;
  served_.created = std::time(nullptr);
  served_.family = card.family;
  served_.digest = card.digest;
  served_.vocab_size = card.vocab_size;
  served_.tokenizer = text_->tokenizer.get();
  served_.chat_template = template_ ? &*template_ : nullptr;
  if (template_) served_.template_source = text_->chat_templates.front().source;
  served_.special_tokens = SpecialTokens(*text_->tokenizer);
  return OkStatus();
}

Status Stack::BuildEngine() {
  const ModelCard& card = loaded_->model().card();
  CacheOptions cache;
  cache.sequence_count = options_.parallel;
  constexpr int64_t kContextDefault = 32768;
  cache.context_tokens = static_cast<int32_t>(
      std::min<int64_t>(card.context_length,
                        options_.context_tokens > 0 ? options_.context_tokens : kContextDefault));
  cache.budget_bytes = options_.cache_mib > 0
                           ? static_cast<size_t>(options_.cache_mib) << 20
                           : DefaultBudget(card.state, FindAvailableMemory().bytes, cache);
  REPRISE_ASSIGN(std::unique_ptr<StateCache> state, StateCache::Create(card.state, cache));
  EngineOptions engine;
  engine.context_tokens = cache.context_tokens;
  engine.waiting_max = options_.queue;
  engine.idle_work = !options_.no_idle_work;
  served_.context_tokens = cache.context_tokens;
  executor_ = std::make_unique<ModelExecutor>(loaded_->model(), loaded_->context());
  engine_ = std::make_unique<Engine>(*executor_, std::move(state), engine, clock_);
  return OkStatus();
}

Status Stack::BuildServer() {
  api::ServiceOptions service;
  service.next_turn = !options_.no_idle_work;
  service.strip_preambles = !options_.keep_preambles;
  for (const std::string& key : options_.api_keys) service.keys.push_back({key, "", false, false});
  service_ = std::make_unique<api::Service>(&served_, engine_.get(), &clock_, service);
  http::ServerOptions server;
  server.host = options_.host;
  server.port = static_cast<uint16_t>(options_.port);
  server.connection_count_max = static_cast<size_t>(options_.connections);
  server.refuse = [](int status, const std::string& message, const http::Request* request) {
    return api::ErrorResponse({status, message}, request);
  };
  server.admit = [this](const http::ExchangePtr& exchange, const http::Router::Route& route) {
    return service_->Admit(exchange, route);
  };
  server.answered = [this](const http::Request&, int status, std::chrono::microseconds) {
    service_->metrics().CountAnswer(status);
  };
  http::Router router;
  service_->AddRoutes(&router);
  if (!options_.no_page) web::AddRoutes(&router);
  server_ = std::make_unique<http::Server>(std::move(server), std::move(router));
  service_->SetLater([this](std::function<void()> task) { server_->Work(std::move(task)); });
  return OkStatus();
}

Status Stack::Serve() {
  engine_->Start();
  CatchSignals();
  REPRISE_TRY(server_->Start());
  std::printf("%s on http://%s:%d\n", served_.id.c_str(), options_.host.c_str(), server_->port());
  std::fflush(stdout);
  while (signals == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Log(LogLevel::kInfo, "shutting down: answering what is under way");
  service_->SetDraining();
  service_->feed().Close();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options_.drain_seconds);
  bool drained = false;
  while (!drained && signals < 2 && std::chrono::steady_clock::now() < end) {
    drained = server_->Drain(std::chrono::milliseconds(100));
  }
  if (!drained) Log(LogLevel::kWarning, "some answers were cut off");
  engine_->Stop();
  server_->Stop();
  return OkStatus();
}

Status Run(const Options& options) {
  if (!IsLoopback(options.host) && options.api_keys.empty() && !options.insecure) {
    return InvalidArgument("listening on " + options.host +
                           " lets others in: give an --api-key, or --insecure if that is wanted");
  }
  RaiseFileLimit();
  REPRISE_ASSIGN(const std::unique_ptr<Stack> stack, Stack::Create(options));
  return stack->Serve();
}

}  // namespace

void DefineServe(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model, ModelChoice::kBundledByDefault);
  flags->Add("--tokenizer", &options->tokenizer,
             "tokenizer.json or a folder that has one, for models without");
  flags->Add("--alias", &options->alias, "name of the model for clients (default: the file's)");
  flags->Add("--host", &options->host, "address to listen on");
  flags->Add("--port", &options->port, "port to listen on; 0: any free one",
             {.min = 0, .max = 65535});
  flags->Add("--api-key", &options->api_keys,
             "key that clients must send; several times for several tenants");
  flags->Add("--insecure", &options->insecure, "listen beyond this machine without a key");
  flags->Add("-c,--context", &options->context_tokens,
             "tokens of one request (default: the model's, at most 32768)",
             {.min = 64, .max = 1 << 24});
  flags->Add("--parallel", &options->parallel, "requests computed at the same time",
             {.min = 1, .max = 4096});
  flags->Add("--queue", &options->queue, "requests that may wait; more are answered 429",
             {.min = 1, .max = 1 << 20});
  flags->Add("--cache-mib", &options->cache_mib,
             "memory for state, running and remembered (default: from the machine)",
             {.min = 0, .max = 1 << 30});
  flags->Add("--connections", &options->connections, "open connections; more are answered 503",
             {.min = 1, .max = 1 << 20});
  flags->Add("--drain-seconds", &options->drain_seconds,
             "how long running answers may take after SIGTERM", {.min = 0, .max = 3600});
  flags->Add("--no-page", &options->no_page, "serve the API only");
  flags->Add("--no-idle-work", &options->no_idle_work,
             "do not prepare the next turn while nothing else is to do");
  flags->Add("--keep-preambles", &options->keep_preambles,
             "keep lines of /v1/messages' system prompts that change with every request");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
