// SPDX-License-Identifier: Apache-2.0
// Proves that the parsers understand what the templates of published models write: a call that a
// template puts into the history is what the model was taught to write, so parsing it gives the
// call back, however the text is cut. Runs on our own templates, and on the published ones where
// they lie beside the checkout.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "text/output/call_writer.h"
#include "text/output/output_parser.h"
#include "text/template/chat_template.h"
#include "text/test_assets.h"

namespace reprise {
namespace {

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "get_weather",
  "description": "The weather.", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "c"},
    "days": {"type": "integer", "description": "d"},
    "ratio": {"type": "number", "description": "r"},
    "exact": {"type": "boolean", "description": "e"},
    "opts": {"type": "object", "description": "o", "additionalProperties": {"type": "string"},
      "properties": {"a": {"type": "array", "items": {"type": "integer"}},
        "b": {"type": "string"}}},
    "list": {"type": "array", "description": "l", "items": {"type": ["string", "integer"]}}},
  "required": ["city"]}}},
  {"type": "function", "function": {"name": "now", "description": "The time.",
    "parameters": {"type": "object", "properties": {}, "required": []}}}])";
constexpr char kUser[] = R"({"role": "user", "content": "How is the weather in Köln?"})";
constexpr char kArguments[] =
    R"({"city": "Köln \"Süd\"\n<b> \\ {1}", "days": 2, "ratio": 1.0, "exact": true, )"
    R"("opts": {"a": [1, 2], "b": "x"}, "list": ["p", 3]})";
// Templates that take variables which nobody else gives them.
constexpr char kVariables[] = R"({"functions": "[]", "datetime": "today"})";

std::string Quoted(std::string_view text) {
  std::string quoted;
  AppendJsonString(text, &quoted);
  return quoted;
}

// The message with the calls, as the server shows it to this template. A template that refuses two
// calls gets one.
std::string CallTurn(const CallShape& shape, const OutputFormat& format, bool one_call) {
  std::vector<WrittenCall> calls = {{"get_weather", "call00001", kArguments}};
  if (!one_call) calls.push_back({"now", "call00002", "{}"});
  if (shape.as_content) {
    const auto written =
        format.calls.empty() ? std::nullopt : WriteCalls(*format.calls.front(), calls);
    return R"({"role": "assistant", "content": )" + Quoted(written ? written->text : "") + "}";
  }
  std::string turn = std::string(R"({"role": "assistant", "content": )") +
                     (shape.null_content ? "null" : "\"\"") + ", \"tool_calls\": [";
  for (const WrittenCall& call : calls) {
    if (call.name == "now") turn += ", ";
    turn += R"({"id": ")" + call.id + R"(", "type": "function", "function": {"name": ")" +
            call.name + R"(", "arguments": )" +
            (shape.string_arguments ? Quoted(call.arguments) : call.arguments) + "}}";
  }
  return turn + "]}";
}

Result<std::string> Render(const ChatTemplate& chat, const std::string& messages, bool prompt,
                           bool with_tools) {
  const auto parsed = JsonDocument::Parse("[" + messages + "]");
  const auto tools = JsonDocument::Parse(kTools);
  const auto variables = JsonDocument::Parse(kVariables);
  ChatInput input;
  input.messages = &parsed->root();
  if (with_tools) input.tools = &tools->root();
  input.variables = &variables->root();
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.add_generation_prompt = prompt;
  input.boundary_messages_max = 0;
  REPRISE_ASSIGN(RenderedChat rendered, chat.Render(input));
  return std::move(rendered.text);
}

// What the model would have written after the prompt, up to the token that ends it.
struct Reply {
  std::string text;
  bool continues = false;  // the prompt is the beginning of the history as it is
};

Reply ReplyOf(std::string_view prompt, std::string_view history) {
  size_t common = 0;
  while (common < prompt.size() && common < history.size() && prompt[common] == history[common]) {
    ++common;
  }
  Reply reply;
  reply.continues = common == prompt.size();
  // They may have parted inside of a marker.
  if (!reply.continues) {
    const size_t marker = history.rfind('<', common);
    const size_t end = history.rfind('>', common - 1);
    if (marker != std::string_view::npos && (end == std::string_view::npos || end < marker)) {
      common = marker;
    }
  }
  reply.text = history.substr(common);
  // A template whose prompt goes on after the history with an instruction.
  if (reply.text.starts_with("<|CHATBOT_TOKEN|>")) reply.text.erase(0, 17);
  for (const char* end : {"<|im_end|>",
                          "<|eot_id|>",
                          "<|eom_id|>",
                          "</s>",
                          "<|end_of_text|>",
                          "<sep>",
                          "<SPECIAL_12>",
                          "<seed:eos>",
                          "<|END_OF_TURN_TOKEN|>",
                          "<|message_sep|>",
                          "<|end_of_msg|>",
                          "<end_of_sentence>",
                          "[e~[",
                          "<｜end▁of▁sentence｜>",
                          "<turn|>",
                          "<|tool_response>",
                          "<｜hy_eos:opensource｜>",
                          "</assistant>",
                          "<|START_OF_TURN_TOKEN|>",
                          "<|eot|>",
                          "<|calls|>",
                          "\n<|end|>"}) {
    reply.text = reply.text.substr(0, reply.text.find(end, 1));
  }
  return reply;
}

bool Same(const JsonValue& a, const JsonValue& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return a.as_bool() == b.as_bool();
    case JsonValue::Kind::kInt:
      return a.as_int() == b.as_int();
    case JsonValue::Kind::kDouble:
      return a.as_double() == b.as_double();
    case JsonValue::Kind::kString:
      return a.as_string() == b.as_string();
    case JsonValue::Kind::kArray:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        Same);
    case JsonValue::Kind::kObject:
      return a.members().size() == b.members().size() &&
             std::all_of(a.members().begin(), a.members().end(), [&](const auto& member) {
               const JsonValue* other = b.Find(member.key);
               return other != nullptr && Same(member.value, *other);
             });
  }
  return false;
}

bool SameJson(std::string_view a, std::string_view b) {
  const auto left = JsonDocument::Parse(a);
  const auto right = JsonDocument::Parse(b);
  return left.ok() && right.ok() && Same(left->root(), right->root());
}

// The events of a reply in two pieces, as one text.
std::string Cut(const OutputFormat& format, const JsonValue& tools, std::string_view text,
                size_t at) {
  OutputParser parser(format, &tools);
  OutputEvents all;
  for (const OutputEvents& events :
       {parser.Feed(text.substr(0, at)), parser.Feed(text.substr(at)), parser.Finish()}) {
    for (const OutputEvent& event : events) AppendEvent(event, &all);
  }
  std::string out;
  for (const OutputEvent& event : all) {
    out += static_cast<char>('0' + static_cast<int>(event.kind));
    out += event.name + "|" + event.id + "|" + event.text + (event.complete ? "+" : "-") + "\n";
  }
  return out;
}

// Whether the arguments are told while they are being written: in the middle of the city.
bool Streams(const OutputFormat& format, const JsonValue& tools, const std::string& text) {
  OutputParser parser(format, &tools);
  OutputEvents all;
  for (const char c : text.substr(0, text.find("<b>"))) {
    for (const OutputEvent& event : parser.Feed({&c, 1})) AppendEvent(event, &all);
  }
  return std::any_of(all.begin(), all.end(), [](const OutputEvent& event) {
    return event.kind == OutputEvent::Kind::kArguments &&
           event.text.find("ln \\\"S") != std::string::npos;
  });
}

// What differs between the calls that were written and those that were read; empty: nothing.
std::string Compare(const OutputFormat& format, const JsonValue& tools, const std::string& reply) {
  const ParsedOutput parsed = ParseOutput(format, &tools, reply);
  const auto wrong = [&](const char* what) {
    std::string problem = std::string(what) + ": " + reply + "\n  content: " + parsed.content +
                          "\n  reasoning: " + parsed.reasoning;
    for (const auto& call : parsed.calls) {
      problem += "\n  " + call.name + "#" + call.id + " " + call.arguments;
    }
    return problem;
  };
  const bool single = reply.find("now") == std::string::npos;
  if (parsed.calls.size() != (single ? 1u : 2u)) return wrong("number of calls");
  if (parsed.calls[0].name != "get_weather") return wrong("name");
  if (!single && parsed.calls[1].name != "now") return wrong("second name");
  if (!SameJson(parsed.calls[0].arguments, kArguments)) return wrong("arguments");
  if (!single && !SameJson(parsed.calls[1].arguments, "{}")) return wrong("second arguments");
  if (parsed.calls[0].arguments.find("1.0") == std::string::npos) return wrong("number");
  if (!parsed.content.empty() || !parsed.reasoning.empty()) return wrong("text");
  if (reply.find("call00001") != std::string::npos && parsed.calls[0].id != "call00001") {
    return wrong("id");
  }
  const std::string whole = Cut(format, tools, reply, 0);
  for (size_t at = 1; at <= reply.size(); ++at) {
    if (Cut(format, tools, reply, at) != whole) return wrong("cut");
  }
  const bool elements = std::any_of(format.calls.begin(), format.calls.end(), [](const auto* row) {
    return row->body == CallFormat::Body::kElements;
  });
  if (!elements && !Streams(format, tools, reply)) return wrong("not streamed");
  return "";
}

// An empty text if the template's calls come back as they were; otherwise why not.
std::string TryTemplate(const std::string& source) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return "does not parse: " + std::string(chat.status().message());
  const auto tools = JsonDocument::Parse(kTools);
  const OutputFormat detected = OutputFormat::Detect(source);
  const CallShape shape = FindCallShape(*chat);
  std::string problem;
  for (int bits = 0; bits < 4; ++bits) {
    const bool with_tools = (bits & 2) == 0;
    const auto prompt = Render(*chat, kUser, true, with_tools);
    const auto history =
        Render(*chat, std::string(kUser) + "," + CallTurn(shape, detected, (bits & 1) != 0), false,
               with_tools);
    if (!prompt.ok() || !history.ok()) {
      problem = "refuses: " + std::string((prompt.ok() ? history : prompt).status().message());
      continue;
    }
    const Reply reply = ReplyOf(*prompt, *history);
    if (detected.calls.empty()) return "no format";
    if (reply.text.find("get_weather") == std::string::npos) return "renders no calls";
    OutputFormat format = detected.ForPrompt(*prompt, true);
    format.thinking_begun = format.thinking_begun && reply.continues;
    return Compare(format, tools->root(), reply.text);
  }
  return problem;
}

TEST(RoundTrip, OurTemplates) {
  EXPECT_EQ(TryTemplate(ReadText("tests/data/templates/thinking.jinja")), "");
  EXPECT_EQ(TryTemplate(ReadText("tests/data/templates/headers.jinja")), "");
}

// Thoughts before a call, in the member that the template reads.
TEST(RoundTrip, ThoughtsStandWhereTheTemplateReadsThem) {
  const auto shape_of = [](const std::string& assistant) {
    const auto chat = ChatTemplate::Parse(
        "{% for m in messages %}{% if m.role == 'assistant' %}" + assistant +
        "{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}{% endfor %}{{ tools }}");
    CHECK(chat.ok());
    return FindCallShape(*chat);
  };
  const CallShape usual = shape_of("{{ m.reasoning_content }}{{ m.thinking }}");
  EXPECT_FALSE(usual.thinking_member || usual.thoughts_alone);
  const CallShape none = shape_of("");
  EXPECT_FALSE(none.thinking_member || none.thoughts_alone);
  const CallShape beside = shape_of("{{ m.thinking }}{{ m.content }}");
  EXPECT_TRUE(beside.thinking_member);
  EXPECT_FALSE(beside.thoughts_alone);
  const CallShape alone = shape_of(
      "{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}{{ m.thinking }}");
  EXPECT_TRUE(alone.thinking_member && alone.thoughts_alone);
}

TEST(RoundTrip, PublishedTemplates) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  std::map<std::string, std::string> failed;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    ++count;
    if (entry.path().stem() == "openai-gpt-oss-120b") {
      const auto chat = ChatTemplate::Parse(ReadText(entry.path().string()));
      const CallShape shape = FindCallShape(*chat);
      EXPECT_TRUE(shape.thinking_member && shape.thoughts_alone);
    }
    std::string problem = TryTemplate(ReadText(entry.path().string()));
    if (!problem.empty()) failed[entry.path().stem().string()] = std::move(problem);
  }
  const std::map<std::string, std::string> expected = {
      // Their models were not taught to call tools, or their templates do not show how.
      {"HuggingFaceTB-SmolLM3-3B", "no format"},
      {"google-gemma-2-2b-it", "no format"},
      {"llama-cpp-rwkv-world", "no format"},
      {"microsoft-Phi-3.5-mini-instruct", "no format"},
  };
  EXPECT_EQ(failed, expected);
  EXPECT_GE(count - static_cast<int>(failed.size()), 60);
}

}  // namespace
}  // namespace reprise
