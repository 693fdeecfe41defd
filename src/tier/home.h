// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tier/guard/day_file.h"
#include "tier/path_id.h"
#include "tier/record.h"

namespace reprise {

// A record being written. Nobody finds it before Commit has returned well; gone if it is dropped.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // The next part, in the order of RecordLayout. Seals `data` in place: it is worthless afterwards.
  virtual Status Append(std::span<std::byte> data) = 0;
  // REQUIRES: all parts are there.
  virtual Status Commit() = 0;
  virtual uint64_t bytes() const = 0;  // written, head and all; after Commit
};

// A record to read. Every byte of it may be hostile.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const RecordFacts& facts() const = 0;
  virtual const RecordLayout& layout() const = 0;  // of the facts
  // The parts that will be read, ascending: all of them, and no others. Once, before the first.
  virtual void Want(std::span<const size_t>) {}
  // Part `index` of the layout, checked. REQUIRES: `out` has its size.
  virtual Status ReadPart(size_t index, std::span<std::byte> out) = 0;
};

// RecordHome is where records live: a folder of one process, or a server that several share.
//
// What is wrong with a record itself is kDataLoss, kNotFound or kFailedPrecondition (another key);
// everything else is the home's fault, and may be better later.
//
// Thread safety: all but List may be called from any thread. They wait: call them from threads that
// may (tier/transfers.h).
class RecordHome {
 public:
  virtual ~RecordHome() = default;

  virtual const char* kind() const = 0;   // "disk", "store"
  virtual std::string where() const = 0;  // for people
  virtual bool shared() const = 0;        // others write to it: what is there must be asked for
  virtual uint64_t Takes(uint64_t bytes) const { return bytes; }  // room of a record of that size

  struct Listed {
    std::string name;
    uint64_t bytes = 0;   // of the home that it takes: Takes
    int64_t used_ms = 0;  // since 1970
    bool readable = false;
    RecordFacts facts;  // if it is
  };
  // All records of a home that is not shared. Before anything else.
  virtual Result<std::vector<Listed>> List() { return std::vector<Listed>(); }
  // What of a day's bytes was written, for the next start.
  virtual WrittenDay ReadDay() const { return {}; }
  virtual void RememberDay(const WrittenDay&) {}
  // What List would say now, for the next start. After everything else.
  virtual void Remember(std::span<const Listed>) {}
  struct Seen {
    std::string name;
    RecordFacts facts;
  };
  // What a shared home has along each of the paths.
  virtual Result<std::vector<std::vector<Seen>>> Look(std::span<const PromptPath* const> paths) {
    return std::vector<std::vector<Seen>>(paths.size());
  }
  // So long a shared home keeps what nobody looks up; being looked up renews it. 0: for ever.
  virtual int64_t keeps_ms() const { return 0; }
  // Whether reading works: as it is done for a record of that name, which may be gone by now.
  virtual Status TryRead(const std::string& /*name*/) { return OkStatus(); }
  // Whether so many bytes can be written. Leaves nothing.
  virtual Status TryWrite(size_t /*bytes*/) { return OkStatus(); }

  virtual std::string NameFor(const RecordFacts& facts) = 0;  // for a new one
  virtual Result<std::unique_ptr<RecordSink>> Create(const std::string& name,
                                                     const RecordFacts& facts) = 0;
  virtual Result<std::unique_ptr<RecordSource>> Open(const std::string& name) = 0;
  virtual void Remove(const std::string& name) = 0;
  virtual void Touch(const std::string& name) = 0;  // it was used
  // Shared: removes records of a namespace, or, if it is empty, of all that this key opens: some of
  // them, in bounded time, from `cursor` on, which is empty at first, and again when all are gone.
  virtual Status Forget(const PathId& /*space*/, std::string* /*cursor*/) { return OkStatus(); }
};

}  // namespace reprise
