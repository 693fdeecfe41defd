// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/job.h"
#include "api/served_model.h"
#include "base/status.h"

namespace reprise::api {

// A prompt for the engine.
struct Prompt {
  std::vector<TokenId> ids;
  std::vector<Boundary> boundaries;  // where snapshots pay off: system, messages, breakpoints
  std::string text;                  // as the template rendered it; for who needs it
};

// What the client wants about thinking becomes variables of the job, and a budget. Before
// RenderChat. Fails with kInvalidArgument if this model cannot do it.
Status PlanThinking(const ServedModel& model, ChatJob* job);

// Renders the turns with the model's template and tokenises them. Nothing that the job brings along
// becomes a control token, whatever it spells. Fails with kInvalidArgument if the model has no
// template or the template refuses the conversation, kCancelled if `abandoned` (optional, asked now
// and then) says that nobody waits for it any more.
Result<Prompt> RenderChat(const ServedModel& model, const ChatJob& job,
                          std::function<bool()> abandoned = nullptr);

// The beginning of the next turn's prompt, as far as it can be known: the turns of `job` and
// `reply`, rendered as history, up to where the next message (of the tool that was called, or the
// user) says something new. Empty if it cannot be told.
Result<Prompt> PredictNextTurn(const ServedModel& model, const ChatJob& job, const ChatTurn& reply,
                               std::function<bool()> abandoned = nullptr);

}  // namespace reprise::api
