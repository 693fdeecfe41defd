// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/quota.h"
#include "base/status.h"

namespace reprise::api {

// Who asks. A key is a tenant: its state is its own, unless it was made to share.
struct Tenant {
  std::string name;              // for logs; never the key
  std::string salt;              // of its namespace; empty: the shared one
  int weight = 1;                // of its share of queue, places and cache while others want theirs
  bool admin = false;            // may see numbers of the whole server
  std::shared_ptr<Quota> quota;  // what it may use; null: as much as it likes

  // The namespace of its requests that carry `inner`, a salt of the client's own (or empty). Salts
  // of tenants have no '/', so no inner salt leads into the namespace of another tenant.
  std::string Namespace(std::string_view inner) const;
};

// The keys that are accepted. Only their hashes are kept, and every comparison looks at all of
// them in full, so time tells nothing about a key.
//
// Thread safety: immutable once the server runs.
class Tenants {
 public:
  struct Key {
    std::string key;
    std::string name;    // empty: numbered
    bool share = false;  // uses the namespace of all sharing keys
    bool admin = false;
    int weight = 1;
    std::shared_ptr<Quota> quota = {};  // null: no limits
  };

  // What is wrong with the keys, if anything: one is empty, or two have the same name or are the
  // same. Reports and prompts are told apart by name.
  static Status Check(const std::vector<Key>& keys);

  // Without keys everybody is the operator. If no key is an admin's and there is only one, it is.
  // REQUIRES: Check(keys).ok().
  explicit Tenants(const std::vector<Key>& keys);

  bool open() const { return entries_.empty(); }
  // The tenant of a key, or null. On an open server: the operator, whatever the key.
  const Tenant* Find(std::string_view key) const;
  // The tenant of a name, or null.
  const Tenant* FindName(std::string_view name) const;
  size_t count() const { return entries_.size(); }

 private:
  struct Entry {
    std::string digest;
    Tenant tenant;
  };
  std::vector<Entry> entries_;
  Tenant operator_;
};

}  // namespace reprise::api
