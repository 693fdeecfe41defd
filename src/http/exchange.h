// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/account/account.h"
#include "http/message.h"

namespace reprise::http {

// One request and its answer: either one Respond, or StartStream, any number of Send, End. What
// comes after the answer is complete, or after the client went away, is ignored; so handlers need
// no care about races with a disconnect. An exchange that is dropped unanswered answers 500.
//
// Thread safety: every method may be called from any thread, except where it says "server thread":
// that is the one thread that Post, After, OnClose and OnDrained run things on.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;

  // Whether nobody waits for the answer any more: the client has left, or the server stops. What
  // takes long asks now and then.
  virtual bool abandoned() const = 0;

  // What the request costs; lives as long as anybody holds it.
  virtual const AccountPtr& account() const = 0;
  // From a handler whose account wants more than a small request has: when it returns, the request
  // is handled once more from the beginning, on a thread for heavy work, with all that it may have.
  // REQUIRES: nothing was answered.
  virtual void StartOver() = 0;

  // From a handler that has to wait for something and must not hold its thread: when the returned
  // function is called, by any thread, the request is handled once more from the beginning. If the
  // function is dropped without a call, so is the exchange. REQUIRES: nothing was answered; the
  // handler returns without StartOver.
  virtual std::function<void()> Park() = 0;

  // Holds `token` until the last holder of the exchange has let go of it: an answer is complete by
  // then, or its client has left. Called by the handler.
  virtual void Keep(std::shared_ptr<void> token) = 0;

  // The whole answer.
  virtual void Respond(Response response) = 0;

  // The head of an answer that comes in pieces: server-sent events, unless `headers` have another
  // Content-Type. While nothing is sent, events have a comment line now and then, so that proxies
  // and clients keep waiting.
  virtual void StartStream(Headers headers) = 0;
  virtual void Send(std::string bytes) = 0;
  virtual void End() = 0;

  // What was sent and not yet taken by the network. A producer that sees much of it waits for
  // OnDrained. Server thread.
  virtual size_t pending_bytes() const = 0;

  // `closed` is called once if the client goes away before the answer is complete; at once if it
  // already has. (Who asks for a stream with HEAD goes away after its head.) `drained` is called
  // whenever everything sent has left.
  virtual void OnClose(std::function<void()> closed) = 0;
  virtual void OnDrained(std::function<void()> drained) = 0;

  // Runs `task` on the server thread, soon or after a delay. It must be quick.
  virtual void Post(std::function<void()> task) = 0;
  virtual void After(std::chrono::milliseconds delay, std::function<void()> task) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;
using Handler = std::function<void(const ExchangePtr&)>;

}  // namespace reprise::http
