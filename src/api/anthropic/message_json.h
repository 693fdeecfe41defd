// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/anthropic/diagnostics.h"
#include "api/chat/blocks.h"
#include "api/chat/prompt.h"
#include "api/chat/reply.h"
#include "base/json_writer.h"

namespace reprise::api::anthropic {

// What the answer to a request says besides its content.
struct MessageHead {
  std::string id;  // msg_...
  std::string model;
  int64_t prompt_tokens = 0;
  int64_t hour_tokens = 0;  // of the prompt, up to the last breakpoint with a ttl of an hour
  int64_t kept_tokens = 0;  // of the prompt, up to the last breakpoint
  int32_t context_tokens = 0;
  bool show_thinking = true;
  CacheMiss miss = {};  // against the request that the client named
};

// `hour_breakpoints`: see MessagesRequest.
MessageHead MakeHead(const ServedModel& model, const Prompt& prompt, int hour_breakpoints,
                     bool show_thinking);

// The block with its content, or with its content still to come.
void WriteBlock(const Block& block, const MessageHead& head, bool empty, JsonWriter* json);
// What says that a thinking block is unchanged: a checksum of its text.
std::string SignatureOf(const Block& block);

// "stop_reason" and "stop_sequence". null: not known yet.
void WriteStop(const Choice* choice, const MessageHead& head, JsonWriter* json);
// The diagnostics object, or null if there is nothing to say.
void WriteDiagnostics(const Usage& usage, const MessageHead& head, JsonWriter* json);
// The usage object. A prompt is what was read from the cache, what was written up to the last
// breakpoint, and the rest.
void WriteUsage(const Usage& usage, const MessageHead& head, JsonWriter* json);

}  // namespace reprise::api::anthropic
