// SPDX-License-Identifier: Apache-2.0
// reprise bench adapters: what adapters cost a batch that decodes, in one run. Steps without any,
// with one for all streams and with as many as there are take turns; and how long loading takes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/lora/lora.h"
#include "model/adapter/adapter.h"
#include "model/live_state.h"
#include "weights/format/safetensors.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  int32_t streams = 16;
  int32_t adapters = 16;
  int32_t rank = 16;
  int32_t depth = 64;
  int32_t repeat = 20;
};

// Random adapters of every weight that can have one, on the disk as PEFT writes them.
class AdapterFolders {
 public:
  ~AdapterFolders() {
    std::error_code ignored;
    if (!root_.empty()) std::filesystem::remove_all(root_, ignored);
  }

  Status Make(const AdaptableModel& model, int count, int64_t rank) {
    std::string path = (std::filesystem::temp_directory_path() / "reprise-lora-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return Internal("no folder could be made: " + path);
    root_ = path;
    for (int i = 0; i < count; ++i) REPRISE_TRY(Write(model, i, rank));
    return OkStatus();
  }
  std::string path(int index) const { return root_ + "/" + std::to_string(index); }

 private:
  Status Write(const AdaptableModel& model, int index, int64_t rank) {
    std::filesystem::create_directory(path(index));
    Rng rng(static_cast<uint64_t>(index) + 1);
    SafetensorsWriter writer;
    std::vector<std::vector<uint16_t>> values;  // BF16
    const auto add = [&](const std::string& name, int64_t rows, int64_t cols, float spread) {
      writer.AddTensor(name, DType::kBF16, {rows, cols});
      auto& drawn = values.emplace_back(static_cast<size_t>(rows * cols));
      for (uint16_t& bits : drawn) {
        const float value = (rng.Uniform() * 2 - 1) * spread;
        bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      }
    };
    for (const PlannedTensor& tensor : model.tensors) {
      const bool linear = tensor.role == TensorRole::kLayer && tensor.slices == 1;
      if (!linear || !IsAdaptable(tensor) || !tensor.hf.ends_with(".weight")) continue;
      const std::string module = "base_model.model." + tensor.hf.substr(0, tensor.hf.size() - 7);
      add(module + ".lora_A.weight", rank, tensor.cols, 1 / std::sqrt(float(tensor.cols)));
      add(module + ".lora_B.weight", tensor.rows, rank, 0.01f);
    }
    REPRISE_TRY(writer.Open(path(index) + "/adapter_model.safetensors"));
    for (const auto& drawn : values) REPRISE_TRY(writer.Append(std::as_bytes(std::span(drawn))));
    REPRISE_TRY(writer.Finish());
    const std::string config = R"({"peft_type":"LORA","bias":"none","r":)" + std::to_string(rank) +
                               R"(,"lora_alpha":)" + std::to_string(rank) + "}";
    return WriteFileAtomically(path(index) + "/adapter_config.json",
                               std::as_bytes(std::span(config)));
  }

  std::string root_;
};

// A batch of streams, one token each a step.
class Batch {
 public:
  Batch(const Options& options, LoadedModel& loaded, LiveState state)
      : options_(options), loaded_(loaded), state_(std::move(state)) {
    logits_.resize(size_t(options.streams) * size_t(loaded.model().vocab_size()));
  }

  Status Prefill() {
    for (int s = 0; s < options_.streams; ++s) {
      std::vector<TokenId> tokens(static_cast<size_t>(options_.depth));
      for (TokenId& token : tokens) token = AnyToken();
      const SequenceSlice slice = state_.Next(s, 0, uint32_t(options_.depth));
      REPRISE_TRY(loaded_.model().Forward(loaded_.context(), {tokens, std::span(&slice, 1), {}},
                                          state_.memory(), nullptr));
      state_.Advance(s, options_.depth);
    }
    return OkStatus();
  }

  // Milliseconds of a step where stream i has adapter i of `adapters`, one after another.
  Result<double> Step(std::span<const AdapterPtr> adapters) {
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<uint32_t> rows;
    for (int s = 0; s < options_.streams; ++s) {
      tokens.push_back(AnyToken());
      rows.push_back(uint32_t(s));
      slices.push_back(state_.Next(s, uint32_t(s), 1));
      if (!adapters.empty()) slices.back().adapter = adapters[size_t(s) % adapters.size()].get();
    }
    const int64_t begin = clock_.NowNs();
    REPRISE_TRY(loaded_.model().Forward(loaded_.context(), {tokens, slices, rows}, state_.memory(),
                                        logits_.data()));
    const double ms = double(clock_.NowNs() - begin) * 1e-6;
    for (int s = 0; s < options_.streams; ++s) state_.Advance(s, 1);
    return ms;
  }

 private:
  TokenId AnyToken() {
    return static_cast<TokenId>(rng_.Below(static_cast<uint64_t>(loaded_.card().vocab_size)));
  }

  const Options& options_;
  LoadedModel& loaded_;
  LiveState state_;
  SteadyClock clock_;
  Rng rng_{1};
  std::vector<float> logits_;
};

Status Run(const Options& options) {
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  AdapterFolders folders;
  REPRISE_TRY(folders.Make(*loaded->adaptable(), options.adapters, options.rank));
  const AdapterShelf::Reader read = MakeAdapterReader(loaded.get());
  const SteadyClock clock;
  std::vector<AdapterPtr> adapters;
  std::vector<double> loads;
  for (int i = 0; i < options.adapters; ++i) {
    const int64_t begin = clock.NowNs();
    REPRISE_ASSIGN(AdapterPtr adapter, read(folders.path(i), 1));
    loads.push_back(double(clock.NowNs() - begin) * 1e-6);
    adapters.push_back(std::move(adapter));
  }
  const int64_t tokens = options.depth + 3 * (options.repeat + 2);
  REPRISE_ASSIGN(LiveState state, LiveState::Create(loaded->model().state_spec(), options.streams,
                                                    tokens, loaded->memory()));
  Batch batch(options, *loaded, std::move(state));
  REPRISE_TRY(batch.Prefill());
  const std::span<const AdapterPtr> all(adapters);
  const std::span<const AdapterPtr> kinds[] = {{}, all.first(1), all};
  std::vector<double> times[3];
  for (int i = 0; i <= options.repeat; ++i) {  // the first for nothing
    for (size_t kind = 0; kind < 3; ++kind) {
      REPRISE_ASSIGN(const double ms, batch.Step(kinds[kind]));
      if (i > 0) times[kind].push_back(ms);
    }
  }
  const double base = Median(times[0]);
  std::printf("adapters of rank %d: %.1f MiB each, loaded in %.1f ms (median of %d)\n",
              options.rank, double(adapters[0]->bytes()) / (1 << 20), Median(loads),
              options.adapters);
  std::printf("a step of %d streams, median of %d:\n", options.streams, options.repeat);
  std::printf("  without adapters  %8.2f ms\n", base);
  std::printf("  one for all       %8.2f ms  %+.1f %%\n", Median(times[1]),
              100 * (Median(times[1]) / base - 1));
  std::printf("  %2d in turn        %8.2f ms  %+.1f %%\n", options.adapters, Median(times[2]),
              100 * (Median(times[2]) / base - 1));
  return OkStatus();
}

}  // namespace

void DefineAdaptersBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--streams", &options->streams, "streams of the batch", {.min = 1, .max = 4096});
  flags->Add("--adapters", &options->adapters, "adapters", {.min = 1, .max = 1024});
  flags->Add("--rank", &options->rank, "of the adapters", {.min = 1, .max = 4096});
  flags->Add("--depth", &options->depth, "tokens of each stream before",
             {.min = 1, .max = 1 << 20});
  flags->Add("--repeat", &options->repeat, "steps of each kind", {.min = 1, .max = 100000});
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
