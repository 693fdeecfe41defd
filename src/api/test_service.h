// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/service.h"
#include "http/message.h"

namespace reprise::api {

// For tests and fuzz targets: the APIs with everything behind them (templates, tokenizer, engine,
// cache) on one thread, without sockets, and a model without weights that spells the alphabet. The
// row of a token behind its final norm is {token, 1}.
class TestService {
 public:
  // `chat_template`: the model's; empty: one that takes everything.
  explicit TestService(ServiceOptions options = ServiceOptions(), TextVectors vectors = {},
                       std::string chat_template = "");
  ~TestService();

  struct Answer {
    int status = 0;  // 0: there was none
    bool streamed = false;
    std::string body;       // of a stream: all of it
    size_t rank = 0;        // so many were answered before it
    int restarts = 0;       // it began again, as a heavy request
    uint64_t work = 0;      // that its handler did
    size_t most_bytes = 0;  // that all requests ever held, when its handler was done
  };
  // Answers a request and does all the work that it caused. `leave_after`: the client goes away
  // after so many pieces of a stream.
  Answer Send(http::Request request, size_t leave_after = SIZE_MAX);
  // What its handler answers at once; all other work waits for the next request.
  Answer Begin(http::Request request);
  // Answers several that come at the same time, in this order.
  std::vector<Answer> SendAll(std::vector<http::Request> requests);
  // A request as clients send it: POST, JSON.
  static http::Request MakePost(std::string_view path, std::string_view body);
  Answer Post(std::string_view path, std::string_view body);

  // Clients of requests that come now do not read what they are sent, until TakeStalled: they read
  // on. Returns all that the last of them was sent.
  void SetStalled(bool stalled);
  std::string TakeStalled();

  Service& service();
  Engine& engine();
  const Ledger& ledger() const;  // of all requests
  void SetLedger(const Ledger::Limits& limits);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace reprise::api
