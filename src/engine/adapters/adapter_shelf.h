// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise {

class Adapter;
using AdapterPtr = std::shared_ptr<const Adapter>;

// The adapters that a model is served with, by name. Weights of those that nobody uses go when the
// budget is full, the longest unused first, and are read again when a request names them; what a
// request uses stays until it ends, also when its adapter was removed meanwhile.
//
// A name is bound to the content that it had when it was added: files that were changed since are
// refused, not served. Entries of equal content share their weights.
//
// Thread safety: any thread; files are read on the caller's, one at a time, and hold up nobody who
// asks for what is in memory.
class AdapterShelf {
 public:
  // Reads an adapter for the model.
  using Reader = std::function<Result<AdapterPtr>(const std::string& path, double scale)>;
  static constexpr size_t kCountMax = 4096;
  static constexpr size_t kNameBytesMax = 256;

  AdapterShelf(Reader reader, size_t bytes_max)
      : reader_(std::move(reader)), bytes_max_(bytes_max) {}

  struct Entry {
    int64_t id = 0;  // counts up from 0
    std::string name;
    std::string path;
    double scale = 1;
    bool resident = false;
  };
  std::vector<Entry> List() const;  // in the order in which they were added
  bool Has(std::string_view name) const;

  // Fails with kInvalidArgument if the name is taken (by other content, where it may be replaced),
  // or as the reader does; with kResourceExhausted if those in use leave no room.
  Status Add(const std::string& name, const std::string& path, double scale, bool replace = false);
  // Fails with kNotFound.
  Status Remove(std::string_view name);

  // Fails with kNotFound, or as Add does.
  Result<AdapterPtr> Take(std::string_view name);
  // The adapter of that number with another scale.
  Result<AdapterPtr> Take(int64_t id, double scale);

  // What requests have that name the model itself: an adapter and its scale; 0: none.
  Status SetDefault(int64_t id, double scale);
  std::optional<std::pair<int64_t, double>> default_adapter() const;

  size_t bytes() const;  // of the weights in memory

 private:
  struct Known {
    Entry entry;
    std::map<double, std::string> digests;  // by scale, of what was read
  };
  struct Resident {
    AdapterPtr adapter;
    uint64_t used = 0;
  };
  AdapterPtr Find(const std::string& digest);
  Known* FindKnown(std::string_view name);
  Result<AdapterPtr> Load(Entry entry, double scale, std::optional<std::string> digest);
  Status MakeRoom(size_t bytes);

  const Reader reader_;
  const size_t bytes_max_;
  std::mutex reading_;  // before mutex_
  mutable std::mutex mutex_;
  std::vector<Known> known_;
  std::map<std::string, Resident> resident_;  // by digest
  std::optional<std::pair<int64_t, double>> default_;
  int64_t next_id_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace reprise
