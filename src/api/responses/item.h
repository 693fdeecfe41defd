// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/chat/job.h"
#include "api/fields.h"
#include "api/service.h"

namespace reprise::api::responses {

// A text that copies share: an item that is named a thousand times is held once.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text)  // NOLINT
      : text_(std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}  // NOLINT

  const std::string& get() const {
    static const std::string empty;
    return text_ ? *text_ : empty;
  }
  size_t size() const { return get().size(); }
  bool empty() const { return get().empty(); }

 private:
  std::shared_ptr<const std::string> text_;
};

// A conversation in the Responses API is a list of items, not of messages: what an assistant
// thought, said and called are three.
struct Item {
  enum class Kind { kMessage, kReasoning, kCall, kCallOutput };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string role;     // of a message: system, user, assistant
  SharedText text;      // of a call: the arguments, JSON
  std::string call_id;  // of a call and its output
  std::string name;     // of a call

  size_t bytes() const {
    return sizeof(Item) + id.size() + text.size() + call_id.size() + name.size();
  }
};
using Items = std::vector<Item>;

// The namespaces of the functions that are in one, by the functions' names.
using Namespaces = std::unordered_map<std::string, std::string>;

// Where an item that a request only names (item_reference) is looked up; null: not known.
using FindItem = std::function<const Item*(std::string_view id)>;

// "input": a string, or items. Errors stay in `fields`.
void ReadInput(const ServiceOptions& options, const FindItem& find, Fields* fields, Items* items);

// The turns that templates know. What an assistant thought, said and called between two others is
// one turn; `instructions` and the system's messages at the start are one, too.
std::vector<ChatTurn> MakeTurns(std::string_view instructions, std::span<const Item> items);

// The "encrypted_content" of reasoning, for clients that keep nothing else of it. It is not secret:
// the text stands beside it.
std::string SealReasoning(std::string_view text);

}  // namespace reprise::api::responses
