// SPDX-License-Identifier: Apache-2.0
#include "batches/inner_exchange.h"

#include <utility>
#include <vector>

namespace reprise::batches {
namespace {

// What outlives the exchange: whoever asked, and what it wants to tell the handler.
struct Line {
  InnerRequests::Answered answered;
  std::mutex mutex;
  std::function<void()> closed;
  std::atomic<bool> done{false};
  bool left = false;

  void Answer(http::Response response) {
    if (done.exchange(true)) return;
    answered(std::move(response));
    std::function<void()> over;  // holds the request, which holds this
    const std::lock_guard lock(mutex);
    if (!left) over.swap(closed);
  }
};

class InnerExchange final : public http::Exchange,
                            public std::enable_shared_from_this<InnerExchange> {
 public:
  InnerExchange(http::Server* server, http::Request request, std::shared_ptr<Line> line)
      : server_(server),
        request_(std::move(request)),
        line_(std::move(line)),
        account_(std::make_shared<Account>()) {
    account_->Widen();
  }
  ~InnerExchange() override {
    http::Response response;
    response.status = 500;
    response.body = R"({"error":{"message":"the server failed to answer"}})";
    line_->Answer(std::move(response));
  }

  void Handle(const http::Handler* handler) {
    server_->Work([self = shared_from_this(), handler] {
      if (!self->abandoned()) (*handler)(self);
      if (const auto parking = std::exchange(self->parking_, nullptr)) {
        // Whichever comes second, this or the end of the wait, handles it once more.
        parking->go = [self, handler] { self->Handle(handler); };
        Meet(parking);
      } else if (std::exchange(self->again_, false)) {
        self->Handle(handler);
      }
    });
  }

  const http::Request& request() const override { return request_; }
  bool abandoned() const override { return line_->done; }
  const AccountPtr& account() const override { return account_; }
  void StartOver() override { again_ = true; }
  std::function<void()> Park() override {
    parking_ = std::make_shared<Parking>();
    return [parking = parking_] { Meet(parking); };
  }
  void Keep(std::shared_ptr<void> token) override { kept_.push_back(std::move(token)); }
  void Respond(http::Response response) override { line_->Answer(std::move(response)); }
  void StartStream(http::Headers) override {
    http::Response response;
    response.status = 400;
    response.body = R"({"error":{"message":"a stream is not possible in a batch"}})";
    line_->Answer(std::move(response));
  }
  void Send(std::string) override {}
  void End() override {}
  size_t pending_bytes() const override { return 0; }
  void OnClose(std::function<void()> closed) override {
    {
      const std::lock_guard lock(line_->mutex);
      if (!line_->left) {
        line_->closed = std::move(closed);
        return;
      }
    }
    Post(std::move(closed));
  }
  void OnDrained(std::function<void()>) override {}
  void Post(std::function<void()> task) override { server_->Post(std::move(task)); }
  void After(std::chrono::milliseconds delay, std::function<void()> task) override {
    server_->After(delay, std::move(task));
  }

 private:
  struct Parking {
    std::atomic<int> met{0};
    std::function<void()> go;
  };
  static void Meet(const std::shared_ptr<Parking>& parking) {
    if (parking->met.fetch_add(1) == 1) std::exchange(parking->go, nullptr)();
  }

  http::Server* const server_;
  const http::Request request_;
  const std::shared_ptr<Line> line_;
  const AccountPtr account_;
  // Of the thread that handles it:
  bool again_ = false;
  std::shared_ptr<Parking> parking_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace

InnerRequests::Cancel InnerRequests::Ask(http::Request request, Answered answered) {
  const auto line = std::make_shared<Line>();
  line->answered = std::move(answered);
  const http::Router::Match match = router_->Find(request.method, request.path);
  if (match.route == nullptr) {
    http::Response response;
    response.status = 404;
    response.body = R"({"error":{"message":"there is no such endpoint"}})";
    line->Answer(std::move(response));
    return [] {};
  }
  std::make_shared<InnerExchange>(server_, std::move(request), line)->Handle(&match.route->handler);
  return [line, server = server_] {
    http::Response response;
    response.status = 499;
    line->Answer(std::move(response));
    std::function<void()> closed;
    {
      const std::lock_guard lock(line->mutex);
      line->left = true;
      closed = std::exchange(line->closed, nullptr);
    }
    if (closed) server->Post(std::move(closed));
  };
}

}  // namespace reprise::batches
