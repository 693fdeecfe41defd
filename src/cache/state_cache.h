// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/announce/block_event.h"
#include "cache/cache_options.h"
#include "cache/lease.h"
#include "cache/stats.h"
#include "device/memory.h"
#include "state/batch.h"
#include "state/ids.h"
#include "state/spec.h"

namespace reprise {

// StateCache keeps the state that requests leave behind and gives it to those that begin alike.
// It owns all state memory, of running sequences too: one byte budget, running requests first.
//
// Life of a request, all on the engine thread:
//
//   Lease lease = cache.Acquire(request);        // looks; takes no memory; may wait in a queue
//   if (cache.FindAwaited(lease)) ...            // someone computes its prefix now: wait, or not
//   cache.Start(lease);                          // adopts blocks, restores state; pending: wait
//   while (...) {
//     n = min(chunk, lease.tokens().size() - lease.computed());
//     cache.Reserve(lease, n);                   // private blocks for n more positions
//     model.Forward(rows tokens()[computed, computed + n), lease.blocks(), lease.state(),
//                   lease.pending());               // the states to keep on the way
//     cache.Commit(lease, {n});                  // publishes what became complete
//     cache.Append(lease, sampled);              // the next token to run
//   }
//   cache.Finish(std::move(lease));              // publishes the tail; a plain destructor does not
//
//   positions   [0, adopted)         shared blocks, read only
//               [adopted, computed)  private blocks; published as they fill (attention only), or
//                                    up to each snapshot (models with recurrent state)
//               [computed, ...)      rows the next steps write
//
// A lease may be dropped at any moment: what was published stays, the rest is freed.
//
// Thread safety: none; the engine thread owns it. Costs: Acquire and Start are O(prompt tokens),
// Commit O(new tokens), eviction O(log entries) for each block or snapshot that goes.
class StateCache;
class StateIndex;
class StateStore;
class Tier;

// What a token stream means here: state is shared only between equal keys. `digest` names the
// model as the numerics see it (weights, quantisation, numerics version, RoPE regime, adapters,
// state layout); `salt` names the tenant.
struct NamespaceKey {
  std::string digest;
  std::string salt;

  // A number that tells salts apart, as good as always; 0 without one.
  uint32_t number() const {
    return salt.empty() ? 0 : static_cast<uint32_t>(std::hash<std::string>{}(salt) | 1);
  }
  friend bool operator==(const NamespaceKey&, const NamespaceKey&) = default;
};

// A place in the prompt that means something to the renderer of it.
enum class BoundaryKind : uint8_t { kSystem, kMessage, kBreakpoint };
struct Boundary {
  int32_t position = 0;  // the state after tokens [0, position) is worth keeping
  BoundaryKind kind = BoundaryKind::kMessage;
};

// The views need to live only during Acquire.
struct CacheRequest {
  const NamespaceKey* key = nullptr;
  std::span<const TokenId> tokens;       // the prompt, not empty
  std::span<const Boundary> boundaries;  // ascending
  int64_t pin_ms = 0;                    // keep what this prompt stores for so long (ttl)
  int32_t min_cache_tokens = 0;          // do not reuse or store less than this
  int32_t replay_tokens = 1;             // at the end of the prompt: run, whatever is stored
  int32_t kept_tokens = 0;               // whose K/V stays behind the prompt (Compact); 0: all
  bool read = true;                      // may reuse
  bool write = true;                     // may publish
  std::string_view tenant;               // whose share of the cache this is; see CacheOptions
  int32_t tenant_weight = 1;
  // What the conversation is called, within the tenant; empty: nobody says. A request that begins
  // something new while the conversation itself goes on is beside it (policy/sessions.h).
  std::string_view session;
  bool low = false;     // what it stores goes before all else, and costs nobody theirs
  bool idle = false;    // work for idle time: never awaited, not in the statistics
  bool look_up = true;  // false: LookUp does, in pieces
  // Holds the prompt and is taken over, with its capacity: nothing is copied. Null: `tokens` is.
  std::vector<TokenId>* storage = nullptr;
};

struct Awaited {
  uint64_t lease_id = 0;  // the running request that computes the common prefix, or a load
  int32_t position = 0;   // it will publish up to here
};

// What Start answers: ready, and the lease has started; pending, because state of its prompt is on
// its way from a lower tier (ask FindAwaited in every step, then Start again); or refused.
struct [[nodiscard]] StartAnswer {
  enum class Kind : uint8_t { kReady, kPending, kRefused };
  Kind kind = Kind::kReady;
  Awaited awaited;  // kPending
  Status status;    // kRefused: why; else OK

  bool ready() const { return kind == Kind::kReady; }
  bool pending() const { return kind == Kind::kPending; }
};

struct CommitArgs {
  int32_t token_count = 0;  // positions [computed, computed + token_count) are done
  bool finite = true;       // false: NaN or infinity was seen in logits or state
  // False: not the bits of a cold prefill; nothing from here on is published.
  bool canonical = true;
  int64_t ns = 0;  // how long that took, of the step's time its share; 0: not known
};

class StateCache {
 public:
  // Refuses, with the numbers, a budget that cannot hold one running sequence of
  // options.context_tokens and the state that it leaves. The state lies in `memory`, which must
  // outlive the cache.
  static Result<std::unique_ptr<StateCache>> Create(const StateSpec& spec,
                                                    const CacheOptions& options,
                                                    DeviceMemory& memory = HostMemory());
  ~StateCache();

  // Keeps what this memory cannot in a lower tier, too. Once, before the first request.
  void AttachTier(std::unique_ptr<Tier> tier);
  // Transfers between the tiers that have not ended: while there are, SetTime has something to do.
  size_t moves_under_way() const;
  // Stores in the tier, if there is one, what is worth keeping, until that is done (true) or the
  // time is over. Waits: when nothing runs any more.
  bool StoreAll(std::chrono::milliseconds timeout);

  // Tells `told` from now on which blocks of tokens of the shared namespace (that with an empty
  // salt) a request can go on from, as that changes: at most once in a step, on the engine thread,
  // so it must be quick. Its first event is kCleared. If it returns false, what it was told is
  // lost: then all is told anew, from kCleared on, a part in each step. Once, before the first
  // request.
  using TellBlocks = std::function<bool(std::vector<BlockEvent>)>;
  void Announce(TellBlocks told);

  // Milliseconds of a steady clock; call once per step. Never goes back. Lets a few entries go that
  // have expired; those that have not gone yet are not served. Hears what transfers have come to.
  void SetTime(int64_t now_ms);

  // Looks up the prompt. Takes no memory, so a request may hold it while it waits in a queue.
  // REQUIRES: request.tokens is not empty.
  Lease Acquire(const CacheRequest& request);

  // Goes on with the lookup of a prompt that Acquire has left for later, by *tokens_left tokens at
  // most, and takes off those that it has compared. True: the lookup is complete. Whatever is asked
  // of the lease before then does the rest at once. REQUIRES: not started.
  bool LookUp(const Lease& lease, int32_t* tokens_left);

  // The running request, if any, that will soon publish more of this prompt than is stored now.
  // Ask before Start, in every step. It is gone when that request ends, however it ends.
  // Mutates: where models have recurrent state, asks that request for a snapshot at the branch.
  std::optional<Awaited> FindAwaited(const Lease& lease);

  // Looks up again, adopts the blocks, and, where the model has recurrent state, a copy of the
  // snapshot that was found (or zeros), plans the snapshots. computed() says where to begin.
  // Pending: more of it is in a lower tier and comes sooner than it could be computed; a lease
  // waits so a few times at most. Refused with kResourceExhausted when too many run or they leave
  // no room. Takes nothing unless it is ready. REQUIRES: not started.
  StartAnswer Start(Lease& lease);

  // Whether the state of a lease that has started is still being filled, by another thread: large
  // ones in memory of the host. Steps leave the lease out meanwhile.
  bool Filling(const Lease& lease);
  // Waits until it is filled, for so long at most.
  void AwaitFilled(const Lease& lease, std::chrono::nanoseconds timeout);

  // Private blocks for `token_count` more positions, and memory for the snapshots planned inside
  // them (pending); evicts what is cached to get them. Copies the block it continues in if that is
  // shared. A snapshot that finds no room is left out. Fails with kResourceExhausted and takes
  // nothing when running requests alone leave too little. Waits while Filling. REQUIRES: started.
  Status Reserve(Lease& lease, int32_t token_count);

  // Gets memory for the next step of leases while the device is at this one, so that Reserve need
  // not wait for it. Takes and evicts nothing: what the budget or the device has not got is left.
  void BackAhead(std::span<const NextRows> steps);

  // Room for up to `draft_count` rows behind the `token_count` that Reserve was called for just
  // now: drafts, which may turn out not to be tokens of this lease. Returns for how many there is
  // room; only what is free, or little of what is cached, is taken for it, and nothing pinned.
  //
  // The step runs them, too, and leaves states in draft_states(). Then Commit is called for the
  // rows that are no drafts, and, for one draft after another that is appended as a token and so
  // turns out to be right, with one more; at last DropDrafts. K/V of the others lies behind
  // computed(), where the next step writes. REQUIRES: started.
  int32_t ReserveDrafts(Lease& lease, int32_t token_count, int32_t draft_count);
  void DropDrafts(Lease& lease);

  // Appends up to `count` tokens that another request of the namespace had behind those of this
  // lease, as far as they are known; the newest such reply. Nothing, if
  // the lease may not reuse. O(tokens not published + count).
  // REQUIRES: started.
  void TokensBehind(const Lease& lease, size_t count, std::vector<TokenId>* tokens) const;

  // Tokens to run next. REQUIRES: started.
  void Append(Lease& lease, std::span<const TokenId> tokens);

  // The step computed args.token_count more positions. Publishes what became publishable; takes
  // the snapshot planned at the new position; pending ones are filled. One that finds no room is
  // not an error.
  // Fails with kInternal if the state is not finite: the lease is poisoned, nothing of it is
  // published any more. REQUIRES: reserved; computed() + token_count <= tokens().size().
  Status Commit(Lease& lease, const CommitArgs& args);

  // Leaves out K/V: `kept` rows stand for all tokens so far from now on, in blocks of the lease's
  // own, and the blocks that nobody else uses are free. `move` copies what stays from the first
  // table to the second; blocks may stand in both, at the same place. Nothing that the lease
  // computes from here on is published; what was stays as it is. Fails as Reserve does, or with
  // what `move` says, and changes nothing then. A lease that runs `alone` does not fail for want of
  // room: the tree gives up what it shares with it.
  // REQUIRES: started, 0 < kept < extent().physical, a model with full K/V.
  using MoveRows = std::function<Status(std::span<const BlockId>, std::span<const BlockId>)>;
  Status Compact(Lease& lease, int32_t kept, bool alone, const MoveRows& move);

  // Publishes the state at computed() (reply end) and releases the lease: the live state becomes a
  // snapshot where it lies, so that neither time nor room is needed. Returns its last report.
  // `storage`, if not null, gets the tokens: to free many takes a while, which others may have.
  ReuseReport Finish(Lease lease, std::vector<TokenId>* storage = nullptr);

  // Bytes that the lease would take for the state of all its tokens and a block more, and to be
  // compacted, beside what running requests hold. Costs: as Acquire. REQUIRES: not started.
  size_t BytesWanted(const Lease& lease);
  // The same for all that have started, but for idle work, beside what they hold.
  size_t BytesWantedByRunning() const;
  // Bytes that running requests could still take, everything that is only cached given up. O(1).
  size_t BytesFree() const;

  // Gives up cached state, pinned or not, worth about so many bytes, and all memory that is free.
  // Returns false if there was none.
  bool GiveWay(size_t bytes);

  // Moves the budget towards `bytes`, at most to what it was created with; below least_budget() a
  // request may find no room. What is over it is evicted and its memory given back to the system, a
  // slice at each call, pinned entries last; what running requests hold stays. Returns the budget
  // that holds from now on: above `bytes` there is more to do, by another call.
  size_t SetBudget(size_t bytes);
  size_t least_budget() const { return least_budget_; }
  // Bytes of memory that the state holds now, metadata included.
  size_t resident_bytes() const;

  // Idle work: expires, gives free pages back to the system. Returns true if there is more to do.
  bool Maintain();

  // Keeps the state of this prefix, as far as it is stored, for `pin_ms` from now (0: unpins).
  // Returns the number of tokens kept.
  int32_t Pin(const NamespaceKey& key, std::span<const TokenId> tokens, int64_t pin_ms);

  // Drops everything stored in the namespace, or in all of them. Running requests keep theirs.
  void Reset(const NamespaceKey& key);
  void ResetAll();

  // The memory behind the ids of every lease.
  const StateMemory& memory() const;
  const StateSpec& spec() const;
  const CacheOptions& options() const;

  CacheStats stats() const;
  // Up to `node_count_max` nodes of one namespace; those on the way of `prompt` are lit.
  std::vector<TreeNodeView> View(const NamespaceKey& key, size_t node_count_max,
                                 std::span<const TokenId> prompt = {}) const;
  std::string Dump() const;

  // Recomputes every count from the tree and the leases: free + leased + cached = total, reference
  // counts, links, order. Returns the first contradiction. O(everything): idle time and tests.
  Status CheckInvariants() const;

 private:
  StateCache();
  void Apply();
  void Begin();
  void Tell();
  Status Back(std::span<const BlockId> blocks, std::span<const StateId> states);
  size_t ResidentLimit() const;
  void CountResident();
  size_t least_budget_ = 0, most_budget_ = 0;
  DeviceMemory* memory_ = nullptr;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<Tier> tier_;
  std::unique_ptr<StateIndex> index_;
  TellBlocks told_;  // null: nobody
};

}  // namespace reprise
