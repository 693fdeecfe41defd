// SPDX-License-Identifier: Apache-2.0
// Proves what the goldens do not: the limits hold against templates written to break them, errors
// name the construct and its line, no cycle leaks (under the address sanitizer), and boundaries are
// positions that every continuation shares.
#include "text/template/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "text/template/test_messages.h"
#include "text/test_assets.h"

namespace reprise {
namespace {

// Renders with a one-message conversation; the text or the error.
std::string RenderOf(std::string_view source, const ChatTemplateLimits& limits = {}) {
  auto chat = ChatTemplate::Parse(source, limits);
  if (!chat.ok()) return "parse: " + chat.status().message();
  const JsonDocument messages = MakeMessages({{"user", "Hi"}});
  ChatInput input;
  input.messages = &messages.root();
  input.boundary_messages_max = 0;
  auto rendered = chat->Render(input);
  return rendered.ok() ? rendered->text : "error: " + rendered.status().message();
}

TEST(ChatTemplate, ErrorsNameTheConstructAndItsLine) {
  EXPECT_EQ(RenderOf("a\n{% include 'x' %}"),
            "parse: chat template: line 2: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(RenderOf("\n\n{{ x|nope }}"), "parse: chat template: line 3: No filter named 'nope'.");
  EXPECT_EQ(RenderOf("{% if true %}\n{{ x|nope }}{% endif %}"),
            "error: chat template: line 2: No filter named 'nope' found.");
  EXPECT_EQ(RenderOf("{% foo %}"), "parse: chat template: line 1: Encountered unknown tag 'foo'.");
  EXPECT_EQ(RenderOf("{% if true %}\n{% for x in y %}"),
            "parse: chat template: line 2: unexpected end of template, expected 'endfor'");
  EXPECT_EQ(RenderOf("\n{{ messages[0].nope.x }}"),
            "error: chat template: line 2: 'dict object' has no attribute 'nope'");
  EXPECT_EQ(
      RenderOf("{% macro f() %}\n{{ raise_exception('no ' ~ messages[0].role) }}{% endmacro %}"
               "\n\n{{ f() }}"),
      "error: chat template: line 2: no user");
  EXPECT_EQ(RenderOf("{{ 'a'.encode() }}"),
            "error: chat template: line 1: the method encode() of str is not supported");
  EXPECT_EQ(RenderOf("{{ 'a' | center(3) }}"),
            "parse: chat template: line 1: No filter named 'center'.");
  EXPECT_EQ(RenderOf("{{ 1 is divisibleby(1) }}"),
            "parse: chat template: line 1: No test named 'divisibleby'.");
  EXPECT_EQ(RenderOf("{{ '%5d' % 1 }}"),
            "error: chat template: line 1: the format '%5' is not supported");
  EXPECT_EQ(RenderOf("{{ '{:>5}'.format(1) }}"),
            "error: chat template: line 1: the format ':>5' is not supported");
  EXPECT_EQ(RenderOf("{{ 'a\\ud800' }}"),
            "parse: chat template: line 1: truncated or impossible \\u escape in a string");
  EXPECT_EQ(RenderOf("\xff"), "parse: chat template: the template is not valid UTF-8");
  EXPECT_EQ(RenderOf(std::string(2 << 20, 'a')).substr(0, 37),
            "parse: chat template: the template ha");
  EXPECT_EQ(RenderOf("{{ 9223372036854775807 + 1 }}").substr(0, 33),
            "error: chat template: line 1: an ");
}

TEST(ChatTemplate, RefusesVariablesThatTheRequestGives) {
  auto chat = ChatTemplate::Parse("{{ x }}");
  ASSERT_TRUE(chat.ok());
  const JsonDocument messages = MakeMessages({{"user", "Hi"}});
  ChatInput input;
  input.messages = &messages.root();
  auto good = JsonDocument::Parse(R"({"x": 5})");
  input.variables = &good->root();
  EXPECT_EQ(chat->Render(input)->text, "5");
  auto bad = JsonDocument::Parse(R"({"messages": []})");
  input.variables = &bad->root();
  EXPECT_EQ(chat->Render(input).status().message(),
            "'messages' is given by the request and cannot be a template variable");
  input.messages = nullptr;
  EXPECT_FALSE(chat->Render(input).ok());
}

// Each of these would take for ever, or all memory, or all of the stack.
TEST(ChatTemplate, LimitsHold) {
  const std::string nested_parens = "{{ " + std::string(100000, '(');
  const std::string long_sum = [] {
    std::string text = "{{ 1";
    for (int i = 0; i < 100000; ++i) text += "+1";
    return text + " }}";
  }();
  const std::string deep_tags = [] {
    std::string text;
    for (int i = 0; i < 10000; ++i) text += "{% if 1 %}";
    return text;
  }();
  const std::string hostile[] = {
      nested_parens,
      long_sum,
      deep_tags,
      "{{ " + std::string(100000, '[') + std::string(100000, ']') + " }}",
      "{{ " + std::string(100000, '-') + "1 }}",
      "{% set x = " + std::string(90000, 'a') + std::string("|trim") + " %}{{ x + 1 }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) "
      "}}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall "
      "%}"
      "{% endmacro %}{{ g() }}",
      "{% set r = range(100000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x "
      "%}"
      "{% endfor %}{{ ns.x|length }}",
      "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x "
      "%}"
      "{% endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [1] * 1000000000000 }}",
      "{{ 'a'.center(1000000000000) }}",
      "{{ 'a'.zfill(1000000000000) }}",
      "{{ '%1000000d' % 1 }}{{ '%9999999999d' % 1 }}",
      "{{ '{:1000000}'.format(1)|length }}{{ '{:99999999999}'.format(1) }}",
      "{{ 'a\nb'|indent(1000000000000) }}",
      "{{ [1]|tojson(indent=1000000000000) }}",
      "{{ [1]|batch(1000000000000, 0)|list }}",
      "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x.replace('a', "
      "'aa') %}"
      "{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}",
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}"
      "{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = ns.x|map('list') %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = ns.x|reverse %}"
      "{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}"
      "{{ ns.x|length }}{{ ns.x }}",
      "{% set ns = namespace(x=1) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
      "%}"
      "{{ ns.x|tojson|length }}",
      "{% set ns = namespace(x=1, y=1) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=1, y=1) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}"
      "{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ {ns.x: 1}[ns.y] }}",
      "{% set ns = namespace(x=1, y=1) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}"
      "{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ [ns.x, ns.y]|sort }}",
      "{% set ns = namespace(x=1, y=1) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x in [ns.y] }}",
      "{% for i in range(100000) %}{{ "
      "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "a'"
      " }}{% endfor %}",
      "{% set a = ('a' * 2000000) %}{% set b = ('a' * 1000000) ~ 'b' %}{% for i in range(1000) %}"
      "{{ b in a }}{{ a.find(b) }}{{ a.rfind(b) }}{{ a.split(b)|length }}{{ a.strip(b)|length }}"
      "{% endfor %}",
      "{% set a = ('a' * 2000000) %}{% for i in range(100000) %}{{ a|length }}{{ a[1000000] }}"
      "{{ a.upper() == a.lower() }}{% endfor %}",
      "{% set l = range(100000)|list %}{% for i in l %}{{ i in l }}{% endfor %}",
      "{% set l = range(100000)|list %}{% for i in l %}{{ l|sort|length }}{% endfor %}",
      "{% set l = range(100000)|list %}{% for i in l %}{{ l == l[::1] }}{% endfor %}",
      "{{ 2 ** 100000 }}",
      "{{ strftime_now('%c' * 1000000) }}",
      "{% set ns = namespace() %}{% for i in range(100000) %}{% set ns.x = namespace(y=ns.x) %}"
      "{% endfor %}{% for i in range(100000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
  };
  ChatTemplateLimits limits;
  limits.steps_max = 1'000'000;
  limits.memory_bytes_max = size_t{16} << 20;
  for (const std::string& source : hostile) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string got = RenderOf(source, limits);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 10) << source.substr(0, 200);  // 1 s, on a busy machine with sanitizers
    EXPECT_TRUE(got.starts_with("error: ") || got.starts_with("parse: "))
        << source.substr(0, 200) << " gave " << got.substr(0, 200);
  }
}

TEST(ChatTemplate, OutputLimitIsExact) {
  ChatTemplateLimits limits;
  limits.output_bytes_max = 10;
  EXPECT_EQ(RenderOf("0123456789", limits), "0123456789");
  EXPECT_EQ(RenderOf("0123456789{{ 1 }}", limits),
            "error: chat template: line 1: the template writes more than 10 bytes");
}

// Objects that hold each other are freed at the end; the address sanitizer checks it.
TEST(ChatTemplate, CyclesDoNotLeak) {
  const std::string big = "{% set ns = namespace() %}{% set ns.me = ns %}";
  EXPECT_EQ(RenderOf(big + "{{ ns.me.me is defined }}"), "True");
  EXPECT_EQ(RenderOf(big + "{% macro f() %}{% set ns.f = f %}{% endmacro %}{{ f() }}{{ ns.f() }}"),
            "");
  EXPECT_EQ(RenderOf(big + "{% for i in [ns] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.length }}"),
            "1");
  EXPECT_EQ(RenderOf(big + "{% macro f() %}{% set ns.c = caller %}{{ caller() }}{% endmacro %}"
                           "{% call f() %}{% set y = ns.c %}in{% endcall %}{% set z = ns.c %}"),
            "in");
  EXPECT_EQ(RenderOf(big + "{% set ns.g = [ns]|map(attribute='g') %}{{ ns.g|list|length }}"), "1");
  EXPECT_EQ(RenderOf(big + "{% for n in [1] recursive %}{% set ns.l = loop %}{% endfor %}"
                           "{{ ns.l([1]) }}"),
            "");
}

TEST(ChatTemplate, BuildsPlainConversations) {
  const JsonDocument messages = MakeMessages({{"user", "a\"b\n"}, {"assistant", "é"}});
  EXPECT_EQ(messages.root().items().size(), 2u);
  EXPECT_EQ(messages.root().items()[0].Find("content")->as_string(), "a\"b\n");
}

// ---- boundaries ----

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

// Conversations as lists of messages in JSON, so that they can be cut and continued.
using Conversation = std::vector<std::string>;

std::string Message(std::string_view role, std::string_view content) {
  return "{\"role\":" + Quoted(role) + ",\"content\":" + Quoted(content) + "}";
}

// The ids of calls are nine characters long, and differ: templates look calls up by them.
std::string CallMessage(std::string_view city, std::string_view thought) {
  return "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":" + Quoted(thought) +
         ",\"tool_calls\":[{\"id\":\"call_" + std::string(city) +
         "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":{"
         "\"city\":" +
         Quoted(city) + "}}}]}";
}

std::string ResultMessage(std::string_view city, std::string_view content) {
  return "{\"role\":\"tool\",\"tool_call_id\":\"call_" + std::string(city) +
         "\",\"name\":\"get_weather\",\"content\":" + Quoted(content) + "}";
}

constexpr char kTool[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"description\":\"City\"}},\"required\":[\"city\"]}}}]";

Result<RenderedChat> RenderConversation(const ChatTemplate& chat, const Conversation& conversation,
                                        bool with_tools, bool prompt, size_t boundaries) {
  std::string text = "[";
  for (const std::string& message : conversation) text += (text.size() > 1 ? "," : "") + message;
  const auto messages = JsonDocument::Parse(text + "]");
  const auto tools = JsonDocument::Parse(kTool);
  CHECK(messages.ok() && tools.ok());
  ChatInput input;
  input.messages = &messages->root();
  if (with_tools) input.tools = &tools->root();
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.add_generation_prompt = prompt;
  input.boundary_messages_max = boundaries;
  return chat.Render(input);
}

const std::map<std::string, Conversation>& Conversations() {
  static const auto& conversations = *new std::map<std::string, Conversation>{
      {"user", {Message("user", "Hello there")}},
      {"chat",
       {Message("system", "Be brief."), Message("user", "1+1?"), Message("assistant", "Two"),
        Message("user", "2+2?"), Message("assistant", "Four"), Message("user", "3+3?")}},
      {"thinking",
       {Message("user", "1+1?"), Message("assistant", "<think>\none and one\n</think>\n\nTwo"),
        Message("user", "2+2?"), Message("assistant", "<think>\ntwice\n</think>\n\nFour"),
        Message("user", "3+3?")}},
      {"agent",
       {Message("system", "Use tools."), Message("user", "Kyiv?"), CallMessage("Kyiv", "look"),
        ResultMessage("Kyiv", "18"), CallMessage("Rome", "again"), ResultMessage("Rome", "25")}},
      {"agent done",
       {Message("user", "Kyiv?"), CallMessage("Kyiv", "look"), ResultMessage("Kyiv", "18"),
        Message("assistant", "18 degrees."), Message("user", "Thanks, and Rome?")}},
  };
  return conversations;
}

// Other continuations than those the search itself tries.
const std::vector<Conversation>& Continuations() {
  static const auto& continuations = *new std::vector<Conversation>{
      {},
      {Message("user", "Something else entirely")},
      {Message("user", "A"), Message("assistant", "B"), Message("user", "C")},
      {Message("assistant", "An answer")},
      {Message("assistant", "<think>\nnew thought\n</think>\n\nAn answer"),
       Message("user", "More")},
      {Message("assistant", "X"), Message("user", "Y"), Message("assistant", "Z"),
       Message("user", "W")},
      {ResultMessage("Rome", "99"), Message("assistant", "Hm"), Message("user", "Go on")},
      {ResultMessage("Rome", "99"), ResultMessage("Oslo", "98")},
      {CallMessage("Oslo", "deep"), ResultMessage("Oslo", "7"), Message("assistant", "7"),
       Message("user", "ok")},
      {CallMessage("Oslo", "deep"), ResultMessage("Oslo", "7"), CallMessage("Bern", "more")},
  };
  return continuations;
}

// The law: up to a boundary, every rendering of a conversation that begins with the same messages
// has the same bytes.
void CheckBoundaries(const ChatTemplate& chat, const std::string& what, size_t* checked) {
  for (const auto& [name, conversation] : Conversations()) {
    for (const bool with_tools : {false, true}) {
      const auto rendered = RenderConversation(chat, conversation, with_tools, true, SIZE_MAX);
      if (!rendered.ok()) continue;
      size_t last = 0;
      for (const MessageBoundary& boundary : rendered->boundaries) {
        EXPECT_LE(last, boundary.byte_offset) << what;
        ASSERT_LE(boundary.byte_offset, rendered->text.size()) << what;
        last = boundary.byte_offset;
        const std::string prefix = rendered->text.substr(0, boundary.byte_offset);
        for (const Conversation& continuation : Continuations()) {
          Conversation other(conversation.begin(),
                             conversation.begin() + static_cast<ptrdiff_t>(boundary.message_count));
          other.insert(other.end(), continuation.begin(), continuation.end());
          for (const bool prompt : {false, true}) {
            const auto changed = RenderConversation(chat, other, with_tools, prompt, 0);
            if (!changed.ok()) continue;
            ++*checked;
            EXPECT_TRUE(changed->text.starts_with(prefix))
                << what << ", " << name << ", after " << boundary.message_count << " messages:\n"
                << prefix << "\n-----\n"
                << changed->text;
          }
        }
      }
    }
  }
}

TEST(ChatTemplateBoundaries, EveryContinuationSharesTheText) {
  size_t checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    auto chat = ChatTemplate::Parse(ReadText(entry.path()));
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    CheckBoundaries(*chat, entry.path(), &checked);
  }
  EXPECT_GT(checked, 500u);
}

TEST(ChatTemplateBoundaries, PublishedTemplatesToo) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  size_t checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    auto chat = ChatTemplate::Parse(ReadText(entry.path()));
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    CheckBoundaries(*chat, entry.path(), &checked);
  }
  EXPECT_GT(checked, 10000u);
}

// They must also be of use: where a template renders message by message, the boundary is the end of
// the message; where it looks ahead, as far as that allows.
TEST(ChatTemplateBoundaries, LieAtTheEndOfMessages) {
  const auto offsets = [](const char* file, const char* conversation, bool with_tools) {
    auto chat = ChatTemplate::Parse(ReadText(std::string("tests/data/templates/") + file));
    CHECK(chat.ok());
    auto rendered =
        RenderConversation(*chat, Conversations().at(conversation), with_tools, true, SIZE_MAX);
    CHECK(rendered.ok());
    std::vector<std::string> pieces;
    size_t last = 0;
    for (const MessageBoundary& boundary : rendered->boundaries) {
      pieces.push_back(rendered->text.substr(last, boundary.byte_offset - last));
      last = boundary.byte_offset;
    }
    pieces.push_back(rendered->text.substr(last));
    return pieces;
  };
  EXPECT_EQ(offsets("chatml.jinja", "chat", false),
            (std::vector<std::string>{
                "<|im_start|>system\nBe brief.<|im_end|>\n", "<|im_start|>user\n1+1?<|im_end|>\n",
                "<|im_start|>assistant\nTwo<|im_end|>\n", "<|im_start|>user\n2+2?<|im_end|>\n",
                "<|im_start|>assistant\nFour<|im_end|>\n", "<|im_start|>user\n3+3?<|im_end|>\n",
                "<|im_start|>assistant\n"}));
  // An assistant's message is final once a user's follows; before that its thinking may go.
  EXPECT_EQ(offsets("thinking.jinja", "thinking", false),
            (std::vector<std::string>{
                "", "<|im_start|>user\n1+1?<|im_end|>\n", "<|im_start|>assistant\n",
                "Two<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n", "<|im_start|>assistant\n",
                "Four<|im_end|>\n<|im_start|>user\n3+3?<|im_end|>\n",
                "<|im_start|>assistant\n<think>\n"}));
}

TEST(ChatTemplateBoundaries, AreAsManyAsAskedFor) {
  auto chat = ChatTemplate::Parse(ReadText("tests/data/templates/chatml.jinja"));
  ASSERT_TRUE(chat.ok());
  const Conversation& conversation = Conversations().at("chat");
  auto two = RenderConversation(*chat, conversation, false, true, 2);
  ASSERT_EQ(two->boundaries.size(), 3u);
  EXPECT_EQ(two->boundaries[0].message_count, 1u);
  EXPECT_EQ(two->boundaries[1].message_count, 5u);
  EXPECT_EQ(two->boundaries[2].message_count, 6u);
  EXPECT_TRUE(RenderConversation(*chat, conversation, false, true, 0)->boundaries.empty());
}

// 400 messages of 100 calls each: rendering them takes more steps than a search may.
JsonDocument ManyCalls() {
  std::string text = "[";
  for (int i = 0; i < 400; ++i) {
    text += std::string(i > 0 ? "," : "") + R"({"role":"assistant","content":"","tool_calls":[)";
    for (int j = 0; j < 100; ++j) text += std::string(j > 0 ? "," : "") + R"({"name":"f"})";
    text += "]}";
  }
  auto messages = JsonDocument::Parse(text + "]");
  CHECK(messages.ok());
  return std::move(*messages);
}

constexpr char kCallsTemplate[] =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{% if c.name is defined %}{{ c.name ~ loop.index }}{% endif %}{% endfor %}{% endfor %}";

TEST(ChatTemplateBoundaries, ProbesThatFailArePaidFor) {
  const JsonDocument messages = ManyCalls();
  ChatTemplateLimits limits;
  limits.time_max = std::chrono::hours(1);  // steps decide, not the machine
  // Every probe is refused: by its own share of the steps, or by the template at its very end.
  const std::string refused =
      kCallsTemplate + std::string(R"({% if messages | length != 400 or not add_generation_prompt %}
        {{ raise_exception('no') }}{% endif %})");
  for (const std::string& source : {std::string(kCallsTemplate), refused}) {
    const auto chat = ChatTemplate::Parse(source, limits);
    ASSERT_TRUE(chat.ok());
    RenderMeter meter = chat->MakeMeter();
    ChatInput input;
    input.messages = &messages.root();
    input.boundary_messages_max = 0;
    input.meter = &meter;
    ASSERT_TRUE(chat->Render(input).ok());
    const uint64_t once = meter.steps();
    ASSERT_EQ(meter.renders(), 1);

    input.boundary_messages_max = SIZE_MAX;
    ASSERT_TRUE(chat->Render(input).ok());
    // The search ends with the probe that used it up.
    EXPECT_LE(meter.steps(), 2 * once + limits.boundary_steps_max + once);
    EXPECT_LE(meter.renders(), 2 + 7 + 7);
  }
}

TEST(ChatTemplateBoundaries, RendersOfOneRequestShareTheirSteps) {
  const JsonDocument messages = ManyCalls();
  ChatTemplateLimits limits;
  limits.time_max = std::chrono::hours(1);
  const auto measured = ChatTemplate::Parse(kCallsTemplate, limits);
  ChatInput input;
  input.messages = &messages.root();
  input.boundary_messages_max = 0;
  RenderMeter once = measured->MakeMeter();
  input.meter = &once;
  ASSERT_TRUE(measured->Render(input).ok());

  limits.steps_max = once.steps() * 5 / 2;
  const auto chat = ChatTemplate::Parse(kCallsTemplate, limits);
  RenderMeter meter = chat->MakeMeter();
  input.meter = &meter;
  EXPECT_TRUE(chat->Render(input).ok());
  EXPECT_TRUE(chat->Render(input).ok());
  EXPECT_EQ(chat->Render(input).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(meter.steps_left(), 0u);
}

TEST(ChatTemplateBoundaries, NobodyWaitsNobodyRenders) {
  const JsonDocument messages = ManyCalls();
  const auto chat = ChatTemplate::Parse(kCallsTemplate);
  int asked = 0;
  RenderMeter meter = chat->MakeMeter([&] { return ++asked > 3; });
  ChatInput input;
  input.messages = &messages.root();
  input.meter = &meter;
  EXPECT_EQ(chat->Render(input).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(meter.renders(), 1);
  EXPECT_LT(meter.steps(), 50'000u);
}

}  // namespace
}  // namespace reprise
