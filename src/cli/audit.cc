// SPDX-License-Identifier: Apache-2.0
#include "engine/audit/audit.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "cache/tier/host_tier.h"
#include "cache/tier/joined_tier.h"
#include "cache/tier/record_tier.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/lora/lora.h"
#include "cli/terminal.h"
#include "model/executor.h"
#include "model/live_state.h"
#include "weights/format/safetensors.h"

namespace reprise::cli {
namespace {

// A golden comparison allows what another implementation's order of arithmetic may differ by.
constexpr double kGoldenTolerance = 2e-3;
// Thread counts that schedules take turns with; more than there are CPUs is slow, so it comes
// rarely.
constexpr int kThreadCounts[] = {1, 2, 1, 2, 1, 2, 1, 3};
// Cache invariants are recomputed after so many steps.
constexpr int kInvariantInterval = 16;

struct Options {
  ModelOptions model;
  std::string golden;
  bool tiers = false;
  bool speculate = false;
  bool pictures = false;
  std::vector<std::string> loras;
  std::vector<std::string> restart_on;
  uint64_t schedules = 100;
  uint64_t seed = 1;
  int32_t context_tokens = 256;
  int32_t long_context_tokens = 4096;
};

// Tiers that say they take no time: whatever is there is read, whether or not it is worth it.
class QuickTier : public Tier {
 public:
  explicit QuickTier(std::unique_ptr<Tier> tier) : tier_(std::move(tier)) {}

  std::string_view name() const override { return tier_->name(); }
  bool shared() const override { return tier_->shared(); }
  size_t level_of(TierRecordId record) const override { return tier_->level_of(record); }
  std::string_view name_of(size_t level) const override { return tier_->name_of(level); }
  bool Continues(TierRecordId record) const override { return tier_->Continues(record); }
  void Open(const StateMemory& memory, DeviceMemory& device) override {
    tier_->Open(memory, device);
  }
  void AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const override {
    tier_->AddRoots(key, roots);
  }
  void Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) override {
    tier_->Find(key, prompt, found);
  }
  void Begin(const Move& move) override { tier_->Begin(move); }
  void Cancel(uint64_t move) override { tier_->Cancel(move); }
  void Remove(TierRecordId record) override { tier_->Remove(record); }
  void Reset(const NamespaceKey* key) override { tier_->Reset(key); }
  News Poll(When when) override {
    News news = tier_->Poll(when);
    for (MoveDone& done : news.done) done.ns = 1;
    return news;
  }
  void AddTo(CacheStats* stats) const override { tier_->AddTo(stats); }

 private:
  const std::unique_ptr<Tier> tier_;
};

// Another executor at any time that nothing runs.
class Relay final : public Executor {
 public:
  void SetTo(Executor* executor) { to_ = executor; }

  const ModelCard& card() const override { return to_->card(); }
  ThreadPool* pool() override { return to_->pool(); }
  DeviceMemory& memory() override { return to_->memory(); }
  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override {
    return to_->Forward(batch, memory, logits);
  }
  bool chooses() const override { return to_->chooses(); }
  Status Begin(const BatchView& batch, const StateMemory& memory) override {
    return to_->Begin(batch, memory);
  }
  Status Choose(const ChoiceBatch& batch, const ChoiceResults& results,
                const Work& meanwhile) override {
    return to_->Choose(batch, results, meanwhile);
  }
  Status Predict(const BatchView& batch, const StateMemory& memory, bool first,
                 std::span<float> hidden, std::span<float> logits) override {
    return to_->Predict(batch, memory, first, hidden, logits);
  }
  const VisionTower* tower() const override { return to_->tower(); }
  Result<std::unique_ptr<VisionTower::Look>> BeginLook(const Pixels& pixels) override {
    return to_->BeginLook(pixels);
  }
  Result<bool> AdvanceLook(VisionTower::Look* look) override { return to_->AdvanceLook(look); }
  bool keeps() const override { return to_->keeps(); }
  Status Keep(const KeptKv& kept, const StateMemory& memory) override {
    return to_->Keep(kept, memory);
  }

 private:
  Executor* to_ = nullptr;
};

// One model on several numbers of threads, or on several lists of devices; and the cold run that
// every answer is held against.
class Auditor {
 public:
  // Of the same model. The last one runs cold; a schedule that restarts goes on with the next.
  explicit Auditor(const std::vector<std::unique_ptr<LoadedModel>>& loaded)
      : model_(loaded.back()->model()), memory_(loaded.back()->memory()) {
    for (const auto& one : loaded) {
      if (loaded.size() > 1 || one->model().devices() != nullptr) {
        executors_.push_back(std::make_unique<ModelExecutor>(one->model(), one->context()));
        continue;
      }
      for (const int threads : kThreadCounts) {
        OpContext context = one->context();
        backends_.push_back(one->backend().WithThreads(threads));
        if (backends_.back() != nullptr) context.backend = backends_.back().get();
        executors_.push_back(std::make_unique<ModelExecutor>(one->model(), context));
      }
    }
    cold_ = loaded.size() > 1 ? executors_.back().get() : executors_.front().get();
  }

  ~Auditor() {
    std::error_code ignored;
    if (!disk_path_.empty()) std::filesystem::remove_all(disk_path_, ignored);
  }

  // From now on every schedule has tiers under its memory, and state moves about at random: a disk,
  // memory of the host, or both.
  Status UseDisk() {
    std::string path = (std::filesystem::temp_directory_path() / "reprise-audit-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
      return Internal("no folder for the audit could be made: " + path);
    }
    disk_path_ = path;
    restarts_elsewhere_ = backends_.empty();
    return OkStatus();
  }

  AuditResult Run(Schedule schedule) {
    Relay executor;
    const auto turn = [&](uint64_t life) {
      executor.SetTo(executors_[(schedule.seed + life) % executors_.size()].get());
    };
    turn(0);
    const ColdLogits cold = [this](uint32_t /*space*/, std::span<const TokenId> tokens,
                                   float* logits) { RunCold(tokens, logits); };
    const AuditAdapters adapters = MakeAdapters(schedule);
    if (disk_path_.empty()) {
      return RunSchedule(schedule, executor, cold, kInvariantInterval, {}, {}, adapters,
                         pictures_.get());
    }
    schedule.tier = true;
    // Little memory, or processes that end and begin again: else all that is wanted is in memory.
    if (schedule.seed % 5 == 0 || !HasDisk(schedule)) {
      schedule.budget_sequences = 1;
    } else {
      schedule.restart_before = static_cast<int32_t>(1 + schedule.seed % 3);
      schedule.restart_gap = static_cast<int32_t>(1 + schedule.seed % 4);
    }
    std::error_code ignored;
    std::filesystem::remove_all(disk_path_ + "/state", ignored);
    Rng rng(schedule.seed);
    const auto store = [&](StateCache& cache) {
      if (rng.Below(12) != 0) return;
      (void)cache.StoreAll(std::chrono::seconds(2));
      if (HasHost(schedule)) (void)cache.GiveWay(SIZE_MAX / 2);  // it is below, and only there
    };
    uint64_t life = 0;
    return RunSchedule(
        schedule, executor, cold, kInvariantInterval, store,
        [&] {
          if (restarts_elsewhere_) turn(life);
          return MakeTiers(schedule, executor.memory(), life++);
        },
        adapters, pictures_.get());
  }

  // From now on prompts show pictures.
  Status UsePictures() {
    if (model_.tower() == nullptr) return InvalidArgument("this model sees no pictures");
    pictures_ = std::make_unique<AuditPictures>(model_.tower()->card());
    return OkStatus();
  }

  // From now on requests have one of these adapters or none.
  Status UseAdapters(LoadedModel* loaded, const std::vector<std::string>& texts) {
    if (texts.empty()) return OkStatus();
    read_adapter_ = MakeAdapterReader(loaded);
    for (const std::string& text : texts) {
      REPRISE_ASSIGN(const Lora lora, ParseLora(text));
      REPRISE_ASSIGN(AdapterPtr adapter, read_adapter_(lora.path, lora.scale));
      loras_.push_back({lora, std::move(adapter)});
    }
    return OkStatus();
  }

  // Every request in three has an adapter that was just read again.
  AuditAdapters MakeAdapters(const Schedule& schedule) {
    AuditAdapters adapters;
    if (loras_.empty()) return adapters;
    adapters.choose = [this, seed = schedule.seed](size_t request) -> AdapterPtr {
      Rng rng(Mix64(seed ^ Mix64(request)));
      const size_t which = rng.Below(loras_.size() + 1);
      if (which == loras_.size()) return nullptr;
      if (rng.Below(3) != 0) return loras_[which].adapter;
      auto again = read_adapter_(loras_[which].lora.path, loras_[which].lora.scale);
      CHECK(again.ok());
      return std::move(*again);
    };
    adapters.cold = [this](const Adapter& adapter, int32_t adapted_from,
                           std::span<const TokenId> tokens,
                           float* logits) { RunCold(tokens, logits, &adapter, adapted_from); };
    return adapters;
  }

  static bool HasDisk(const Schedule& schedule) { return schedule.seed % 3 != 1; }
  static bool HasHost(const Schedule& schedule) { return schedule.seed % 3 != 0; }

  // Small enough that records make room for one another.
  size_t BytesOf(const Schedule& schedule) const {
    CacheOptions cache;
    cache.context_tokens = schedule.context_tokens;
    return LeastBudget(model_.state_spec(), cache) * (1 + schedule.seed % 8);
  }

  Result<std::unique_ptr<Tier>> MakeTiers(const Schedule& schedule, DeviceMemory& memory,
                                          uint64_t life) const {
    std::unique_ptr<Tier> tiers;
    if (HasDisk(schedule)) {
      REPRISE_ASSIGN(tiers, MakeDisk(schedule, life));
    }
    if (HasHost(schedule)) {
      const StateLayout layout(model_.state_spec());
      REPRISE_ASSIGN(std::unique_ptr<Tier> host,
                     HostTier::Make(layout, BytesOf(schedule) / 2, memory));
      tiers =
          tiers ? std::make_unique<JoinedTier>(std::move(host), std::move(tiers)) : std::move(host);
    }
    return std::unique_ptr<Tier>(std::make_unique<QuickTier>(std::move(tiers)));
  }

  // Encrypted for every other seed; compressed in every other life, so that both kinds lie there.
  Result<std::unique_ptr<Tier>> MakeDisk(const Schedule& schedule, uint64_t life) const {
    DiskOptions options;
    options.path = disk_path_ + "/state";
    options.bytes_max = BytesOf(schedule);
    options.sync = false;
    options.compress = (schedule.seed / 2 + life) % 2 != 0;
    const auto first = static_cast<uint8_t>(schedule.seed);
    const StateKey key = first % 2 == 0 ? StateKey() : StateKey::Of({first});
    REPRISE_ASSIGN(std::unique_ptr<RecordStore> store, RecordStore::Open(options, key));
    return std::unique_ptr<Tier>(std::make_unique<RecordTier>(std::move(store)));
  }

  // All tokens in one step, on one thread, from nothing.
  void RunCold(std::span<const TokenId> tokens, float* logits, const Adapter* adapter = nullptr,
               int32_t adapted_from = 0) {
    auto state =
        LiveState::Create(model_.state_spec(), 1, static_cast<int64_t>(tokens.size()), memory_);
    CHECK(state.ok());
    std::vector<uint32_t> rows(tokens.size());
    for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
    SequenceSlice slice = state->Next(0, 0, static_cast<uint32_t>(tokens.size()));
    slice.adapter = adapter;
      slice.adapted_from = static_cast<uint32_t>(adapted_from);
    BatchView batch = {tokens, std::span(&slice, 1), rows};
    std::optional<ColdSight> sight;
    if (pictures_ != nullptr) sight.emplace(*cold_, *pictures_, tokens).AddTo(&batch);
    const Status run = cold_->Forward(batch, state->memory(), logits);
    CHECK(run.ok());
  }

 private:
  struct Known {
    Lora lora;
    AdapterPtr adapter;
  };

  const Model& model_;
  DeviceMemory& memory_;
  AdapterShelf::Reader read_adapter_;
  std::vector<Known> loras_;
  std::unique_ptr<const AuditPictures> pictures_;   // or null
  std::string disk_path_;                           // empty: no disk
  std::vector<std::unique_ptr<Backend>> backends_;  // or null: that of the loaded model
  std::vector<std::unique_ptr<ModelExecutor>> executors_;
  Executor* cold_ = nullptr;
  bool restarts_elsewhere_ = false;
};

Status CompareWithGolden(const std::string& path, Auditor* auditor, int64_t vocab) {
  REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  auto tensors = SafetensorsFile::Parse(file.bytes());
  if (!tensors.ok()) return tensors.status().Annotate(path);
  REPRISE_ASSIGN(const std::vector<TokenId> tokens, tensors->ReadIds("tokens"));
  const StoredTensor* stored = tensors->Find("logits");
  const size_t expected = tokens.size() * static_cast<size_t>(vocab);
  if (stored == nullptr || tokens.empty() || stored->dtype != DType::kF32 ||
      stored->bytes.size() != expected * sizeof(float)) {
    return InvalidArgument(fmt::format("{}: expected `logits`, F32 [{}, {}], and `tokens`", path,
                                       tokens.size(), vocab));
  }
  std::vector<float> golden(expected);
  std::memcpy(golden.data(), stored->bytes.data(), stored->bytes.size());
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab) return InvalidArgument(path + ": a token is out of range");
  }
  std::vector<float> logits(expected);
  auditor->RunCold(tokens, logits.data());
  double sum = 0;
  double squares = 0;
  double worst = 0;
  for (size_t i = 0; i < expected; ++i) {
    sum += golden[i];
    squares += static_cast<double>(golden[i]) * golden[i];
    worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - golden[i]));
  }
  const double mean = sum / static_cast<double>(expected);
  const double deviation = std::sqrt(squares / static_cast<double>(expected) - mean * mean);
  fmt::print("golden: {} positions, largest difference {:.2e} of the standard deviation\n",
             tokens.size(), worst / deviation);
  if (worst <= kGoldenTolerance * deviation) return OkStatus();
  return DataLoss(
      fmt::format("{}: logits differ by {:.2e} of their standard deviation (limit {:.0e})", path,
                  worst / deviation, kGoldenTolerance));
}

Status Explain(const Schedule& schedule, const AuditResult& result, Auditor* auditor) {
  fmt::print("schedule {} differs; looking for a smaller one\n", schedule.seed);
  const Schedule small =
      Shrink(schedule, [&](const Schedule& s) { return auditor->Run(s).difference.has_value(); });
  const AuditDifference difference = auditor->Run(small).difference.value_or(*result.difference);
  fmt::print("{}request {}, position {}, token {}: expected {}, got {}\n", Describe(small),
             difference.request, difference.position, difference.token, difference.expected,
             difference.actual);
  return DataLoss("reuse differs from recompute: " + difference.text +
                  "; please report the schedule above with the model");
}

Status Run(const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  ModelOptions model = options.model;
  model.context_tokens = std::max(options.context_tokens, options.long_context_tokens);
  if (options.speculate) model.mtp = ModelOptions::Mtp::kAlways;
  model.tower = options.pictures;
  std::vector<std::unique_ptr<LoadedModel>> loaded;
  REPRISE_ASSIGN(loaded.emplace_back(), LoadedModel::Load(model));
  for (const std::string& devices : options.restart_on) {
    model.devices = devices;
    REPRISE_ASSIGN(loaded.emplace_back(), LoadedModel::Load(model));
    if (loaded.back()->card().digest == loaded.front()->card().digest) continue;
    return InvalidArgument("--restart-on " + devices +
                           ": these devices compute otherwise than the others, so state of one "
                           "is none of the other");
  }
  Auditor auditor(loaded);
  if (options.tiers) REPRISE_TRY(auditor.UseDisk());
  if (options.pictures) REPRISE_TRY(auditor.UsePictures());
  REPRISE_TRY(auditor.UseAdapters(loaded.front().get(), options.loras));
  const ModelCard& card = loaded.front()->card();
  if (!options.golden.empty()) {
    REPRISE_TRY(CompareWithGolden(options.golden, &auditor, card.vocab_size));
  }
  const ScheduleLimits limits{.context_tokens = options.context_tokens,
                              .long_context_tokens = options.long_context_tokens,
                              .snapkv = !options.pictures,
                              .speculate = options.speculate};
  AuditResult total;
  const SteadyClock clock;
  const int64_t begin_ns = clock.NowNs();
  for (uint64_t i = 0; i < options.schedules; ++i) {
    const Schedule schedule = MakeSchedule(options.seed + i, limits);
    const AuditResult result = auditor.Run(schedule);
    if (result.difference) return Explain(schedule, result, &auditor);
    total.logits_compared += result.logits_compared;
    total.tokens_prompt += result.tokens_prompt;
    total.tokens_reused += result.tokens_reused;
    total.snapshots_restored += result.snapshots_restored;
    total.evicted += result.evicted;
    total.preemptions += result.preemptions;
    total.steps += result.steps;
    total.compactions += result.compactions;
    total.spills += result.spills;
    total.loads += result.loads;
    total.drafts += result.drafts;
    total.drafts_accepted += result.drafts_accepted;
    if (StderrIsTerminal()) fmt::print(stderr, "\r{} of {} schedules", i + 1, options.schedules);
  }
  if (StderrIsTerminal()) fmt::print(stderr, "\r\033[K");
  if (options.speculate) {
    fmt::print("{:<22}{} of {}\n", "drafts accepted", total.drafts_accepted, total.drafts);
  }
  fmt::print(
      "{:<22}{}\n{:<22}{} (seeds {} to {})\n{:<22}{}\n{:<22}{} of {} ({:.1f} %)\n{:<22}{}\n"
      "{:<22}{}\n{:<22}{}\n{:<22}{}\n{:<22}{} down, {} up\n{:<22}{}\n{:<22}{:.1f} s\n{:<22}0\n",
      "family", card.family, "schedules", options.schedules, options.seed,
      options.seed + options.schedules - 1, "positions compared", total.logits_compared,
      "prompt tokens reused", total.tokens_reused, total.tokens_prompt,
      total.tokens_prompt == 0 ? 0.0
                               : 100.0 * static_cast<double>(total.tokens_reused) /
                                     static_cast<double>(total.tokens_prompt),
      "snapshots restored", total.snapshots_restored, "evictions", total.evicted, "preemptions",
      total.preemptions, "K/V left out (SnapKV)", total.compactions, "moves between tiers",
      total.spills, total.loads, "steps", total.steps, "time",
      static_cast<double>(clock.NowNs() - begin_ns) / 1e9, "differing bits");
  return OkStatus();
}

}  // namespace

void DefineAudit(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--golden", &options->golden,
             "also compare with reference logits: safetensors with `tokens` and `logits`");
  flags->Add(
      "--tiers", &options->tiers,
      "with a disk, memory of the host or both under the memory of every schedule, and state "
      "stored at random moments");
  flags->Add("--restart-on", &options->restart_on,
             "devices that schedules take turns with, and go on with after a restart; several "
             "times; the last is what answers are held against");
  flags->Add("--speculate", &options->speculate,
             "speculate in every reply: with right drafts, wrong drafts and both");
  flags->Add("--pictures", &options->pictures,
             "prompts show pictures, to a model that sees; no K/V is left out then");
  flags->Add("--lora", &options->loras,
             "PATH[:SCALE]: requests have this LoRA adapter or none; repeat it for several");
  flags->Add("--schedules", &options->schedules, "random schedules to run");
  flags->Add("--seed", &options->seed, "of the first schedule; the others count up");
  flags->Add("--context", &options->context_tokens, "tokens of the longest request",
             {.min = 64, .max = 1 << 20});
  flags->Add("--long-context", &options->long_context_tokens,
             "tokens of the longest request in a few of the schedules; 0: in none",
             {.min = 0, .max = 1 << 20});
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
