// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace reprise {

// A plain conversation as the JSON that ChatInput takes.
struct ChatMessage {
  std::string role;
  std::string content;
};

inline JsonDocument MakeMessages(const std::vector<ChatMessage>& messages) {
  std::string text;
  JsonWriter json(&text);
  json.BeginArray();
  for (const ChatMessage& message : messages) {
    json.BeginObject().Member("role", message.role).Member("content", message.content).EndObject();
  }
  json.EndArray();
  Result<JsonDocument> document = JsonDocument::Parse(text);
  CHECK(document.ok());
  return std::move(*document);
}

}  // namespace reprise
