// SPDX-License-Identifier: Apache-2.0
#include "api/tenants.h"

#include "base/sha256.h"

namespace reprise::api {
namespace {

constexpr int kWeightMax = 1000;

// Compares all bytes, wherever they differ.
bool Equal(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return different == 0;
}

std::string NameOf(const Tenants::Key& key, size_t index) {
  return key.name.empty() ? "key" + std::to_string(index + 1) : key.name;
}

}  // namespace

std::string Tenant::Namespace(std::string_view inner) const {
  return inner.empty() ? salt : salt + "/" + std::string(inner);
}

Status Tenants::Check(const std::vector<Key>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string name = NameOf(keys[i], i);
    if (keys[i].key.empty()) return InvalidArgument("the API key '" + name + "' is empty");
    if (keys[i].weight < 1 || keys[i].weight > kWeightMax) {
      return InvalidArgument("the weight of the API key '" + name + "' must be between 1 and " +
                             std::to_string(kWeightMax));
    }
    for (size_t j = 0; j < i; ++j) {
      const std::string other = NameOf(keys[j], j);
      if (name == other) return InvalidArgument("two API keys have the name '" + name + "'");
      if (keys[i].key == keys[j].key) {
        return InvalidArgument("'" + other + "' and '" + name + "' have the same API key");
      }
    }
  }
  return OkStatus();
}

Tenants::Tenants(const std::vector<Key>& keys) {
  bool any_admin = false;
  for (const Key& key : keys) {
    Entry entry;
    entry.digest = Sha256Hex(key.key);
    entry.tenant.name = NameOf(key, entries_.size());
    // A second hash: the namespace says nothing about what is compared.
    if (!key.share) entry.tenant.salt = "key:" + Sha256Hex("namespace of " + entry.digest);
    entry.tenant.admin = key.admin;
    entry.tenant.weight = key.weight;
    entry.tenant.quota = key.quota;
    any_admin = any_admin || key.admin;
    entries_.push_back(std::move(entry));
  }
  if (!any_admin && entries_.size() == 1) entries_.front().tenant.admin = true;
  operator_.name = "local";
  operator_.admin = true;
}

const Tenant* Tenants::Find(std::string_view key) const {
  if (open()) return &operator_;
  const std::string digest = Sha256Hex(key);
  const Tenant* found = nullptr;
  for (const Entry& entry : entries_) {
    if (Equal(entry.digest, digest)) found = &entry.tenant;
  }
  return found;
}

const Tenant* Tenants::FindName(std::string_view name) const {
  if (open()) return operator_.name == name ? &operator_ : nullptr;
  for (const Entry& entry : entries_) {
    if (entry.tenant.name == name) return &entry.tenant;
  }
  return nullptr;
}

}  // namespace reprise::api
