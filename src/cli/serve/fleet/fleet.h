// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/served_model.h"
#include "api/service.h"
#include "base/status.h"
#include "cli/serve/fleet/model_stack.h"
#include "cli/serve/serve_options.h"
#include "http/exchange.h"

namespace reprise::cli {

// The models of one server. A few of them have their weights in memory, the others come when a
// request names them, and one that is not in use gives way.
//
// 1. Weights and states of all models on a device stay within its budget (device_budgets.h). What
//    runs is never ended to make room: a model that has to go answers its requests first, and new
//    ones wait. A request that was let in is never asked to wait again, so nobody waits for one
//    that waits.
// 2. Who goes: of the models on the device that are not pinned, the one whose weights are read
//    again soonest for the bytes and the time that it was not used. A model's state stays when its
//    weights go, and gives way later, by itself (state_shares.h).
// 3. A request for a model that is not there waits without a thread. Models come in the order in
//    which they were wanted. One that cannot be loaded answers 503 with the reason, and is tried
//    again after a pause.
// 4. With one model that stays the only one nothing of this costs anything: its weights stay.
// 5. Models may come and go while the server runs (Add, Remove), where `shared.grows` says so. One
//    that was removed answers nobody who asks from then on; its memory is given back like that of a
//    sleeping one, and the rest of it at the end of the process.
//
// Thread safety: all methods from any thread. Weights are read by one thread of the fleet's own.
class Fleet final : public api::ModelSet {
 public:
  // The first model is loaded at once, and those with `preload`; all others when they are wanted.
  static Result<std::unique_ptr<Fleet>> Open(std::vector<ServeOptions> models,
                                             ModelStack::Shared shared);
  ~Fleet() override;
  // Loads nothing from now on; engines end after their step.
  void Stop();

  // The first model's, which is always built: its routes are those of all.
  ModelStack& front() { return *members_.front().stack; }
  bool several() const { return several_; }  // or may be
  bool grows() const { return shared_.grows; }

  // Hands a request for route `route` of the front's router to the model that it names: in its
  // JSON, or as ?model=. With neither, to the first.
  void Handle(size_t route, const http::ExchangePtr& exchange);

  std::vector<api::ModelBrief> List() const override;
  std::vector<std::pair<std::string, api::Service*>> Services() const override;
  void WriteMetrics(api::Exposition* page) const override;
  // Asks that a model be loaded, or that its weights go. Returns at once; fails with kNotFound.
  Status Load(const std::string& name);
  Status Unload(const std::string& name);
  // A further model, which is loaded when it is wanted. Fails if another has one of its names.
  // REQUIRES: grows().
  Status Add(ServeOptions options);
  // kFailedPrecondition: the first model stays.
  Status Remove(const std::string& name);
  // Sends the states of all models to a client now, and whenever one changes, or more of its
  // weights are read.
  void Watch(const http::ExchangePtr& exchange);
  // Sends one more event to all of them.
  void Tell(const std::string& event);
  // Ends these streams: the server stops.
  void EndWatches();

 private:
  enum class Place { kUnloaded, kLoading, kAwake, kLeaving, kAsleep };

  struct Waiting {
    const http::Exchange* exchange = nullptr;  // alive until `go` was called or dropped
    std::function<void()> go;
  };

  struct Member {
    ServeOptions options;
    std::string device;     // whose memory it takes; empty: the server has one model
    api::ModelBrief brief;  // before it was built
    std::unique_ptr<ModelStack> stack;
    Place place = Place::kUnloaded;
    bool wanted = false;    // somebody waits for it
    bool unwanted = false;  // it was asked to go
    bool removed = false;   // it answers nobody
    std::string error;      // of the last try
    std::chrono::steady_clock::time_point retry_at;
    uint64_t wanted_at = 0;  // who was wanted first comes first
    std::vector<Waiting> waiting;
    // Requests that it serves, from the moment they were let in until they end, however that comes
    // about: its weights stay for so long.
    std::set<const http::Exchange*> guests;
    int64_t last_use_ms = 0;
    int64_t keep_alive_ms = 0;  // as its options or its last request say; 0: no limit
    double load_ms = 0;         // how long its weights took the last time
    int percent = 0;            // of them that are read, while they are
    size_t awake_bytes = 0;
    size_t least_state = 0;  // of one request; foreseen, until it was built
    size_t state_budget = 0;
  };

  explicit Fleet(ModelStack::Shared shared)
      : shared_(std::move(shared)), several_(shared_.model_count > 1) {
    shared_.service.models = this;
  }

  Member* Find(const http::Request& request, std::string* name);
  Member* FindLocked(std::string_view name);
  Status AddLocked(ServeOptions options);
  bool NeedsWeights(size_t route) const;
  static bool IsOverdueLocked(const Member& member);
  void Run();
  void Tick();
  void WantLocked(Member* member);
  Member* NextWantedLocked();
  std::shared_ptr<void> MakeGuestToken(Member* member, const http::Exchange* exchange);
  Status Bring(Member* member);
  Status MakeRoom(Member* member, size_t bytes);
  Status ReadWithRoom(Member* member, const std::function<Status()>& read);
  Member* VictimLocked(const Member* coming);
  bool Drain(Member* member);
  void PutToSleep(Member* member);
  void DropWeights(Member* member);
  bool ShareOut(const std::string& device);
  Status Fill(Member* member);
  std::vector<Waiting> LetInLocked(Member* member);
  void Resume(Member* member);
  void Settle(Member* member, const Status& status);
  Status MakeStateRoom(Member* member);
  size_t AwakeBytesLocked(const std::string& device) const;
  size_t StayingBytesLocked(const Member& coming) const;
  size_t LeastStatesLocked(const Member& coming) const;
  void ShowProgress(Member* member, int percent);
  std::string FormatStates() const;
  void TellWatchers() { Tell(""); }

  ModelStack::Shared shared_;  // never changes after Open
  const bool several_;

  mutable std::mutex mutex_;
  std::list<Member> members_;  // grows at its end, under mutex_; nothing leaves it
  std::condition_variable changed_;
  bool stop_ = false;
  uint64_t swaps_ = 0;
  uint64_t wants_ = 0;
  std::vector<std::weak_ptr<http::Exchange>> watchers_;
  std::vector<bool> needs_weights_;  // by route
  std::thread thread_;
};

}  // namespace reprise::cli
