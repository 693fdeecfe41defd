// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/chat/blocks.h"
#include "api/chat/reply.h"
#include "api/responses/item.h"
#include "base/json_writer.h"

namespace reprise::api::responses {

// What a response object says besides its output.
struct ResponseHead {
  std::string id;  // resp_...
  std::string model;
  int64_t created = 0;
  std::string settings;  // see ResponsesRequest
  Namespaces namespaces;
  CustomNames custom;
  bool seal_reasoning = false;
  bool logprobs = false;
  bool background = false;
  bool queued = false;  // nothing of it is computed yet

  bool IsCustom(const Block& block) const {
    return block.kind == OutputEvent::Kind::kCallBegin && custom.contains(block.name);
  }
};

// An item of the reply on its way.
struct OutputItem {
  std::string id;
  Block block;
  std::vector<ReplyToken> tokens;  // of a text, if asked for
};
// The item that a new block becomes.
OutputItem MakeOutputItem(const ResponseHead& head, size_t index, Block block);
Item ToItem(const ResponseHead& head, const OutputItem& output);

// in_progress: it has no content yet.
enum class ItemStatus { kInProgress, kCompleted, kIncomplete };
// Of an item that has ended: a call whose arguments are no JSON object is not to be made.
ItemStatus StatusOf(const OutputItem& item);
void WriteItem(const OutputItem& item, const ResponseHead& head, ItemStatus status,
               JsonWriter* json);
// The only part of the content of a text or of reasoning.
void WritePart(const OutputItem& item, const ResponseHead& head, bool empty, JsonWriter* json);
// An item of the input, as it is listed.
void WriteInputItem(const Item& item, const std::string& id, JsonWriter* json);

void WriteLogprobs(const std::vector<ReplyToken>& tokens, JsonWriter* json);

// How a response ended; nothing: it is in progress.
struct ResponseEnd {
  const Choice* choice = nullptr;  // null: it failed
  Usage usage = {};
  std::string report = {};  // the "reprise" object
  ApiError error = {};      // of one that failed
  bool cancelled = false;
};
// The whole object.
void WriteResponse(const ResponseHead& head, const std::vector<OutputItem>& items,
                   const ResponseEnd* end, JsonWriter* json);

// How the response ended, as its last event and its status say it: completed, incomplete, failed,
// cancelled.
const char* StatusOf(const ResponseEnd& end);

}  // namespace reprise::api::responses
