// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/model_stack.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <future>
#include <utility>

#include "base/log.h"
#include "cli/hub/named_model.h"
#include "cli/lora/lora.h"
#include "cli/model_outline.h"
#include "cli/serve/state_tiers.h"
#include "model/vision/tower.h"
#include "weights/memory.h"

namespace reprise::cli {
api::ModelBrief NameModel(const ServeOptions& options, const std::string& path) {
  api::ModelBrief model;
  model.aliases = options.aliases;
  const auto named =
      std::find_if(model.aliases.begin(), model.aliases.end(),
                   [](const std::string& alias) { return alias.find('*') == std::string::npos; });
  if (named == model.aliases.end()) {
    model.id = ServedName(path);
  } else {
    model.id = *named;
    model.aliases.erase(named);
  }
  for (const std::string& text : options.loras) {
    if (const auto lora = ParseLora(text); lora.ok()) model.adapters.push_back(lora->name);
  }
  model.created = std::time(nullptr);
  return model;
}

void WakingExecutor::Bind(LoadedModel* loaded) {
  loaded_ = loaded;
  awake_.emplace(loaded->model(), loaded->context());
}

void WakingExecutor::Sleep() {
  awake_.reset();
  loaded_->Sleep();
}

Status WakingExecutor::Wake() {
  if (awake_) return OkStatus();
  REPRISE_TRY(loaded_->Wake());
  awake_.emplace(loaded_->model(), loaded_->context());
  return OkStatus();
}

Status WakingExecutor::Forward(const BatchView& batch, const StateMemory& memory, float* logits) {
  return awake_->Forward(batch, memory, logits);
}

Status WakingExecutor::Begin(const BatchView& batch, const StateMemory& memory) {
  return awake_->Begin(batch, memory);
}

Status WakingExecutor::Choose(const ChoiceBatch& batch, const ChoiceResults& results,
                              const Work& meanwhile) {
  return awake_->Choose(batch, results, meanwhile);
}

Status WakingExecutor::Keep(const KeptKv& kept, const StateMemory& memory) {
  return awake_->Keep(kept, memory);
}

Result<ModelStack::Needs> ModelStack::Foresee(const ServeOptions& options) {
  REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(options.model.path));
  Needs needs{checkpoint.tensor_bytes(), 0};
  const int32_t context = options.context_tokens > 0 ? options.context_tokens : kContextDefault;
  const auto outline = ReadModelOutline(checkpoint, KvType(options.model.kv), context);
  if (!outline.ok()) return needs;  // Build says what is wrong
  CacheOptions cache;
  cache.sequence_count = std::max(options.parallel, 1);
  cache.context_tokens = std::min(context, static_cast<int32_t>(outline->card.context_length));
  cache.snapshot_gap =
      options.snapshot_gap > 0 ? options.snapshot_gap : DefaultSnapshotGap(outline->card.state);
  needs.state_bytes = LeastBudget(outline->card.state, cache);
  return needs;
}

Result<std::unique_ptr<ModelStack>> ModelStack::Build(const ServeOptions& options,
                                                      const Shared& shared) {
  std::unique_ptr<ModelStack> stack(new ModelStack(options));
  ModelOptions model = options.model;
  model.context_tokens = options.context_tokens > 0 ? options.context_tokens : kContextDefault;
  model.tower = !options.ignore_images;
  model.mtp = WantsMtp(options.speculate);
  REPRISE_ASSIGN(stack->loaded_, LoadedModel::Load(model));
  REPRISE_TRY(CheckMtp(options.speculate, *stack->loaded_));
  REPRISE_TRY(stack->LoadText());
  REPRISE_TRY(stack->LoadAdapters());
  REPRISE_TRY(stack->BuildEngine(shared));
  stack->engine_->Start();
  api::ServiceOptions service = shared.service;
  service.sampling = stack->sampling_;
  service.slot_count = stack->loaded_->Parallel(options.parallel);
  service.sees = stack->served_.see != nullptr;
  if (shared.responses) {
    REPRISE_ASSIGN(service.responses, shared.responses());
  }
  stack->service_ = std::make_unique<api::Service>(&stack->served_, stack->engine_.get(),
                                                   shared.clock, std::move(service));
  if (shared.later) stack->service_->SetLater(shared.later);
  stack->service_->AddRoutes(&stack->router_);
  return stack;
}

ModelStack::~ModelStack() { Stop(); }

void ModelStack::Stop() {
  if (engine_ != nullptr) engine_->Stop();
}

void ModelStack::Sleep(std::function<void()> asleep) {
  engine_->Sleep([this, asleep = std::move(asleep)] {
    executor_.Sleep();
    asleep();
  });
}

// The engine's thread reads them: the memory of a device belongs to one thread, and the state that
// lies in it stays in use (it is evicted, or stored in a lower tier).
Status ModelStack::Wake() {
  const auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> read = promise->get_future();
  engine_->Post([this, promise](StateCache&) {
    promise->set_value(loaded_->awake() ? OkStatus() : executor_.Wake());
  });
  REPRISE_TRY(read.get());
  engine_->Wake([] {});
  return OkStatus();
}

size_t ModelStack::SetStateBudget(size_t bytes) {
  constexpr int kSlicesMax = 4096;
  size_t budget = SIZE_MAX;
  for (int i = 0; i < kSlicesMax && budget > bytes; ++i) {
    const auto promise = std::make_shared<std::promise<size_t>>();
    std::future<size_t> set = promise->get_future();
    engine_->Post(
        [promise, bytes](StateCache& cache) { promise->set_value(cache.SetBudget(bytes)); });
    const size_t before = budget;
    budget = set.get();
    if (budget == before) break;  // the rest is in use
  }
  return budget;
}

size_t ModelStack::awake_bytes() const {
  return served_.weight_bytes + loaded_->backend().working_bytes();
}

size_t ModelStack::state_bytes() const {
  const CacheStats cache = engine_->stats().cache;
  return cache.bytes_leased + cache.bytes_cached + cache.bytes_metadata;
}

Status ModelStack::LoadText() {
  REPRISE_TRY(text_.Read(loaded_->checkpoint(), options_.tokenizer));
  const ModelCard& card = loaded_->card();
  if (text_.tokenizer().vocab_size() > card.vocab_size) {
    return InvalidArgument("the tokenizer has " + std::to_string(text_.tokenizer().vocab_size()) +
                           " tokens, the model only " + std::to_string(card.vocab_size));
  }
  const api::ModelBrief names = NameModel(options_, loaded_->path());
  served_.id = names.id;
  served_.aliases = names.aliases;
  served_.created = names.created;
  served_.weight_bytes = card.weight_bytes;
  served_.parameter_count = card.parameter_count;
  served_.quantization = std::string(NameOf(card.main_type));
  for (char& c : served_.quantization) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  served_.family = card.family;
  served_.digest = card.digest;
  served_.vocab_size = card.vocab_size;
  served_.kv_block_bytes = card.state.kv_block_bytes();
  text_.Describe(&served_);
  served_.dim = card.dim;
  REPRISE_TRY(OpenEyes());
  REPRISE_ASSIGN(served_.vectors, ReadTextVectors(loaded_->checkpoint(), card.dim));
  if (!options_.pooling.empty()) served_.vectors.pooling = FindPooling(options_.pooling);
  REPRISE_ASSIGN(const GenerationDefaults defaults, ReadGenerationDefaults(loaded_->checkpoint()));
  Apply(defaults, &sampling_);
  return Validate(sampling_, card.vocab_size);
}

// How the APIs see pictures: with what is known of the tower, whether its weights are there or not.
Status ModelStack::OpenEyes() {
  const VisionTower* tower = loaded_->model().tower();
  if (tower == nullptr) return OkStatus();
  REPRISE_ASSIGN(served_.picture_token, loaded_->FindPictureToken(text_.tokenizer()));
  served_.see = [card = tower->card()](std::string_view file, const PictureLimits& limits) {
    return SeePicture(card, file, limits);
  };
  Log(LogLevel::kInfo, "pictures: PNG, JPEG, WebP and GIF, by the model's own tower (" +
                           FormatBytes(tower->card().weight_bytes) + ")");
  return OkStatus();
}

Status ModelStack::LoadAdapters() {
  adapters_ = std::make_unique<AdapterShelf>(MakeAdapterReader(loaded_.get()),
                                             size_t(options_.lora_mib) << 20);
  for (const std::string& text : options_.loras) {
    REPRISE_ASSIGN(const Lora lora, ParseLora(text));
    if (lora.name.empty()) return InvalidArgument("--lora " + text + ": give it a name, NAME=PATH");
    if (served_.Answers(lora.name)) {
      return InvalidArgument("--lora " + text + ": '" + lora.name + "' is a name of the model");
    }
    REPRISE_TRY(adapters_->Add(lora.name, lora.path, lora.scale).Annotate("--lora " + text));
  }
  served_.adapters = adapters_.get();
  return OkStatus();
}

Status ModelStack::BuildEngine(const Shared& shared) {
  DeviceMemory& memory = loaded_->memory();
  const ModelCard& card = loaded_->card();
  CacheOptions cache;
  cache.sequence_count = loaded_->Parallel(options_.parallel);
  cache.context_tokens = static_cast<int32_t>(card.context_length);
  if (options_.context_tokens > cache.context_tokens) {
    Log(LogLevel::kWarning, "--context " + std::to_string(options_.context_tokens) +
                                " is more than the model's " +
                                std::to_string(cache.context_tokens) + "; it was lowered to that");
  }
  if (!card.rope_regime.empty()) Log(LogLevel::kInfo, "rotary regime: " + card.rope_regime);
  cache.snapshot_gap =
      options_.snapshot_gap > 0 ? options_.snapshot_gap : DefaultSnapshotGap(card.state);
  cache.entry_count_max = options_.cache_entries;
  cache.ttl_ms = int64_t{options_.cache_ttl_s} * 1000;
  least_state_bytes_ = LeastBudget(card.state, cache);
  EngineOptions engine;
  size_t draft_bytes = 0;
  REPRISE_ASSIGN(engine.speculation,
                 MakeSpeculation(cache, shared, FindAvailableMemory(memory).bytes, &draft_bytes));
  if (shared.budgets.shared()) {
    // The fleet shares the memory out: it says how much of this the model has at any time.
    REPRISE_ASSIGN(const std::string device, shared.budgets.DeviceOf(options_.model));
    const size_t all = shared.budgets.Of(device).bytes;
    if (awake_bytes() + least_state_bytes_ > all) {
      return FailedPrecondition("it takes " + FormatBytes(awake_bytes()) + " and at least " +
                                FormatBytes(least_state_bytes_) + " of state, more than the " +
                                FormatBytes(all) + " of all models on " + device +
                                "; raise --memory-mib or shorten --context");
    }
    cache.budget_bytes = all - awake_bytes();
    if (options_.cache_mib > 0) {
      cache.budget_bytes = std::min(cache.budget_bytes, size_t(options_.cache_mib) << 20);
    }
  } else if (options_.cache_mib > 0) {
    cache.budget_bytes = static_cast<size_t>(options_.cache_mib) << 20;
  } else {
    // Steps get what they need first.
    const size_t all = FindAvailableMemory(memory).bytes;
    const size_t free = all - std::min(all, draft_bytes);
    const size_t left = free - std::min(free, loaded_->backend().working_bytes());
    cache.budget_bytes = std::min(DefaultBudget(card.state, free, cache), left);
  }
  auto created = StateCache::Create(card.state, cache, memory);
  if (!created.ok()) {
    return created.status().Annotate(
        options_.cache_mib > 0
            ? "--cache-mib"
            : "the weights leave too little memory for state (a shorter --context, "
              "or --kv q8_0, needs less)");
  }
  std::unique_ptr<StateCache> state = std::move(*created);
  TierPlace place;
  place.model_count = shared.model_count;
  place.folder = options_.disk;
  if (shared.model_count > 1 && !options_.disk.empty()) {
    place.folder += "/" + card.digest.substr(0, 16);
    std::error_code error;  // the tier says why a folder cannot be used
    std::filesystem::create_directories(place.folder, error);
  }
  REPRISE_ASSIGN(std::unique_ptr<Tier> tier, OpenTiers(options_, place, card, *state, memory));
  if (tier) state->AttachTier(std::move(tier));
  REPRISE_TRY(OpenEvents(state.get()));
  engine.context_tokens = cache.context_tokens;
  engine.running_max = cache.sequence_count;
  engine.waiting_max = WaitingMax(options_.queue, cache.sequence_count);
  engine.scheduler = loaded_->Steps(cache.sequence_count, options_.stream_gap_ms);
  engine.idle_work = options_.idle_work;
  served_.context_tokens = cache.context_tokens;
  executor_.Bind(loaded_.get());
  REPRISE_ASSIGN(engine.snapkv, ReadSnapKv());
  engine_ = std::make_unique<Engine>(executor_, std::move(state), engine, *shared.clock);
  return OkStatus();
}

// How requests speculate that do not say, and the small model that drafts for all of them.
Result<SpeculationOptions> ModelStack::MakeSpeculation(const CacheOptions& cache,
                                                       const Shared& shared, size_t free_bytes,
                                                       size_t* bytes) {
  SpeculationOptions speculation;
  speculation.mode = ModeOn(options_.speculate, loaded_->backend().chooses());
  const std::string& path = options_.speculate.draft_model;
  if (path.empty()) return speculation;
  if (shared.model_count > 1) {
    return Unimplemented(
        "--draft-model is for a server of one model: the memory of several is "
        "shared out without it");
  }
  ModelOptions model = options_.model;
  model.context_tokens = cache.context_tokens;
  REPRISE_ASSIGN(draft_, DraftModel::Load(path, model, text_.tokenizer()));
  REPRISE_ASSIGN(speculation.model, draft_->MakeDrafter(cache, free_bytes, *shared.clock, bytes));
  return speculation;
}

// What requests that do not say leave out.
Result<SnapKv> ModelStack::ReadSnapKv() const {
  SnapKv snapkv;
  snapkv.redecode = options_.snapkv_redecode;
  if (options_.snapkv_budget == 0) return snapkv;
  if (options_.snapkv_budget < 1) {
    snapkv.share = options_.snapkv_budget;
  } else {
    snapkv.budget = static_cast<int32_t>(options_.snapkv_budget);
  }
  snapkv.window = options_.snapkv_window;
  if (!executor_.keeps()) {
    return InvalidArgument("--snapkv-budget is not supported on this device; use --device cpu");
  }
  REPRISE_TRY(CheckSnapKv(loaded_->card().state, snapkv).Annotate("--snapkv-budget"));
  return snapkv;
}

// Events have the tokens of prompts, and whoever reaches the socket hears them: there are no keys.
Status ModelStack::OpenEvents(StateCache* cache) {
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
  cache->Announce(
      [this](std::vector<BlockEvent> events) { return events_->Publish(std::move(events)); });
  Log(LogLevel::kInfo, "events of the shared cache at " + publisher.events.text);
  return OkStatus();
}

}  // namespace reprise::cli
