// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/announce/block_event.h"

namespace reprise {

// An address to listen at: tcp://host:port, the host a number, an interface or "*".
struct EventAddress {
  std::string text;
  bool loopback = false;  // nobody but this machine can reach it

  static Result<EventAddress> Parse(std::string_view text);
};

struct PublisherOptions {
  EventAddress events;
  EventAddress replay;  // its text empty: none
  std::string topic;    // in front of every message; subscribers may choose by it
  int32_t block_tokens = 0;
};

// Tells routers what the cache has, over ZeroMQ: frames [topic, number, payload] on a PUB socket
// (event_batch.h), numbers counting up from 0. Who missed some asks the replay socket (ROUTER) with
// the number of the first, and is sent [topic, number, payload] for each that is still there, then
// a message with number 2^64 - 1 and no payload.
//
// A thread of its own sends. It never waits for subscribers: one that is too slow misses messages.
// If the thread itself falls behind, what it was to say is given up, all are told that nothing is
// there, and whoever publishes tells everything anew. At the end, too, they are told so.
//
// Thread safety: Publish from any thread; it never waits.
class EventPublisher {
 public:
  // Listens. Fails if that cannot be done, or if the program was built without libzmq.
  static Result<std::unique_ptr<EventPublisher>> Open(const PublisherOptions& options);
  virtual ~EventPublisher() = default;

  // One message. False: what was published is lost; it is to be published anew, from kCleared on.
  virtual bool Publish(std::vector<BlockEvent> events) = 0;
};

}  // namespace reprise
