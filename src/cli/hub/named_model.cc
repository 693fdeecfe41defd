// SPDX-License-Identifier: Apache-2.0
#include "cli/hub/named_model.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/hub/fit.h"
#include "cli/hub/interrupt.h"
#include "cli/terminal.h"
#include "hub/pull.h"

namespace reprise::cli {
namespace {

constexpr DType kStateType = DType::kF16;  // of K/V, unless --kv says another

void SayLine(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

// Weights that cannot be run are not worth a download; one whose head cannot be read may be.
bool IsFinal(const Status& status) {
  return status.code() == StatusCode::kUnimplemented ||
         status.code() == StatusCode::kInvalidArgument;
}

Status Judge(const hub::Settings& settings, const hub::PullPlan& plan, bool anyway,
             const hub::Say& say) {
  const auto card = ReadStateCard(settings, plan, plan.files, kStateType);
  if (!card.ok()) {
    if (card.status().code() == StatusCode::kCancelled) return card.status();
    if (IsFinal(card.status()) && !anyway) {
      return Status(card.status().code(), "Reprise cannot run it: " + card.status().message());
    }
    say("whether it fits is not known: " + card.status().message());
    return OkStatus();
  }
  const AvailableMemory memory = FindAvailableMemory();
  const FitVerdict fit = JudgeFit(plan.files.bytes(), *card, memory);
  if (fit.fits) {
    say("fits this machine with a context of " + std::to_string(fit.context_tokens) + " of " +
        std::to_string(card->context_tokens) + " tokens: " + fit.why);
    const double bandwidth = MeasureBandwidth(fit.step_bytes, memory);
    const double speed = MostTokensPerSecond(fit, bandwidth);
    if (speed > 0) {
      say(fmt::format(
          "at most {:.3g} tokens/s for one reply: each token reads {}, at {:.1f} GB/s (measured)",
          speed, FormatBytes(fit.step_bytes), bandwidth * 1e-9));
    }
    return OkStatus();
  }
  if (anyway) {
    say("does not fit this machine: " + fit.why);
    return OkStatus();
  }
  return ResourceExhausted("it does not fit this machine: " + fit.why +
                           "; 'reprise pull --anyway' fetches it all the same");
}

// The choices with their verdicts, where the name fits several or none.
void ShowChoices(const hub::Settings& settings, const hub::PullPlan& plan) {
  const hub::ModelFiles* smallest = nullptr;
  for (const hub::ModelFiles& model : plan.offer.models) {
    if (smallest == nullptr && model.complete && !model.label.empty()) smallest = &model;
  }
  if (smallest == nullptr) return;
  const auto card = ReadStateCard(settings, plan, *smallest, kStateType);
  const AvailableMemory memory = FindAvailableMemory();
  double bandwidth = 0;
  if (card.ok())
    bandwidth = MeasureBandwidth(JudgeFit(smallest->bytes(), *card, memory).step_bytes, memory);
  const std::string table = FitTable(plan, card.ok() ? &card.value() : nullptr, memory, bandwidth);
  std::fputs(table.c_str(), stderr);
}

Result<std::string> FetchFromHub(const hub::Settings& settings, const hub::ModelName& name,
                                 const FetchOptions& options) {
  const hub::Say say = options.say ? options.say : SayLine;
  REPRISE_ASSIGN(hub::PullPlan plan, hub::LookUp(settings, name, say));
  const Status chosen = hub::ChooseFiles(settings, say, &plan);
  if (!chosen.ok()) {
    const bool choice =
        chosen.code() == StatusCode::kInvalidArgument || chosen.code() == StatusCode::kNotFound;
    if (choice && !options.say) ShowChoices(settings, plan);
    return chosen;
  }
  if (plan.bytes_left > 0) {
    say(name.ToString() + ": " + FormatBytes(plan.files.bytes()) + " in " +
        std::to_string(plan.files.files.size()) + " file(s), " + FormatBytes(plan.bytes_left) +
        " to fetch");
    const bool companion = plan.files.label == plan.files.entry && plan.files.files.size() == 1 &&
                           !plan.offer.companions.empty();
    if (!companion) REPRISE_TRY(Judge(settings, plan, options.anyway, say));
  }
  for (const hub::HubFile& file : plan.offer.companions) {
    say("goes with it: " + name.repo + ":" + file.path + " (" + FormatBytes(file.bytes) + ")");
  }
  hub::PullEvents events;
  events.say = say;
  events.progress = options.progress;
  if (options.progress) return hub::Pull(settings, plan, events);
  ProgressBar bar("fetching " + name.ToString());
  bool begun = false;
  events.progress = [&](uint64_t done, uint64_t total) {
    if (!begun) bar.Begin(done);
    begun = true;
    if (plan.bytes_left > 0) bar.Show(done, total);
  };
  return hub::Pull(settings, plan, events);
}

}  // namespace

Result<std::string> FindFetchedModel(const std::string& text) {
  REPRISE_ASSIGN(const hub::ModelName name, hub::ModelName::Parse(text));
  REPRISE_ASSIGN(const hub::Settings settings, hub::ReadSettings(hub::ProcessEnvironment));
  return hub::FindInCache(hub::CacheFolder(settings.cache_path), name, settings.offline);
}

Result<std::string> FetchModel(const std::string& text, const FetchOptions& options) {
  REPRISE_ASSIGN(const hub::ModelName name, hub::ModelName::Parse(text));
  REPRISE_ASSIGN(hub::Settings settings, hub::ReadSettings(hub::ProcessEnvironment));
  settings.retries = options.retries;
  settings.retry_pause_ms = options.retry_pause_ms;
  const hub::CacheFolder cache(settings.cache_path);
  if (!options.update || settings.offline) {
    const Result<std::string> path = hub::FindInCache(cache, name, settings.offline);
    if (path.ok()) return path;
    if (path.status().code() != StatusCode::kNotFound) return path.status().Annotate(text);
  }
  std::optional<Interrupt> interrupt;
  if (options.cancelled == nullptr) interrupt.emplace();
  settings.http.cancelled = interrupt ? Interrupt::flag() : options.cancelled;
  Result<std::string> path = FetchFromHub(settings, name, options);
  if (path.ok()) return path;
  if (path.status().code() == StatusCode::kCancelled) {
    return Cancelled("interrupted; the partial download is kept, and the same command continues");
  }
  // Without a network an older snapshot is better than none.
  if (!options.update && path.status().code() == StatusCode::kInternal) {
    const Result<std::string> older = hub::FindInCache(cache, name, true);
    if (older.ok()) {
      SayLine(path.status().message() + "; taking " + *older);
      return older;
    }
  }
  return path.status().Annotate(name.ToString());
}

std::string ServedName(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::string_view kPrefix = "models--";
  const fs::path clean = fs::path(path).lexically_normal();
  std::string repo = clean.parent_path().parent_path().filename().string();
  if (clean.parent_path().filename() != "snapshots" || !repo.starts_with(kPrefix)) {
    return clean.stem().string();
  }
  repo.erase(0, kPrefix.size());
  if (const size_t dashes = repo.find("--"); dashes != std::string::npos) {
    repo.replace(dashes, 2, "/");
  }
  return repo;
}

}  // namespace reprise::cli
