// SPDX-License-Identifier: Apache-2.0
// Proves that bodies of /v1/messages become the turns, tools and breakpoints they mean, that what
// is wrong with them is named, and that varying preambles are taken off and nothing else is.
#include "api/anthropic/messages_request.h"

#include <gtest/gtest.h>

#include "api/anthropic/preamble.h"

namespace reprise::api::anthropic {
namespace {

// The request as one line: turns with their calls, breakpoints as turn:bytes.
std::string Describe(const MessagesRequest& request) {
  std::string out;
  for (const ChatTurn& turn : request.job.turns) {
    out += turn.role + "(" + turn.content + ")";
    if (!turn.reasoning.empty()) out += "~" + turn.reasoning + "~";
    for (const ToolCall& call : turn.calls) {
      out += "[" + call.id + " " + call.name + " " + call.arguments + "]";
    }
    if (!turn.call_id.empty()) out += "<" + turn.call_id + " " + turn.name + ">";
  }
  for (const Breakpoint& place : request.job.cache.breakpoints) {
    out += " @" + std::to_string(place.turn) + ":" + std::to_string(place.content_bytes);
  }
  return out;
}

// A body with these members besides the required ones.
MessagesRequest Read(const std::string& members, std::string* error = nullptr) {
  const auto body = JsonDocument::Parse("{\"model\": \"m\", \"max_tokens\": 5" +
                                        (members.empty() ? std::string() : ", " + members) + "}");
  EXPECT_TRUE(body.ok()) << body.status().message();
  Fields fields(body->root());
  MessagesRequest request = ReadMessagesRequest(ServiceOptions(), false, &fields);
  if (error != nullptr) {
    *error = fields.ok() ? "" : fields.error()->param + ": " + fields.error()->message;
  } else {
    EXPECT_TRUE(fields.ok()) << fields.error()->message;
  }
  return request;
}

constexpr char kHi[] = R"("messages": [{"role": "user", "content": "Hi"}])";

TEST(MessagesRequest, Turns) {
  EXPECT_EQ(Describe(Read(kHi)), "user(Hi)");
  EXPECT_EQ(Describe(Read(R"("system": "Be brief.", "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c"}, {"role": "user", "content": ""}])")),
            "system(Be brief.)user(a\nb)assistant(c)user()");
  EXPECT_EQ(Describe(Read(std::string(R"("system": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}], )") +
                          kHi)),
            "system(a\nb)user(Hi)");
}

TEST(MessagesRequest, AFailedResultSaysSo) {
  const auto result = [](const std::string& more) {
    return Describe(Read(R"("messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "no file", )" +
                         more + R"("cache_control": {"type": "ephemeral"}}]}])"));
  };
  EXPECT_EQ(result(R"("is_error": true, )"), "tool(Error: no file)<t > @0:14");
  EXPECT_EQ(result(R"("is_error": false, )"), "tool(no file)<t > @0:7");
  EXPECT_EQ(result(""), "tool(no file)<t > @0:7");
}

TEST(MessagesRequest, AnAssistantAtTheEndIsThePrefill) {
  const MessagesRequest request = Read(R"("messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "The best"}])");
  EXPECT_EQ(Describe(request), "user(Hi)");
  EXPECT_EQ(request.job.prefill, "The best");
  EXPECT_EQ(request.job.thinking.enabled, false);
  std::string error;
  Read(R"("messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
      {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}])",
       &error);
  EXPECT_TRUE(error.starts_with("messages: ")) << error;
}

TEST(MessagesRequest, EffortIsHowMuchToThink) {
  const auto effort = [](const std::string& members) {
    return Read(members + R"("messages": [{"role": "user", "content": "Hi"}])").job.thinking.effort;
  };
  EXPECT_EQ(effort(R"("output_config": {"effort": "low"}, )"), "low");
  EXPECT_EQ(effort(R"("output_config": {"effort": "max"}, "thinking": {"type": "adaptive"}, )"),
            "max");
  EXPECT_EQ(effort(R"("output_config": {"effort": "high"}, )"), "") << "as without";
  EXPECT_EQ(effort(R"("output_config": {"effort": "low"}, "thinking": {"type": "disabled"}, )"),
            "");
}

TEST(MessagesRequest, ThinkingAndTools) {
  const MessagesRequest request = Read(R"("messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Look."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": [1, "é"]}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
        {"type": "tool_result", "tool_use_id": "t9"},
        {"type": "text", "text": "Go on."}]}],
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "auto"}, "thinking": {"type": "enabled", "budget_tokens": 2048})");
  EXPECT_EQ(Describe(request),
            "user(Hi)assistant(Look.)~hm~[t1 f {\"x\":[1,\"é\"]}][t2 g {}]"
            "tool(two)<t2 g>tool(one)<t1 f>tool()<t9 >user(Go on.)");
  EXPECT_EQ(request.job.tools, R"([{"type":"function","function":{"name":"f","description":"d",)"
                               R"("parameters":{"type":"object"}}}])");
  EXPECT_TRUE(request.job.calls.parse);
  EXPECT_EQ(request.job.thinking.enabled, true);
  EXPECT_EQ(request.job.thinking.budget, 2048);
  EXPECT_FALSE(Read(std::string(kHi) + R"(, "tool_choice": {"type": "none"},
      "tools": [{"name": "f", "input_schema": {}}])")
                   .job.calls.parse);
}

TEST(MessagesRequest, Breakpoints) {
  const std::string mark = R"("cache_control": {"type": "ephemeral"})";
  const std::string hour = R"("cache_control": {"type": "ephemeral", "ttl": "1h"})";
  const MessagesRequest request = Read(R"("tools": [{"name": "f", "input_schema": {}, )" + hour +
                                       R"(}], "system": [{"type": "text", "text": "abc", )" + mark +
                                       R"(}, {"type": "text", "text": "d"}], "messages": [
      {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "f", "input": {}, )" +
                                       mark + R"(}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "one", )" +
                                       mark + "}]}]");
  EXPECT_EQ(Describe(request),
            "system(abc\nd)user(Hi)assistant()[t f {}]tool(one)<t f> @-1:0 @0:3 @3:0 @3:3");
  EXPECT_EQ(request.hour_breakpoints, 1);
  EXPECT_EQ(request.job.cache.pin_ms, 3'600'000);
  EXPECT_EQ(Describe(Read(std::string(kHi) + ", " + mark)), "user(Hi) @0:2");
  EXPECT_EQ(Read(std::string(kHi) + ", " + mark).job.cache.pin_ms, 300'000);
  EXPECT_EQ(Read(kHi).job.cache.pin_ms, 0);
}

TEST(MessagesRequest, Options) {
  const MessagesRequest request = Read(std::string(kHi) + R"(, "stream": true, "temperature": 0.5,
      "top_k": 7, "top_p": 0.9, "stop_sequences": ["a", "b"], "metadata": {"user_id": "u"},
      "thinking": {"type": "adaptive", "display": "omitted"})");
  EXPECT_TRUE(request.stream);
  EXPECT_FALSE(request.show_thinking);
  EXPECT_EQ(request.job.options.max_tokens, 5);
  EXPECT_EQ(request.job.options.sampling.temperature, 0.5f);
  EXPECT_EQ(request.job.options.sampling.top_k, 7);
  EXPECT_EQ(request.job.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.job.cache.session, "u");
  EXPECT_TRUE(request.job.thinking.empty());
}

// The client runs them; the model is told what they are.
TEST(MessagesRequest, AnthropicsClientToolsGetTheirSchema) {
  const MessagesRequest request = Read(std::string(kHi) + R"(, "tools": [
      {"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"},
      {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}])");
  EXPECT_TRUE(request.job.calls.parse);
  const auto tools = JsonDocument::Parse(request.job.tools);
  ASSERT_TRUE(tools.ok()) << request.job.tools;
  ASSERT_EQ(tools->root().items().size(), 3u);
  for (const JsonValue& tool : tools->root().items()) {
    const JsonValue* function = tool.Find("function");
    EXPECT_FALSE(function->Find("description")->as_string().empty());
    EXPECT_NE(function->Find("parameters")->Find("properties")->Find("command"), nullptr);
  }
}

TEST(MessagesRequest, ErrorsNameTheField) {
  const std::string hi = std::string(kHi) + ", ";
  const auto message = [](const std::string& block) {
    return R"("messages": [{"role": "user", "content": [)" + block + "]}]";
  };
  const std::string mark =
      R"({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}})";
  const std::pair<std::string, std::string> cases[] = {
      {"", "messages"},
      {R"("messages": [])", "messages"},
      {R"("messages": "x")", "messages"},
      {R"("messages": [5])", "messages[0]"},
      {R"("messages": [{"role": "tool", "content": "x"}])", "messages[0].role"},
      {R"("messages": [{"role": "user"}])", "messages[0].content"},
      {message("5"), "messages[0].content[0]"},
      {message(R"({"type": "text"})"), "messages[0].content[0].text"},
      {message(R"({"type": "image"})"), "messages[0].content[0].type"},
      {message(R"({"type": "tool_use", "id": "t", "name": "f", "input": {}})"),
       "messages[0].content[0].type"},
      {message(R"({"type": "tool_result"})"), "messages[0].content[0].tool_use_id"},
      {message(R"({"type": "tool_result", "tool_use_id": "t", "content": 5})"),
       "messages[0].content[0].content"},
      {message(
           R"({"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "2h"}})"),
       "messages[0].content[0].cache_control.ttl"},
      {message(R"({"type": "text", "text": "x", "cache_control": {}})"),
       "messages[0].content[0].cache_control.type"},
      {message(mark + "," + mark + "," + mark + "," + mark + "," + mark), "cache_control"},
      {hi + R"("system": 5)", "system"},
      {hi + R"("system": [{"type": "image"}])", "system[0]"},
      {hi + R"("tools": [{"name": "f"}])", "tools[0]"},
      {hi + R"("tools": [{"type": "bash_20250124"}])", "tools[0]"},
      {hi + R"("tool_choice": {"type": "any"})", "tool_choice.type"},
      {hi + R"("tool_choice": {"type": "tool", "name": "f"})", "tool_choice.type"},
      {hi + R"("thinking": {"type": "maybe"})", "thinking.type"},
      {hi + R"("stop_sequences": [""])", "stop_sequences"},
      {hi + R"("temperature": "hot")", "temperature"},
      {hi + R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format"},
      {hi + R"("output_config": {"effort": "lots"})", "output_config.effort"},
      {hi + R"("output_config": {"effort": 3})", "output_config.effort"},
      {hi + R"("metadata": {"user_id": 5})", "metadata.user_id"},
  };
  for (const auto& [members, param] : cases) {
    std::string error;
    Read(members, &error);
    EXPECT_TRUE(error.starts_with(param + ": ")) << members << " gave " << error;
  }
}

TEST(Preamble, OnlyVaryingLinesAtTheStartGo) {
  EXPECT_EQ(StripPreamble("x-anthropic-billing-header: cch=1;\n\nYou are."), "You are.");
  EXPECT_EQ(StripPreamble("X-Anthropic-Billing-Header: cch=1;"), "");
  EXPECT_EQ(StripPreamble("\nYou are."), "\nYou are.");
  EXPECT_EQ(StripPreamble("Say x-anthropic-billing-header: 1"),
            "Say x-anthropic-billing-header: 1");
  const MessagesRequest request = Read(std::string(kHi) + R"(, "system": [
      {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
      {"type": "text", "text": "a"}])");
  EXPECT_EQ(Describe(request), "system(a)user(Hi)");
}

}  // namespace
}  // namespace reprise::api::anthropic
