// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "tier/catalog.h"

namespace reprise {

// Quarantine keeps records apart that could not be read although they are there, each for longer
// than the time before. A disk that says that it fails may mean one record only: as long as others
// can be read, it is that record's fault.
//
// Thread safety: none.
class Quarantine {
 public:
  static constexpr int kFaultsMax = 3;  // of different records, one after the other: it is the disk
  static constexpr int kTimesMax = 3;   // before a record that cannot be read is removed

  explicit Quarantine(int64_t retry_ms) : retry_ms_(retry_ms) {}

  // A record of that name could not be read. True: it is the disk.
  bool Fault(const std::string& name) {
    if (std::exchange(last_, name) != name || faults_ == 0) ++faults_;
    return faults_ >= kFaultsMax;
  }
  // Something was read, or reading was found to work.
  void Works() { faults_ = 0; }

  // False: it was set aside too often, and should go.
  bool SetAside(RecordId record, int64_t now_ms) {
    Ward& ward = wards_[record];
    ++ward.failures;
    ward.until_ms = now_ms + (retry_ms_ << (ward.failures - 1));
    return ward.failures <= kTimesMax;
  }
  bool IsFirst(RecordId record) const { return wards_.at(record).failures == 1; }
  void Release(RecordId record) { wards_.erase(record); }
  bool empty() const { return wards_.empty(); }
  bool Has(RecordId record, int64_t now_ms) const {
    const auto at = wards_.find(record);
    return at != wards_.end() && now_ms < at->second.until_ms;
  }

 private:
  struct Ward {
    int64_t until_ms = 0;
    int failures = 0;
  };

  const int64_t retry_ms_;
  std::unordered_map<RecordId, Ward> wards_;
  int faults_ = 0;    // of different records, since one was read
  std::string last_;  // of them
};

}  // namespace reprise
