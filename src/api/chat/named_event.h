// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "http/exchange.h"

namespace reprise::api {

// A server-sent event on its way: its name stands before it and in it.
//   event: ping
//   data: {"type": "ping", ...}
struct NamedEvent {
  explicit NamedEvent(std::string_view name) : text("event: "), json(&text) {
    text += name;
    text += "\ndata: ";
    json.BeginObject().Member("type", name);
  }
  NamedEvent(const NamedEvent&) = delete;

  void Send(http::Exchange* exchange) {
    json.EndObject();
    text += "\n\n";
    exchange->Send(std::move(text));
  }

  std::string text;
  JsonWriter json;  // inside the object
};

}  // namespace reprise::api
