// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/state_tiers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "cache/tier/host_tier.h"
#include "cache/tier/joined_tier.h"
#include "cache/tier/record_tier.h"
#include "cli/serve/disk_archive.h"
#include "tier/record_store.h"
#include "tier/redis/redis_home.h"
#include "tier/redis/rotated_home.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

// Of the disk: one part in so many is for responses that clients may continue.
constexpr uint64_t kResponsesPart = 16;
constexpr size_t kResponsesOfTenant = 16384;
constexpr size_t kTenantsMin = 4;  // with fewer keys each may have its part of them, with more this

constexpr int64_t kStoreRetryMs = 2000;  // a store that fails is asked so often whether it works

// What one model's state may have of `bytes` on the disk.
uint64_t PartOf(uint64_t bytes, const TierPlace& place) {
  return (bytes - bytes / kResponsesPart) / static_cast<uint64_t>(place.model_count);
}

Result<StateKeys> ReadKeys(const ServeOptions& options) {
  if (options.state_key_file.empty()) {
    if (options.old_state_key_file.empty()) return StateKeys();
    return InvalidArgument(
        "--old-state-key-file is for a change of keys; give the new one with --state-key-file");
  }
  REPRISE_ASSIGN(const StateKey current, StateKey::Read(options.state_key_file));
  if (options.old_state_key_file.empty()) return StateKeys(current);
  REPRISE_ASSIGN(const StateKey before, StateKey::Read(options.old_state_key_file));
  return StateKeys(current, before);
}

Result<std::unique_ptr<Tier>> OpenHost(const ServeOptions& options, const TierPlace& place,
                                       const StateCache& cache, DeviceMemory& memory) {
  const size_t bytes = static_cast<size_t>(options.host_mib) << 20;
  const size_t total = HostMemory().capacity().total;
  if (total > 0 && bytes > total) {
    return InvalidArgument("--host-mib: this machine has " + FormatBytes(total) + " of memory");
  }
  const size_t part = bytes / static_cast<size_t>(place.model_count);
  auto host = HostTier::Make(*cache.memory().layout, part, memory);
  if (!host.ok()) return host.status().Annotate("--host-mib");
  Log(LogLevel::kInfo, "state goes down to " + FormatBytes(part) + " of the host's memory");
  return std::unique_ptr<Tier>(std::move(*host));
}

Result<std::unique_ptr<RecordStore>> OpenDisk(const ServeOptions& options, const TierPlace& place,
                                              const StateKeys& keys) {
  DiskOptions disk;
  disk.path = place.folder;
  const auto bytes_max = static_cast<uint64_t>(options.disk_gib * (1 << 30));
  const auto bytes_day = static_cast<uint64_t>(options.disk_write_gib_day * (1 << 30));
  disk.bytes_max = PartOf(bytes_max, place);
  disk.bytes_day_max = PartOf(bytes_day, place);
  disk.compress = options.disk_compress;
  REPRISE_ASSIGN(std::unique_ptr<RecordStore> store, RecordStore::Open(disk, keys));
  const TierStats found = store->stats();
  Log(LogLevel::kInfo,
      "state on disk: " + std::to_string(found.records) + " records, " + FormatBytes(found.bytes) +
          " of " + FormatBytes(found.bytes_max) +
          (found.unreadable > 0 ? "; " + std::to_string(found.unreadable) +
                                      " that cannot be read (damaged, or of another key)"
                                : ""));
  return store;
}

Result<std::unique_ptr<RecordStore>> OpenStore(const ServeOptions& options, const StateKeys& keys) {
  if (!keys.current().secret()) {
    return InvalidArgument(
        "--store needs --state-key-file: what leaves this machine is encrypted "
        "(openssl rand -hex 32 makes one; all servers of a store have the same)");
  }
  RedisHome::Options redis;
  REPRISE_ASSIGN(redis.address, RedisAddress::Parse(options.store));
  redis.tls = {options.store_ca, options.store_cert, options.store_cert_key};
  if (redis.tls.cert_file.empty() != redis.tls.key_file.empty()) {
    return InvalidArgument("--store-cert and --store-cert-key are given together, or neither is");
  }
  redis.compress = options.store_compress;
  redis.timeout = std::chrono::milliseconds(options.store_timeout_ms);
  redis.expire = std::chrono::milliseconds(static_cast<int64_t>(options.store_hours * 3600'000));
  StoreLimits limits;
  limits.timeout_ms = options.store_timeout_ms;
  limits.retry_ms = kStoreRetryMs;
  std::unique_ptr<RecordHome> home = std::make_unique<RedisHome>(redis, keys.current());
  for (const StateKey& before : keys.all().subspan(1)) {
    home =
        std::make_unique<RotatedHome>(std::move(home), std::make_unique<RedisHome>(redis, before));
  }
  Log(LogLevel::kInfo, "state is shared through " + home->where());
  return RecordStore::Open(std::move(home), limits, keys);
}

}  // namespace

// From the farthest to the nearest: each is put in front of what is there.
Result<std::unique_ptr<Tier>> OpenTiers(const ServeOptions& options, const TierPlace& place,
                                        const ModelCard& card, const StateCache& cache,
                                        DeviceMemory& memory) {
  const bool records = !options.disk.empty() || !options.store.empty();
  StatePacking packing;
  if (options.snapshots == "bf16") {
    if (!records) {
      return InvalidArgument(
          "--snapshots bf16 is for records; give a place for them with --disk or --store");
    }
    const StateSpec& spec = card.state;
    if (!spec.has_recurrent()) {
      return InvalidArgument(
          "--snapshots bf16 rounds recurrent state, and this model has none (K/V has --kv)");
    }
    packing = StatePacking::Rounded(spec);
  }
  const bool secret = !options.state_key_file.empty() || !options.old_state_key_file.empty();
  if (secret && !records) {
    return InvalidArgument(
        "--state-key-file is for records; give a place for them with --disk or --store");
  }
  REPRISE_ASSIGN(const StateKeys keys, ReadKeys(options));
  if (options.disk_compress && options.disk.empty()) {
    return InvalidArgument("--disk-compress is for a folder; name one with --disk");
  }
  std::unique_ptr<Tier> tiers;
  const auto put = [&tiers](std::unique_ptr<Tier> near) {
    if (tiers) near = std::make_unique<JoinedTier>(std::move(near), std::move(tiers));
    tiers = std::move(near);
  };
  if (!options.store.empty()) {
    REPRISE_ASSIGN(std::unique_ptr<RecordStore> store, OpenStore(options, keys));
    put(std::make_unique<RecordTier>(std::move(store), packing));
  }
  if (!options.disk.empty()) {
    REPRISE_ASSIGN(std::unique_ptr<RecordStore> disk, OpenDisk(options, place, keys));
    put(std::make_unique<RecordTier>(std::move(disk), packing));
  }
  if (options.host_mib > 0) {
    REPRISE_ASSIGN(std::unique_ptr<Tier> host, OpenHost(options, place, cache, memory));
    put(std::move(host));
  }
  return tiers;
}

Result<std::shared_ptr<api::responses::ResponseArchive>> OpenArchive(const ServeOptions& options) {
  if (options.disk.empty()) return std::shared_ptr<api::responses::ResponseArchive>();
  const auto bytes_max = static_cast<uint64_t>(options.disk_gib * (1 << 30));
  const auto bytes_day = static_cast<uint64_t>(options.disk_write_gib_day * (1 << 30));
  REPRISE_ASSIGN(const StateKeys keys, ReadKeys(options));
  DocumentOptions responses;
  responses.path = options.disk + "/responses";
  responses.bytes_max = bytes_max / kResponsesPart;
  responses.owner_bytes_max =
      responses.bytes_max / std::clamp<size_t>(options.keys.size(), 1, kTenantsMin);
  responses.owner_count_max = kResponsesOfTenant;
  responses.bytes_day_max = bytes_day / kResponsesPart;
  return DiskArchive::Open(responses, keys);
}

}  // namespace reprise::cli
