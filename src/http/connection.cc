// SPDX-License-Identifier: Apache-2.0
#include "http/connection.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "http/coding/compress.h"
#include "http/cors.h"

namespace reprise::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadBytes = size_t{4} << 10;
constexpr size_t kReadBodyBytes = size_t{64} << 10;
constexpr size_t kLingerBytesMax = size_t{64} << 20;
constexpr size_t kQuickBytesMax = size_t{256} << 10;  // to compress: a millisecond or two
constexpr size_t kCompressBytesMax = size_t{32} << 20;
constexpr size_t kPathBytesShown = 200;
constexpr size_t kReasonBytesMax = 400;
// A larger body is not read for a request that will be refused anyway, and it is heavy work.
constexpr uint64_t kUnaskedBodyBytesMax = 64 << 10;

bool IsSaneId(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// A request that waits without a thread. It goes on after two events: its handler has returned, and
// what it waits for has happened. The later one of them calls `go`.
struct Parking {
  void Meet() {
    if (met.fetch_add(1) == 1) std::exchange(go, nullptr)();
  }

  std::atomic<int> met{0};
  std::function<void()> go;  // holds the exchange; set before the handler's Meet
};

// The Exchange that handlers hold: everything goes to the server thread.
class LiveExchange final : public Exchange {
 public:
  LiveExchange(std::shared_ptr<Connection> connection, uint64_t answer,
               std::shared_ptr<Request> request, AccountPtr account,
               std::shared_ptr<const std::atomic<bool>> gone)
      : connection_(std::move(connection)),
        answer_(answer),
        request_(std::move(request)),
        account_(std::move(account)),
        gone_(std::move(gone)) {}

  ~LiveExchange() override {
    if (hub().stopped) return;
    // Behind what other threads have sent; and the last reference to the connection must go on the
    // server thread.
    asio::io_context& io = hub().io;
    asio::post(io, [connection = std::move(connection_), answer = answer_] {
      connection->Abandon(answer);
    });
  }

  const Request& request() const override { return *request_; }
  bool abandoned() const override { return *gone_ || hub().stopping; }
  const AccountPtr& account() const override { return account_; }
  void StartOver() override { again_ = true; }
  // Whether StartOver was called; forgets it.
  bool TakeAgain() { return std::exchange(again_, false); }
  std::function<void()> Park() override {
    parking_ = std::make_shared<Parking>();
    return [parking = parking_] { parking->Meet(); };
  }
  // Null unless Park was called; forgets it.
  std::shared_ptr<Parking> TakeParking() { return std::exchange(parking_, nullptr); }
  void Keep(std::shared_ptr<void> token) override { kept_.push_back(std::move(token)); }

  void Respond(Response response) override {
    // Where it is called: a worker has the time, the server thread only for what is quick.
    const bool quick = hub().io.get_executor().running_in_this_thread();
    Compress(*request_, quick ? kQuickBytesMax : kCompressBytesMax, &response);
    Run([answer = answer_, response = std::move(response)](Connection& c) mutable {
      c.Respond(answer, std::move(response));
    });
  }
  void StartStream(Headers headers) override {
    Run([answer = answer_, headers = std::move(headers)](Connection& c) mutable {
      c.StartStream(answer, std::move(headers));
    });
  }
  void Send(std::string bytes) override {
    Run([answer = answer_, bytes = std::move(bytes)](Connection& c) mutable {
      c.Send(answer, std::move(bytes));
    });
  }
  void End() override {
    Run([answer = answer_](Connection& c) { c.End(answer); });
  }
  size_t pending_bytes() const override { return connection_->pending_bytes(); }
  void OnClose(std::function<void()> closed) override {
    Run([answer = answer_, closed = std::move(closed)](Connection& c) mutable {
      c.OnClose(answer, std::move(closed));
    });
  }
  void OnDrained(std::function<void()> drained) override {
    Run([answer = answer_, drained = std::move(drained)](Connection& c) mutable {
      c.OnDrained(answer, std::move(drained));
    });
  }
  void Post(std::function<void()> task) override {
    if (!hub().stopped) asio::post(hub().io, std::move(task));
  }
  void After(std::chrono::milliseconds delay, std::function<void()> task) override {
    if (hub().stopped) return;
    auto timer = std::make_shared<asio::steady_timer>(hub().io, delay);
    timer->async_wait([timer, task = std::move(task)](const error_code& error) {
      if (!error) task();
    });
  }

  // The handler has returned: the body is not needed any more.
  void DropBody() {
    request_->body = std::string();
    account_->EndReading();
    Run([answer = answer_](Connection& c) { c.BodyDone(answer); });
  }

 private:
  Hub& hub() const { return connection_->hub(); }

  template <typename Task>
  void Run(Task task) {
    if (hub().stopped) return;
    asio::dispatch(hub().io, [connection = connection_, task = std::move(task)]() mutable {
      task(*connection);
    });
  }

  std::shared_ptr<Connection> connection_;
  const uint64_t answer_;
  const std::shared_ptr<Request> request_;
  const AccountPtr account_;
  const std::shared_ptr<const std::atomic<bool>> gone_;
  // Of the thread that handles it:
  bool again_ = false;
  std::shared_ptr<Parking> parking_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace

Connection::Connection(std::shared_ptr<Hub> hub, std::unique_ptr<Transport> transport,
                       std::string address)
    : hub_(std::move(hub)), transport_(std::move(transport)), address_(std::move(address)) {
  hub_->connections.insert(this);
  hub_->counters.connections = hub_->connections.size();
}

Connection::~Connection() {
  hub_->places->Leave(this);
  hub_->connections.erase(this);
  hub_->counters.connections = hub_->connections.size();
  if (refused_) --hub_->refusing;
  ReleaseBody();
}

void Connection::Start() {
  parser_ = std::make_unique<RequestParser>(hub_->options.limits);
  deadline_ = std::chrono::steady_clock::now() + hub_->options.head_max;
  hub_->places->SetWaiting(this, true);
  transport_->Open([self = shared_from_this()](const error_code& error) {
    error ? self->Close() : self->Read();
  });
}

void Connection::StartRefused() {
  refused_ = true;
  ++hub_->refusing;
  ++hub_->counters.connections_refused;
  Refuse(503, "the server has no room for another connection; try again later");
}

void Connection::Sweep(TimePoint now) {
  if (state_ == State::kAnswering && !in_flight_.empty() && now > deadline_) return Close();
  if (state_ == State::kLingering && now > deadline_) return Close();
  if (state_ == State::kReading && now > deadline_) {
    const bool begun = !buffer_.empty() || parser_->state() != RequestParser::State::kHead;
    if (begun) return Refuse(408, "the request did not arrive in time");
    return Close();
  }
  if (streaming_ && pings_ && !complete_ && now - last_queued_ > hub_->options.ping_interval) {
    Send(answer_, ": ping\n\n");
  }
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  const bool gone = state_ == State::kAnswering && !complete_;
  if (state_ == State::kAnswering) {
    if (gone) ++hub_->counters.disconnects;
    TellAnswered(gone ? 499 : status_);
  }
  state_ = State::kClosed;
  hub_->places->Leave(this);
  if (gone_) *gone_ = true;
  ReleaseBody();
  transport_->Close();
  const auto closed = std::exchange(closed_, nullptr);
  drained_ = nullptr;
  if (gone && closed) closed();
}

void Connection::Read() {
  if (reading_ || state_ == State::kClosed) return;
  reading_ = true;
  const bool body = state_ == State::kLingering ||
                    (state_ == State::kReading && parser_->state() == RequestParser::State::kBody);
  const bool large = state_ == State::kLingering ? lingered_bytes_ > kReadBodyBytes
                                                 : body && body_bytes_ > kReadBodyBytes;
  large ? AwaitTurn() : ReadNow(body ? kReadBodyBytes : kReadBytes);
}

// Those who send much take turns, one piece each, and between two pieces everybody else is heard:
// however many bodies arrive, a small request waits for one piece, not for one of each.
void Connection::AwaitTurn() {
  hub_->turns.push_back(shared_from_this());
  if (std::exchange(hub_->turning, true)) return;
  asio::post(hub_->io, [hub = hub_] { TakeTurn(hub); });
}

void Connection::TakeTurn(const std::shared_ptr<Hub>& hub) {
  if (hub->turns.empty()) {
    hub->turning = false;
    return;
  }
  const std::shared_ptr<Connection> next = std::move(hub->turns.front());
  hub->turns.pop_front();
  if (next->state_ != State::kClosed) next->ReadNow(kReadBodyBytes);
  asio::post(hub->io, [hub] { TakeTurn(hub); });
}

void Connection::ReadNow(size_t bytes_max) {
  if (incoming_.size() != bytes_max) incoming_ = std::vector<char>(bytes_max);
  transport_->Read(asio::buffer(incoming_),
                   [self = shared_from_this()](const error_code& error, size_t bytes) {
                     self->reading_ = false;
                     if (error) return self->Close();
                     self->OnRead({self->incoming_.data(), bytes});
                   });
}

void Connection::OnRead(std::string_view bytes) {
  switch (state_) {
    case State::kReading:
      if (buffer_.empty() && parser_->state() == RequestParser::State::kHead) {
        deadline_ = std::chrono::steady_clock::now() + hub_->options.head_max;
      }
      if (buffer_.empty()) return Process(bytes);
      buffer_ += bytes;
      return Process(std::exchange(buffer_, std::string()));
    case State::kAnswering:  // the next request, early
      buffer_ += bytes;
      if (buffer_.size() < hub_->options.limits.head_bytes_max) Read();
      return;
    case State::kLingering:
      lingered_bytes_ += bytes.size();
      if (lingered_bytes_ > kLingerBytesMax) return Close();
      return Read();
    case State::kClosed:
      return;
  }
}

// What is not used up stays in buffer_, which is empty now.
void Connection::Process(std::string_view bytes) {
  while (state_ == State::kReading) {
    const bool in_head = parser_->state() == RequestParser::State::kHead;
    bytes.remove_prefix(parser_->Feed(bytes));
    if (parser_->state() != RequestParser::State::kHead) hub_->places->SetWaiting(this, false);
    const bool more = parser_->state() == RequestParser::State::kBody && in_head && !bytes.empty();
    if (!more) buffer_ = bytes;
    switch (parser_->state()) {
      case RequestParser::State::kFailed:
        return Refuse(parser_->status(), parser_->problem());
      case RequestParser::State::kDone:
        if (!CountBody()) return;
        return BeginAnswer();
      case RequestParser::State::kBody:
        if (in_head) {
          if (!BeginBody()) return;
          if (more) break;  // go on with the body
        }
        if (!CountBody()) return;
        return Read();
      case RequestParser::State::kHead:
        return Read();
    }
  }
}

// The head is there, a body follows: does anybody want it, and is there room for it?
bool Connection::BeginBody() {
  const ServerOptions& options = hub_->options;
  const uint64_t bytes = parser_->content_length().value_or(options.limits.body_bytes_max);
  if (bytes > kUnaskedBodyBytesMax || parser_->expects_continue()) {
    Request head = parser_->head();
    AssignId(&head);
    if (auto refusal = Decide(head).refusal) {
      request_ = std::make_shared<Request>(std::move(head));
      RefuseUnread(std::move(*refusal));
      return false;
    }
  }
  const uint64_t least = parser_->content_length().value_or(0);
  if (hub_->options.ledger->bytes() + least > hub_->options.ledger->limits().bytes) {
    Refuse(503, "the server is reading too many requests; try again later");
    return false;
  }
  deadline_ = std::chrono::steady_clock::now() + options.body_max;
  window_bytes_ = 0;
  if (parser_->expects_continue()) Queue("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

// More of a body has arrived. Memory is counted as it is used: what a client announces, and never
// sends, takes no room from others. False: there was none.
bool Connection::CountBody() {
  const ServerOptions& options = hub_->options;
  const size_t bytes = parser_->body_bytes();
  const size_t more = bytes - std::exchange(body_bytes_, bytes);
  hub_->counters.bodies_bytes += more;
  if (account_ == nullptr) OpenAccount(parser_->head());
  if (!account_->TakeBody(more).ok()) {
    Refuse(503, "the server is reading too many requests; try again later");
    return false;
  }
  const auto window = std::chrono::duration_cast<std::chrono::milliseconds>(options.body_max);
  const uint64_t wanted =
      options.body_bytes_per_second_min * static_cast<uint64_t>(window.count()) / 1000;
  if (bytes - window_bytes_ >= wanted) {
    window_bytes_ = bytes;
    deadline_ = std::chrono::steady_clock::now() + window;
  }
  return true;
}

void Connection::ReleaseBody() { hub_->counters.bodies_bytes -= std::exchange(body_bytes_, 0); }

void Connection::OpenAccount(const Request& head) {
  const auto& share_of = hub_->options.share_of;
  std::string share = share_of ? share_of(head) : std::string();
  account_ = std::make_shared<Account>(hub_->options.ledger, share.empty() ? address_ : share,
                                       hub_->options.account);
}

void Connection::AssignId(Request* request) {
  const std::string_view id = request->Header("x-request-id");
  char ours[24];
  std::snprintf(ours, sizeof(ours), "%010llx", static_cast<unsigned long long>(hub_->next_id++));
  request->id = IsSaneId(id) ? std::string(id) : "req_" + hub_->id_prefix + ours;
}

void Connection::BeginAnswer() {
  auto request = std::make_shared<Request>();
  chunked_ = !parser_->is_http_1_0();
  close_after_ = close_after_ || !parser_->keep_alive();
  *request = parser_->Take();
  head_only_ = request->method == "HEAD";
  AssignId(request.get());
  request_ = request;
  ++answer_;
  ++hub_->counters.requests;
  ++hub_->counters.requests_active;
  state_ = State::kAnswering;
  begun_ = std::chrono::steady_clock::now();
  status_ = 0;
  reason_.clear();
  started_ = streaming_ = complete_ = false;
  if (buffer_.size() < hub_->options.limits.head_bytes_max) Read();
  gone_ = std::make_shared<std::atomic<bool>>(false);
  account_->SetAbandoned([gone = gone_, hub = hub_.get()] { return *gone || hub->stopping; });
  Dispatch(std::make_shared<LiveExchange>(shared_from_this(), answer_, std::move(request), account_,
                                          gone_));
}

Connection::Decision Connection::Decide(const Request& request) {
  const auto& refuse = hub_->options.refuse;
  if (IsPreflight(request) && IsAllowed(hub_->options.cors_origins, request.Header("origin"))) {
    return {nullptr, AnswerPreflight(request)};
  }
  const Router::Match match = hub_->router.Find(request.method, request.path);
  if (match.route == nullptr) {
    if (match.allowed.empty()) {
      const std::string path = request.path.substr(0, kPathBytesShown);
      const std::string similar = hub_->router.FindSimilar(path);
      return {nullptr, refuse(404,
                              "there is nothing at " + path +
                                  (similar.empty() ? "" : "; did you mean " + similar + "?"),
                              &request)};
    }
    Response response = refuse(405, "this address takes " + match.allowed + " only", &request);
    response.headers.emplace_back("Allow", match.allowed);
    return {nullptr, std::move(response)};
  }
  if (hub_->draining && match.route->run_on != RunOn::kServer) {
    close_after_ = true;
    return {nullptr, refuse(503, "the server is shutting down; try another one", &request)};
  }
  if (!hub_->options.admit) return {match.route, std::nullopt};
  return {match.route, hub_->options.admit(request, *match.route)};
}

void Connection::Dispatch(const ExchangePtr& exchange) {
  Decision decision = Decide(exchange->request());
  if (decision.refusal) return exchange->Respond(std::move(*decision.refusal));
  const Handler& handler = decision.route->handler;
  if (decision.route->run_on == RunOn::kServer) {
    handler(exchange);
    static_cast<LiveExchange&>(*exchange).DropBody();
    return;
  }
  using Size = WorkQueue::Size;
  if (exchange->request().body.size() > kUnaskedBodyBytesMax) {
    return Enqueue(hub_.get(), exchange, &handler, Size::kHeavy, false);
  }
  if (decision.route->run_on == RunOn::kQuick) {
    return Enqueue(hub_.get(), exchange, &handler, Size::kQuick, false);
  }
  const std::string& share = exchange->account()->share();
  const PastSizes& past = hub_->past_sizes;
  const Size size = past.BeginsHeavy(share, &handler) ? Size::kHeavy : Size::kSmall;
  Enqueue(hub_.get(), exchange, &handler, size, past.Knows(share, &handler));
}

void Connection::Enqueue(Hub* hub, const ExchangePtr& exchange, const Handler* handler,
                         WorkQueue::Size size, bool notes) {
  if (size == WorkQueue::Size::kHeavy) exchange->account()->Widen();
  const auto run = [hub, exchange, handler, size, notes] {
    LiveExchange& live = static_cast<LiveExchange&>(*exchange);
    if (!live.abandoned()) (*handler)(exchange);
    if (const auto parking = live.TakeParking()) {
      parking->go = [hub, exchange, handler, size, notes] {
        Enqueue(hub, exchange, handler, size, notes);
      };
      return parking->Meet();
    }
    const bool again = live.TakeAgain();
    const AccountPtr& account = exchange->account();
    if (again || notes) {
      const bool heavy = again || account->work() > hub->options.account.small_work;
      asio::post(hub->io, [hub, share = account->share(), handler, heavy, again] {
        hub->past_sizes.Note(share, handler, heavy);
        if (again) ++hub->counters.restarts;
      });
    }
    if (!again) return live.DropBody();
    Enqueue(hub, exchange, handler, WorkQueue::Size::kHeavy, false);
  };
  hub->workers->Add({exchange->account()->share(), size, run});
}

// Answers what cannot become an exchange, and closes.
void Connection::Refuse(int status, const std::string& message) {
  auto request = std::make_shared<Request>();
  if (parser_ != nullptr && !parser_->head().path.empty()) {
    *request = parser_->head();
    AssignId(request.get());
  }
  request_ = request;
  RefuseUnread(
      hub_->options.refuse(status, message, request->path.empty() ? nullptr : request_.get()));
}

// Answers request_, of which not all was read, and closes.
void Connection::RefuseUnread(Response response) {
  ++answer_;
  state_ = State::kAnswering;
  hub_->places->SetWaiting(this, false);
  ++hub_->counters.requests_active;
  begun_ = std::chrono::steady_clock::now();
  started_ = streaming_ = complete_ = false;
  head_only_ = request_->method == "HEAD";
  close_after_ = true;
  Respond(answer_, std::move(response));
}

std::string Connection::FormatHead(const Response& response, const char* length) {
  status_ = response.status;
  reason_ = response.reason.substr(0, kReasonBytesMax);
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head += ReasonPhrase(response.status);
  head += "\r\nDate: " + FormatDate(std::time(nullptr));
  head += "\r\nContent-Type: " + response.content_type + "\r\n" + length;
  if (!request_->id.empty()) head += "x-request-id: " + request_->id + "\r\n";
  const auto add = [&head](const Headers& headers) {
    for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  };
  add(response.headers);
  add(CorsHeaders(hub_->options.cors_origins, *request_));
  head += close_after_ ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n";
  return head;
}

void Connection::Respond(uint64_t answer, Response response) {
  if (!Current(answer) || started_) return;
  started_ = complete_ = true;
  const std::string length = "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  Queue(FormatHead(response, length.c_str()));
  if (!head_only_ && !response.body.empty()) Queue(std::move(response.body));
}

void Connection::StartStream(uint64_t answer, Headers headers) {
  if (!Current(answer) || started_) return;
  started_ = streaming_ = true;
  Response response;
  response.content_type = "text/event-stream; charset=utf-8";
  pings_ = true;
  for (auto& [name, value] : headers) {
    if (EqualIgnoringCase(name, "content-type")) {
      response.content_type = std::move(value);
      pings_ = false;
    } else {
      response.headers.emplace_back(std::move(name), std::move(value));
    }
  }
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("X-Accel-Buffering", "no");
  if (!chunked_) close_after_ = true;
  complete_ = head_only_;
  Queue(FormatHead(response, chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
  // Who asks with HEAD wants no events: to the producer it has left.
  const auto closed = head_only_ ? std::exchange(closed_, nullptr) : nullptr;
  if (closed) closed();
}

void Connection::Send(uint64_t answer, std::string bytes) {
  if (!Current(answer) || !streaming_ || complete_ || bytes.empty()) return;
  if (!chunked_) return Queue(std::move(bytes));
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  std::string chunk = size;
  chunk += bytes;
  chunk += "\r\n";
  Queue(std::move(chunk));
}

void Connection::End(uint64_t answer) {
  if (!Current(answer) || !streaming_ || complete_) return;
  complete_ = true;
  if (chunked_) Queue("0\r\n\r\n");
  if (in_flight_.empty() && queue_.empty()) FinishAnswer();
}

void Connection::Abandon(uint64_t answer) {
  if (!Current(answer) || complete_) return;
  if (started_) return Close();  // a stream that nobody will end
  Respond(answer, hub_->options.refuse(500, "the server failed to answer", request_.get()));
}

void Connection::OnClose(uint64_t answer, std::function<void()> closed) {
  if (Current(answer) && !complete_) {
    closed_ = std::move(closed);
  } else if (answer == answer_ && (!complete_ || (streaming_ && head_only_))) {
    closed();
  }
}

void Connection::OnDrained(uint64_t answer, std::function<void()> drained) {
  if (Current(answer) && !complete_) drained_ = std::move(drained);
}

void Connection::BodyDone(uint64_t answer) {
  if (answer == answer_) ReleaseBody();
}

void Connection::Queue(std::string bytes) {
  pending_bytes_ += bytes.size();
  last_queued_ = std::chrono::steady_clock::now();
  queue_.push_back(std::move(bytes));
  if (in_flight_.empty()) Write();
}

void Connection::Write() {
  in_flight_.swap(queue_);
  std::vector<asio::const_buffer> buffers;
  size_t bytes = 0;
  for (const std::string& piece : in_flight_) {
    buffers.emplace_back(piece.data(), piece.size());
    bytes += piece.size();
  }
  if (state_ == State::kAnswering) {
    deadline_ = last_queued_ + hub_->options.stall_max +
                std::chrono::seconds(bytes / hub_->options.body_bytes_per_second_min);
  }
  transport_->Write(std::move(buffers),
                    [self = shared_from_this()](const error_code& error, size_t written) {
                      self->in_flight_.clear();
                      self->pending_bytes_ -= written;
                      if (error) return self->Close();
                      self->OnWritten();
                    });
}

void Connection::OnWritten() {
  if (state_ == State::kClosed) return;
  if (!queue_.empty()) return Write();
  if (state_ != State::kAnswering) return;
  if (complete_) return FinishAnswer();
  if (drained_) drained_();
}

void Connection::TellAnswered(int status) {
  --hub_->counters.requests_active;
  if (!hub_->options.answered) return;
  const auto taken = std::chrono::steady_clock::now() - begun_;
  hub_->options.answered(
      {*request_, status, reason_, std::chrono::duration_cast<std::chrono::microseconds>(taken)});
}

void Connection::FinishAnswer() {
  TellAnswered(status_);
  ReleaseBody();
  account_ = nullptr;
  closed_ = nullptr;
  drained_ = nullptr;
  if (close_after_) {
    state_ = State::kLingering;
    deadline_ = std::chrono::steady_clock::now() + hub_->options.linger_max;
    transport_->EndSending();
    return Read();
  }
  state_ = State::kReading;
  parser_ = std::make_unique<RequestParser>(hub_->options.limits);
  const ServerOptions& options = hub_->options;
  deadline_ =
      std::chrono::steady_clock::now() + (buffer_.empty() ? options.idle_max : options.head_max);
  hub_->places->SetWaiting(this, true);
  if (!buffer_.empty()) return Process(std::exchange(buffer_, std::string()));
  Read();
}

}  // namespace reprise::http
