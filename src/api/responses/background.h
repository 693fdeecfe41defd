// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/responses/response_json.h"
#include "api/responses/response_sink.h"
#include "http/exchange.h"

namespace reprise::api::responses {

class BackgroundReplies;

// A response that is computed whether or not its client waits (`background: true`). Clients ask for
// it by its id, read its events, leave, come back behind an event that they have seen, or end it.
//
// 1. Its events are numbered from 0, as they tell themselves (sequence_number). The latest ones are
//    kept, within the bounds of BackgroundReplies.
// 2. A client that reads slowly delays neither the reply nor other clients. One that falls behind
//    what is kept is let go.
// 3. What it has become is kept (Keep) before over() is true.
//
// Thread safety: any thread, except where it says "server thread".
class BackgroundReply : public std::enable_shared_from_this<BackgroundReply> {
 public:
  struct Parts {
    std::string tenant;
    ResponseHead head;
    Keep keep;
    bool streams = false;         // it has events
    const void* owner = nullptr;  // who computes it (BackgroundReplies::Abandon)
  };
  explicit BackgroundReply(Parts parts) : parts_(std::move(parts)) {}

  const std::string& id() const { return parts_.head.id; }
  const Parts& parts() const { return parts_; }
  // Completed, failed or cancelled.
  bool over() const { return over_; }
  size_t bytes() const { return bytes_; }  // of the events that are kept
  // The response object while it is not over.
  std::string Body() const;
  // Its first token is about to be computed, or its prompt.
  void SetStarted() { started_ = true; }

  // Sends `reader` the events from number `next` on, those to come, too, and ends its stream.
  void Attach(const http::ExchangePtr& reader, uint64_t next);
  // Ends it; then answers `asker`, unless it is null, with what it has become. A response that is
  // not wanted is not kept. `server`: whose server thread does it.
  enum class Want { kKeep, kForget };
  void Cancel(const http::ExchangePtr& server, Want want, std::function<void()> done);
  // Nobody computes it any more, and nobody hears of it.
  void Abandon();

  // What its reply sees of it: an exchange whose client never leaves. `asked`: of the request.
  static http::ExchangePtr MakeExchange(std::shared_ptr<BackgroundReply> reply,
                                        http::ExchangePtr asked);

 private:
  friend class BackgroundReplies;
  class Inner;
  struct Reader {
    http::ExchangePtr exchange;
    uint64_t next;
  };
  using ReaderPtr = std::shared_ptr<Reader>;

  void SetCancel(const http::ExchangePtr& asked, std::function<void()> cancel);
  std::string FormatEnd(const ResponseEnd* end, bool queued) const;
  // Server thread:
  void Open(const http::ExchangePtr& exchange, uint64_t next);
  void Add(std::string event);
  void End();
  void EndAs(const ResponseEnd& end, Want want);
  void Pump(const ReaderPtr& reader);
  void PumpAll();
  void LetGo(const ReaderPtr& reader);

  Parts parts_;  // without keep, when it is over
  std::atomic<bool> started_{false};
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::function<void()> cancel_;  // holds the reply, which holds this; guarded by mutex_
  BackgroundReplies* replies_ = nullptr;
  // Of the server thread:
  std::deque<std::string> events_;  // from number first_ on
  uint64_t first_ = 0;
  std::atomic<size_t> bytes_{0};  // of the events
  std::vector<ReaderPtr> readers_;
};

using BackgroundReplyPtr = std::shared_ptr<BackgroundReply>;

// All of a server: those that are computed, and the events of some that are over.
//
// Thread safety: all methods from any thread.
class BackgroundReplies {
 public:
  static constexpr size_t kRunningMax = 64;                   // of a tenant
  static constexpr size_t kEventBytesMax = size_t{16} << 20;  // of one
  static constexpr size_t kAllBytesMax = size_t{128} << 20;   // of all
  static constexpr size_t kEndedBytesMax = kAllBytesMax / 2;  // of those that are over
  static constexpr size_t kEndedMax = 256;

  // False: the tenant has too many that are not over.
  bool Add(const BackgroundReplyPtr& reply);
  BackgroundReplyPtr Find(const std::string& tenant, std::string_view id) const;
  void Remove(const std::string& tenant, std::string_view id);
  // Those of an owner that goes.
  void Abandon(const void* owner);
  // Those that are not over.
  size_t running() const;

 private:
  friend class BackgroundReply;
  using Key = std::pair<std::string, std::string>;  // tenant, id

  void OnEnd(const BackgroundReply& reply);

  mutable std::mutex mutex_;  // guards what follows
  std::map<Key, BackgroundReplyPtr> replies_;
  std::deque<Key> ended_;  // oldest first
  std::atomic<size_t> bytes_{0};
};

}  // namespace reprise::api::responses
