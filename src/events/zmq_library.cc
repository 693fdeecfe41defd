// SPDX-License-Identifier: Apache-2.0
#include "events/zmq_library.h"

#include <dlfcn.h>

#include <string>

namespace reprise {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

Result<const ZmqLibrary*> Open() {
  void* library = ::dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPrecondition(
        "--kv-events needs the library ZeroMQ (libzmq.so.5): install the package libzmq5");
  }
  static ZmqLibrary zmq;
  const bool all =
      Find(library, "zmq_bind", &zmq.bind) && Find(library, "zmq_close", &zmq.close) &&
      Find(library, "zmq_ctx_new", &zmq.ctx_new) && Find(library, "zmq_ctx_term", &zmq.ctx_term) &&
      Find(library, "zmq_msg_close", &zmq.msg_close) &&
      Find(library, "zmq_msg_data", &zmq.msg_data) &&
      Find(library, "zmq_msg_init", &zmq.msg_init) &&
      Find(library, "zmq_msg_init_data", &zmq.msg_init_data) &&
      Find(library, "zmq_msg_more", &zmq.msg_more) &&
      Find(library, "zmq_msg_recv", &zmq.msg_recv) &&
      Find(library, "zmq_msg_send", &zmq.msg_send) && Find(library, "zmq_poll", &zmq.poll) &&
      Find(library, "zmq_send", &zmq.send) && Find(library, "zmq_setsockopt", &zmq.setsockopt) &&
      Find(library, "zmq_socket", &zmq.socket) && Find(library, "zmq_strerror", &zmq.strerror);
  if (!all) return FailedPrecondition("libzmq.so.5 is not the ZeroMQ that --kv-events needs");
  return &zmq;
}

}  // namespace

Result<const ZmqLibrary*> ZmqLibrary::Load() {
  static const Result<const ZmqLibrary*> library = Open();
  return library;
}

}  // namespace reprise
