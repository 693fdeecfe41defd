// SPDX-License-Identifier: Apache-2.0
// With zmq_library.cc the files that know libzmq.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "events/event_batch.h"
#include "events/publisher.h"
#include "events/replay.h"
#include "events/zmq_library.h"

namespace reprise {
namespace {

constexpr size_t kReplayCount = 10'000;  // messages, as vLLM's default
constexpr size_t kReplayBytes = size_t{64} << 20;
constexpr size_t kQueuedMax = 4096;         // messages that wait for the thread
constexpr int64_t kRequestBytesMax = 1024;  // of a frame that others send
constexpr int kLingerMs = 200;              // the last word has so long to leave

class Socket {
 public:
  explicit Socket(const ZmqLibrary& zmq) : zmq_(zmq) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (socket_ != nullptr) zmq_.close(socket_);
  }

  Status Bind(void* context, int type, const std::string& address) {
    socket_ = zmq_.socket(context, type);
    if (socket_ == nullptr) return Internal(std::string("ZeroMQ: ") + zmq_.strerror(errno));
    // A whole replay may wait for a client; a subscriber that is further behind needs one.
    const int waiting = static_cast<int>(kReplayCount) + 64;
    zmq_.setsockopt(socket_, ZMQ_SNDHWM, &waiting, sizeof(waiting));
    zmq_.setsockopt(socket_, ZMQ_LINGER, &kLingerMs, sizeof(kLingerMs));
    zmq_.setsockopt(socket_, ZMQ_MAXMSGSIZE, &kRequestBytesMax, sizeof(kRequestBytesMax));
    const int ipv6 = address.find('[') != std::string::npos ? 1 : 0;
    zmq_.setsockopt(socket_, ZMQ_IPV6, &ipv6, sizeof(ipv6));
    if (zmq_.bind(socket_, address.c_str()) == 0) return OkStatus();
    return InvalidArgument("cannot listen at " + address + " for events: " + zmq_.strerror(errno));
  }

  void* get() const { return socket_; }
  bool open() const { return socket_ != nullptr; }

  void Send(std::string_view frame, bool more) {
    zmq_.send(socket_, frame.data(), frame.size(), (more ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT);
  }
  // The last frame, not copied: all queues share it.
  void SendLast(const EventPayload& payload) {
    auto* const kept = new EventPayload(payload);
    zmq_msg_t message;
    zmq_.msg_init_data(
        &message, const_cast<char*>(payload->data()), payload->size(),
        [](void*, void* hint) { delete static_cast<EventPayload*>(hint); }, kept);
    if (zmq_.msg_send(&message, socket_, ZMQ_DONTWAIT) < 0) zmq_.msg_close(&message);
  }

  // The frames of a message that is there, those that could be a request; empty: there is none.
  std::vector<std::string> Receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t message;
      zmq_.msg_init(&message);
      const int size = zmq_.msg_recv(&message, socket_, ZMQ_DONTWAIT);
      more = size >= 0 ? zmq_.msg_more(&message) : 0;
      if (size >= 0 && frames.size() <= kReplayFrames) {
        frames.emplace_back(static_cast<const char*>(zmq_.msg_data(&message)), size);
      }
      zmq_.msg_close(&message);
    }
    return frames;
  }

 private:
  const ZmqLibrary& zmq_;
  void* socket_ = nullptr;
};

double SecondsNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

class ZmqPublisher : public EventPublisher {
 public:
  ZmqPublisher(const ZmqLibrary& zmq, const PublisherOptions& options)
      : zmq_(zmq),
        options_(options),
        context_(zmq),
        events_(zmq),
        replay_(zmq),
        buffer_(kReplayCount, kReplayBytes) {}

  ~ZmqPublisher() override {
    if (thread_.joinable()) {
      {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        queue_.push_back({BlockEvent{BlockEvent::Kind::kCleared}});
      }
      Wake();
      thread_.join();
    }
    if (wake_ >= 0) ::close(wake_);
  }

  Status Start() {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0 || context_.get() == nullptr) return Internal("no resources for events");
    REPRISE_TRY(events_.Bind(context_.get(), ZMQ_PUB, options_.events.text));
    if (!options_.replay.text.empty()) {
      REPRISE_TRY(replay_.Bind(context_.get(), ZMQ_ROUTER, options_.replay.text));
    }
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  bool Publish(std::vector<BlockEvent> events) override {
    bool lost = false;
    {
      std::lock_guard lock(mutex_);
      lost = queue_.size() >= kQueuedMax;
      if (lost) {
        queue_.clear();
        queue_.push_back({BlockEvent{BlockEvent::Kind::kCleared}});
      } else {
        queue_.push_back(std::move(events));
      }
    }
    if (lost) {
      Log(LogLevel::kWarning, "events were lost: routers now hear again what is cached");
    }
    Wake();
    return !lost;
  }

 private:
  struct Context {
    explicit Context(const ZmqLibrary& library) : zmq(library), context(library.ctx_new()) {}
    ~Context() {
      if (context != nullptr) zmq.ctx_term(context);
    }
    void* get() const { return context; }
    const ZmqLibrary& zmq;
    void* context;
  };

  void Wake() {
    const uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof(one));  // full: it is awake anyway
  }

  void Run() {
    zmq_pollitem_t items[2] = {{nullptr, wake_, ZMQ_POLLIN, 0}, {replay_.get(), 0, ZMQ_POLLIN, 0}};
    for (;;) {
      if (zmq_.poll(items, replay_.open() ? 2 : 1, -1) < 0 && errno != EINTR) return;
      uint64_t count = 0;
      (void)!::read(wake_, &count, sizeof(count));
      std::vector<std::vector<BlockEvent>> batches;
      bool stopping = false;
      {
        std::lock_guard lock(mutex_);
        batches.swap(queue_);
        stopping = stopping_;
      }
      for (const auto& events : batches) Send(events);
      if (stopping) return;
      if (replay_.open()) Answer();
    }
  }

  void Send(const std::vector<BlockEvent>& events) {
    const auto payload = std::make_shared<const std::string>(
        EncodeBatch(SecondsNow(), events, options_.block_tokens));
    const uint64_t number = buffer_.Add(payload);
    events_.Send(options_.topic, true);
    events_.Send(FormatNumber(number), true);
    events_.SendLast(payload);
  }

  // One request; another one waits until what was published meanwhile is sent.
  void Answer() {
    const std::vector<std::string> frames = replay_.Receive();
    const auto first = ParseReplayRequest(frames);
    if (!first) return;
    const auto send = [&](std::string_view topic, uint64_t number, const EventPayload& payload) {
      replay_.Send(frames[0], true);
      replay_.Send("", true);
      replay_.Send(topic, true);
      replay_.Send(FormatNumber(number), true);
      replay_.SendLast(payload);
    };
    buffer_.Visit(*first, [&](uint64_t number, const EventPayload& payload) {
      send(options_.topic, number, payload);
    });
    send("", kReplayEnd, std::make_shared<const std::string>());
  }

  const ZmqLibrary& zmq_;
  const PublisherOptions options_;
  Context context_;  // ends after the sockets
  Socket events_;    // the thread's, once it runs
  Socket replay_;
  ReplayBuffer buffer_;
  int wake_ = -1;
  std::mutex mutex_;
  std::vector<std::vector<BlockEvent>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<EventPublisher>> EventPublisher::Open(const PublisherOptions& options) {
  REPRISE_ASSIGN(const ZmqLibrary* const zmq, ZmqLibrary::Load());
  auto publisher = std::make_unique<ZmqPublisher>(*zmq, options);
  REPRISE_TRY(publisher->Start());
  return std::unique_ptr<EventPublisher>(std::move(publisher));
}

}  // namespace reprise
