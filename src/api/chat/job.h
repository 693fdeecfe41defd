// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/constrain/output_rule.h"
#include "api/fields.h"
#include "engine/request.h"
#include "text/output/thinking.h"

namespace reprise::api {

// What a chat API asks for, whichever vendor's: the common form that the endpoints translate into
// and everything behind them works on.

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
  bool complete = true;   // of a reply: the arguments are a JSON object, not cut off or broken
};

// What stands for an image where the operator wants them passed over (--ignore-images).
inline constexpr std::string_view kImageText = "[image: this model reads text only]";

// A picture in a message. It stands in front of byte `content_bytes` of the content.
struct TurnPicture {
  size_t content_bytes = 0;
  std::string place;                           // in the request, for errors
  std::string file;                            // as it was sent, until it was seen
  std::shared_ptr<const SeenPicture> picture;  // then (SeePictures)
};

// One message. Texts that came in parts are joined with newlines.
struct ChatTurn {
  std::string role;  // system, user, assistant, tool
  std::string content;
  std::string reasoning;        // of an assistant
  std::vector<ToolCall> calls;  // of an assistant
  std::string call_id;          // of a tool: the call it answers
  std::string name;
  std::vector<TurnPicture> pictures;  // in order
};

// The end of a prefix that the client will send again. REQUIRES: content_bytes is at most the size
// of that turn's content.
struct Breakpoint {
  int32_t turn = 0;  // -1: after the tools
  size_t content_bytes = 0;
};

// What may be shared, and how. Defaults: everything within the tenant.
struct CacheControl {
  std::string session;  // a name of the conversation (session.h)
  std::string salt;     // a namespace inside the tenant's
  bool read = true;     // may reuse
  bool write = true;    // may store
  bool forget = false;  // nothing of the request may be kept anywhere: no report, no response
  bool low = false;     // what it stores goes before all else
  int32_t min_tokens = 0;
  int64_t pin_ms = 0;                   // keep what this prompt stores at least that long
  std::vector<Breakpoint> breakpoints;  // in order of appearance
};

struct ReplyOptions {
  SamplingParams sampling;
  std::optional<uint64_t> seed;       // absent: a random one
  std::optional<int32_t> max_tokens;  // absent: what the context leaves; 0: only keep the prompt
  int32_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_tokens;
  std::vector<std::string> bad_words;     // that a reply must not have
  std::vector<std::string> dry_breakers;  // strings that no repetition goes across, for DRY
  bool ignore_eos = false;
  int32_t choices = 1;
  int logprobs = -1;  // -1: none; else of the chosen token and of so many others
  int32_t priority = 0;
  OutputRule rule;
  std::optional<SnapKv> snapkv;        // absent: as the server was started
  std::optional<Speculate> speculate;  // the same
  std::string prediction;              // what the reply may be; empty: the client does not say
  std::shared_ptr<const Adapter> adapter;  // that changes the model; null: none does
  std::string adapter_name;                // as the request named it; empty: it named the model
};

// What a reply may contain.
struct CallRules {
  bool parse = false;  // calls at all
  bool one = false;    // no more than one
};

struct ChatJob {
  std::vector<ChatTurn> turns;
  std::string prefill;    // how the reply begins: the model goes on from there
  std::string tools;      // JSON array of OpenAI's tools, or empty
  std::string variables;  // JSON object for the template, or empty
  CallRules calls;
  ThinkingRequest thinking;
  std::optional<int32_t>
      thinking_budget;  // tokens of reasoning that the reply may have (PlanThinking)
  ReplyOptions options;
  CacheControl cache;
  std::vector<std::string> passed_fields;  // of the request: those without effect, for the report
};

// Keeps what a body's reader passed, for the report.
void NotePassed(const Fields& fields, ChatJob* job);

// `cache`: {"store": false} says that nothing of the request may be kept: not its state in any
// tier, not its response, not its report. It goes before every wish to keep something.
void ReadStorePermission(Fields* fields, CacheControl* cache);

// "snapkv": {"budget": tokens or a share below 1, "window": tokens}, or false: nothing is left out.
void ReadSnapKv(Fields* fields, std::optional<SnapKv>* snapkv);

// "speculate": "auto", "off", "tree", "ngram", "mtp" or "draft"; true is auto, false is off.
void ReadSpeculate(Fields* fields, std::optional<Speculate>* speculate);

// OpenAI's "prediction": {"type": "content", "content": text or parts of it}.
void ReadPrediction(Fields* fields, std::string* prediction);

// Makes the last turn, an assistant's, the beginning of the reply. It is what the model says, not
// what it thinks, so templates that would begin with thinking are asked not to.
// REQUIRES: the last of two or more turns is an assistant's, without calls.
void ContinueLastTurn(ChatJob* job);

}  // namespace reprise::api
