// SPDX-License-Identifier: Apache-2.0
#include "text/output/call_writer.h"

#include <utility>

#include "base/json.h"
#include "text/output/markers.h"

namespace reprise {
namespace {

using Body = CallFormat::Body;
using Id = CallFormat::Id;

std::string Quoted(std::string_view text) {
  std::string quoted;
  AppendJsonString(text, &quoted);
  return quoted;
}

// JSON as Python: only its words differ.
std::string PythonOf(std::string_view json) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = json.substr(i);
    if (quoted) {
      out += json[i];
      if (json[i] == '\\' && i + 1 < json.size()) {
        out += json[++i];
      } else if (json[i] == '"') {
        quoted = false;
      }
    } else if (rest.starts_with("true") || rest.starts_with("null")) {
      out += rest.starts_with("true") ? "True" : "None";
      i += 3;
    } else if (rest.starts_with("false")) {
      out += "False";
      i += 4;
    } else {
      quoted = json[i] == '"';
      out += json[i];
    }
  }
  return out;
}

// {"city": "Paris", "days": 2} -> city="Paris", days=2. The members are found in the text, so that
// numbers keep their spelling.
std::string PythonArguments(std::string_view json) {
  std::string out;
  size_t depth = 0;
  bool quoted = false;
  bool key = true;
  std::string part;
  const auto end_part = [&] {
    std::string_view text = std::string_view(part).substr(BlanksAtStart(part));
    text.remove_suffix(BlanksAtEnd(text));
    if (text.empty()) return;
    if (key) {
      const auto name = JsonDocument::Parse(text);
      out += (out.empty() ? "" : ", ") +
             std::string(name.ok() && name->root().is_string() ? name->root().as_string() : text);
      out += '=';
    } else {
      out += PythonOf(text);
    }
    part.clear();
  };
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      part += c;
      if (c == '\\' && i + 1 < json.size()) part += json[++i];
      quoted = c != '"';
      continue;
    }
    if (c == '}' || c == ']') --depth;
    if (depth == 1 && (c == ':' || c == ',')) {
      end_part();
      key = c == ',';
    } else if (depth > 0) {
      part += c;
    }
    if (c == '{' || c == '[') ++depth;
    quoted = c == '"';
  }
  end_part();
  return out;
}

std::string BodyOf(const CallFormat& format, const WrittenCall& call) {
  switch (format.body) {
    case Body::kNamedJson:
      return "{\"name\": " + Quoted(call.name) + ", \"arguments\": " + call.arguments +
             (format.id == Id::kInBody && !call.id.empty() ? ", \"id\": " + Quoted(call.id) : "") +
             "}";
    case Body::kKeyedJson:
      return "{" + Quoted(call.name) + ": " + call.arguments + "}";
    case Body::kPython:
      return PythonArguments(call.arguments);
    default:
      return call.arguments;
  }
}

// Text of two origins, part by part.
class CallTextWriter {
 public:
  CallTextWriter& Own(std::string_view text) {
    out_.text += text;
    return *this;
  }
  CallTextWriter& Data(std::string_view text) {
    if (text.empty()) return *this;
    const size_t begin = out_.text.size();
    out_.text += text;
    if (!out_.data.empty() && out_.data.back().end == begin) {
      out_.data.back().end = out_.text.size();
    } else {
      out_.data.push_back({begin, out_.text.size()});
    }
    return *this;
  }
  CallText Take() { return std::move(out_); }

 private:
  CallText out_;
};

void WriteHead(const CallFormat& format, const WrittenCall& call, CallTextWriter* out) {
  if (format.body == Body::kNamedJson || format.body == Body::kKeyedJson) return;
  if (format.id == Id::kBeforeName) out->Data(call.id).Own(format.id_end);
  out->Data(format.id == Id::kIsName ? "functions." + call.name + ":0" : call.name);
  if (format.id == Id::kAfterName && !call.id.empty()) out->Own(format.id_begin).Data(call.id);
  out->Own(format.arguments_begin);
}

constexpr char kProbeTools[] = R"([{"type": "function", "function": {"name": "probe_tool",
  "description": "A tool.", "parameters": {"type": "object", "properties": {
  "probe_key": {"type": "string", "description": "A key."}}, "required": ["probe_key"]}}}])";

// A conversation with a call, as a template renders it; empty if it refuses. content: as JSON.
std::string RenderCall(const ChatTemplate& chat_template, const CallShape& shape, bool with_tools,
                       const std::string& content, const std::string& more_members = "") {
  const std::string messages =
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": )" + content +
      more_members +
      R"(, "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": )"
      R"("probe_tool", "arguments": )" +
      (shape.string_arguments ? R"("{\"probe_key\": \"probe_value\"}")"
                              : R"({"probe_key": "probe_value"})") +
      "}}]}]";
  const auto parsed = JsonDocument::Parse(messages);
  const auto tools = JsonDocument::Parse(kProbeTools);
  ChatInput input;
  input.messages = &parsed->root();
  if (with_tools) input.tools = &tools->root();
  input.special_tokens = {{"bos_token", ""}, {"eos_token", ""}};
  input.add_generation_prompt = false;
  input.boundary_messages_max = 0;
  auto rendered = chat_template.Render(input);
  return rendered.ok() ? std::move(rendered->text) : std::string();
}

bool Shows(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Where thoughts must stand for this shape of calls.
void FindThoughts(const ChatTemplate& chat_template, bool with_tools, CallShape* shape) {
  const std::string empty = shape->null_content ? "null" : "\"\"";
  const auto render = [&](const std::string& content, const char* member) {
    return RenderCall(chat_template, *shape, with_tools, content,
                      std::string(", \"") + member + "\": \"probe_thought\"");
  };
  if (Shows(render(empty, "reasoning_content"), "probe_thought")) return;
  shape->thinking_member = Shows(render(empty, "thinking"), "probe_thought");
  shape->thoughts_alone = shape->thinking_member && render("\"probe_text\"", "thinking").empty();
}

}  // namespace

std::optional<CallText> WriteCalls(const CallFormat& format, std::span<const WrittenCall> calls) {
  if (format.body == Body::kParameters || format.body == Body::kElements ||
      format.body == Body::kBareObject || format.id == Id::kNameTwice || format.id == Id::kNote) {
    return std::nullopt;
  }
  std::string_view begin = format.section_begin;
  begin.remove_suffix(BlanksAtEnd(begin));
  const bool list = begin.ends_with('[');
  // Without a list every call of JSON has a section of its own.
  const bool apart = !list && format.body == Body::kNamedJson;
  CallTextWriter out;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i == 0 || apart) out.Own(format.section_begin);
    if (i > 0 && list) out.Own(", ");
    out.Own(format.call_begin);
    WriteHead(format, calls[i], &out);
    out.Data(BodyOf(format, calls[i])).Own(format.call_end);
    if (i + 1 == calls.size() || apart) out.Own(format.section_end);
  }
  return out.Take();
}

std::string DescribeTools(const CallFormat& format, std::string_view tools) {
  const WrittenCall example{"NAME", "call00001", R"({"ARGUMENT": "VALUE"})"};
  const auto call = WriteCalls(format, {&example, 1});
  if (!call) return "";
  return "# Tools\n\nThese functions can be called, described as JSON:\n<tools>\n" +
         std::string(tools) + "\n</tools>\n\nTo call one, reply in exactly this form:\n" +
         call->text;
}

namespace {

bool ShowsTools(const ChatTemplate& chat_template) {
  const auto tools = JsonDocument::Parse(kProbeTools);
  for (const char* text : {R"([{"role": "user", "content": "Hi"}])",
                           R"([{"role": "system", "content": "Be brief."},
                               {"role": "user", "content": "Hi"}])"}) {
    const auto messages = JsonDocument::Parse(text);
    ChatInput input;
    input.messages = &messages->root();
    input.tools = &tools->root();
    input.special_tokens = {{"bos_token", ""}, {"eos_token", ""}};
    input.boundary_messages_max = 0;
    const auto rendered = chat_template.Render(input);
    if (rendered.ok() && rendered->text.find("probe_tool") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

CallShape FindCallShape(const ChatTemplate& chat_template) {
  const bool tools_as_text = !ShowsTools(chat_template);
  for (const bool with_tools : {true, false}) {
    for (const bool null_content : {false, true}) {
      for (const bool string_arguments : {false, true}) {
        CallShape shape{null_content, string_arguments, false, tools_as_text};
        const std::string empty = null_content ? "null" : "\"\"";
        const std::string text = RenderCall(chat_template, shape, with_tools, empty);
        if (!Shows(text, "probe_value")) continue;
        FindThoughts(chat_template, with_tools, &shape);
        return shape;
      }
    }
  }
  return {.as_content = true, .tools_as_text = tools_as_text};
}

}  // namespace reprise
