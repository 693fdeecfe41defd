// SPDX-License-Identifier: Apache-2.0
// `reprise models`: what lies in the cache of the hub's tools, and making room there.
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "hub/cache/cache_folder.h"
#include "hub/cache/inventory.h"
#include "hub/names/model_name.h"
#include "hub/settings.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

Result<hub::CacheFolder> OpenCache() {
  REPRISE_ASSIGN(const hub::Settings settings, hub::ReadSettings(hub::ProcessEnvironment));
  return hub::CacheFolder(settings.cache_path);
}

std::string Day(int64_t seconds) {
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts = {};
  char text[32] = "?";
  if (::localtime_r(&time, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  }
  return text;
}

Status List() {
  REPRISE_ASSIGN(const hub::CacheFolder cache, OpenCache());
  const hub::Inventory inventory = hub::ListModels(cache);
  size_t width = 8;
  for (const hub::CachedModel& model : inventory.models) {
    width = std::max(width, model.name.size() + 3);
  }
  for (const hub::CachedModel& model : inventory.models) {
    std::printf("%-*s  %10s  %s\n", static_cast<int>(width), ("hf:" + model.name).c_str(),
                FormatBytes(model.bytes).c_str(), Day(model.fetched_s).c_str());
  }
  for (const hub::Inventory::Unfinished& unfinished : inventory.unfinished) {
    std::printf("%-*s  %10s  not finished: 'reprise pull' continues\n", static_cast<int>(width),
                ("hf:" + unfinished.repo).c_str(), FormatBytes(unfinished.bytes).c_str());
  }
  std::printf("%zu models, %s in %s\n", inventory.models.size(),
              FormatBytes(inventory.bytes).c_str(), cache.path().c_str());
  return OkStatus();
}

Status Remove(const std::string& text) {
  REPRISE_ASSIGN(const hub::ModelName name, hub::ModelName::Parse(text));
  REPRISE_ASSIGN(const hub::CacheFolder cache, OpenCache());
  const Result<uint64_t> freed = hub::RemoveModel(cache, name);
  if (!freed.ok()) return freed.status().Annotate(text);
  std::printf("%s removed, %s freed\n", name.ToString().c_str(), FormatBytes(*freed).c_str());
  return OkStatus();
}

Status Verify(const std::string& text) {
  REPRISE_ASSIGN(const hub::CacheFolder cache, OpenCache());
  std::vector<std::string> repos;
  if (text.empty()) {
    repos = cache.Repos();
  } else {
    REPRISE_ASSIGN(const hub::ModelName name, hub::ModelName::Parse(text));
    repos.push_back(name.repo);
  }
  size_t bad = 0;
  for (const std::string& repo : repos) {
    REPRISE_ASSIGN(const uint64_t bytes,
                   hub::VerifyRepo(cache, repo, [&](const std::string& sentence) {
                     ++bad;
                     std::printf("%s\n", sentence.c_str());
                   }));
    std::printf("hf:%s: %s read\n", repo.c_str(), FormatBytes(bytes).c_str());
  }
  if (bad == 0) return OkStatus();
  return DataLoss(std::to_string(bad) +
                  " files are damaged: 'reprise models rm' and 'reprise pull' fetch them again");
}

}  // namespace

void DefineModels(Flags* flags) {
  flags->AddCommand("ls", "list the models in the cache")->SetAction(List);
  const auto define = [&](const char* name, const char* summary, const char* help, bool required,
                          Status (*run)(const std::string&)) {
    Flags* command = flags->AddCommand(name, summary);
    auto model = std::make_shared<std::string>();
    command->Add("NAME", model.get(), help, {.required = required});
    command->SetAction([model, run] { return run(*model); });
  };
  define("rm", "remove a model from the cache",
         "ORG/REPO for all of a repository, or ORG/REPO:Q4_K_M for one model of it", true, Remove);
  define("verify", "read every byte and compare checksums",
         "ORG/REPO (default: every model in the cache)", false, Verify);
}

}  // namespace reprise::cli
