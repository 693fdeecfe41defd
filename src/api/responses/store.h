// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "api/responses/archive.h"
#include "api/responses/item.h"

namespace reprise::api::responses {

inline constexpr std::string_view kResponsePrefix = "resp_";
// The id of an item of a reply names the response: "resp_x" has "msg_x_0", "fc_x_1"...
std::string MakeItemId(std::string_view prefix, std::string_view response_id, size_t index);
std::string ResponseIdOf(std::string_view item_id);

class BackgroundReplies;

// A response that can be continued (previous_response_id) and asked for again.
struct StoredResponse {
  std::string body;        // the response object, JSON
  Items items;             // the conversation up to and with the reply
  size_t input_begin = 0;  // of them, those that came with this request: [begin, end)
  size_t input_end = 0;

  size_t bytes() const;
};

// The latest responses of every tenant, in memory and, where there is one, in an archive.
//
// 1. A tenant finds its own only.
// 2. A tenant holds at most kCountMax responses and kTenantBytesMax bytes, all tenants together
//    kBytesMax, in memory: its oldest go first, then the oldest of all. Those that are in the
//    archive are found there.
//
// Thread safety: all methods from any thread.
class ResponseStore {
 public:
  static constexpr size_t kCountMax = 512;
  static constexpr size_t kTenantBytesMax = size_t{32} << 20;
  static constexpr size_t kBytesMax = size_t{128} << 20;

  explicit ResponseStore(std::shared_ptr<ResponseArchive> archive = nullptr);
  ~ResponseStore();

  void Add(const std::string& tenant, const std::string& id, StoredResponse response);
  std::shared_ptr<const StoredResponse> Find(const std::string& tenant, std::string_view id) const;
  bool Remove(const std::string& tenant, std::string_view id);
  // An item of a stored response's reply.
  std::shared_ptr<const Item> FindItem(const std::string& tenant, std::string_view id) const;
  size_t bytes() const;
  // Those that are on their way, whoever waits for them.
  BackgroundReplies& background() { return *background_; }

 private:
  using Key = std::string;  // tenant, a zero byte, id
  struct Entry {
    std::string tenant;
    std::shared_ptr<const StoredResponse> response;
  };
  struct Held {
    size_t count = 0;
    size_t bytes = 0;
  };

  static Key KeyOf(const std::string& tenant, std::string_view id);
  void Drop(std::deque<Key>::iterator place);
  bool DropOldest(const std::string* tenant);

  const std::shared_ptr<ResponseArchive> archive_;
  const std::unique_ptr<BackgroundReplies> background_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<Key, Entry> entries_;
  std::deque<Key> order_;                       // oldest first
  std::unordered_map<std::string, Held> held_;  // by tenant
  size_t bytes_ = 0;
};

}  // namespace reprise::api::responses
