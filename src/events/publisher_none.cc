// SPDX-License-Identifier: Apache-2.0
// Instead of zmq_publisher.cc where zmq.h was not there when this was built.
#include "events/publisher.h"

namespace reprise {

Result<std::unique_ptr<EventPublisher>> EventPublisher::Open(const PublisherOptions&) {
  return InvalidArgument(
      "this program was built without libzmq and cannot publish events; install libzmq3-dev and "
      "build it again");
}

}  // namespace reprise
