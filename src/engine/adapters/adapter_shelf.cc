// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/adapter_shelf.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/adapter/adapter.h"

namespace reprise {
namespace {

// Scales of one adapter that are remembered.
constexpr size_t kScalesMax = 64;

Status CheckScale(double scale) {
  if (std::isfinite(scale) && std::abs(scale) <= 1e6) return OkStatus();
  return InvalidArgument("the scale of an adapter must be a number up to 1e6");
}

}  // namespace

std::vector<AdapterShelf::Entry> AdapterShelf::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const Known& known : known_) {
    entries.push_back(known.entry);
    const auto digest = known.digests.find(known.entry.scale);
    entries.back().resident = digest != known.digests.end() && resident_.contains(digest->second);
  }
  return entries;
}

bool AdapterShelf::Has(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(known_.begin(), known_.end(),
                     [&](const Known& known) { return known.entry.name == name; });
}

size_t AdapterShelf::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [digest, resident] : resident_) bytes += resident.adapter->bytes();
  return bytes;
}

AdapterShelf::Known* AdapterShelf::FindKnown(std::string_view name) {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& known) { return known.entry.name == name; });
  return found == known_.end() ? nullptr : &*found;
}

// Under the lock; null: it is not in memory.
AdapterPtr AdapterShelf::Find(const std::string& digest) {
  const auto found = resident_.find(digest);
  if (found == resident_.end()) return nullptr;
  found->second.used = ++uses_;
  return found->second.adapter;
}

// Under the lock.
Status AdapterShelf::MakeRoom(size_t bytes) {
  size_t held = bytes;
  for (const auto& [digest, resident] : resident_) held += resident.adapter->bytes();
  while (held > bytes_max_) {
    auto oldest = resident_.end();
    for (auto it = resident_.begin(); it != resident_.end(); ++it) {
      if (it->second.adapter.use_count() > 1) continue;  // a request has it
      if (oldest == resident_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (oldest == resident_.end()) {
      return ResourceExhausted("adapters may take " + std::to_string(bytes_max_ >> 20) +
                               " MiB, and those in use leave no room for one of " +
                               std::to_string((bytes + (1 << 20) - 1) >> 20) +
                               " MiB; raise --lora-mib");
    }
    held -= oldest->second.adapter->bytes();
    resident_.erase(oldest);
  }
  return OkStatus();
}

// Reads the adapter of an entry, or finds what has the same content. With a digest: it must still
// be that.
Result<AdapterPtr> AdapterShelf::Load(Entry entry, double scale,
                                      std::optional<std::string> digest) {
  const std::lock_guard reading(reading_);
  if (digest) {  // somebody may have read it meanwhile
    const std::lock_guard lock(mutex_);
    if (AdapterPtr found = Find(*digest)) return found;
  }
  REPRISE_ASSIGN(AdapterPtr adapter, reader_(entry.path, scale));
  if (digest && adapter->digest() != *digest) {
    return FailedPrecondition("the files of adapter " + Quoted(entry.name) +
                              " were changed since it was loaded; unload it and load it again");
  }
  const std::lock_guard lock(mutex_);
  if (AdapterPtr found = Find(adapter->digest())) return found;
  REPRISE_TRY(MakeRoom(adapter->bytes()));
  resident_[adapter->digest()] = {adapter, ++uses_};
  return adapter;
}

Status AdapterShelf::Add(const std::string& name, const std::string& path, double scale,
                         bool replace) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return InvalidArgument("the name of an adapter has 1 to " + std::to_string(kNameBytesMax) +
                           " bytes");
  }
  REPRISE_TRY(CheckScale(scale));
  if (!replace && Has(name)) {
    return InvalidArgument("there is an adapter named " + Quoted(name) + " already");
  }
  Entry entry;
  entry.name = name;
  entry.path = path;
  entry.scale = scale;
  REPRISE_ASSIGN(const AdapterPtr adapter, Load(entry, scale, std::nullopt));
  const std::lock_guard lock(mutex_);
  Known* known = FindKnown(name);
  if (known != nullptr && !replace) {
    return InvalidArgument("there is an adapter named " + Quoted(name) + " already");
  }
  if (known == nullptr) {
    if (known_.size() >= kCountMax) {
      return ResourceExhausted("there are " + std::to_string(kCountMax) +
                               " adapters already; unload some");
    }
    entry.id = next_id_++;
    known = &known_.emplace_back();
  } else {
    entry.id = known->entry.id;
  }
  *known = {std::move(entry), {{scale, adapter->digest()}}};
  return OkStatus();
}

Status AdapterShelf::Remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Known* known = FindKnown(name);
  if (known == nullptr) return NotFound("there is no adapter named " + Quoted(name));
  if (default_ && default_->first == known->entry.id) default_.reset();
  const std::map<double, std::string> digests = known->digests;
  known_.erase(known_.begin() + (known - known_.data()));
  // Requests that have it keep it.
  for (const auto& [scale, digest] : digests) {
    const bool wanted = std::any_of(known_.begin(), known_.end(), [&](const Known& other) {
      return std::any_of(other.digests.begin(), other.digests.end(),
                         [&](const auto& one) { return one.second == digest; });
    });
    if (!wanted) resident_.erase(digest);
  }
  return OkStatus();
}

Result<AdapterPtr> AdapterShelf::Take(std::string_view name) {
  Entry entry;
  std::string digest;
  {
    const std::lock_guard lock(mutex_);
    const Known* known = FindKnown(name);
    if (known == nullptr) return NotFound("there is no adapter named " + Quoted(name));
    entry = known->entry;
    digest = known->digests.at(entry.scale);
    if (AdapterPtr found = Find(digest)) return found;
  }
  return Load(std::move(entry), entry.scale, std::move(digest));
}

Result<AdapterPtr> AdapterShelf::Take(int64_t id, double scale) {
  REPRISE_TRY(CheckScale(scale));
  Entry entry;
  std::optional<std::string> digest;
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(known_.begin(), known_.end(),
                                    [&](const Known& one) { return one.entry.id == id; });
    if (known == known_.end()) return NotFound("there is no adapter " + std::to_string(id));
    entry = known->entry;
    const auto found = known->digests.find(scale);
    if (found != known->digests.end()) {
      digest = found->second;
      if (AdapterPtr adapter = Find(*digest)) return adapter;
    }
  }
  REPRISE_ASSIGN(AdapterPtr adapter, Load(entry, scale, digest));
  const std::lock_guard lock(mutex_);
  if (Known* known = FindKnown(entry.name); known != nullptr && known->entry.id == id) {
    if (known->digests.size() >= kScalesMax) {
      std::erase_if(known->digests,
                    [&](const auto& one) { return one.first != known->entry.scale; });
    }
    known->digests.emplace(scale, adapter->digest());
  }
  return adapter;
}

Status AdapterShelf::SetDefault(int64_t id, double scale) {
  REPRISE_TRY(CheckScale(scale));
  const std::lock_guard lock(mutex_);
  const bool known = std::any_of(known_.begin(), known_.end(),
                                 [&](const Known& one) { return one.entry.id == id; });
  if (!known) return NotFound("there is no adapter " + std::to_string(id));
  if (scale == 0) {
    if (default_ && default_->first == id) default_.reset();
  } else {
    default_ = {id, scale};
  }
  return OkStatus();
}

std::optional<std::pair<int64_t, double>> AdapterShelf::default_adapter() const {
  const std::lock_guard lock(mutex_);
  return default_;
}

}  // namespace reprise
