// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zmq.h>

#include "base/status.h"

namespace reprise {

// libzmq's functions, loaded when events are wanted: few servers publish any, and the library
// brings a dozen packages with it. Its version 5 has been binary compatible since 2015.
struct ZmqLibrary {
  // The functions of the library of this system, which stays loaded; or the sentence that says how
  // to get it.
  static Result<const ZmqLibrary*> Load();

  decltype(&::zmq_bind) bind = nullptr;
  decltype(&::zmq_close) close = nullptr;
  decltype(&::zmq_ctx_new) ctx_new = nullptr;
  decltype(&::zmq_ctx_term) ctx_term = nullptr;
  decltype(&::zmq_msg_close) msg_close = nullptr;
  decltype(&::zmq_msg_data) msg_data = nullptr;
  decltype(&::zmq_msg_init) msg_init = nullptr;
  decltype(&::zmq_msg_init_data) msg_init_data = nullptr;
  decltype(&::zmq_msg_more) msg_more = nullptr;
  decltype(&::zmq_msg_recv) msg_recv = nullptr;
  decltype(&::zmq_msg_send) msg_send = nullptr;
  decltype(&::zmq_poll) poll = nullptr;
  decltype(&::zmq_send) send = nullptr;
  decltype(&::zmq_setsockopt) setsockopt = nullptr;
  decltype(&::zmq_socket) socket = nullptr;
  decltype(&::zmq_strerror) strerror = nullptr;
};

}  // namespace reprise
