// SPDX-License-Identifier: Apache-2.0
#include "hub/pull.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hub/download.h"

namespace reprise::hub {
namespace {

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = 100 << 20;
constexpr uint64_t kDiskMargin = uint64_t{64} << 20;  // that stays free

std::string Gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", double(bytes) / (1 << 30));
  return text;
}

// The files that an index of shards names.
Result<std::set<std::string>> ShardsOf(const std::string& path) {
  REPRISE_ASSIGN(const std::string text, ReadFile(path, kIndexBytesMax));
  const Result<JsonDocument> index = JsonDocument::Parse(text);
  const JsonValue* map = index.ok() ? index->root().Find("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) return DataLoss(path + " is not an index of shards");
  std::set<std::string> names;
  for (const JsonValue::Member& member : map->members()) {
    if (!member.value.is_string() || !IsHubPath(member.value.as_string()) ||
        member.value.as_string().find('/') != std::string_view::npos) {
      return DataLoss(path + " names a file that is not in its folder");
    }
    names.emplace(member.value.as_string());
  }
  return names;
}

uint64_t IncompleteBytes(const CacheFolder& cache, const std::string& repo, const HubFile& file) {
  struct stat st {};
  if (::stat((cache.BlobPath(repo, file.digest) + ".incomplete").c_str(), &st) != 0) return 0;
  return std::min(static_cast<uint64_t>(st.st_size), file.bytes);
}

Status DescribeAll(const Hub& hub, const ModelName& name, const std::string& commit,
                   std::vector<HubFile>* files) {
  for (HubFile& file : *files) {
    if (!file.digest.empty()) continue;
    REPRISE_ASSIGN(file, hub.Describe(name, commit, file));
  }
  return OkStatus();
}

// The shards of a folder are those that its index names, whatever they are called.
Status TakeShards(const Settings& settings, const CacheFolder& cache, const Say& say,
                  PullPlan* plan) {
  std::vector<HubFile>& files = plan->files.files;
  const auto index = std::find_if(files.begin(), files.end(),
                                  [](const HubFile& file) { return file.path == kIndex; });
  if (!plan->files.label.empty() || index == files.end()) return OkStatus();
  REPRISE_TRY(cache.Create());
  REPRISE_TRY(
      DownloadFile({settings, cache, plan->name, plan->listing.commit, say, nullptr}, *index));
  REPRISE_ASSIGN(
      const std::set<std::string> shards,
      ShardsOf(cache.SnapshotPath(plan->name.repo, plan->listing.commit) + "/" + kIndex));
  std::erase_if(files, [](const HubFile& file) { return file.path.ends_with(".safetensors"); });
  for (const std::string& shard : shards) {
    const HubFile* file = plan->listing.Find(shard);
    if (file == nullptr)
      return NotFound("the hub does not have " + shard + ", which its index names");
    files.push_back(*file);
  }
  return OkStatus();
}

bool IsTokenizer(const HubFile& file) {
  return file.path == "tokenizer.json" || file.path == "tekken.json" ||
         file.path == "tokenizer.model" || file.path.find("vocab") != std::string::npos;
}

// Whether a folder that was found in the cache can be opened: a model that another program has
// used may lack files.
bool IsWhole(const CacheFolder& cache, const std::string& repo, const std::string& commit,
             const ModelFiles& model) {
  if (!model.label.empty()) return model.complete;
  const auto has = [&](const std::string& path) {
    return std::any_of(model.files.begin(), model.files.end(),
                       [&](const HubFile& file) { return file.path == path; });
  };
  if (!std::any_of(model.files.begin(), model.files.end(), IsTokenizer)) return false;
  if (!has(kIndex)) return has("model.safetensors");
  const auto shards = ShardsOf(cache.SnapshotPath(repo, commit) + "/" + kIndex);
  if (!shards.ok()) return false;
  struct stat st {};
  return std::all_of(shards->begin(), shards->end(), [&](const std::string& shard) {
    return ::stat((cache.SnapshotPath(repo, commit) + "/" + shard).c_str(), &st) == 0;
  });
}

std::string PathOf(const CacheFolder& cache, const std::string& repo, const std::string& commit,
                   const ModelFiles& model) {
  const std::string folder = cache.SnapshotPath(repo, commit);
  return model.entry.empty() ? folder : folder + "/" + model.entry;
}

Status CheckDisk(const CacheFolder& cache, uint64_t bytes_left) {
  const auto free = cache.FreeBytes();
  if (!free || bytes_left == 0 || *free >= bytes_left + kDiskMargin) return OkStatus();
  return ResourceExhausted("it takes " + Gigabytes(bytes_left) + " more on the disk of " +
                           cache.path() + ", where " + Gigabytes(*free) +
                           " are free: make room ('reprise models rm'), or set HF_HUB_CACHE to a "
                           "folder on another disk");
}

}  // namespace

Result<PullPlan> LookUp(const Settings& settings, const ModelName& name, const Say& say) {
  if (settings.offline) {
    return FailedPrecondition("it is not in the cache (" + settings.cache_path +
                              "), and HF_HUB_OFFLINE forbids to fetch it");
  }
  PullPlan plan;
  plan.name = name;
  REPRISE_ASSIGN(plan.listing, Hub(settings, say).List(name));
  plan.offer = FindModels(plan.listing.files);
  return plan;
}

Status ChooseFiles(const Settings& settings, const Say& say, PullPlan* plan) {
  const CacheFolder cache(settings.cache_path);
  const Hub hub(settings, say);
  const ModelName& name = plan->name;
  REPRISE_ASSIGN(plan->files, Choose(plan->offer, name.wanted));
  REPRISE_TRY(DescribeAll(hub, name, plan->listing.commit, &plan->files.files));
  REPRISE_TRY(TakeShards(settings, cache, say, plan));
  REPRISE_TRY(DescribeAll(hub, name, plan->listing.commit, &plan->files.files));
  plan->bytes_left = 0;
  for (const HubFile& file : plan->files.files) {
    if (cache.HasBlob(name.repo, file)) continue;
    plan->bytes_left += file.bytes - IncompleteBytes(cache, name.repo, file);
  }
  return OkStatus();
}

Result<std::string> Pull(const Settings& settings, const PullPlan& plan, const PullEvents& events) {
  const CacheFolder cache(settings.cache_path);
  REPRISE_TRY(cache.Create());
  REPRISE_TRY(CheckDisk(cache, plan.bytes_left));
  const uint64_t total = plan.files.bytes();
  uint64_t done = 0;
  for (const HubFile& file : plan.files.files) {
    Download download{settings, cache, plan.name, plan.listing.commit, events.say, nullptr};
    download.progress = [&](uint64_t bytes) {
      if (events.progress) events.progress(done + bytes, total);
    };
    REPRISE_TRY(DownloadFile(download, file));
    done += file.bytes;
  }
  REPRISE_TRY(cache.WriteRef(plan.name.repo, plan.name.revision, plan.listing.commit));
  return PathOf(cache, plan.name.repo, plan.listing.commit, plan.files);
}

Result<std::string> FindInCache(const CacheFolder& cache, const ModelName& name,
                                bool any_snapshot) {
  std::vector<std::string> commits;
  if (const auto commit = cache.ReadRef(name.repo, name.revision)) commits.push_back(*commit);
  if (any_snapshot) {
    for (std::string& commit : cache.Commits(name.repo)) commits.push_back(std::move(commit));
  }
  Status status = NotFound(name.repo + " is not in the cache");
  for (const std::string& commit : commits) {
    Offer offer = FindModels(cache.Files(name.repo, commit));
    // What a program fetched in part is not a choice.
    std::erase_if(offer.models, [&](const ModelFiles& model) {
      return !IsWhole(cache, name.repo, commit, model);
    });
    const Result<ModelFiles> model = Choose(offer, name.wanted);
    if (model.ok()) return PathOf(cache, name.repo, commit, *model);
    if (model.status().code() == StatusCode::kInvalidArgument) status = model.status();
  }
  return status;
}

}  // namespace reprise::hub
