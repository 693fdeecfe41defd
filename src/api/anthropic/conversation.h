// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api/chat/job.h"
#include "api/fields.h"
#include "api/service.h"
#include "base/json.h"

namespace reprise::api::anthropic {

// Collects the cache_control members of a request, in the order of the prompt.
class Breakpoints {
 public:
  // Notes `block`'s cache_control, if it has one, as a breakpoint at `place`.
  void Read(const JsonValue& block, const std::string& name, Breakpoint place, Fields* fields);
  // The cache_control of the request itself: a breakpoint at the end of the prompt.
  void ReadWhole(const std::vector<ChatTurn>& turns, Fields* fields);
  // Checks them together and hands them over. Those behind the last turn mean its end.
  void Finish(const std::vector<ChatTurn>& turns, CacheControl* cache, Fields* fields);

  int hours() const { return hours_; }  // so many have a ttl of an hour

 private:
  std::vector<Breakpoint> places_;
  int hours_ = 0;
};

// "system", a string or blocks: becomes the first turn.
void ReadSystem(bool strip_preambles, Fields* fields, Breakpoints* breakpoints, ChatJob* job);

// "messages". One message may become several turns: every tool_result is a turn of its own.
void ReadMessages(const ServiceOptions& options, Fields* fields, Breakpoints* breakpoints,
                  ChatJob* job);

}  // namespace reprise::api::anthropic
