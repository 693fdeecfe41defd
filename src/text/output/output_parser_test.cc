// SPDX-License-Identifier: Apache-2.0
// Proves that replies are taken apart as the models meant them, and that it does not matter how the
// text was cut: every reply is fed whole, byte by byte, and cut at every pair of places.
#include "text/output/output_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "text/output/body/json_syntax.h"

namespace reprise {
namespace {

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"},
    "days": {"type": "integer"}, "exact": {"type": "boolean"},
    "opts": {"type": "object"}, "any": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}}}])";

const JsonValue& Tools() {
  static const auto& document = *new auto(JsonDocument::Parse(kTools));
  return document->root();
}

// The events as one line: runs of the same kind joined. A call that is not complete ends with "?".
std::string Describe(const std::vector<OutputEvents>& batches) {
  OutputEvents all;
  for (const OutputEvents& events : batches) {
    for (const OutputEvent& event : events) AppendEvent(event, &all);
  }
  std::string out;
  for (const OutputEvent& event : all) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        out += "R(" + event.text + ")";
        break;
      case OutputEvent::Kind::kContent:
        out += "C(" + event.text + ")";
        break;
      case OutputEvent::Kind::kCallBegin:
        out += "[" + event.name + (event.id.empty() ? "" : "#" + event.id) + " ";
        break;
      case OutputEvent::Kind::kArguments:
        out += event.text;
        break;
      case OutputEvent::Kind::kCallEnd:
        out += event.complete ? "]" : "?]";
        break;
    }
  }
  return out;
}

std::string Parse(const OutputFormat& format, const std::vector<std::string_view>& pieces) {
  OutputParser parser(format, &Tools());
  std::vector<OutputEvents> batches;
  for (const std::string_view piece : pieces) batches.push_back(parser.Feed(piece));
  batches.push_back(parser.Finish());
  return Describe(batches);
}

// Parses whole, then in every other way.
std::string ParseEveryWay(const OutputFormat& format, std::string_view text) {
  const std::string whole = Parse(format, {text});
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  EXPECT_EQ(Parse(format, bytes), whole) << text;
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); j += 1 + text.size() / 64) {
      const std::vector<std::string_view> pieces = {text.substr(0, i), text.substr(i, j - i),
                                                    text.substr(j)};
      EXPECT_EQ(Parse(format, pieces), whole) << text << " cut at " << i << " and " << j;
    }
  }
  return whole;
}

// The formats of these names.
OutputFormat Format(const std::vector<std::string_view>& calls, std::string_view reasoning = "",
                    bool begun = false) {
  OutputFormat format;
  for (const std::string_view name : calls) {
    for (const CallFormat& row : CallFormats()) {
      if (row.name == name) format.calls.push_back(&row);
    }
  }
  for (const ReasoningFormat& row : ReasoningFormats()) {
    if (row.name == reasoning) format.reasoning = &row;
  }
  EXPECT_EQ(format.calls.size(), calls.size());
  EXPECT_EQ(format.reasoning != nullptr, !reasoning.empty());
  format.thinking_begun = begun;
  return format;
}

OutputFormat TaggedFormat() { return Format({"qwen-xml", "hermes"}); }

std::string Read(std::string_view name, std::string_view text) {
  return ParseEveryWay(Format({name}), text);
}
std::string Tagged(std::string_view text) { return ParseEveryWay(TaggedFormat(), text); }
std::string Bare(std::string_view text) {
  return ParseEveryWay(Format({"python-tag", "bare"}), text);
}
std::string Thinking(std::string_view text, bool begun = false) {
  return ParseEveryWay(Format({"qwen-xml", "hermes"}, "think", begun), text);
}

TEST(OutputParser, PlainText) {
  EXPECT_EQ(ParseEveryWay(OutputFormat(), "Hi <tool_call>{} <think>"),
            "C(Hi <tool_call>{} <think>)");
  EXPECT_EQ(Tagged("Hello <b>world</b> <tool\n"), "C(Hello <b>world</b> <tool\n)");
  EXPECT_EQ(Tagged(""), "");
  EXPECT_EQ(Tagged(" \n"), "C( \n)");
}

TEST(OutputParser, SplitsThinking) {
  EXPECT_EQ(Thinking("<think>\nOne <b>and</b>\n\none.\n</think>\n\nTwo\n"),
            "R(One <b>and</b>\n\none.)C(Two\n)");
  EXPECT_EQ(Thinking("\n<think></think>Two"), "C(Two)");
  EXPECT_EQ(Thinking("  Two <think>not</think>"), "C(  Two <think>not</think>)");
  EXPECT_EQ(Thinking("One and one.\n</think>\n\nTwo", true), "R(One and one.)C(Two)");
  EXPECT_EQ(Thinking("cut off </thin ", true), "R(cut off </thin)");
  EXPECT_EQ(Thinking("<thin"), "C(<thin)");
  EXPECT_EQ(Thinking("</think>\n", true), "");
  EXPECT_EQ(Thinking("hm</think>a</think>b", true), "R(hm)C(a</think>b)");
  EXPECT_EQ(
      Thinking("look\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
               true),
      "R(look)[f {}]");
}

TEST(OutputParser, JsonCallsInTags) {
  EXPECT_EQ(
      Tagged("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
             "</tool_call>"),
      "[get_weather {\"city\": \"Paris\"}]");
  EXPECT_EQ(
      Tagged("Let me look.\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"}]<\\\"\"}}\n"
             "</tool_call>\n<tool_call>\n{\"arguments\": {\"y\": [1, {\"z\": null}]}, \"name\": "
             "\"b\"}\n</tool_call>\n"),
      "C(Let me look.)[a {\"x\": \"}]<\\\"\"}][b {\"y\": [1, {\"z\": null}]}]");
  // Without arguments, with arguments as a string or null, with other members.
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\"}</tool_call>"), "[a {}]");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>"),
            "[a {\"x\": 1}]");
  EXPECT_EQ(
      Tagged("<tool_call>{\"type\": \"function\", \"name\": \"a\", \"arguments\": null, \"k\": [1]}"
             "</tool_call>"),
      "[a {}]");
  // Two calls between the same tags; a tag that is not closed; text after the calls.
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\"}\n{\"name\": \"b\"}</tool_call>\n\nDone.\n"),
            "[a {}][b {}]C(Done.\n)");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\"}\n<tool_call>{\"name\": \"b\"}"), "[a {}][b {}]");
}

TEST(OutputParser, WhatIsNoCallStaysText) {
  EXPECT_EQ(Tagged("a\n<tool_call>\nnot json</tool_call> b"),
            "C(a\n<tool_call>\nnot json</tool_call> b)");
  EXPECT_EQ(Tagged("<tool_call>{\"x\": 1}</tool_call>"), "C(<tool_call>{\"x\": 1}</tool_call>)");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": 5}</tool_call>"),
            "C(<tool_call>{\"name\": 5}</tool_call>)");
  EXPECT_EQ(Tagged("<tool_call>[<tool_call>{\"name\": \"a\"}</tool_call>"),
            "C(<tool_call>[)[a {}]");
  EXPECT_EQ(Tagged("see <tool_call>"), "C(see <tool_call>)");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\", \"argu"),
            "C(<tool_call>{\"name\": \"a\", \"argu)");
  EXPECT_EQ(Tagged("<tool_call>\n<funct"), "C(<tool_call>\n<funct)");
  EXPECT_EQ(Tagged("<tool_call><function=></tool_call>"), "C(<tool_call><function=></tool_call>)");
}

// What was told cannot be taken back: such a call ends as one that is not complete.
TEST(OutputParser, WhatIsCutOffOrBrokenIsNotComplete) {
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"lo"),
            "[a {\"x\": \"lo?]");
  EXPECT_EQ(Tagged("<tool_call>\n<function=a>\n<parameter=x>\nlong te"), "[a {\"x\": \"long te?]");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": ]}}</tool_call>ok"),
            "[a {\"x\": ?]C(]}}</tool_call>ok)");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": nope}}</tool_call>"),
            "[a {\"x\": nope}?]");
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"a\", \"arguments\": \"no\"}</tool_call>"), "[a no?]");
  EXPECT_EQ(
      Tagged(
          "<tool_call><function=a><parameter=x>1</parameter><parameter=x>2</parameter></function>"),
      "[a {\"x\": \"1\", \"x\": \"2\"}?]");
  EXPECT_EQ(Tagged("<tool_call><function=a><parameter=x>1</parameter>so</function></tool_call>"),
            "[a {\"x\": \"1\"?]C(so</function></tool_call>)");
  // What shows that it is no call before the arguments begin is text.
  for (const std::string text : {"<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>",
                                 "<tool_call><function=a>x</function></tool_call>"}) {
    EXPECT_EQ(Tagged(text), "C(" + text + ")");
  }
  EXPECT_EQ(Tagged("<tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_ca"), "[b {}]");
  const std::string deep(100000, '[');
  const ParsedOutput parsed = ParseOutput(
      TaggedFormat(), nullptr, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": " + deep);
  EXPECT_FALSE(parsed.calls.at(0).complete);
  EXPECT_EQ(parsed.calls.at(0).arguments + parsed.content, "{\"x\": " + deep);
}

// What other readers of JSON take: numbers that no type holds, names that come twice.
TEST(OutputParser, CallsAreCompleteBySyntax) {
  const std::string digits(400, '7');
  for (const std::string& arguments :
       {std::string(R"({"":"","":""})"), std::string(R"({"days": 72214.62E414})"),
        "{\"days\": " + digits + "}",
        std::string(R"({"a": [{"b": "\u00e9\n"}, -0.5e-3, null]})")}) {
    EXPECT_EQ(
        Tagged("<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>"),
        "[f " + arguments + "]");
  }
  for (const char* text : {"{", "{}}", "{\"a\"}", "{\"a\": 01}", "{\"a\": 1.}", "{\"a\": \"\\x\"}",
                           "{\"a\": [1,]}", "{a: 1}", "{\"a\": \"\xff\"}", "{\"a\": tru}"}) {
    EXPECT_FALSE(JsonKindOf(text)) << text;
  }
}

TEST(OutputParser, CallsEndOpenReasoning) {
  EXPECT_EQ(
      Thinking("I need it.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", true),
      "R(I need it.)[f {}]");
  // Only a call does, not its mention.
  EXPECT_EQ(Thinking("I could write <tool_call>, but\n</think>\n\nno", true),
            "R(I could write <tool_call>, but)C(no)");
  EXPECT_EQ(
      Thinking("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n</think>so", true),
      "[f {}]C(</think>so)");
}

TEST(OutputParser, FunctionsWithoutTheTagAround) {
  EXPECT_EQ(Tagged("Look:\n\n<function=a>\n<parameter=x>\n1\n</parameter>\n</function>\n"
                   "</tool_call>\n<function=b>\n</function>"),
            "C(Look:)[a {\"x\": \"1\"}][b {}]");
  EXPECT_EQ(Tagged("see <function=f> and <functio"), "C(see <function=f> and <functio)");
  EXPECT_EQ(Read("hermes", "<function=a></function>"), "C(<function=a></function>)");
}

// Replies made to be read again and again from every marker on.
TEST(OutputParser, TimeIsLinear) {
  for (const std::string bad :
       {"<function=f>x", "<function=f<function=", "<function=>", "<tool_call><tool_call>{",
        "<tool_call>{\"arguments\": {\"x\": \""}) {
    std::string text;
    while (text.size() < 200000) text += bad;
    EXPECT_EQ(ParseOutput(TaggedFormat(), nullptr, text).content, text);
  }
  OutputFormat all;
  for (const CallFormat& row : CallFormats()) all.calls.push_back(&row);
  std::string text;
  while (text.size() < 50000) text += "<tool_call><function=f [TOOL_CALLS]a to=b <|channel|>";
  EXPECT_EQ(ParseOutput(all, nullptr, text).content, text);
}

TEST(OutputParser, XmlCalls) {
  EXPECT_EQ(Tagged("Look:\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis \"x\"\n"
                   "</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"),
            "C(Look:)[get_weather {\"city\": \"Paris \\\"x\\\"\", \"days\": 2}]");
  // Values over several lines, empty ones, without newlines; types by the schema.
  EXPECT_EQ(
      Tagged("<tool_call>\n<function=get_weather>\n<parameter=city>\n\nline 1\n  line é\n\n"
             "</parameter>\n<parameter=exact>True</parameter>\n<parameter=opts>\n{\"a\": [1]}\n"
             "</parameter>\n<parameter=any>\n1.5\n</parameter>\n</function>\n</tool_call>"),
      "[get_weather {\"city\": \"\\nline 1\\n  line é\\n\", \"exact\": true, \"opts\": "
      "{\"a\": [1]}, \"any\": 1.5}]");
  EXPECT_EQ(
      Tagged("<tool_call><function=get_weather><parameter=days>two</parameter><parameter=city>"
             "</parameter></function></tool_call>"),
      "[get_weather {\"days\": \"two\", \"city\": \"\"}]");
  EXPECT_EQ(
      Tagged("<tool_call>\n<function=other>\n</function>\n</tool_call>\n<tool_call>\n<function=x>\n"
             "<parameter=p>\n</param </parameter>\n</function>\n</tool_call>\n"),
      "[other {}][x {\"p\": \"</param \"}]");
}

TEST(OutputParser, BareCalls) {
  EXPECT_EQ(Bare("{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}"),
            "[get_weather {\"city\": \"Paris\"}]");
  EXPECT_EQ(Bare("<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {}}; {\"name\": "
                 "\"get_weather\", \"parameters\": {\"x\": 1}}\n<|python_tag|>{\"name\": "
                 "\"get_weather\", \"parameters\": {}}"),
            "[get_weather {}][get_weather {\"x\": 1}][get_weather {}]");
  EXPECT_EQ(Bare("{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {}}"),
            "[get_weather {}]");
  EXPECT_EQ(Bare("{\"name\": \"get_weather\", \"parameters\": {}} and so on"),
            "[get_weather {}]C(and so on)");
  // Answers in JSON, and what is broken, stay as they are.
  for (const std::string text :
       {"The answer is {\"name\": 1}.", "{\"answer\": 42, \"name\": \"x\"}",
        "{\"name\": \"Ann\", \"age\": 5}", "{\"name\": \"Ann\", \"parameters\": {}}",
        "{\"name\": \"get_weather\"}", "{\"na", "  <|python",
        "<|python_tag|>brave_search.call(query=\"x\")",
        "<|python_tag|> {\"name\": \"get_weather\", \"par"}) {
    EXPECT_EQ(Bare(text), "C(" + text + ")");
  }
}

// Replies put together at random from the pieces that matter, cut at random.
TEST(OutputParser, HowTheTextIsCutDoesNotMatter) {
  constexpr std::string_view kPieces[] = {
      "<tool_call>",
      "</tool_call>",
      "<function=get_weather>",
      "</function>",
      "<parameter=days>",
      "</parameter>",
      "{\"name\": \"get_weather\", ",
      "\"arguments\": {",
      "\"parameters\": {",
      "}",
      "}}",
      "\"x\": ",
      "1",
      "\"",
      "\\",
      "\n",
      " ",
      ";",
      "<think>",
      "</think>",
      "<|python_tag|>",
      "é",
      "text",
      "<",
      "[TOOL_CALLS]",
      "[ARGS]",
      "<|channel|>",
      "analysis<|message|>",
      "commentary to=functions.f",
      "<|end|>",
      "<arg_key>",
      "</arg_key>",
      "<arg_value>",
      "</arg_value>",
      "]<]minimax[>[<a>",
      "]<]minimax[>[</a>",
      "{\"name\": \"get_weather\", \"arguments\": {\"x\": [1]}}"};
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 3000; ++round) {
    OutputFormat format;
    for (const CallFormat& row : CallFormats()) {
      if (below(4) == 0) format.calls.push_back(&row);
    }
    if (below(2) == 0) format.reasoning = &ReasoningFormats()[below(ReasoningFormats().size())];
    format.thinking_begun = below(2) == 0;
    std::string text;
    for (size_t i = below(24); i > 0; --i) text += kPieces[below(std::size(kPieces))];
    std::vector<std::string_view> pieces;
    for (size_t at = 0, size = 0; at < text.size(); at += size) {
      size = 1 + below(12);
      pieces.push_back(std::string_view(text).substr(at, size));
    }
    ASSERT_EQ(Parse(format, pieces), Parse(format, {text})) << text;
  }
}

TEST(OutputParser, WholeReplies) {
  const ParsedOutput parsed = ParseOutput(Format({"hermes"}, "think"), &Tools(),
                                          "<think>\nhm\n</think>\n\nLook.\n<tool_call>\n{\"name\": "
                                          "\"a\", \"arguments\": {}, \"id\": \"x1\"}\n</tool_call>"
                                          "<tool_call>{\"name\": \"b\", \"arguments\": {");
  EXPECT_EQ(parsed.reasoning, "hm");
  EXPECT_EQ(parsed.content, "Look.");
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.calls[0].name, "a");
  EXPECT_EQ(parsed.calls[0].id, "x1");
  EXPECT_EQ(parsed.calls[0].arguments, "{}");
  EXPECT_TRUE(parsed.calls[0].complete);
  EXPECT_FALSE(parsed.calls[1].complete);
}

std::vector<std::string_view> Names(const OutputFormat& format) {
  std::vector<std::string_view> names;
  for (const CallFormat* call : format.calls) names.push_back(call->name);
  return names;
}

TEST(OutputParser, DetectsTheFormat) {
  using List = std::vector<std::string_view>;
  const auto qwen = OutputFormat::Detect("...<tool_call>...<function=..<parameter=..<think>...");
  EXPECT_EQ(Names(qwen), (List{"qwen-xml", "hermes"}));
  ASSERT_NE(qwen.reasoning, nullptr);
  EXPECT_EQ(qwen.reasoning->name, "think");
  EXPECT_TRUE(qwen.ForPrompt("<|im_start|>assistant\n<think>\n", true).thinking_begun);
  const auto off = qwen.ForPrompt("<think>\n\n</think>\n\n", false);
  EXPECT_TRUE(off.calls.empty());
  EXPECT_FALSE(off.thinking_begun);
  EXPECT_EQ(Names(OutputFormat::Detect("<|start_header_id|>")), List{"bare"});
  EXPECT_EQ(Names(OutputFormat::Detect("<|start_header_id|><tool_call>")), List{"hermes"});
  EXPECT_TRUE(OutputFormat::Detect("[INST]").calls.empty());
  // A template that shows nothing: the vocabulary tells.
  const auto has = [](std::string_view token) { return token == "<|tool_call_start|>"; };
  EXPECT_EQ(Names(OutputFormat::Detect("nothing", has)), List{"lfm"});
  EXPECT_EQ(Names(OutputFormat::Detect("<tool_call>", has)), List{"hermes"});
}

// Every row can be told apart and read: markers that are searched for begin with no white space.
TEST(OutputParser, TheTablesAreSound) {
  for (const CallFormat& row : CallFormats()) {
    EXPECT_FALSE(row.name.empty());
    EXPECT_FALSE(row.signs[0].empty()) << row.name;
    EXPECT_TRUE(row.bare || !row.section_begin.empty() || !row.call_begin.empty()) << row.name;
    const bool marked = row.body == CallFormat::Body::kParameters;
    EXPECT_TRUE(!marked || (!row.call_end.empty() && !row.parameter.value_end.empty())) << row.name;
  }
  for (const ReasoningFormat& row : ReasoningFormats()) {
    EXPECT_EQ(row.begin.empty(), row.end.empty()) << row.name;
  }
}

}  // namespace
}  // namespace reprise
