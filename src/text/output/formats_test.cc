// SPDX-License-Identifier: Apache-2.0
// Proves that every format of the tables is read as its models write it: one reply for each row,
// whole and cut at every place.
#include "text/output/formats.h"

#include <gtest/gtest.h>

#include <map>

#include "text/output/call_writer.h"
#include "text/output/output_parser.h"

namespace reprise {
namespace {

constexpr char kTools[] = R"([{"name": "f", "parameters": {"properties": {
  "s": {"type": "string"}, "n": {"type": "number"}, "b": {"type": "boolean"},
  "o": {"type": "object", "properties": {"k": {"type": "array", "items": {"type": "integer"}}}},
  "u": {"type": ["string", "null"]}}}}])";

const JsonValue& Tools() {
  static const auto& document = *new auto(JsonDocument::Parse(kTools));
  return document->root();
}

std::string Describe(const OutputEvents& events) {
  std::string out;
  for (const OutputEvent& event : events) {
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

std::string Parse(const OutputFormat& format, std::string_view text, size_t cut) {
  OutputParser parser(format, &Tools());
  OutputEvents all;
  for (const OutputEvents& events :
       {parser.Feed(text.substr(0, cut)), parser.Feed(text.substr(cut)), parser.Finish()}) {
    for (const OutputEvent& event : events) AppendEvent(event, &all);
  }
  return Describe(all);
}

std::string Parse(const OutputFormat& format, std::string_view text) {
  const std::string whole = Parse(format, text, 0);
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    EXPECT_EQ(Parse(format, text, cut), whole) << text << " cut at " << cut;
  }
  return whole;
}

// A row's name, and what a model writes that calls f with s and n, then g with nothing.
const std::pair<std::string_view, std::string_view> kReplies[] = {
    {"glm",
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\"\n</arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>1.0</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>"},
    {"hunyuan",
     "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>s"
     "</arg_key:opensource>\n<arg_value:opensource>x\"\n</arg_value:opensource>\n"
     "<arg_key:opensource>n</arg_key:opensource>\n<arg_value:opensource>1.0"
     "</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>g"
     "<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>"},
    {"longcat-pairs",
     "<longcat_tool_call>f\n<longcat_arg_key>s</longcat_arg_key>\n<longcat_arg_value>x\"\n"
     "</longcat_arg_value>\n<longcat_arg_key>n</longcat_arg_key>\n<longcat_arg_value>1.0"
     "</longcat_arg_value>\n</longcat_tool_call>\n<longcat_tool_call>g\n</longcat_tool_call>"},
    {"longcat",
     "<longcat_tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}\n"
     "</longcat_tool_call>\n<longcat_tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n"
     "</longcat_tool_call>"},
    {"qwen-xml",
     "<tool_call>\n<function=f>\n<parameter=s>\nx\"\n\n</parameter>\n<parameter=n>\n1.0\n"
     "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n"
     "</tool_call>"},
    {"seed",
     "<seed:tool_call>\n<function=f>\n<parameter=s>x\"\n</parameter>\n<parameter=n>1.0"
     "</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g>\n</function>\n"
     "</seed:tool_call>"},
    {"functionary-3.1",
     "<function=f>{\"s\": \"x\\\"\\n\", \"n\": 1.0}</function><function=g>{}</function>"},
    {"functionary-3.2", "f\n{\"s\": \"x\\\"\\n\", \"n\": 1.0}>>>g\n{}"},
    {"minicpm",
     "<function name=\"f\"><param name=\"s\"><![CDATA[x\"\n]]></param><param name=\"n\">1.0</param>"
     "</function>\n<function name=\"g\"></function>"},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x\"\n</parameter>\n"
     "<parameter name=\"n\">1.0</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
     "</minimax:tool_call>"},
    {"minimax-elements",
     "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<s>x\"\n]<]minimax[>["
     "</s>]<]minimax[>[<n>1.0]<]minimax[>[</n>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke "
     "name=\"g\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"},
    {"dsml-functions",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
     "string=\"true\">x\"\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">1.0"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>"},
    {"dsml",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
     "string=\"true\">x\"\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">1.0"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n\n</｜DSML｜invoke>\n"
     "</｜DSML｜tool_calls>"},
    {"deepseek",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"x\\\"\\n\", \"n\": 1.0}"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>"},
    {"deepseek-fenced",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"s\": "
     "\"x\\\"\\n\", \"n\": "
     "1.0}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g"
     "\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
     "\"s\": \"x\\\"\\n\", \"n\": 1.0}<|tool_call_end|><|tool_call_begin|>functions.g:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
    {"kimi-open",
     "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"s\" "
     "type=\"string\"<|sep|>x\"\n<|close|>argument<|sep|><|open|>argument key=\"n\" "
     "type=\"number\"<|sep|>1.0<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
     "tool=\"g\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"},
    {"solar",
     "<|tool_calls|><|tool_call:begin|>c1<|tool_call:name|>f<|tool_call:args|>{\"s\": "
     "\"x\\\"\\n\", \"n\": 1.0}<|tool_call:end|><|tool_call:begin|>c2<|tool_call:name|>g"
     "<|tool_call:args|>{}<|tool_call:end|>"},
    {"harmony",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"x\\\"\\n\", "
     "\"n\": 1.0}<|call|><|channel|>commentary to=functions.g<|message|>{}<|call|>"},
    {"harmony-analysis",
     "<|channel|>analysis to=functions.f code<|message|>{\"s\": \"x\\\"\\n\", \"n\": 1.0}<|call|>"
     "<|channel|>analysis to=functions.g <|message|>{}"},
    {"harmony-role",
     " to=functions.f<|channel|>commentary json<|message|>{\"s\": \"x\\\"\\n\", \"n\": 1.0}<|call|>"
     " to=functions.g<|channel|>commentary json<|message|>{}<|call|>"},
    {"atem",
     " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"s\">"
     "x\"\n</atem:parameter>\n<atem:parameter name=\"n\">1.0</atem:parameter>\n</atem:invoke>\n"
     "</atem:function_calls> to=g<|message|><atem:function_calls>\n<atem:invoke name=\"g\">\n"
     "</atem:invoke>\n</atem:function_calls>"},
    {"gemma",
     "<|tool_call>call:f{s:<|\"|>x\"\n<|\"|>,n:1.0}<tool_call|><|tool_call>call:g{}<tool_call|>"},
    {"function-gemma",
     "<start_function_call>call:f{s:<escape>x\"\n<escape>,n:1.0}<end_function_call>"
     "<start_function_call>call:g{}<end_function_call>"},
    {"lfm", "<|tool_call_start|>[f(s='x\"\n', n=1.0), g()]<|tool_call_end|>"},
    {"mistral",
     "[TOOL_CALLS]f[CALL_ID]c1[ARGS]{\"s\": \"x\\\"\\n\", \"n\": 1.0}[TOOL_CALLS]g[ARGS]{}"},
    {"mistral-list",
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}, \"id\": "
     "\"c1\"}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"c2\"}]"},
    {"apertus",
     "<|tools_prefix|>[{\"f\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}, {\"g\": {}}]<|tools_suffix|>"},
    {"cohere",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
     "{\"s\": \"x\\\"\\n\", \"n\": 1.0}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", "
     "\"parameters\": {}}\n]<|END_ACTION|>"},
    {"command-r",
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"s\": "
     "\"x\\\"\\n\", \"n\": 1.0}\n    },\n    {\"tool_name\": \"g\", \"parameters\": {}}\n]```"},
    {"nemotron",
     "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}, {\"name\": "
     "\"g\", \"arguments\": {}}]</TOOLCALL>"},
    {"tool-calls-list",
     "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}, {\"name\": "
     "\"g\", \"arguments\": {}}]</tool_calls>"},
    {"tool-calls",
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}\n"
     "{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>"},
    {"gigachat",
     "<|function_call|>{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}"
     "<|function_call|>{\"name\": \"g\", \"arguments\": {}}"},
    {"gigachat-role",
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"s\": "
     "\"x\\\"\\n\", \"n\": 1.0}}<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"g\", "
     "\"arguments\": {}}"},
    {"functools",
     " functools[{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}, {\"name\": "
     "\"g\", \"arguments\": {}}]"},
    {"granite-list",
     "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}, "
     "{\"name\": "
     "\"g\", \"arguments\": {}}]"},
    {"hermes",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}\n"
     "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"},
    {"python-tag",
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}"},
    {"bare", "{\"name\": \"f\", \"parameters\": {\"s\": \"x\\\"\\n\", \"n\": 1.0}}"},
};

TEST(Formats, EveryCallFormatIsRead) {
  std::map<std::string_view, std::string_view> replies(std::begin(kReplies), std::end(kReplies));
  for (const CallFormat& row : CallFormats()) {
    ASSERT_TRUE(replies.contains(row.name)) << row.name << " has no reply here";
    OutputFormat format;
    format.calls = {&row};
    std::string read = Parse(format, replies[row.name]);
    for (const std::string id : {"#c1", "#c2", "#functions.f:0", "#functions.g:1"}) {
      if (read.find(id) != std::string::npos) read.erase(read.find(id), id.size());
    }
    const std::string first = "[f {\"s\": \"x\\\"\\n\", \"n\": 1.0}]";
    EXPECT_EQ(read, row.bare ? first : first + "[g {}]") << row.name;
    // Text before and after is text; white space beside a call is not.
    if (row.bare || row.begun_in_prompt) continue;
    EXPECT_EQ(Parse(format, "Let me see.\n" + std::string(replies[row.name]) + "\nSo."),
              "C(Let me see.)" + Parse(format, replies[row.name]) + "C(So.)")
        << row.name;
  }
}

TEST(Formats, IdsAreRead) {
  const std::pair<std::string_view, std::string_view> ids[] = {{"mistral", "c1"},
                                                               {"mistral-list", "c1"},
                                                               {"solar", "c1"},
                                                               {"kimi", "functions.f:0"},
                                                               {"cohere", "0"}};
  std::map<std::string_view, std::string_view> replies(std::begin(kReplies), std::end(kReplies));
  for (const auto& [name, id] : ids) {
    OutputFormat format;
    for (const CallFormat& row : CallFormats()) {
      if (row.name == name) format.calls = {&row};
    }
    EXPECT_EQ(ParseOutput(format, &Tools(), replies[name]).calls.at(0).id, id) << name;
  }
}

// Every reasoning format, closed and open, with and without a call after it.
TEST(Formats, EveryReasoningFormatIsRead) {
  for (const ReasoningFormat& row : ReasoningFormats()) {
    OutputFormat format;
    format.reasoning = &row;
    if (row.begin.empty()) {
      EXPECT_EQ(Parse(format, std::string(row.hidden_start) + "Hello"), "C(Hello)");
      continue;
    }
    const std::string begin(row.begin);
    const std::string end(row.end);
    EXPECT_EQ(Parse(format, begin + "\nhm <b>\n\nso\n" + end + "\n\nHello\n"),
              "R(hm <b>\n\nso)C(Hello\n)")
        << row.name;
    EXPECT_EQ(Parse(format, begin + "\n\n" + end + "Hello"), "C(Hello)") << row.name;
    EXPECT_EQ(Parse(format, begin + "cut off"), "R(cut off)") << row.name;
    for (const std::string_view hidden : row.hidden) {
      if (hidden.empty()) continue;
      EXPECT_EQ(Parse(format, begin + "hm" + end + std::string(hidden) + "Hello"), "R(hm)C(Hello)")
          << row.name << " " << hidden;
    }
    format.thinking_begun = true;
    for (const CallFormat& call : CallFormats()) {
      if (call.name == "hermes") format.calls = {&call};
    }
    const std::string call = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
    EXPECT_EQ(Parse(format, "hm" + end + call), "R(hm)[g {}]") << row.name;
    EXPECT_EQ(Parse(format, "hm\n" + call), "R(hm)[g {}]") << row.name << ": a call ends thinking";
  }
}

// gpt-oss: channels, a call, and what its template makes of them.
TEST(Formats, Harmony) {
  OutputFormat format =
      OutputFormat::Detect("<|channel|>analysis <|channel|>commentary functions.");
  EXPECT_EQ(Parse(format,
                  "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                  "<|message|>Hello."),
            "R(Hm.)C(Hello.)");
  EXPECT_EQ(Parse(format,
                  "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
                  "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                  "<|constrain|>json<|message|>{\"s\": \"x\"}<|call|>"),
            "R(Hm.)C(I look.)[f {\"s\": \"x\"}]");
}

// Types: by the schema, as Python prints values, nested elements, text that only looks like JSON.
TEST(Formats, ValuesHaveTheTypeThatTheSchemaSays) {
  const auto read = [](std::string_view name, std::string_view text) {
    OutputFormat format;
    for (const CallFormat& row : CallFormats()) {
      if (row.name == name) format.calls = {&row};
    }
    return Parse(format, text);
  };
  const auto seed = [&](const std::string& key, const std::string& value) {
    return read("seed", "<seed:tool_call><function=f><parameter=" + key + ">" + value +
                            "</parameter></function></seed:tool_call>");
  };
  EXPECT_EQ(seed("b", "True"), "[f {\"b\": true}]");
  EXPECT_EQ(seed("s", "True"), "[f {\"s\": \"True\"}]");
  EXPECT_EQ(seed("u", "None"), "[f {\"u\": null}]");
  EXPECT_EQ(seed("u", "12"), "[f {\"u\": \"12\"}]");
  EXPECT_EQ(seed("n", "1e3"), "[f {\"n\": 1e3}]");
  EXPECT_EQ(seed("n", "many"), "[f {\"n\": \"many\"}]");
  EXPECT_EQ(seed("o", "{'k': [1, 2], \"it's\": 'don\\'t'}"),
            "[f {\"o\": {\"k\": [1, 2], \"it's\": \"don't\"}}]");
  EXPECT_EQ(seed("other", "3"), "[f {\"other\": \"3\"}]");
  EXPECT_EQ(
      read("lfm",
           "<|tool_call_start|>[f(s=\"it's\\u00e9\\x41\", o={'k': (1, 2)}, b=False, "
           "u='it's')]<|tool_call_end|>"),
      "[f {\"s\": \"it's\\u00e9\\u0041\", \"o\": {\"k\": [1, 2]}, \"b\": false, \"u\": \"it's\"}]");
  EXPECT_EQ(
      read("minimax-elements",
           "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<o>]<]minimax"
           "[>[<k>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[<item>2]<]minimax[>["
           "</item>]<]minimax[>[</k>]<]minimax[>[</o>]<]minimax[>[</invoke>"),
      "[f {\"o\": {\"k\": [1, 2]}}]");
  EXPECT_EQ(read("gemma", "<|tool_call>call:f{o:{k:[1,2]},u:None,s:<|\"|>a,b}<|\"|>}<tool_call|>"),
            "[f {\"o\": {\"k\": [1, 2]}, \"u\": null, \"s\": \"a,b}\"}]");
}

// Every marker of the row lies outside of the data, and names and arguments within.
void ExpectMarkersAreOwn(const CallFormat& row, const CallText& text) {
  const auto is_data = [&](std::string_view part) {
    const size_t at = text.text.find(part);
    return std::any_of(text.data.begin(), text.data.end(), [&](const TextRange& range) {
      return range.begin < at + part.size() && at < range.end;
    });
  };
  for (const std::string_view marker :
       {row.section_begin, row.section_end, row.call_begin, row.call_end}) {
    if (marker.size() < 3) continue;  // a bracket that arguments have, too
    EXPECT_NE(text.text.find(marker), std::string::npos) << row.name;
    EXPECT_FALSE(is_data(marker)) << row.name << " " << marker;
  }
  EXPECT_TRUE(is_data("1.0")) << row.name;
}

// What is written for a template that shows no calls is what the parser reads.
TEST(Formats, WrittenCallsAreRead) {
  const std::vector<WrittenCall> calls = {
      {"f", "c1", R"({"s": "x, \"y\": {", "n": 1.0, "o": {"k": [1, 2], "t": true, "z": null}})"},
      {"g", "c2", "{}"}};
  int written = 0;
  for (const CallFormat& row : CallFormats()) {
    const auto text = WriteCalls(row, calls);
    if (text) ExpectMarkersAreOwn(row, *text);
    if (!text || row.bare || row.begun_in_prompt) continue;
    ++written;
    OutputFormat format;
    format.calls = {&row};
    const ParsedOutput parsed = ParseOutput(format, &Tools(), text->text);
    ASSERT_EQ(parsed.calls.size(), 2u) << row.name << "\n" << text->text;
    EXPECT_EQ(parsed.calls[0].name, "f") << row.name;
    EXPECT_EQ(parsed.calls[0].arguments, calls[0].arguments) << row.name;
    EXPECT_EQ(parsed.calls[1].arguments, "{}") << row.name;
    EXPECT_EQ(parsed.content, "") << row.name;
  }
  EXPECT_GE(written, 15);
}

}  // namespace
}  // namespace reprise
