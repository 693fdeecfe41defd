// SPDX-License-Identifier: Apache-2.0
// What a client asks of a reply is what it gets, whatever the model would rather say; what cannot
// be had is refused with 400 and the name of the field.
#include <gtest/gtest.h>

#include <algorithm>

#include "api/constrain/constraints.h"
#include "api/test_service.h"
#include "base/json.h"

namespace reprise::api {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kHi[] = R"({"messages": [{"role": "user", "content": "Hi"}], )";
constexpr char kTools[] =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
        "additionalProperties": false}}}], )";

std::string Message(const std::string& body, const char* member) {
  const auto document = JsonDocument::Parse(body);
  if (!document.ok()) return body;
  const JsonValue* choices = document->root().Find("choices");
  if (choices == nullptr) return body;
  const JsonValue* value = choices->items()[0].Find("message")->Find(member);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

std::string Ask(TestService& service, const std::string& rest, int status = 200) {
  const auto answer = service.Post(kChat, kHi + rest + "}");
  EXPECT_EQ(answer.status, status) << answer.body;
  return answer.body;
}

TEST(ConstrainTest, AnswersHaveTheFormThatWasAskedFor) {
  TestService service;
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"const": null}},
          "required": ["a", "b"], "additionalProperties": false})";
  // A model without a will of its own may begin to think, and never end: those replies say nothing.
  int answers = 0;
  for (int seed = 0; seed < 16; ++seed) {
    const std::string more = R"(, "temperature": 2, "seed": )" + std::to_string(seed);
    const std::string format = R"("response_format": {"type": "json_schema", "json_schema": )";
    const std::string body =
        Ask(service, format + R"({"name": "s", "schema": )" + schema + "}}" + more);
    if (body.find("\"finish_reason\":\"length\"") != std::string::npos) continue;
    ++answers;
    const std::string text = Message(body, "content");
    const auto parsed = JsonDocument::Parse(text);
    ASSERT_TRUE(parsed.ok()) << text;
    ASSERT_EQ(parsed->root().members().size(), 2u) << text;
    EXPECT_EQ(parsed->root().members()[0].key, "a");
  }
  EXPECT_GT(answers, 2);
  // The lowest of equals: a digit goes before the "<" of a thought.
  const auto greedy = [&](const std::string& rest) {
    return Message(Ask(service, rest + R"(, "temperature": 0)"), "content");
  };
  EXPECT_EQ(greedy(R"("structured_outputs": {"choice": ["2 zebras"]})"), "2 zebras");
  EXPECT_EQ(greedy(R"("guided_regex": "[0-9]{3}")"), "000");
  EXPECT_EQ(greedy(R"("guided_json": {"enum": [7]})").substr(0, 1), "7");
  EXPECT_EQ(greedy(R"("json_schema": {"const": 12})").substr(0, 2), "12");
  EXPECT_EQ(greedy(R"x("grammar": "root ::= \"3 \" (\"cats\" | \"dogs\")")x"), "3 cats");
  EXPECT_EQ(greedy(R"x("guided_grammar": "start: /4/ WORD\nWORD: \" owls\"")x"), "4 owls");
}

TEST(ConstrainTest, CallsAreMadeAndFitTheirSchema) {
  TestService service;
  int answers = 0;
  for (int seed = 0; seed < 24; ++seed) {
    const char* choices[] = {R"("required")", R"({"type": "function", "function": {"name": "f"}})"};
    const auto body = JsonDocument::Parse(
        Ask(service, kTools + (std::string(R"("tool_choice": )") + choices[seed % 2] +
                               R"(, "temperature": 2, "seed": )" + std::to_string(seed))));
    ASSERT_TRUE(body.ok());
    const JsonValue& choice = body->root().Find("choices")->items()[0];
    if (choice.Find("finish_reason")->as_string() == "length") continue;
    ++answers;
    EXPECT_EQ(choice.Find("finish_reason")->as_string(), "tool_calls");
    const auto calls = choice.Find("message")->Find("tool_calls")->items();
    ASSERT_GE(calls.size(), 1u);
    EXPECT_TRUE(seed % 2 == 0 || calls.size() == 1);
    for (const JsonValue& call : calls) {
      const JsonValue& function = *call.Find("function");
      EXPECT_EQ(function.Find("name")->as_string(), "f");
      const auto arguments = JsonDocument::Parse(function.Find("arguments")->as_string());
      ASSERT_TRUE(arguments.ok());
      const double n = arguments->root().Find("n")->as_double();
      EXPECT_TRUE(n == 1 || n == 2);
    }
  }
  EXPECT_GT(answers, 2);
}

TEST(ConstrainTest, ACallThatIsCutOffSaysSo) {
  TestService service;
  int begun = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const std::string body =
        Ask(service, kTools + (R"("tool_choice": {"type": "function", "function": {"name": "f"}},
            "temperature": 2, "max_tokens": 40, "seed": )" +
                               std::to_string(seed)));
    const auto answer = JsonDocument::Parse(body);
    ASSERT_TRUE(answer.ok());
    const JsonValue& choice = answer->root().Find("choices")->items()[0];
    const JsonValue* calls = choice.Find("message")->Find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    const JsonValue& arguments = *calls->items()[0].Find("function")->Find("arguments");
    const bool whole = JsonDocument::Parse(arguments.as_string()).ok();
    EXPECT_EQ(choice.Find("finish_reason")->as_string(), whole ? "tool_calls" : "length") << body;
    begun += !whole;
  }
  EXPECT_GT(begun, 0);
}

TEST(ConstrainTest, ReasoningComesBeforeTheConstraint) {
  TestService service;
  // The alphabet, again and again: thoughts never end, and the limit of tokens says so.
  const std::string body = Ask(service, R"("chat_template_kwargs": {"enable_thinking": true},
      "max_tokens": 20, "structured_outputs": {"choice": ["zebra"]})");
  EXPECT_EQ(Message(body, "content"), "");
  EXPECT_NE(Message(body, "reasoning_content").find("abc"), std::string::npos) << body;
}

// A reply that is not to think has no room for it, however the model leans.
TEST(ConstrainTest, WithoutThinkingThereIsNoReasoning) {
  TestService service;
  for (const char* off : {R"("enable_thinking": false)", R"("reasoning_effort": "none")"}) {
    for (int seed = 0; seed < 24; ++seed) {
      const std::string body =
          Ask(service, std::string(R"("guided_choice": ["yes", "no"], "temperature": 2, )") + off +
                           R"(, "seed": )" + std::to_string(seed));
      const std::string text = Message(body, "content");
      EXPECT_TRUE(text == "yes" || text == "no") << body;
      EXPECT_EQ(Message(body, "reasoning_content"), "") << body;
    }
  }
}

TEST(ConstrainTest, WhatCannotBeEnforcedIsRefusedByName) {
  TestService service;
  const std::pair<std::string, const char*> cases[] = {
      {R"("guided_json": {"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"("guided_regex": "(")", "guided_regex"},
      {R"("guided_regex": "a", "guided_choice": ["b"])", "cannot be combined"},
      {R"("guided_choice": [])", "guided_choice"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema.schema"},
      {R"("response_format": {"type": "xml"})", "response_format.type"},
      {R"("structured_outputs": {"structural_tag": "x"})", "structural_tag"},
      {R"("tool_choice": "required")", "tool_choice"},
      {kTools + std::string(R"("tool_choice": {"type": "function", "function": {"name": "g"}})"),
       "no tool"},
      {R"("tools": [{"type": "function", "function": {"name": "h", "parameters": {"type": "object",
          "properties": {"a": {"type": "array", "uniqueItems": true}}}}}],
          "tool_choice": {"type": "function", "function": {"name": "h"}})",
       "uniqueItems"},
      {R"("guided_json": false)", "nothing can fulfil it"},
      {R"("guided_regex": "a", "ignore_eos": true)", "ignore_eos"},
  };
  for (const auto& [rest, why] : cases) {
    const std::string body = Ask(service, rest, 400);
    EXPECT_NE(body.find(why), std::string::npos) << rest << ": " << body;
  }
}

// However many forms clients ask for, those that nobody uses stay within their bytes, and what they
// held in the ledger is given back. What was asked for once has a quarter of the bytes, and does
// not drive out what comes again.
TEST(ConstrainTest, KeptGrammarsStayWithinTheirBytes) {
  TestService service;
  constexpr size_t kBytes = size_t{512} << 10;
  constexpr int kCount = 40;
  for (const int times : {1, 2}) {
    Constraints constraints(&service.service().model(), {.languages = 1000, .bytes = kBytes});
    const auto ledger = std::make_shared<Ledger>();
    const auto compile = [&](int i) {
      Account account(ledger, "t", {});
      account.Widen();
      OutputRule rule;
      rule.answer = OutputRule::Answer::kRegex;
      rule.text = "(a|b|ab|ba){0," + std::to_string(20 + i) + "}.*x" + std::to_string(i);
      const auto language = constraints.Compile(rule, {}, "", false, &account);
      account.EndReading();
      EXPECT_TRUE(language.ok()) << language.status().message();
      return language.ok() ? (*language)->bytes() : 0;
    };
    size_t most = std::max(compile(0), compile(0)), all = most;
    for (int i = 1; i < kCount; ++i) {
      size_t bytes = 0;
      for (int j = 0; j < times; ++j) bytes = compile(i);
      most = std::max(most, bytes);
      all += bytes;
      EXPECT_LE(ledger->bytes(), (times == 1 ? kBytes / 4 + compile(0) : kBytes) + most) << i;
    }
    EXPECT_GT(all, 2 * kBytes) << "not all of them fit";
    EXPECT_LT(constraints.size(), size_t{kCount});
    const size_t before = constraints.compilations();
    compile(0);
    EXPECT_LE(constraints.compilations(), before + size_t(times - 1));
  }
}

TEST(ConstrainTest, SameTokensInAnyBatchAndWithReuse) {
  TestService service;
  const std::string rest =
      R"("structured_outputs": {"regex": "[a-z ]{12}"}, "temperature": 1.5, "seed": 4)";
  const std::string cold = Message(Ask(service, rest), "content");
  EXPECT_EQ(cold.size(), 12u);
  EXPECT_EQ(Message(Ask(service, rest), "content"), cold);
  EXPECT_EQ(Message(Ask(service, rest + R"(, "n": 3)"), "content"), cold);
}

}  // namespace
}  // namespace reprise::api
