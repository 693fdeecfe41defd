// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
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

// A picture of an item. It stands in front of byte `content_bytes` of the text.
struct ItemPicture {
  size_t content_bytes = 0;
  SharedText file;    // as it was sent
  std::string place;  // in the request, for errors; empty: it came with an earlier one
};

// A conversation in the Responses API is a list of items, not of messages: what an assistant
// thought, said and called are three.
struct Item {
  // A custom call is one of a tool that takes a text, not arguments.
  enum class Kind { kMessage, kReasoning, kCall, kCallOutput, kCustomCall, kCustomOutput };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string role;     // of a message: system, user, assistant
  SharedText text;      // of a call: the arguments, JSON; of a custom one: its input
  std::string call_id;  // of a call and its output
  std::string name;     // of a call
  // Of a user's message and of the output of a call, in order.
  std::vector<ItemPicture> pictures{};

  size_t bytes() const;
};
using Items = std::vector<Item>;

// The namespaces of the functions that are in one, by the functions' names.
using Namespaces = std::unordered_map<std::string, std::string>;

// The tools that take a text. A model sees a function with one argument, "input".
using CustomNames = std::unordered_set<std::string>;
std::string WrapInput(std::string_view input);
// What such a call says: its "input", or, if it has none, all of its arguments.
std::string UnwrapInput(std::string_view arguments);

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
