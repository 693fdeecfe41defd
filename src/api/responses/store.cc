// SPDX-License-Identifier: Apache-2.0
#include "api/responses/store.h"

#include <algorithm>
#include <utility>

#include "api/responses/background.h"

namespace reprise::api::responses {

std::string MakeItemId(std::string_view prefix, std::string_view response_id, size_t index) {
  std::string id(prefix);
  id += response_id.substr(kResponsePrefix.size());
  return id + "_" + std::to_string(index);
}

std::string ResponseIdOf(std::string_view item_id) {
  const size_t begin = item_id.find('_');
  const size_t end = item_id.rfind('_');
  if (begin == end) return "";
  return std::string(kResponsePrefix) + std::string(item_id.substr(begin + 1, end - begin - 1));
}

size_t StoredResponse::bytes() const {
  size_t total = sizeof(StoredResponse) + body.size();
  for (const Item& item : items) total += item.bytes();
  return total;
}

ResponseStore::ResponseStore(std::shared_ptr<ResponseArchive> archive)
    : archive_(std::move(archive)), background_(std::make_unique<BackgroundReplies>()) {}

ResponseStore::~ResponseStore() = default;

ResponseStore::Key ResponseStore::KeyOf(const std::string& tenant, std::string_view id) {
  Key key = tenant;
  key += '\0';
  key += id;
  return key;
}

void ResponseStore::Drop(std::deque<Key>::iterator place) {
  const auto entry = entries_.find(*place);
  const size_t bytes = entry->second.response->bytes();
  Held& held = held_[entry->second.tenant];
  bytes_ -= bytes;
  held.bytes -= bytes;
  if (--held.count == 0) held_.erase(entry->second.tenant);
  entries_.erase(entry);
  order_.erase(place);
}

bool ResponseStore::DropOldest(const std::string* tenant) {
  const auto oldest = std::find_if(order_.begin(), order_.end(), [&](const Key& key) {
    return tenant == nullptr || entries_.at(key).tenant == *tenant;
  });
  if (oldest == order_.end()) return false;
  Drop(oldest);
  return true;
}

void ResponseStore::Add(const std::string& tenant, const std::string& id, StoredResponse response) {
  const size_t bytes = response.bytes();
  if (bytes > kTenantBytesMax) return;
  if (archive_) archive_->Put(tenant, id, EncodeResponse(response));
  std::lock_guard lock(mutex_);
  const auto full = [&] {
    const auto held = held_.find(tenant);
    return held != held_.end() &&
           (held->second.count >= kCountMax || held->second.bytes + bytes > kTenantBytesMax);
  };
  while (full() && DropOldest(&tenant)) {
  }
  while (bytes_ + bytes > kBytesMax && DropOldest(nullptr)) {
  }
  const Key key = KeyOf(tenant, id);
  if (!entries_.try_emplace(key, Entry{tenant, nullptr}).second) return;
  entries_[key].response = std::make_shared<const StoredResponse>(std::move(response));
  order_.push_back(key);
  Held& held = held_[tenant];
  ++held.count;
  held.bytes += bytes;
  bytes_ += bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::Find(const std::string& tenant,
                                                          std::string_view id) const {
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(KeyOf(tenant, id));
    if (found != entries_.end()) return found->second.response;
  }
  const auto bytes = archive_ ? archive_->Get(tenant, id) : std::nullopt;
  if (!bytes) return nullptr;
  auto response = DecodeResponse(*bytes);
  return response.ok() ? std::make_shared<const StoredResponse>(std::move(*response)) : nullptr;
}

bool ResponseStore::Remove(const std::string& tenant, std::string_view id) {
  const bool archived = archive_ && archive_->Remove(tenant, id);
  std::lock_guard lock(mutex_);
  const auto place = std::find(order_.begin(), order_.end(), KeyOf(tenant, id));
  if (place == order_.end()) return archived;
  Drop(place);
  return true;
}

std::shared_ptr<const Item> ResponseStore::FindItem(const std::string& tenant,
                                                    std::string_view id) const {
  const auto response = Find(tenant, ResponseIdOf(id));
  if (response == nullptr) return nullptr;
  for (const Item& item : response->items) {
    if (item.id == id) return {response, &item};
  }
  return nullptr;
}

size_t ResponseStore::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace reprise::api::responses
