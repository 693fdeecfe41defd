// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/state_cache.h"
#include "cache/stats.h"
#include "device/memory.h"
#include "state/batch.h"
#include "state/ids.h"
#include "tier/path_id.h"

namespace reprise {

// A Tier keeps state below the memory that models compute in: host memory, disk, a shared store.
// The index decides what goes down and what comes up; a tier moves bytes and may fail at any time.
//
// What it keeps are records. A record stands for tokens [0, position) of a namespace and holds the
// K/V of whole blocks of the grid, from first_block up to the one that `position` lies in (the
// last may be partly filled), and the recurrent state after `position` tokens, where the model has
// one. What lies before first_block is in its parent, which ends inside or before that block:
//
//   grid      |0      64|      128|      192|      256|
//   parent    [0 ............. 100)                        blocks 0 1    state after 100
//   record              [64 ................. 210)         blocks 1 2 3  state after 210
//
// Where all layers of a model have windows, a record may begin behind block 0 without a parent: it
// has what its last position can see.
//
// Moves have ids and are completed later: Begin never waits. A spill reads memory and a fetch
// writes it until the move is reported as done, or Cancel has returned; the index holds it for so
// long. Nothing that a fetch writes is seen by anybody before it is reported as done and well.

using TierRecordId = Id<struct TierRecordTag>;

struct RecordHead {
  TierRecordId id = {};      // given by the index; no two have the same while it lives
  TierRecordId parent = {};  // invalid: it holds everything from the first block on
  int32_t first_block = 0;
  int32_t position = 0;
  SnapshotReason reason = SnapshotReason::kPromptEnd;
};

struct Move {
  enum class Kind : uint8_t { kSpill, kFetch };

  uint64_t id = 0;
  Kind kind = Kind::kSpill;
  const NamespaceKey* key = nullptr;  // as long as the move is under way, as are `tokens`
  std::span<const TokenId> tokens;    // [position of the last record]
  // kSpill: the one to be made. kFetch: what to read, each behind the one before; where two have
  // the same block, the later one has more rows of it.
  std::vector<RecordHead> records;
  int32_t first_block = 0;  // blocks[i] is for block first_block + i of the grid
  std::vector<BlockId> blocks;
  StateId state;  // that of the last record; invalid: the model has none
  // kSpill: the conversation has passed the records that begin at first_block or behind. Those that
  // lead to nothing else may be replaced by this one: then they are reported as lost.
  bool passed = false;
};

struct MoveDone {
  uint64_t id = 0;
  bool ok = false;  // false: nothing was stored; nothing that was fetched may be used
  // kSpill: it is stored, and found; but another level still reads the memory. It is reported once
  // more at the end; until then it may be cancelled, and stays stored.
  bool more = false;
  size_t bytes = 0;
  int64_t ns = 0;
  size_t level = 0;  // kFetch: where it came from (Tier::level_of)
};

// A record that a tier has along a prompt.
struct FoundRecord {
  TierRecordId parent = {};  // as `Found` has answered for it; invalid: none
  int32_t first_block = 0;
  int32_t position = 0;
  SnapshotReason reason = SnapshotReason::kPromptEnd;
};

// Thread safety: all calls come from the engine's thread, and none of them waits for a device
// (Cancel: for as long as one part of a transfer takes).
class Tier {
 public:
  virtual ~Tier() = default;

  virtual std::string_view name() const = 0;  // "disk"; a literal
  // Others read it, too: the next turn of a conversation may come to one of them at any moment.
  virtual bool shared() const { return false; }
  // Recurrent state does not come back as it went down, but rounded: lossy, and reported as such.
  virtual bool rounds() const { return false; }
  // A tier may be several, of which the first is read before the others: which one a record would
  // be read from (their speeds differ), what that is called, and whether all have the record. A
  // record that not all have is not continued: who lacks it needs everything that lies before.
  virtual size_t level_of(TierRecordId) const { return 0; }
  virtual std::string_view name_of(size_t /*level*/) const { return name(); }
  virtual bool Continues(TierRecordId) const { return true; }
  static constexpr size_t kLevelsMax = 3;
  // The memory behind the ids of moves. Once, before anything else. Both outlive the tier.
  virtual void Open(const StateMemory& memory, DeviceMemory& device) = 0;

  // A prompt has come: calls `found` for what the tier has along it, parents first, be it of this
  // life or an earlier one. That returns the id by which the record is known from then on; an
  // invalid one: it is not wanted. What the tier needs of the prompt's paths is computed before,
  // beside the steps: those in the namespaces that AddRoots names.
  using Found = std::function<TierRecordId(const FoundRecord&)>;
  virtual void AddRoots(const NamespaceKey&, std::vector<PathId>* /*roots*/) const {}
  virtual void Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) = 0;

  // Where others write to the tier, too, it must ask what there is along a prompt. Returns the id
  // of the question, which is among those answered in the news before long, whatever happens: Find
  // knows all then. 0: it does already.
  virtual uint64_t Ask(const NamespaceKey&, std::span<const TokenId> /*prompt*/) { return 0; }

  virtual void Begin(const Move& move) = 0;
  // When it returns, the move touches no memory any more and is not reported.
  virtual void Cancel(uint64_t move) = 0;
  // The index has forgotten the record: nobody will ask for it by this id.
  virtual void Remove(TierRecordId record) = 0;
  // Drops all records of the namespace, those that the index has never met too; null: of all.
  virtual void Reset(const NamespaceKey* key) = 0;

  struct News {
    std::vector<MoveDone> done;
    std::vector<TierRecordId> lost;  // records that are gone, or were found to be damaged
    std::vector<uint64_t> answered;  // questions
    bool more = false;               // to be done at rest: Poll again
  };
  // Between two steps of requests, which wait for this thread; or while it has nothing else to do.
  enum class When { kBetweenSteps, kAtRest };
  // What has happened since the last call.
  virtual News Poll(When when) = 0;

  // What there is to say about it.
  virtual void AddTo(CacheStats*) const {}
};

}  // namespace reprise
