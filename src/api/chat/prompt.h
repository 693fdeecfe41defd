// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/job.h"
#include "api/served_model.h"
#include "base/account/account.h"
#include "base/status.h"

namespace reprise::api {

// A prompt for the engine.
struct Prompt {
  std::vector<TokenId> ids;
  std::vector<PlacedPicture> pictures;  // in them
  std::vector<Boundary> boundaries;     // where snapshots pay off: system, messages, breakpoints
  std::string text;                     // as the template rendered it; for who needs it
  // Of a prompt that cannot fit: so many ids would it have, about so many if it is more than twice
  // too long. Those above may then be incomplete, and StartReply refuses it.
  int64_t tokens_too_many = 0;
};

// How much of a prompt is wanted: all of it, or no more than it takes to see that it does not fit.
enum class Wanted { kAll, kWhatFits };

// Appends the ids of a text that a client sent, on its account. Fails if that is spent.
Status EncodeText(const ServedModel& model, std::string_view text, EncodeOptions options,
                  Wanted wanted, Account* account, Prompt* prompt);

// What the client wants about thinking becomes variables of the job, and a budget. Before
// RenderChat. Fails with kInvalidArgument if this model cannot do it.
Status PlanThinking(const ServedModel& model, ChatJob* job);

// Of what a client sent.
size_t BytesOf(const ChatJob& job);

// Renders the turns with the model's template and tokenises them. Pictures that were not seen yet
// are: their files become tokens. Nothing that the job brings along becomes a control token,
// whatever it spells. Fails with kInvalidArgument if the model has no template, the template
// refuses the conversation or a picture cannot be seen, kCancelled if nobody waits for it any more,
// or as the account (null: nobody's) does when it is spent.
Result<Prompt> RenderChat(const ServedModel& model, ChatJob* job, Account* account,
                          Wanted wanted = Wanted::kAll);

// The beginning of the next turn's prompt, as far as it can be known: the turns of `job` and
// `reply`, rendered as history, up to where the next message (of the tool that was called, or the
// user) says something new. Empty if it cannot be told.
Result<Prompt> PredictNextTurn(const ServedModel& model, const ChatJob& job, const ChatTurn& reply,
                               std::function<bool()> abandoned = nullptr);

}  // namespace reprise::api
