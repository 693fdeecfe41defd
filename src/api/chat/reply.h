// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/chat/job.h"
#include "api/chat/prompt.h"
#include "api/chat/report.h"
#include "api/errors.h"
#include "api/service.h"
#include "base/json.h"
#include "grammar/matcher.h"
#include "http/exchange.h"
#include "text/output/output_parser.h"

namespace reprise::api {

// A generated token as the APIs show it.
struct ReplyToken {
  TokenId id = 0;
  std::string bytes;
  float logprob = 0;            // NaN: none (the first token of a prompt)
  std::vector<ReplyToken> top;  // the most likely ones instead
};

enum class StopKind { kEnd, kLength, kStopString, kToolCalls };

// One of the choices of a reply, as far as it has come.
struct Choice {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;     // with ids
  std::vector<ReplyToken> prompt;  // only if asked for (ReplyPlan::score_prompt)
  std::vector<ReplyToken> tokens;  // only if they are kept (ReplyPlan::keep_tokens)
  std::optional<ReplyToken> end;   // the token that ended it, where log-probabilities are told
  StopKind stop = StopKind::kEnd;
  std::string matched_stop;
  int64_t reasoning_tokens = 0;
  Completion completion;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion: those that were thought
  int64_t cached_tokens = 0;     // of the prompts: read from the cache
  DraftCount drafts;             // of the completion's tokens: guessed before (docs/speculation.md)
  int64_t written_tokens = 0;    // of the prompts: computed, and stored for the next request
};

// What was added to one choice.
struct Delta {
  size_t choice = 0;
  OutputEvents events;             // what the text means: content, reasoning, parts of calls
  std::vector<ReplyToken> tokens;  // the tokens behind it, if asked for
  // The first kCallBegin among the events is (*calls)[calls_before], the second the one after it...
  // Arguments before the first one belong to the call before.
  const std::vector<ToolCall>* calls = nullptr;  // of the choice so far
  size_t calls_before = 0;
};

// Turns a reply into a vendor's JSON. All calls come on the server thread, in this order:
// Begin, OnStart when the first choice begins to run, OnProgress while its prompt is computed,
// OnDelta and OnChoiceEnd for each choice, then OnDone; or OnError at any point, last.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void Begin() {}
  virtual void OnStart(const ReuseReport&) {}
  virtual void OnProgress(const Progress&) {}  // of the first choice; where the plan asks for it
  virtual void OnDelta(const Delta& delta) = 0;
  virtual void OnChoiceEnd(size_t index, const Choice& choice) = 0;
  // `report` is the JSON of the "reprise" object (report.h).
  virtual void OnDone(const std::vector<Choice>& choices, const Usage& usage,
                      const std::string& report) = 0;
  virtual void OnError(const ApiError& error) = 0;
};

// What to generate.
struct ReplyPlan {
  std::vector<Prompt> prompts;  // each gives options.choices choices
  ReplyOptions options;
  CacheControl cache;
  const Tenant* tenant = nullptr;
  OutputFormat format;  // how to read the reply; default: everything is content
  std::string tools;    // JSON, for the parser
  std::shared_ptr<grammar::Language> language = {};  // what each choice must be; null: anything
  bool one_call = false;                             // the reply ends with its first call
  std::optional<int32_t> thinking_budget;            // tokens of reasoning, then it is closed
  bool tell_tokens = false;                          // with deltas: tokens, not only text
  bool keep_tokens = false;    // ... until the end, in Choice::tokens: they count (kept_budget.h)
  bool tell_progress = false;  // while the prompt is computed
  bool score_prompt = false;   // ... and the tokens of the prompt, with options.logprobs
  size_t bytes_kept = 0;       // of what the caller keeps until the reply is done, such as its job
  std::vector<std::string> passed_fields;   // of the request: those without effect
  std::function<void(const Choice&)> done;  // after a whole, successful first choice
};

// What a chat asks for: a plan with its prompt, whose calls are read as the model writes them, and
// whose rules are compiled (Constrain). An error, if they cannot be enforced.
std::optional<ApiError> PlanReply(Service* service, const ChatJob& job, Prompt prompt,
                                  const Tenant* tenant, Account* account, ReplyPlan* plan);

// Compiles what the plan's options ask of the reply (OutputRule) into the plan, whose format and
// one_call are set. `tools`: those that may be called; empty: none. An error, if it cannot be
// enforced, or the account is spent.
std::optional<ApiError> Constrain(Service* service, const std::string& tools, Account* account,
                                  ReplyPlan* plan);

// Sends the plan to the engine and its tokens to `sink` as they come. A client that leaves cancels
// it. Fails at once, with nothing started and the sink untouched, if the engine refuses.
std::optional<ApiError> StartReply(Service* service, const http::ExchangePtr& exchange,
                                   ReplyPlan plan, std::unique_ptr<ReplySink> sink);

}  // namespace reprise::api
