// SPDX-License-Identifier: Apache-2.0
#include "api/responses/background.h"

#include <algorithm>

#include "api/errors.h"
#include "base/json_writer.h"

namespace reprise::api::responses {
namespace {

// A client that reads slowly is not sent more than this ahead.
constexpr size_t kPendingBytesMax = size_t{64} << 10;

}  // namespace

class BackgroundReply::Inner final : public http::Exchange {
 public:
  Inner(BackgroundReplyPtr reply, http::ExchangePtr asked)
      : reply_(std::move(reply)), asked_(std::move(asked)) {}
  ~Inner() override {
    if (reply_->over()) return;
    asked_->Post([reply = reply_] {
      reply->EndAs({nullptr, {}, "", {500, "the server failed to answer"}}, Want::kKeep);
    });
  }

  const http::Request& request() const override { return asked_->request(); }
  bool abandoned() const override { return reply_->over(); }
  const AccountPtr& account() const override { return asked_->account(); }
  void StartOver() override { asked_->StartOver(); }
  std::function<void()> Park() override { return asked_->Park(); }
  void Keep(std::shared_ptr<void> token) override { asked_->Keep(std::move(token)); }
  void Respond(http::Response) override { reply_->End(); }  // it is kept already
  void StartStream(http::Headers) override {}
  void Send(std::string bytes) override { reply_->Add(std::move(bytes)); }
  void End() override { reply_->End(); }
  size_t pending_bytes() const override { return 0; }
  void OnClose(std::function<void()> closed) override {
    reply_->SetCancel(asked_, std::move(closed));
  }
  void OnDrained(std::function<void()>) override {}
  void Post(std::function<void()> task) override { asked_->Post(std::move(task)); }
  void After(std::chrono::milliseconds delay, std::function<void()> task) override {
    asked_->After(delay, std::move(task));
  }

 private:
  const BackgroundReplyPtr reply_;
  const http::ExchangePtr asked_;
};

http::ExchangePtr BackgroundReply::MakeExchange(BackgroundReplyPtr reply, http::ExchangePtr asked) {
  return std::make_shared<Inner>(std::move(reply), std::move(asked));
}

std::string BackgroundReply::FormatEnd(const ResponseEnd* end, bool queued) const {
  ResponseHead head = parts_.head;
  head.queued = queued;
  std::string body;
  JsonWriter json(&body);
  WriteResponse(head, {}, end, &json);
  return body;
}

std::string BackgroundReply::Body() const { return FormatEnd(nullptr, !started_); }

void BackgroundReply::SetCancel(const http::ExchangePtr& asked, std::function<void()> cancel) {
  {
    const std::lock_guard lock(mutex_);
    if (!over_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  asked->Post(std::move(cancel));
}

void BackgroundReply::Attach(const http::ExchangePtr& reader, uint64_t next) {
  reader->Post([self = shared_from_this(), reader, next] { self->Open(reader, next); });
}

void BackgroundReply::Open(const http::ExchangePtr& exchange, uint64_t next) {
  if (next < first_) {
    const ApiError gone{400, "the server does not keep these events any more; ask without stream",
                        "starting_after"};
    return exchange->Respond(ErrorResponse(gone, &exchange->request()));
  }
  exchange->StartStream({});
  const auto reader = std::make_shared<Reader>(Reader{exchange, next});
  readers_.push_back(reader);
  // The exchange holds what it calls.
  const auto call = [this, &reader](void (BackgroundReply::*what)(const ReaderPtr&)) {
    return [weak_self = weak_from_this(), weak = std::weak_ptr(reader), what] {
      const auto self = weak_self.lock();
      const auto one = weak.lock();
      if (self && one) ((*self).*what)(one);
    };
  };
  exchange->OnClose(call(&BackgroundReply::LetGo));
  exchange->OnDrained(call(&BackgroundReply::Pump));
  Pump(reader);
}

void BackgroundReply::Cancel(const http::ExchangePtr& server, Want want,
                             std::function<void()> done) {
  server->Post([self = shared_from_this(), want, done = std::move(done)] {
    ResponseEnd end;
    end.cancelled = true;
    self->EndAs(end, want);
    if (done) done();
  });
}

void BackgroundReply::Abandon() {
  std::function<void()> cancel;  // dropped behind the lock
  const std::lock_guard lock(mutex_);
  over_ = true;
  cancel.swap(cancel_);
  parts_.keep = nullptr;
}

void BackgroundReply::Add(std::string event) {
  if (over_) return;
  const auto grow = [this](size_t bytes) {
    bytes_ += bytes;
    if (replies_ != nullptr) replies_->bytes_ += bytes;
  };
  grow(event.size());
  events_.push_back(std::move(event));
  PumpAll();
  const auto full = [this] {
    return bytes_ > BackgroundReplies::kEventBytesMax ||
           (replies_ != nullptr && replies_->bytes_ > BackgroundReplies::kAllBytesMax);
  };
  if (!full()) return;
  while (!events_.empty() && full()) {
    grow(size_t{0} - events_.front().size());
    events_.pop_front();
    ++first_;
  }
  PumpAll();  // those that are behind leave
}

// All that it was is kept.
void BackgroundReply::End() {
  std::function<void()> cancel;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    cancel.swap(cancel_);
  }
  if (replies_ != nullptr) replies_->OnEnd(*this);
  parts_.keep = nullptr;  // holds what holds this
  PumpAll();
}

void BackgroundReply::EndAs(const ResponseEnd& end, Want want) {
  std::function<void()> cancel;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    cancel.swap(cancel_);
  }
  if (cancel) cancel();  // it tells its sink nothing
  if (want == Want::kKeep && parts_.keep) parts_.keep(FormatEnd(&end, false), {});
  End();
}

void BackgroundReply::Pump(const ReaderPtr& reader) {
  while (reader->next < first_ + events_.size()) {
    if (reader->next < first_) break;
    if (reader->exchange->pending_bytes() > kPendingBytesMax) return;
    reader->exchange->Send(events_[reader->next++ - first_]);
  }
  if (reader->next >= first_ && !over_) return;
  reader->exchange->End();
  LetGo(reader);
}

void BackgroundReply::PumpAll() {
  const std::vector<ReaderPtr> readers = readers_;
  for (const ReaderPtr& reader : readers) Pump(reader);
}

void BackgroundReply::LetGo(const ReaderPtr& reader) { std::erase(readers_, reader); }

bool BackgroundReplies::Add(const BackgroundReplyPtr& reply) {
  const std::lock_guard lock(mutex_);
  const std::string& tenant = reply->parts().tenant;
  const auto running = std::ranges::count_if(
      replies_, [&](const auto& one) { return one.first.first == tenant && !one.second->over(); });
  if (static_cast<size_t>(running) >= kRunningMax) return false;
  reply->replies_ = this;
  replies_[{tenant, reply->id()}] = reply;
  return true;
}

BackgroundReplyPtr BackgroundReplies::Find(const std::string& tenant, std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find({tenant, std::string(id)});
  return found == replies_.end() ? nullptr : found->second;
}

void BackgroundReplies::Remove(const std::string& tenant, std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find({tenant, std::string(id)});
  if (found == replies_.end()) return;
  bytes_ -= found->second->bytes_;
  std::erase(ended_, found->first);
  replies_.erase(found);
}

void BackgroundReplies::Abandon(const void* owner) {
  std::vector<BackgroundReplyPtr> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto one = replies_.begin(); one != replies_.end();) {
      if (one->second->parts().owner != owner || one->second->over()) {
        ++one;
        continue;
      }
      bytes_ -= one->second->bytes_;
      gone.push_back(one->second);
      one = replies_.erase(one);
    }
  }
  for (const BackgroundReplyPtr& reply : gone) reply->Abandon();
}

size_t BackgroundReplies::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::ranges::count_if(replies_, [](const auto& one) { return !one.second->over(); }));
}

void BackgroundReplies::OnEnd(const BackgroundReply& reply) {
  const std::lock_guard lock(mutex_);
  const Key key{reply.parts().tenant, reply.id()};
  const auto drop = [this](const Key& which) {
    const auto found = replies_.find(which);
    bytes_ -= found->second->bytes_;
    replies_.erase(found);
  };
  if (!replies_.contains(key)) return;
  if (!reply.parts().streams) return drop(key);
  ended_.push_back(key);
  size_t bytes = 0;
  for (const Key& one : ended_) bytes += replies_.at(one)->bytes_;
  while (!ended_.empty() && (ended_.size() > kEndedMax || bytes > kEndedBytesMax)) {
    bytes -= replies_.at(ended_.front())->bytes_;
    drop(ended_.front());
    ended_.pop_front();
  }
}

}  // namespace reprise::api::responses
