// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "http/exchange.h"
#include "http/server.h"

namespace reprise::batches {

// Asks the server's own handlers, without a socket. `answered` hears the answer once, on any
// thread; if the handler drops the request, it hears 500.
//
// The handler runs on a worker of the server, as a heavy request.
class InnerRequests {
 public:
  // Both must outlive every request.
  InnerRequests(http::Server* server, std::shared_ptr<const http::Router> router)
      : server_(server), router_(std::move(router)) {}

  using Answered = std::function<void(http::Response)>;
  // Ends the request: its handler hears that its client has left.
  using Cancel = std::function<void()>;
  Cancel Ask(http::Request request, Answered answered);

 private:
  http::Server* const server_;
  const std::shared_ptr<const http::Router> router_;
};

}  // namespace reprise::batches
