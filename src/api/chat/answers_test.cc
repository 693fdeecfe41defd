// SPDX-License-Identifier: Apache-2.0
// Proves what a client reads in its answer, in the cases where a small mistake would not show in
// plain text: whose answer it is, why it ended, what it counts, what is held back, what is refused.
#include <gtest/gtest.h>

#include <set>

#include "api/errors.h"
#include "api/test_service.h"
#include "base/json.h"

namespace reprise::api {
namespace {

constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kHi[] = R"({"messages": [{"role": "user", "content": "Hi"}], )";
constexpr char kTool[] =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {}, "additionalProperties": false}}}], )";

// A member of a JSON text by its path; numbers are indices. Null: there is none.
const JsonValue* Find(const JsonValue& root, const std::vector<std::string>& path) {
  const JsonValue* value = &root;
  for (const std::string& step : path) {
    if (value->is_array()) {
      const size_t index = std::stoul(step);
      value = index < value->items().size() ? &value->items()[index] : nullptr;
    } else {
      value = value->Find(step);
    }
    if (value == nullptr) return nullptr;
  }
  return value;
}

std::string At(std::string_view json, const std::vector<std::string>& path) {
  const auto document = JsonDocument::Parse(json);
  if (!document.ok()) return "not JSON: " + std::string(json);
  const JsonValue* value = Find(document->root(), path);
  if (value == nullptr) return "absent";
  if (value->is_string()) return std::string(value->as_string());
  if (value->is_int()) return std::to_string(value->as_int());
  return value->is_null() ? "null" : "?";
}

std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    at += 6;
    events.push_back(body.substr(at, body.find('\n', at) - at));
  }
  return events;
}

std::string Ask(TestService& service, const std::string& rest, int status = 200) {
  const auto answer = service.Post(kChat, kHi + rest + "}");
  EXPECT_EQ(answer.status, status) << answer.body;
  return answer.body;
}

std::string ContentOf(const std::string& body) {
  return At(body, {"choices", "0", "message", "content"});
}

// All that a stream says in a member of its deltas.
std::string StreamedOf(const std::string& body, const std::string& member) {
  std::string text;
  for (const std::string& event : Events(body)) {
    if (event == "[DONE]") continue;
    const std::string piece = At(event, {"choices", "0", "delta", member});
    if (piece != "absent" && piece != "null") text += piece;
  }
  return text;
}

TEST(Answers, EveryStopStringCounts) {
  TestService service;
  EXPECT_EQ(ContentOf(Ask(service, R"("stop": ["zzz", "nothing", "de"])")), "abc");
  EXPECT_EQ(StreamedOf(Ask(service, R"("stream": true, "stop": ["zzz", "de"])"), "content"), "abc");
}

// Text that may be the beginning of a stop string is held back; where none comes, it is said.
TEST(Answers, WhatIsHeldBackIsSaidInTheEnd) {
  TestService service;
  EXPECT_EQ(ContentOf(Ask(service, R"("stop": ["yz and more"])")), kAlphabet);
  EXPECT_EQ(StreamedOf(Ask(service, R"("stream": true, "stop": ["yz and more"])"), "content"),
            kAlphabet);
  // Half a character is a character that nobody can read, not none. 195: the first byte of two.
  EXPECT_EQ(ContentOf(Ask(service, R"("max_tokens": 1, "logit_bias": {"195": 100, "97": -100})")),
            "\uFFFD");
}

TEST(Answers, TokensOfAStopStringAreNotShown) {
  TestService service;
  const std::string body = Ask(service, R"("stop": ["cd"], "logprobs": true)");
  EXPECT_EQ(At(body, {"choices", "0", "logprobs", "content", "1", "token"}), "b") << body;
  EXPECT_EQ(At(body, {"choices", "0", "logprobs", "content", "2"}), "absent") << body;
}

TEST(Answers, ChoicesDifferAndShareTheirPrompt) {
  TestService service;
  // Without a favourite, any token may be the first.
  const std::string rest = R"("logit_bias": {"97": -100}, "max_tokens": 4, "seed": 1,
                              "return_token_ids": true)";
  const std::string one = Ask(service, rest);
  const auto three = JsonDocument::Parse(Ask(service, R"("n": 3, )" + rest));
  ASSERT_TRUE(three.ok());
  std::set<std::vector<int64_t>> seen;
  for (const JsonValue& choice : three->root().Find("choices")->items()) {
    std::vector<int64_t> ids;
    for (const JsonValue& id : choice.Find("token_ids")->items()) ids.push_back(id.as_int());
    seen.insert(std::move(ids));
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(std::to_string(Find(three->root(), {"usage", "prompt_tokens"})->as_int()),
            At(one, {"usage", "prompt_tokens"}));
}

// The account of the request is used up while it streams: the stream says so before it ends.
TEST(Answers, AStreamThatFailsSaysWhy) {
  int failed = 0;
  for (size_t bytes = 1024; bytes < (size_t{64} << 10); bytes += 512) {
    TestService service;
    service.SetLedger({bytes, bytes});
    const auto answer = service.Post(kChat, kHi + std::string(R"("stream": true})"));
    const auto events = Events(answer.body);
    if (!answer.streamed || (!events.empty() && events.back() == "[DONE]")) continue;
    ++failed;
    ASSERT_FALSE(events.empty()) << bytes;
    EXPECT_NE(At(events.back(), {"error", "message"}), "absent") << events.back();
  }
  EXPECT_GT(failed, 0);
}

TEST(Answers, StreamedCallsAreNumbered) {
  TestService service;
  size_t most = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const std::string body =
        Ask(service, kTool + (R"("tool_choice": "required", "temperature": 2, "stream": true,
                                 "seed": )" +
                              std::to_string(seed)));
    size_t begun = 0;
    for (const std::string& event : Events(body)) {
      if (event == "[DONE]") continue;
      const std::string index = At(event, {"choices", "0", "delta", "tool_calls", "0", "index"});
      if (index == "absent") continue;
      begun += At(event, {"choices", "0", "delta", "tool_calls", "0", "id"}) != "absent";
      EXPECT_EQ(index, std::to_string(begun - 1)) << event;
    }
    most = std::max(most, begun);
  }
  EXPECT_GT(most, 1u);
}

TEST(Answers, HiddenReasoningIsNotStreamed) {
  TestService service;
  for (const char* hide : {R"("include_reasoning": false)", R"("reasoning_format": "hidden")"}) {
    const std::string rest = R"("enable_thinking": true, "thinking_budget": 4, )";
    const std::string body = Ask(service, rest + std::string(hide) + R"(, "stream": true)");
    EXPECT_EQ(StreamedOf(body, "reasoning_content"), "") << body;
    EXPECT_EQ(StreamedOf(body, "content"), kAlphabet);
    EXPECT_EQ(Ask(service, rest + hide).find("abcd\""), std::string::npos);
  }
}

TEST(Answers, WithoutToolsTextIsText) {
  TestService service;
  const std::string call = R"(<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>)";
  const std::string rest = R"("temperature": 0, "reasoning_effort": "none", "guided_choice": [")" +
                           call + R"("], )" + std::string(kTool) + R"("tool_choice": "none")";
  const std::string body = Ask(service, rest);
  EXPECT_EQ(ContentOf(body).substr(0, 11), "<tool_call>") << body;
  EXPECT_EQ(At(body, {"choices", "0", "message", "tool_calls"}), "absent") << body;
}

TEST(Answers, ASchemaBesideAJsonObjectCounts) {
  TestService service;
  const std::string body = Ask(service, R"("temperature": 0, "max_tokens": 1,
      "response_format": {"type": "json_object", "schema": {"enum": [7]}})");
  EXPECT_EQ(ContentOf(body), "7") << body;
}

TEST(Answers, TokensOutsideTheVocabularyAreRefused) {
  TestService service;  // it has 262
  Ask(service, R"("logit_bias": {"261": 1})");
  Ask(service, R"("stop_token_ids": [261])");
  EXPECT_EQ(At(Ask(service, R"("logit_bias": {"262": 1})", 400), {"error", "param"}), "logit_bias");
  EXPECT_EQ(At(Ask(service, R"("stop_token_ids": [262])", 400), {"error", "param"}),
            "stop_token_ids");
}

TEST(Answers, OnlyTheModelThatIsServedAnswers) {
  TestService service;
  Ask(service, R"("model": "alphabet")");
  EXPECT_EQ(At(Ask(service, R"("model": "another")", 404), {"error", "code"}), "model_not_found");
}

// Pages of other sites can send text and forms anywhere, but JSON only where they are allowed to.
TEST(Answers, OnlyJsonIsRead) {
  TestService service;
  const auto status_of = [&](const char* type) {
    http::Request request = TestService::MakePost(kChat, kHi + std::string(R"("max_tokens": 1})"));
    request.headers = {{"Content-Type", type}, {"Origin", "https://a.example"}};
    return service.Send(request).status;
  };
  for (const char* type : {"application/json", "application/json; charset=utf-8",
                           "APPLICATION/JSON", "application/vnd.api+json"}) {
    EXPECT_EQ(status_of(type), 200) << type;
  }
  for (const char* type : {"", "text/plain", "text/plain; a=application/json", "application/jsonp",
                           "application/json-seq", "application/x-www-form-urlencoded"}) {
    EXPECT_EQ(status_of(type), 415) << type;
  }
}

TEST(Answers, RepliesEndWithTheContext) {
  TestService service;
  const std::string body = Ask(service, R"("max_tokens": 100000, "ignore_eos": true)");
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), "length") << body;
  EXPECT_EQ(At(body, {"usage", "total_tokens"}), "256") << body;
}

TEST(Answers, ThoseWhoShallComeAgainAreToldWhen) {
  for (const int status : {400, 404, 429, 500, 503}) {
    const http::Response response = ErrorResponse(ApiError{status, "why"}, nullptr);
    const bool told = std::ranges::any_of(
        response.headers, [](const auto& header) { return header.first == "Retry-After"; });
    EXPECT_EQ(told, status == 429 || status == 503) << status;
  }
}

TEST(Answers, BlocksOfAMessageAreClosed) {
  TestService service;
  const auto answer = service.Post("/v1/messages", R"({"model": "alphabet", "max_tokens": 99,
      "stream": true, "thinking": {"type": "enabled", "budget_tokens": 4},
      "messages": [{"role": "user", "content": "Hi"}]})");
  std::vector<std::string> open;
  int blocks = 0;
  for (const std::string& event : Events(answer.body)) {
    const std::string type = At(event, {"type"});
    const std::string index = At(event, {"index"});
    if (type == "content_block_start") {
      EXPECT_TRUE(open.empty()) << event;
      EXPECT_EQ(index, std::to_string(blocks++)) << event;
      open.push_back(index);
    } else if (type == "content_block_stop") {
      ASSERT_EQ(open, std::vector<std::string>{index}) << event;
      open.clear();
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(blocks, 2) << answer.body;
}

// A client that does not read is not sent more, however long the reply.
TEST(Answers, AClientThatDoesNotReadIsNotSentMore) {
  TestService service;
  service.SetStalled(true);
  const auto stalled =
      service.Post(kChat, kHi + std::string(R"("stream": true, "max_tokens": 200})"));
  EXPECT_EQ(StreamedOf(stalled.body, "content"), "") << stalled.body;
  service.SetStalled(false);
  EXPECT_EQ(StreamedOf(service.TakeStalled(), "content"), kAlphabet);
}

}  // namespace
}  // namespace reprise::api
