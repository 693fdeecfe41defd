// SPDX-License-Identifier: Apache-2.0
// Proves on one thread, without sockets, that the APIs say the same whole and streamed, that a
// client that leaves leaves nothing behind, and that what was computed once is not computed again.
#include "api/service.h"

#include <gtest/gtest.h>

#include "api/chat/job.h"
#include "api/openai/prompts.h"
#include "api/ops/cache_view.h"
#include "api/test_service.h"

namespace reprise::api {
namespace {

constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kMessages[] = "/v1/messages";

// A member of a JSON text by its path; numbers are indices.
std::string At(std::string_view json, const std::vector<std::string>& path) {
  const auto document = JsonDocument::Parse(json);
  if (!document.ok()) return "not JSON: " + std::string(json);
  const JsonValue* value = &document->root();
  for (const std::string& step : path) {
    if (value->is_array()) {
      const size_t index = std::stoul(step);
      value = index < value->items().size() ? &value->items()[index] : nullptr;
    } else {
      value = value->Find(step);
    }
    if (value == nullptr) return "absent";
  }
  if (value->is_string()) return std::string(value->as_string());
  if (value->is_int()) return std::to_string(value->as_int());
  return value->is_null() ? "null" : "?";
}

// The data of a stream, one JSON text each.
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    at += 6;
    events.push_back(body.substr(at, body.find('\n', at) - at));
  }
  return events;
}

TEST(Service, ChatWholeAndStreamed) {
  TestService service;
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  const auto whole = service.Post(kChat, "{" + messages + "}");
  EXPECT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(At(whole.body, {"choices", "0", "message", "content"}), kAlphabet);
  EXPECT_EQ(At(whole.body, {"choices", "0", "finish_reason"}), "stop");
  EXPECT_EQ(At(whole.body, {"usage", "completion_tokens"}), "26");
  const auto streamed = service.Post(kChat, "{\"stream\": true, " + messages + "}");
  ASSERT_TRUE(streamed.streamed);
  const auto events = Events(streamed.body);
  ASSERT_GE(events.size(), 4u);
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const std::string piece = At(events[i], {"choices", "0", "delta", "content"});
    if (piece != "absent") text += piece;
  }
  EXPECT_EQ(text, kAlphabet);
  EXPECT_EQ(events.back(), "[DONE]");
}

// llama.cpp's words for how fast a reply was, in every shape of an answer.
TEST(Service, AnswersSayHowFastTheyWere) {
  TestService service;
  const std::string chat = R"("messages": [{"role": "user", "content": "Hi"}]})";
  const std::string usage = R"({"stream": true, "stream_options": {"include_usage": true}, )";
  for (const char* path : {kChat, "/v1/completions"}) {
    const std::string rest = path == kChat ? chat : R"("max_tokens": 30, "prompt": "a"})";
    const auto whole = service.Post(path, "{" + rest);
    const std::string predicted = path == kChat ? "26" : "25";
    EXPECT_EQ(At(whole.body, {"timings", "predicted_n"}), predicted) << whole.body;
    for (const std::string& begin : {std::string(R"({"stream": true, )"), usage}) {
      const auto events = Events(service.Post(path, begin + rest).body);
      ASSERT_GE(events.size(), 2u);
      const std::string& last = events[events.size() - 2];
      EXPECT_EQ(At(last, {"timings", "predicted_n"}), predicted) << last;
      const int64_t cached = std::stoll(At(last, {"timings", "cache_n"}));
      const int64_t computed = std::stoll(At(last, {"timings", "prompt_n"}));
      EXPECT_EQ(std::to_string(cached + computed), At(last, {"reprise", "prompt_tokens"})) << last;
    }
  }
}

// A stream that asks hears after every step how much of its prompt is done, another does not.
TEST(Service, AStreamSaysHowFarThePromptHasCome) {
  TestService service;
  const std::string text(150, 'q');
  const auto ask = [&](const char* path, const std::string& members) {
    const std::string prompt =
        path == kChat ? R"("messages": [{"role": "user", "content": ")" : R"("prompt": ")";
    const std::string end = path == kChat ? "\"}]}" : "\"}";
    return Events(
        service.Post(path, R"({"stream": true, "max_tokens": 2, )" + members + prompt + text + end)
            .body);
  };
  for (const char* path : {kChat, "/v1/completions", "/completion"}) {
    int64_t before = 0;
    int64_t total = 0;
    int count = 0;
    for (const std::string& event :
         ask(path, R"("return_progress": true, "cache_prompt": false, )")) {
      const std::string processed = At(event, {"prompt_progress", "processed"});
      if (!event.starts_with("{") || processed == "absent") continue;
      ++count;
      EXPECT_GT(std::stoll(processed), before) << event;
      EXPECT_EQ(At(event, {"prompt_progress", "cache"}), "0") << event;
      before = std::stoll(processed);
      total = std::stoll(At(event, {"prompt_progress", "total"}));
    }
    EXPECT_GE(count, 1) << path;
    EXPECT_GE(total, 150);
    EXPECT_EQ(before, total);
    for (const std::string& event : ask(path, "")) {
      EXPECT_EQ(event.find("prompt_progress"), std::string::npos) << event;
    }
  }
}

// Whoever scores a text asks for one token more, and drops it: the end is one, too.
TEST(Service, TheTokenThatEndsIsToldWithItsProbability) {
  TestService service;
  const std::string members = R"("prompt": "xyz", "logprobs": 1, "max_tokens": 1)";
  const auto whole = service.Post("/v1/completions", "{\"echo\": true, " + members + "}");
  const std::vector<std::string> tokens = {"choices", "0", "logprobs", "tokens"};
  const auto token = [&](const std::string& body, const char* index) {
    std::vector<std::string> path = tokens;
    path.push_back(index);
    return At(body, path);
  };
  EXPECT_EQ(token(whole.body, "2"), "z") << whole.body;
  EXPECT_EQ(token(whole.body, "3"), "<|im_end|>");
  EXPECT_EQ(token(whole.body, "4"), "absent");
  EXPECT_EQ(At(whole.body, {"choices", "0", "text"}), "xyz");
  EXPECT_EQ(At(whole.body, {"choices", "0", "finish_reason"}), "stop");
  EXPECT_EQ(At(whole.body, {"usage", "completion_tokens"}), "0");
  const auto streamed = service.Post("/v1/completions", "{\"stream\": true, " + members + "}");
  const auto events = Events(streamed.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(token(events[events.size() - 2], "0"), "<|im_end|>") << streamed.body;
  // In a chat it is no part of the answer.
  const auto chat =
      service.Post(kChat, R"({"logprobs": true, "messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(At(chat.body, {"choices", "0", "logprobs", "content", "25", "token"}), "z");
  EXPECT_EQ(At(chat.body, {"choices", "0", "logprobs", "content", "26"}), "absent") << chat.body;
}

// To spell thousands of ids would be the longest part of the way to the engine.
TEST(Service, TheIdsOfAPromptAreSpelledOnlyForAnEcho) {
  TestService service;
  const ServedModel& model = service.service().model();
  std::vector<TokenId> ids;
  ASSERT_TRUE(model.tokenizer->Encode("xyz", {}, &ids).ok());
  std::string list;
  for (const TokenId id : ids) list += (list.empty() ? "" : ", ") + std::to_string(id);
  const std::string members = R"("max_tokens": 1, "prompt": [)" + list + "]}";
  const auto body = JsonDocument::Parse("{" + members);
  ASSERT_TRUE(body.ok());
  for (const bool with_text : {false, true}) {
    Fields fields(body->root());
    std::vector<Prompt> prompts;
    Account account;
    openai::ReadPrompts(model, with_text, &account, &fields, &prompts);
    ASSERT_EQ(prompts.size(), 1u);
    EXPECT_EQ(prompts[0].ids, ids);
    EXPECT_EQ(prompts[0].text, with_text ? "xyz" : "");
  }
  const auto echoed = service.Post("/v1/completions", R"({"echo": true, )" + members);
  EXPECT_EQ(At(echoed.body, {"choices", "0", "text"}), "xyz") << echoed.body;
}

TEST(Service, ThinkingAndContentAreBlocksOfAMessage) {
  TestService service;
  const std::string members =
      R"("model": "alphabet", "max_tokens": 99, "stop_sequences": ["jk"],
         "messages": [{"role": "user", "content": "Hi"}])";
  const auto whole = service.Post(kMessages, "{" + members + "}");
  EXPECT_EQ(At(whole.body, {"content", "0", "text"}), "abcdefghi") << whole.body;
  EXPECT_EQ(At(whole.body, {"content", "0", "citations"}), "absent") << "some clients want a list";
  EXPECT_EQ(At(whole.body, {"stop_reason"}), "stop_sequence");
  EXPECT_EQ(At(whole.body, {"stop_sequence"}), "jk");
  // The template opens the thinking and the model never closes it.
  const auto thinking = service.Post(
      kMessages, "{\"stream\": true, \"thinking\": {\"type\": \"enabled\"}, " + members + "}");
  std::string names;
  std::string thought;
  for (const std::string& event : Events(thinking.body)) {
    const std::string type = At(event, {"type"});
    const std::string delta = At(event, {"delta", "type"});
    if (delta == "thinking_delta") {
      thought += At(event, {"delta", "thinking"});
    } else {
      names += (delta == "signature_delta" ? delta : type) + " ";
    }
  }
  EXPECT_EQ(thought, "abcdefghi");
  EXPECT_EQ(names,
            "message_start ping content_block_start signature_delta content_block_stop "
            "message_delta message_stop ");
}

// The model of these tests never stops thinking by itself.
TEST(Service, ThinkingIsEndedWhenItsBudgetIsSpent) {
  TestService service;
  const auto ask = [&](const std::string& members) {
    return service
        .Post(kChat, "{" + members + R"(, "messages": [{"role": "user", "content": "Hi"}]})")
        .body;
  };
  const auto part = [&](const std::string& body, const std::string& name) {
    return At(body, {"choices", "0", "message", name});
  };
  const std::string body = ask(R"("enable_thinking": true, "thinking_budget": 4)");
  EXPECT_EQ(part(body, "reasoning_content"), "abcd") << body;
  EXPECT_EQ(part(body, "content"), kAlphabet) << body;
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), "stop");
  // "abcd", the marker that was put in (the vocabulary has only bytes), the alphabet.
  const std::string marker = "\n</think>\n\n";
  EXPECT_EQ(std::stoul(At(body, {"usage", "completion_tokens"})), 4 + marker.size() + 26) << body;
  const std::string free = ask(R"("enable_thinking": true)");
  EXPECT_EQ(part(free, "reasoning_content"), kAlphabet);
  EXPECT_EQ(At(body, {"usage", "prompt_tokens"}), At(free, {"usage", "prompt_tokens"}));

  // Streamed, twice, with a limit for the whole: the marker counts.
  const std::string streamed =
      ask(R"("stream": true, "n": 2, "thinking_budget": 4, "max_tokens": 18)");
  std::string thought[2];
  std::string said[2];
  for (const std::string& event : Events(streamed)) {
    if (event == "[DONE]") continue;
    const size_t choice = At(event, {"choices", "0", "index"}) == "1" ? 1 : 0;
    const std::string reasoning = At(event, {"choices", "0", "delta", "reasoning_content"});
    const std::string content = At(event, {"choices", "0", "delta", "content"});
    if (reasoning != "absent") thought[choice] += reasoning;
    if (content != "absent") said[choice] += content;
  }
  for (const size_t choice : {0u, 1u}) {
    EXPECT_EQ(thought[choice], "abcd");
    EXPECT_EQ(said[choice], "abc");
  }

  // No budget at all: the reasoning that the template opens is closed at once.
  const std::string none =
      ask(R"("chat_template_kwargs": {"enable_thinking": true}, "thinking_budget": 0)");
  EXPECT_EQ(part(none, "reasoning_content"), "absent");
  EXPECT_EQ(part(none, "content"), kAlphabet);
  EXPECT_EQ(part(ask(R"("reasoning_effort": "none")"), "reasoning_content"), "absent");
  EXPECT_EQ(part(ask(R"("reasoning_effort": "high")"), "reasoning_content"), kAlphabet);
  EXPECT_EQ(At(ask(R"("reasoning_effort": "lots")"), {"error", "param"}), "reasoning_effort");

  const std::string anthropic =
      service
          .Post(kMessages, R"({"model": "alphabet", "max_tokens": 99, "thinking": {"type":
              "enabled", "budget_tokens": 4}, "messages": [{"role": "user", "content": "Hi"}]})")
          .body;
  EXPECT_EQ(At(anthropic, {"content", "0", "thinking"}), "abcd") << anthropic;
  EXPECT_EQ(At(anthropic, {"content", "1", "text"}), kAlphabet);
}

// Agents shorten their prompts when they read these words.
TEST(Service, APromptThatIsTooLongIsToldInTheVendorsWords) {
  TestService service;
  const std::string members = R"("model": "alphabet", "max_tokens": 9,
      "messages": [{"role": "user", "content": ")" +
                              std::string(300, 'x') + "\"}]";
  const auto chat = service.Post(kChat, "{" + members + "}");
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(At(chat.body, {"error", "code"}), "context_length_exceeded");
  const std::string tokens =
      At(service.Post("/v1/messages/count_tokens", "{" + members + "}").body, {"input_tokens"});
  EXPECT_TRUE(At(chat.body, {"error", "message"})
                  .starts_with("This model's maximum context length is 256 tokens. However, your "
                               "prompt has " +
                               tokens + " tokens"))
      << chat.body;
  const auto messages = service.Post(kMessages, "{" + members + "}");
  EXPECT_EQ(messages.status, 400);
  EXPECT_EQ(At(messages.body, {"error", "message"}),
            "prompt is too long: " + tokens + " tokens > 255 maximum");
}

TEST(ServedModel, AliasesAreNamesAndPatterns) {
  ServedModel model;
  model.id = "m";
  model.aliases = {"gpt-5", "claude-*", "a*b*c"};
  EXPECT_EQ(model.Brief().Names(), (std::vector<std::string>{"m", "gpt-5"}));
  for (const char* name : {"", "m", "gpt-5", "claude-", "claude-opus-4", "abc", "a--b-bc"}) {
    EXPECT_TRUE(model.Answers(name)) << name;
  }
  for (const char* name : {"M", "gpt-", "gpt-55", "xclaude-1", "ab", "abcd", "acb"}) {
    EXPECT_FALSE(model.Answers(name)) << name;
  }
  model.aliases = {"*"};
  EXPECT_TRUE(model.Answers("anything"));
}

TEST(Service, TokensOfThinkingAreCounted) {
  TestService service;
  const auto answer = service.Post(kChat, R"({"max_tokens": -1,
      "chat_template_kwargs": {"enable_thinking": true},
      "messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(At(answer.body, {"choices", "0", "message", "reasoning_content"}), kAlphabet);
  EXPECT_EQ(At(answer.body, {"usage", "completion_tokens_details", "reasoning_tokens"}), "26");
  const auto plain = service.Post(kChat, R"({"messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(At(plain.body, {"usage", "completion_tokens_details", "reasoning_tokens"}), "0");
  const auto text = service.Post("/v1/completions", R"({"prompt": "a", "max_tokens": -1})");
  EXPECT_EQ(At(text.body, {"usage", "completion_tokens"}), "25") << "no limit, not the default";
}

TEST(Service, ImagesAreRefusedOrPassedOver) {
  const std::string openai = R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]}]})";
  const std::string anthropic = R"({"model": "alphabet", "max_tokens": 1, "messages": [
      {"role": "user", "content": [{"type": "image", "source": {}}]},
      {"role": "assistant", "content": [
          {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
          "content": [{"type": "image", "source": {}}]}]}]})";
  TestService strict;
  EXPECT_EQ(strict.Post(kChat, openai).status, 400);
  EXPECT_EQ(strict.Post(kMessages, anthropic).status, 400);
  ServiceOptions options;
  options.ignore_images = true;
  TestService service(options);
  EXPECT_EQ(service.Post(kMessages, anthropic).status, 200);
  const auto rendered = service.Post("/apply-template", openai);
  EXPECT_NE(At(rendered.body, {"prompt"}).find("a\n" + std::string(kImageText)), std::string::npos);
}

TEST(Service, PagesOfNamedOriginsMayAsk) {
  ServiceOptions options;
  options.cors_origins = {"https://a.example"};
  TestService service(options);
  for (const auto& [origin, allowed] :
       {std::pair("https://a.example", true), std::pair("https://b.example", false)}) {
    http::Request request = TestService::MakePost(kChat, "{}");
    request.headers.emplace_back("Origin", origin);
    request.headers.emplace_back("Sec-Fetch-Site", "cross-site");
    const http::Router::Route route = {"POST", kChat, http::RunOn::kWorker, nullptr};
    EXPECT_EQ(service.service().Admit(request, route).has_value(), !allowed) << origin;
  }
}

TEST(Service, PrewarmedPromptIsRead) {
  TestService service;
  const std::string members = R"("model": "alphabet", "messages": [{"role": "user", "content": ")" +
                              std::string(100, 'x') + "\"}]";
  const auto warm = service.Post(kMessages, "{\"max_tokens\": 0, " + members + "}");
  EXPECT_EQ(At(warm.body, {"usage", "output_tokens"}), "0") << warm.body;
  EXPECT_EQ(At(warm.body, {"content", "0"}), "absent");
  const std::string all = At(warm.body, {"usage", "input_tokens"});
  const auto hot = service.Post(kMessages, "{\"max_tokens\": 1, " + members + "}");
  EXPECT_EQ(std::stol(At(hot.body, {"usage", "cache_read_input_tokens"})), std::stol(all) - 1);
  EXPECT_EQ(At(hot.body, {"usage", "input_tokens"}), "1");
  EXPECT_EQ(
      At(service.Post("/v1/messages/count_tokens", "{" + members + "}").body, {"input_tokens"}),
      all);
}

// What a request stores that says so makes room before what others stored
// (cache/index/side_requests has the session's part).
TEST(Service, SideRequestsLeaveTheConversationAlone) {
  const auto reused = [](const std::string& side) {
    TestService service;
    service.engine().cache().SetBudget(service.engine().cache().least_budget() + (64 << 10));
    const auto ask = [&](const std::string& members, const std::string& text) {
      const auto answer =
          service.Post(kChat, R"({"max_tokens": 1, )" + members +
                                  R"("messages": [{"role": "user", "content": ")" + text + "\"}]}");
      EXPECT_EQ(answer.status, 200) << answer.body;
      return std::stol(At(answer.body, {"reprise", "used_tokens"}));
    };
    const std::string talk(200, 'm');
    ask("", talk);
    for (int i = 0; i < 100; ++i) {
      ask(side, std::string(size_t(1 + i / 26), 'z') + std::string(200, char('a' + i % 26)));
    }
    return ask("", talk);
  };
  EXPECT_LT(reused(""), 100) << "there is room for all: nothing is shown";
  EXPECT_GT(reused(R"("cache": {"priority": "low"}, )"), 180);
  TestService service;
  const auto other = service.Post(kChat, R"({"cache": {"priority": "high"}, "messages": [
      {"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(other.status, 400);
  EXPECT_EQ(At(other.body, {"error", "param"}), "cache.priority");
}

TEST(Service, SessionsAreNamesInReports) {
  TestService service;
  const std::string messages =
      R"("messages": [{"role": "user", "content": ")" + std::string(100, 'x') + "\"}]";
  const auto ask = [&](const char* path, const std::string& members, http::Headers headers) {
    http::Request request = TestService::MakePost(path, "{" + members + messages + "}");
    for (auto& header : headers) request.headers.push_back(std::move(header));
    return service.Send(std::move(request));
  };
  const auto session = [&](const std::string& members, http::Headers headers) {
    return At(ask(kChat, members, std::move(headers)).body, {"reprise", "session"});
  };
  const std::string key = R"("prompt_cache_key": "key", )";
  EXPECT_EQ(session("", {}), "absent");
  EXPECT_EQ(session(key, {}), "key");
  EXPECT_EQ(session("", {{"X-Session-Id", "c"}}), "c");
  EXPECT_EQ(session(key, {{"x-session-id", "c"}, {"session-id", "b"}}), "b");
  EXPECT_EQ(session(key, {{"session-id", "b"}, {"x-claude-code-session-id", "a \"1\""}}),
            "a \"1\"");
  const std::string members = R"("model": "alphabet", "max_tokens": 1, )";
  const auto message = ask(kMessages, members, {{"x-claude-code-session-id", "a"}});
  EXPECT_EQ(At(message.body, {"reprise", "session"}), "a") << message.body;

  http::Request log;
  log.method = "GET";
  log.path = "/v1/cache";
  EXPECT_NE(service.Send(log).body.find(R"("session":"key")"), std::string::npos);

  // Whatever it is called, it is the same state.
  const auto other = ask(kChat, "", {{"session-id", "somebody else"}});
  EXPECT_EQ(std::stol(At(other.body, {"reprise", "used_tokens"})) + 1,
            std::stol(At(other.body, {"reprise", "prompt_tokens"})));

  for (const std::string& wrong :
       {std::string(1025, 'x'), std::string("a\x80"), std::string("a\tb")}) {
    const auto refused = ask(kChat, "", {{"session-id", wrong}});
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(At(refused.body, {"error", "param"}), "session-id");
  }
}

TEST(Service, NothingIsKeptOfARequestThatSaysSo) {
  TestService service;
  const std::string messages =
      R"("messages": [{"role": "user", "content": ")" + std::string(150, 'x') + "\"}]";
  const auto ask = [&](const char* path, const std::string& members) {
    const std::string head = R"({"model": "alphabet", "max_tokens": 3, )";
    return service.Post(path, head + members + messages + "}");
  };
  const auto view = [&] {
    http::Request request;
    request.method = "GET";
    request.path = "/v1/cache";
    return service.Send(request).body;
  };
  const std::string forget = R"("cache": {"store": false}, )";
  for (const char* path : {kChat, kMessages}) {
    for (int i = 0; i < 2; ++i) {
      const auto answer = ask(path, forget);
      EXPECT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(At(answer.body, {"reprise", "used_tokens"}), "0") << path;
    }
  }
  EXPECT_NE(view().find(R"("reports":[])"), std::string::npos) << view();
  // What others have left is read.
  EXPECT_EQ(ask(kChat, "").status, 200);
  const auto reader = ask(kChat, forget);
  EXPECT_EQ(std::stol(At(reader.body, {"reprise", "used_tokens"})) + 1,
            std::stol(At(reader.body, {"reprise", "prompt_tokens"})));

  EXPECT_EQ(ask(kChat, R"("cache": {"stored": false}, )").status, 400);
  EXPECT_EQ(ask(kChat, R"("cache": {"priority": "high"}, )").status, 400);
  EXPECT_EQ(ask(kChat, R"("cache": false, )").status, 400);
  const auto both =
      service.Post("/v1/responses", R"({"input": "Hi", "store": true, "cache": {"store": false}})");
  EXPECT_EQ(At(both.body, {"error", "param"}), "store") << both.body;
}

TEST(Service, UsageCountsWhatWasStored) {
  TestService service;
  const std::string messages =
      R"("messages": [{"role": "user", "content": ")" + std::string(100, 'x') + "\"}]";
  const auto chat = [&](const std::string& members, const char* count) {
    const auto answer = service.Post(kChat, "{" + members + messages + "}");
    return At(answer.body, {"usage", "prompt_tokens_details", count});
  };
  constexpr char kWritten[] = "cache_write_tokens";
  EXPECT_EQ(chat(R"("cache_prefix": false, )", kWritten), "0");
  EXPECT_EQ(chat(R"("min_cache_tokens": 1000, )", kWritten), "0") << "shorter than that";
  const std::string all = At(service.Post(kChat, R"({"cache_salt": "s", )" + messages + "}").body,
                             {"usage", "prompt_tokens"});
  EXPECT_EQ(chat("", kWritten), all);
  EXPECT_EQ(chat("", kWritten), "1") << "only the last token is computed, and stored again";

  // What lies before a breakpoint.
  const std::string members =
      R"("model": "alphabet", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type":
         "text", "text": ")" +
      std::string(50, 'y') + R"(", "cache_control": {"type": "ephemeral"}}]}])";
  const auto created = [&] {
    const auto answer = service.Post(kMessages, "{" + members + "}");
    return At(answer.body, {"usage", "cache_creation_input_tokens"});
  };
  EXPECT_EQ(created(), "50");
  EXPECT_EQ(created(), "0") << "there already";
}

TEST(Service, SnapKvIsReportedOrRefusedByName) {
  TestService service;
  const std::string messages =
      R"("model": "alphabet", "max_tokens": 9, "messages": [{"role": "user", "content": ")" +
      std::string(100, 'x') + "\"}]}";
  const auto ask = [&](const char* path, const std::string& snapkv) {
    return service.Post(path, R"({"snapkv": )" + snapkv + ", " + messages);
  };
  for (const char* path : {kChat, kMessages}) {
    const auto lossy = ask(path, R"({"budget": 40, "window": 4})");
    EXPECT_EQ(lossy.status, 200) << lossy.body;
    const auto share = ask(path, R"({"budget": 0.5, "window": 4})");
    EXPECT_EQ(share.status, 200) << share.body;
    EXPECT_EQ(ask(path, "false").status, 200);
    for (const char* wrong :
         {"true", "7", "{}", R"({"budget": 0})", R"({"budget": -3})", R"({"budget": 1.5})",
          R"({"budget": "many"})", R"({"budget": 40, "window": 0})",
          R"({"budget": 40, "window": 5000})", R"({"budget": 40, "windows": 4})"}) {
      const auto refused = ask(path, wrong);
      EXPECT_EQ(refused.status, 400) << wrong;
      EXPECT_NE(refused.body.find("snapkv"), std::string::npos) << refused.body;
    }
  }
  const auto lossy = ask(kChat, R"({"budget": 40, "window": 4})");
  EXPECT_EQ(At(lossy.body, {"reprise", "lossy", "method"}), "snapkv") << lossy.body;
  EXPECT_EQ(At(lossy.body, {"reprise", "lossy", "kept_tokens"}), "40");
  EXPECT_EQ(At(lossy.body, {"reprise", "lossy", "of_tokens"}),
            At(lossy.body, {"usage", "prompt_tokens"}));
  EXPECT_NE(lossy.body.find(R"("along":[100,)"), std::string::npos) << lossy.body;
  EXPECT_EQ(At(ask(kChat, "false").body, {"reprise", "lossy"}), "absent");
  EXPECT_EQ(At(ask(kChat, R"({"budget": 4000})").body, {"reprise", "lossy"}), "absent") << "short";
}

// A watcher marks, in the tree of a view, where its newest report left what is stored.
// Guesses make a reply come sooner, and every form of it counts them.
TEST(Service, DraftsAreCountedAndChangeNothing) {
  TestService service;
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  const auto ask = [&](const char* path, const std::string& members) {
    return service.Post(path, "{" + members + "}");
  };
  const auto count = [&](const std::string& body, const char* name) {
    return At(body, {"usage", "completion_tokens_details", name});
  };
  const auto plain = ask(kChat, messages);
  EXPECT_EQ(count(plain.body, "accepted_prediction_tokens"), "0") << plain.body;
  EXPECT_EQ(At(plain.body, {"reprise", "speculation", "rests"}), "off");
  const std::string right = R"("speculate": "tree", "prediction": {"type": "content", "content": )";
  for (const char* content : {R"("abcdefghijklmnopqrstuvwxyz")",
                              R"([{"type": "text", "text": "abcdefghijklm"},
                                  {"type": "text", "text": "nopqrstuvwxyz"}])"}) {
    const auto predicted = ask(kChat, right + content + "}, " + messages);
    EXPECT_EQ(At(predicted.body, {"choices", "0", "message", "content"}), kAlphabet);
    EXPECT_EQ(At(predicted.body, {"usage", "completion_tokens"}), "26");
    EXPECT_EQ(count(predicted.body, "accepted_prediction_tokens"), "23") << predicted.body;
    EXPECT_EQ(count(predicted.body, "rejected_prediction_tokens"), "0");
    EXPECT_EQ(At(predicted.body, {"reprise", "speculation", "prediction", "accepted"}), "23");
  }
  // What it predicted before it left "abc" is over.
  const auto wrong = ask(kChat, right + R"("abcxyzabcxyz"}, )" + messages);
  EXPECT_EQ(At(wrong.body, {"choices", "0", "message", "content"}), kAlphabet);
  EXPECT_NE(count(wrong.body, "rejected_prediction_tokens"), "0") << wrong.body;
  const auto own = ask("/completion", right + R"("cdefghijklmnop"}, "prompt": "ab")");
  EXPECT_NE(At(own.body, {"timings", "draft_n"}), "absent") << own.body;
  EXPECT_EQ(At(own.body, {"timings", "draft_n"}), At(own.body, {"timings", "draft_n_accepted"}));
  // A reply that was given before is known to the tree: to this tenant, from the second time on.
  const auto again = ask(kChat, R"("speculate": true, )" + messages);
  EXPECT_NE(At(again.body, {"reprise", "speculation", "tree", "accepted"}), "absent") << again.body;
  http::Request scrape;
  scrape.method = "GET";
  scrape.path = "/metrics";
  const auto page = service.Send(std::move(scrape));
  EXPECT_NE(page.body.find("reprise_drafts_accepted_total{source=\"prediction\"}"),
            std::string::npos);
  for (const char* bad : {R"("speculate": "fast")", R"("speculate": 3)", R"("prediction": "abc")",
                          R"("prediction": {"type": "image", "content": "abc"})",
                          R"("prediction": {"type": "content", "content": [3]})",
                          R"("prediction": {"type": "content", "content": 3})"}) {
    EXPECT_EQ(ask(kChat, std::string(bad) + ", " + messages).status, 400) << bad;
  }
}

// The model goes on with the next letter, unless that is ruled out or would repeat something.
TEST(Service, WhatIsRuledOutDoesNotCome) {
  TestService service;
  const auto says = [&](const std::string& prompt, const std::string& members) {
    const std::string body =
        R"({"temperature": 0, "max_tokens": 4, "prompt": ")" + prompt + "\", " + members + "}";
    const auto answer = service.Post("/v1/completions", body);
    const auto again = service.Post("/v1/completions", body);  // from the cache
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(At(again.body, {"choices", "0", "text"}), At(answer.body, {"choices", "0", "text"}));
    return At(answer.body, {"choices", "0", "text"});
  };
  EXPECT_EQ(says("a", R"("bad_words": [])"), "bcde");
  EXPECT_EQ(says("a", R"("bad_words": ["dc", "ed"])"), "bcde");
  EXPECT_EQ(says("a", R"("bad_words": ["cd"])").substr(0, 2), "bc");
  EXPECT_NE(says("a", R"("bad_words": ["cd"])").substr(0, 3), "bcd");
  EXPECT_NE(says("a", R"("bad_words": ["b"])").front(), 'b');
  std::vector<TokenId> ids;
  ASSERT_TRUE(service.service().model().tokenizer->Encode("bd", {}, &ids).ok());
  const std::string some =
      "\"allowed_token_ids\": [" + std::to_string(ids[1]) + ", " + std::to_string(ids[0]) + "]";
  const std::string text = says("a", some);
  EXPECT_EQ(text.front(), 'b');
  EXPECT_EQ(text.find_first_not_of("bd"), std::string::npos) << text;

  EXPECT_EQ(says("abcdabc", R"("dry_multiplier": 0)").front(), 'd');
  EXPECT_NE(says("abcdabc", R"("dry_multiplier": 100)").front(), 'd');
  EXPECT_EQ(says("abcdabc", R"("dry_multiplier": 100, "dry_allowed_length": 4)").front(), 'd');
  EXPECT_EQ(says("abcdabc", R"("dry_multiplier": 100, "dry_penalty_last_n": 3)").front(), 'd');
  EXPECT_EQ(says("abcdabc", R"("dry_multiplier": 100, "dry_sequence_breakers": ["c"])").front(),
            'd');
}

TEST(Service, AViewOfTheCacheIsOfOneMoment) {
  TestService service;
  const auto ask = [&service](const std::string& text) {
    EXPECT_EQ(service.Post(kChat, R"({"messages": [{"role": "user", "content": ")" + text + "\"}]}")
                  .status,
              200);
  };
  ask("First");
  const Tenant& tenant = *service.service().FindTenant(TestService::MakePost(kChat, ""));
  std::optional<ops::CacheView> view;
  ops::CollectView(&service.service(), tenant, tenant.Namespace(""), ops::kViewNodesMax,
                   [&view](ops::CacheView collected) { view = std::move(collected); });
  ask("Second, while the view is on its way");
  ASSERT_TRUE(view.has_value());
  const std::string text = ops::FormatView(&service.service(), tenant, *view);
  EXPECT_NE(At(text, {"reports", "0"}), "absent");
  EXPECT_EQ(At(text, {"reports", "1"}), "absent") << "the tree is lit by the first";
}

TEST(Service, AClientThatLeavesLeavesNothingBehind) {
  TestService service;
  for (size_t pieces = 1; pieces < 12; ++pieces) {
    for (const char* path : {kChat, kMessages}) {
      constexpr char kBody[] = R"({"model": "alphabet", "stream": true, "max_tokens": 200,
          "messages": [{"role": "user", "content": "Hi"}]})";
      service.Send(TestService::MakePost(path, kBody), pieces);
      const EngineStats stats = service.engine().stats();
      EXPECT_EQ(stats.running + stats.waiting, 0);
      EXPECT_TRUE(service.engine().cache().CheckInvariants().ok());
    }
  }
}

}  // namespace
}  // namespace reprise::api
