// SPDX-License-Identifier: Apache-2.0
// reprise bench tiers: what it costs a step that state goes down to a lower tier meanwhile. One
// stream decodes; steps without and with writes under way take turns, so that a busy machine
// disturbs both alike.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "cache/tier/host_tier.h"
#include "cache/tier/record_tier.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "engine/engine.h"
#include "model/executor.h"

namespace reprise::cli {
namespace {

constexpr int32_t kPromptTokens = 1000;
constexpr int32_t kWarmSteps = 8;
constexpr size_t kConversations = 8;  // about as many fill the memory; the tier holds a third

struct Options {
  ModelOptions model;
  std::string tier = "disk";
  std::string folder;
  bool encrypted = false;
  bool compress = false;
  int32_t steps = 400;
  int32_t repeat = 9;
};

// A folder for as long as this lives.
class Folder {
 public:
  Status Make(const std::string& in) {
    std::filesystem::path parent = in;
    if (in.empty()) parent = std::filesystem::temp_directory_path();
    std::string path = (parent / "reprise-bench-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return Internal("no folder could be made: " + path);
    path_ = path;
    return OkStatus();
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_ + "/state"; }

 private:
  std::string path_;
};

Result<std::unique_ptr<Tier>> MakeTier(const Options& options, const Folder& folder,
                                       const StateCache& cache, DeviceMemory& memory) {
  const size_t bytes = cache.options().budget_bytes / 3;
  if (options.tier == "host") {
    REPRISE_ASSIGN(std::unique_ptr<HostTier> host,
                   HostTier::Make(*cache.memory().layout, bytes, memory));
    return std::unique_ptr<Tier>(std::move(host));
  }
  DiskOptions disk;
  disk.path = folder.path();
  disk.bytes_max = bytes;
  disk.compress = options.compress;
  REPRISE_ASSIGN(std::unique_ptr<RecordStore> store,
                 RecordStore::Open(disk, options.encrypted ? StateKey::Of({1}) : StateKey()));
  return std::unique_ptr<Tier>(std::make_unique<RecordTier>(std::move(store)));
}

class Bed {
 public:
  Bed(Executor& executor, std::unique_ptr<StateCache> cache, const EngineOptions& options)
      : vocab_(static_cast<uint64_t>(executor.card().vocab_size)),
        engine_(executor, std::move(cache), options, clock_) {}

  // Prompts until the memory is full.
  Status Fill() {
    for (size_t i = 0; i < 4 * kConversations; ++i) {
      REPRISE_ASSIGN(const auto stream, Submit(kPromptTokens, 1));
      while (engine_.Step()) {
      }
      REPRISE_TRY(stream->WaitForAll().completion->status);
      const CacheStats stats = engine_.cache().stats();
      const uint64_t gone =
          std::accumulate(stats.blocks_evicted.begin(), stats.blocks_evicted.end(), uint64_t{0});
      if (gone > 0) return OkStatus();
    }
    return OkStatus();
  }
  // One that lasts for so many steps, with nothing else under way.
  Status BeginStream(int32_t steps) {
    if (stream_) stream_->Cancel();
    Settle();
    REPRISE_ASSIGN(stream_, Submit(32, steps + 2 * kWarmSteps));
    for (int32_t i = 0; i < kWarmSteps; ++i) (void)engine_.Step();
    return OkStatus();
  }
  double StepMs() {
    const int64_t begin = clock_.NowNs();
    (void)engine_.Step();
    return static_cast<double>(clock_.NowNs() - begin) / 1e6;
  }
  // All that is not in the tier is to go there. The steps until the last record of them is down:
  // one that is cut off would have the rest of it for nothing.
  std::vector<double> WriteSteps(int32_t steps, uint64_t* bytes) {
    (void)engine_.cache().StoreAll(std::chrono::milliseconds(0));  // wishes
    std::vector<double> all;
    const uint64_t before = tier().bytes_written;
    uint64_t written = before;
    size_t whole = 0;
    do {
      all.push_back(StepMs());
      const uint64_t now = tier().bytes_written;
      if (now > written) whole = all.size();
      written = now;
    } while (all.size() < static_cast<size_t>(steps) && writing());
    all.resize(whole);
    *bytes += written - before;
    return all;
  }

 private:
  bool writing() { return engine_.cache().moves_under_way() > 0; }
  TierStats tier() { return engine_.cache().stats().tiers[0]; }
  // Without a stream: until all that is wished for is down.
  void Settle() {
    for (int quiet = 0; quiet < 4; ++quiet) {
      if (engine_.Step() || writing()) quiet = -1;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  Result<std::shared_ptr<TokenStream>> Submit(int32_t prompt_tokens, int32_t tokens) {
    GenerateRequest request;
    for (int32_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng_.Below(vocab_)));
    }
    request.sampling.temperature = 0;
    request.max_tokens = tokens;
    return engine_.Submit(std::move(request));
  }

  const uint64_t vocab_;
  Rng rng_{1};
  SteadyClock clock_;
  Engine engine_;
  std::shared_ptr<TokenStream> stream_;
};

double Mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

Status Run(const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  ModelExecutor executor(loaded->model(), loaded->context());
  CacheOptions cache;
  cache.context_tokens = kPromptTokens + 64;
  cache.sequence_count = 2;
  cache.budget_bytes = LeastBudget(executor.card().state, cache) * kConversations;
  Folder folder;
  if (options.tier == "disk") REPRISE_TRY(folder.Make(options.folder));
  REPRISE_ASSIGN(auto state, StateCache::Create(executor.card().state, cache, executor.memory()));
  REPRISE_ASSIGN(auto tier, MakeTier(options, folder, *state, executor.memory()));
  state->AttachTier(std::move(tier));
  Bed bed(executor, std::move(state), {});
  REPRISE_TRY(bed.Fill());
  std::vector<double> quiet, writing;
  uint64_t bytes = 0;
  for (int32_t round = 0; round < options.repeat; ++round) {
    REPRISE_TRY(bed.BeginStream(options.steps));
    const std::vector<double> with = bed.WriteSteps(options.steps, &bytes);
    REPRISE_TRY(bed.BeginStream(options.steps));  // as old as the one before
    for (size_t i = 0; i < with.size(); ++i) quiet.push_back(bed.StepMs());
    writing.insert(writing.end(), with.begin(), with.end());
  }
  const double writing_ms = std::accumulate(writing.begin(), writing.end(), 0.0);
  if (writing.empty())
    return Internal("no record was written in this many steps; try more --steps");
  const double median = Median(quiet), mean = Mean(quiet);
  fmt::print("{:<26}{:>10}{:>12}{:>12}\n", "step", "steps", "median ms", "mean ms");
  fmt::print("{:<26}{:>10}{:>12.3f}{:>12.3f}\n", "nothing written", quiet.size(), median, mean);
  fmt::print("{:<26}{:>10}{:>12.3f}{:>12.3f}\n", "writes under way", writing.size(),
             Median(writing), Mean(writing));
  fmt::print(
      "slower by {:.1f} % (median), {:.1f} % (mean); {:.1f} MB written to the {}, {:.0f} "
      "MB/s\n",
      100 * (Median(writing) / median - 1), 100 * (Mean(writing) / mean - 1),
      static_cast<double>(bytes) / 1e6, options.tier,
      writing_ms > 0 ? static_cast<double>(bytes) / writing_ms / 1e3 : 0.0);
  return OkStatus();
}

}  // namespace

void DefineTiersBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--tier", &options->tier, "where state goes: disk or host",
             {.one_of = {"disk", "host"}});
  flags->Add("--folder", &options->folder, "where on the disk (default: for temporary files)");
  flags->Add("--encrypted", &options->encrypted, "as with --state-key-file");
  flags->Add("--compress", &options->compress, "as with --disk-compress");
  flags->Add("--steps", &options->steps, "of each kind in a round", {.min = 1, .max = 900});
  flags->Add("--repeat", &options->repeat, "rounds", {.min = 1, .max = 1000});
  flags->SetAction([=] { return Run(*options); });
}

}  // namespace reprise::cli
