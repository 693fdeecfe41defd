// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/server_stack.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "api/ops/cache_feed.h"
#include "api/ops/metrics.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "cache/tier/host_tier.h"
#include "cache/tier/joined_tier.h"
#include "cache/tier/record_tier.h"
#include "cli/conversation.h"
#include "cli/serve/disk_archive.h"
#include "device/processors.h"
#include "tier/redis/redis_home.h"
#include "web/page.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

// Snapshots of small states may stand closer together: conversations with small models are short.
constexpr size_t kSmallStateBytes = size_t{2} << 20;
constexpr int32_t kSmallStateGap = 16;

// Of the disk: one part in so many is for responses that clients may continue.
constexpr uint64_t kResponsesPart = 16;
constexpr size_t kResponsesOfTenant = 16384;
constexpr size_t kTenantsMin = 4;  // with fewer keys each may have its part of them, with more this

constexpr int64_t kStoreRetryMs = 2000;  // a store that fails is asked so often whether it works

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

// One line per answer: what, how it went, how long. Never what was said.
void LogAnswer(const http::Request& request, int status, std::chrono::microseconds taken) {
  if (!LogEnabled(LogLevel::kInfo)) return;
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("event", "http").Member("id", request.id);
  json.Member("method", request.method).Member("path", request.path).Member("status", status);
  json.Member("ms", static_cast<double>(taken.count()) / 1000).EndObject();
  Log(LogLevel::kInfo, line);
}

}  // namespace

Result<std::unique_ptr<ServerStack>> ServerStack::Start(const ServeOptions& options) {
  REPRISE_TRY(api::Tenants::Check(options.keys));
  if (!IsLoopback(AddressOf(options.host)) && options.keys.empty() && !options.insecure) {
    return InvalidArgument("listening on " + options.host +
                           " lets others in: give an --api-key, or --insecure if that is wanted");
  }
  std::unique_ptr<ServerStack> stack(new ServerStack(options));
  REPRISE_TRY(stack->Listen());
  ModelOptions model = options.model;
  model.context_tokens = options.context_tokens > 0 ? options.context_tokens : kContextDefault;
  REPRISE_ASSIGN(stack->loaded_, LoadedModel::Load(model));
  REPRISE_TRY(stack->LoadText());
  REPRISE_TRY(stack->BuildEngine());
  stack->engine_->Start();
  stack->OpenRoutes();
  return stack;
}

ServerStack::~ServerStack() { Stop(); }

Status ServerStack::LoadText() {
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
  served_.aliases = options_.aliases;
  const auto named =
      std::find_if(served_.aliases.begin(), served_.aliases.end(),
                   [](const std::string& alias) { return alias.find('*') == std::string::npos; });
  if (named == served_.aliases.end()) {
    served_.id = std::filesystem::path(loaded_->path()).stem().string();
  } else {
    served_.id = *named;
    served_.aliases.erase(named);
  }
  served_.created = std::time(nullptr);
  served_.family = card.family;
  served_.digest = card.digest;
  served_.vocab_size = card.vocab_size;
  served_.kv_block_bytes = card.state.kv_block_bytes();
  served_.tokenizer = text_->tokenizer.get();
  served_.chat_template = template_ ? &*template_ : nullptr;
  if (template_) {
    served_.template_source = text_->chat_templates.front().source;
    served_.output = OutputFormat::Detect(served_.template_source, text_->tokenizer.get());
    served_.call_shape = FindCallShape(*template_);
    if (served_.call_shape.tools_as_text) served_.output.AddGenericCalls(*text_->tokenizer);
    served_.system_shape = FindSystemShape(*template_);
    served_.thinking = ThinkingSwitches::Detect(served_.template_source);
    encoder_.emplace(text_->tokenizer.get());
    served_.chat_encoder = &*encoder_;
  }
  served_.dim = card.dim;
  REPRISE_ASSIGN(served_.vectors, ReadTextVectors(loaded_->checkpoint(), card.dim));
  if (!options_.pooling.empty()) served_.vectors.pooling = FindPooling(options_.pooling);
  served_.special_tokens = SpecialTokens(*text_->tokenizer);
  REPRISE_ASSIGN(const GenerationDefaults defaults, ReadGenerationDefaults(loaded_->checkpoint()));
  Apply(defaults, &sampling_);
  return Validate(sampling_, card.vocab_size);
}

Status ServerStack::BuildEngine() {
  DeviceMemory& memory = loaded_->backend().memory();
  const ModelCard& card = loaded_->model().card();
  CacheOptions cache;
  cache.sequence_count = options_.parallel;
  cache.context_tokens = static_cast<int32_t>(card.context_length);
  if (options_.context_tokens > cache.context_tokens) {
    Log(LogLevel::kWarning, "--context " + std::to_string(options_.context_tokens) +
                                " is more than the model's " +
                                std::to_string(cache.context_tokens) + "; it was lowered to that");
  }
  if (!card.rope_regime.empty()) Log(LogLevel::kInfo, "rotary regime: " + card.rope_regime);
  if (options_.snapshot_gap > 0) {
    cache.snapshot_gap = options_.snapshot_gap;
  } else if (card.state.state_bytes() <= kSmallStateBytes) {
    cache.snapshot_gap = kSmallStateGap;
  }
  cache.entry_count_max = options_.cache_entries;
  cache.ttl_ms = int64_t{options_.cache_ttl_s} * 1000;
  if (options_.cache_mib > 0) {
    cache.budget_bytes = static_cast<size_t>(options_.cache_mib) << 20;
  } else {
    // Steps get what they need first.
    const size_t free = FindAvailableMemory(memory).bytes;
    const size_t left = free - std::min(free, loaded_->backend().working_bytes());
    cache.budget_bytes = std::min(DefaultBudget(card.state, free, cache), left);
  }
  REPRISE_ASSIGN(std::unique_ptr<StateCache> state, StateCache::Create(card.state, cache, memory));
  REPRISE_TRY(AttachTier(state.get()));
  REPRISE_TRY(OpenEvents(state.get()));
  EngineOptions engine;
  engine.context_tokens = cache.context_tokens;
  engine.running_max = options_.parallel;
  engine.waiting_max = options_.queue;
  engine.scheduler = loaded_->Steps(options_.parallel, options_.stream_gap_ms);
  engine.idle_work = options_.idle_work;
  served_.context_tokens = cache.context_tokens;
  executor_ = std::make_unique<ModelExecutor>(loaded_->model(), loaded_->context());
  REPRISE_ASSIGN(engine.snapkv, ReadSnapKv());
  engine_ = std::make_unique<Engine>(*executor_, std::move(state), engine, clock_);
  return OkStatus();
}

// What requests that do not say leave out.
Result<SnapKv> ServerStack::ReadSnapKv() const {
  SnapKv snapkv;
  snapkv.redecode = options_.snapkv_redecode;
  if (options_.snapkv_budget == 0) return snapkv;
  if (options_.snapkv_budget < 1) {
    snapkv.share = options_.snapkv_budget;
  } else {
    snapkv.budget = static_cast<int32_t>(options_.snapkv_budget);
  }
  snapkv.window = options_.snapkv_window;
  if (!executor_->keeps()) {
    return InvalidArgument("--snapkv-budget is not supported on this device; use --device cpu");
  }
  REPRISE_TRY(CheckSnapKv(loaded_->model().state_spec(), snapkv).Annotate("--snapkv-budget"));
  return snapkv;
}

// Events have the tokens of prompts, and whoever reaches the socket hears them: there are no keys.
Status ServerStack::OpenEvents(StateCache* cache) {
  if (options_.kv_events.empty()) {
    if (options_.kv_events_replay.empty() && options_.kv_events_topic.empty()) return OkStatus();
    return InvalidArgument("--kv-events-replay and --kv-events-topic belong to --kv-events");
  }
  PublisherOptions publisher;
  REPRISE_ASSIGN(publisher.events, EventAddress::Parse(options_.kv_events));
  if (!options_.kv_events_replay.empty()) {
    REPRISE_ASSIGN(publisher.replay, EventAddress::Parse(options_.kv_events_replay));
  }
  for (const EventAddress* address : {&publisher.events, &publisher.replay}) {
    if (address->text.empty() || address->loopback || options_.insecure) continue;
    return InvalidArgument("events at " + address->text +
                           " tell others the tokens of prompts: give --insecure if that is wanted");
  }
  publisher.topic = options_.kv_events_topic;
  publisher.block_tokens = kBlockTokens;
  REPRISE_ASSIGN(events_, EventPublisher::Open(publisher));
  cache->Announce([this](std::vector<BlockEvent> events) { events_->Publish(std::move(events)); });
  Log(LogLevel::kInfo, "events of the shared cache at " + publisher.events.text);
  return OkStatus();
}

// From the farthest to the nearest: each is put in front of what is there.
Status ServerStack::AttachTier(StateCache* cache) {
  const bool records = !options_.disk.empty() || !options_.store.empty();
  StatePacking packing;
  if (options_.snapshots == "bf16") {
    if (!records) {
      return InvalidArgument(
          "--snapshots bf16 is for records; give a place for them with --disk or --store");
    }
    const StateSpec& spec = loaded_->model().state_spec();
    if (!spec.has_recurrent()) {
      return InvalidArgument(
          "--snapshots bf16 rounds recurrent state, and this model has none (K/V has --kv)");
    }
    packing = StatePacking::Rounded(spec);
  }
  StateKey key;
  if (!options_.state_key_file.empty()) {
    if (!records) {
      return InvalidArgument(
          "--state-key-file is for records; give a place for them with --disk or --store");
    }
    REPRISE_ASSIGN(key, StateKey::Read(options_.state_key_file));
  }
  if (options_.disk_compress && options_.disk.empty()) {
    return InvalidArgument("--disk-compress is for a folder; name one with --disk");
  }
  std::unique_ptr<Tier> tiers;
  const auto put = [&tiers](std::unique_ptr<Tier> near) {
    if (tiers) near = std::make_unique<JoinedTier>(std::move(near), std::move(tiers));
    tiers = std::move(near);
  };
  if (!options_.store.empty()) {
    REPRISE_ASSIGN(std::unique_ptr<RecordStore> store, OpenStore(key));
    put(std::make_unique<RecordTier>(std::move(store), packing));
  }
  if (!options_.disk.empty()) {
    REPRISE_ASSIGN(std::unique_ptr<RecordStore> disk, OpenDisk(key));
    put(std::make_unique<RecordTier>(std::move(disk), packing));
  }
  if (options_.host_mib > 0) {
    REPRISE_ASSIGN(std::unique_ptr<Tier> host, OpenHost(*cache));
    put(std::move(host));
  }
  if (tiers) cache->AttachTier(std::move(tiers));
  return OkStatus();
}

Result<std::unique_ptr<Tier>> ServerStack::OpenHost(const StateCache& cache) const {
  const size_t bytes = static_cast<size_t>(options_.host_mib) << 20;
  const size_t total = HostMemory().capacity().total;
  if (total > 0 && bytes > total) {
    return InvalidArgument("--host-mib: this machine has " + FormatBytes(total) + " of memory");
  }
  auto host = HostTier::Make(*cache.memory().layout, bytes, loaded_->backend().memory());
  if (!host.ok()) return host.status().Annotate("--host-mib");
  Log(LogLevel::kInfo, "state goes down to " + FormatBytes(bytes) + " of the host's memory");
  return std::unique_ptr<Tier>(std::move(*host));
}

Result<std::unique_ptr<RecordStore>> ServerStack::OpenDisk(const StateKey& key) {
  DiskOptions disk;
  disk.path = options_.disk;
  const auto bytes_max = static_cast<uint64_t>(options_.disk_gib * (1 << 30));
  const auto bytes_day = static_cast<uint64_t>(options_.disk_write_gib_day * (1 << 30));
  disk.bytes_max = bytes_max - bytes_max / kResponsesPart;
  disk.bytes_day_max = bytes_day - bytes_day / kResponsesPart;
  disk.compress = options_.disk_compress;
  REPRISE_ASSIGN(std::unique_ptr<RecordStore> store, RecordStore::Open(disk, key));
  const TierStats found = store->stats();
  Log(LogLevel::kInfo,
      "state on disk: " + std::to_string(found.records) + " records, " + FormatBytes(found.bytes) +
          " of " + FormatBytes(found.bytes_max) +
          (found.unreadable > 0 ? "; " + std::to_string(found.unreadable) +
                                      " that cannot be read (damaged, or of another key)"
                                : ""));
  DocumentOptions responses;
  responses.path = options_.disk + "/responses";
  responses.bytes_max = bytes_max / kResponsesPart;
  responses.owner_bytes_max =
      responses.bytes_max / std::clamp<size_t>(options_.keys.size(), 1, kTenantsMin);
  responses.owner_count_max = kResponsesOfTenant;
  responses.bytes_day_max = bytes_day / kResponsesPart;
  REPRISE_ASSIGN(archive_, DiskArchive::Open(responses, key));
  return store;
}

Result<std::unique_ptr<RecordStore>> ServerStack::OpenStore(const StateKey& key) const {
  if (!key.secret()) {
    return InvalidArgument(
        "--store needs --state-key-file: what leaves this machine is encrypted "
        "(openssl rand -hex 32 makes one; all servers of a store have the same)");
  }
  RedisHome::Options redis;
  REPRISE_ASSIGN(redis.address, RedisAddress::Parse(options_.store));
  redis.tls = {options_.store_ca, options_.store_cert, options_.store_cert_key};
  if (redis.tls.cert_file.empty() != redis.tls.key_file.empty()) {
    return InvalidArgument("--store-cert and --store-cert-key are given together, or neither is");
  }
  redis.compress = options_.store_compress;
  redis.timeout = std::chrono::milliseconds(options_.store_timeout_ms);
  redis.expire = std::chrono::milliseconds(static_cast<int64_t>(options_.store_hours * 3600'000));
  StoreLimits limits;
  limits.timeout_ms = options_.store_timeout_ms;
  limits.retry_ms = kStoreRetryMs;
  auto home = std::make_unique<RedisHome>(redis, key);
  Log(LogLevel::kInfo, "state is shared through " + home->where());
  return RecordStore::Open(std::move(home), limits, key);
}

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
    return ready_ ? service_->Admit(request, route) : std::nullopt;
  };
  server.share_of = [this](const http::Request& request) {
    // Without keys everybody is the same tenant: then each address is for itself.
    const bool keys = ready_ && !service_->tenants().open();
    const api::Tenant* tenant = keys ? service_->FindTenant(request) : nullptr;
    return tenant != nullptr ? tenant->name : std::string();
  };
  server.answered = [this](const http::Request& request, int status,
                           std::chrono::microseconds taken) {
    if (ready_) service_->metrics().CountAnswer(status);
    if (options_.access_log) LogAnswer(request, status, taken);
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

void ServerStack::OpenRoutes() {
  api::ServiceOptions service;
  service.sampling = sampling_;
  service.next_turn = options_.idle_work;
  service.strip_preambles = options_.strip_preambles;
  service.strict_fields = options_.strict_fields;
  service.ignore_images = options_.ignore_images;
  service.keys = options_.keys;
  service.slot_count = options_.parallel;
  service.cors_origins = options_.cors_origins;
  service.archive = archive_;
  using Hosts = api::ServiceOptions::Hosts;
  service.hosts = IsLoopback(AddressOf(options_.host)) ? Hosts::kLoopback : Hosts::kAddresses;
  service.host_names = options_.allowed_hosts;
  const auto any = std::find(service.host_names.begin(), service.host_names.end(), "*");
  if (any != service.host_names.end()) service.hosts = Hosts::kAny;
  service_ = std::make_unique<api::Service>(&served_, engine_.get(), &clock_, service);
  service_->SetLater([this](std::function<void()> task) { server_->Work(std::move(task)); });
  http::Router router;
  service_->AddRoutes(&router);
  if (options_.page) web::AddRoutes(&router);
  ready_ = true;
  server_->SetRouter(std::move(router));
  routed_ = true;
}

std::string ServerStack::url() const {
  const std::string address = AddressOf(options_.host);
  const bool six = address.find(':') != std::string::npos;
  const std::string scheme = options_.tls_cert.empty() ? "http://" : "https://";
  return scheme + (six ? "[" + address + "]" : address) + ":" + std::to_string(port());
}

bool ServerStack::Drain(std::chrono::milliseconds timeout) {
  service_->SetDraining();
  service_->feed().Close();
  return server_->Drain(timeout);
}

// Memory of the host ends with the process: nothing is put there in the end.
bool ServerStack::StoreState(std::chrono::milliseconds timeout) {
  const bool outlives = !options_.disk.empty() || !options_.store.empty();
  return engine_ == nullptr || !outlives || engine_->StoreState(timeout);
}

void ServerStack::Stop() {
  if (engine_ != nullptr) engine_->Stop();
  if (server_ != nullptr) server_->Stop();
}

}  // namespace reprise::cli
