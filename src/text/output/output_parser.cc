// SPDX-License-Identifier: Apache-2.0
#include "text/output/output_parser.h"

#include "text/output/reasoning.h"
#include "text/output/tag_search.h"
#include "text/output/tool_calls.h"

namespace reprise {

OutputFormat OutputFormat::Detect(std::string_view chat_template, std::string_view prompt,
                                  bool with_tools) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  OutputFormat format;
  format.thinks = has("<think>") || has("</think>");
  prompt.remove_suffix(BlanksAtEnd(prompt));
  format.thinking_begun = prompt.ends_with("<think>");
  if (!with_tools) return format;
  if (has("<tool_call>")) {
    format.calls = Calls::kTagged;
    format.functions = has("<function=");
  } else if (has("<|start_header_id|>") || has("<|python_tag|>")) {
    format.calls = Calls::kBare;
  }
  return format;
}

struct OutputParser::State {
  State(const OutputFormat& f, const JsonValue* tools)
      : format(f), splitter(f.thinking_begun), tagged(tools, f.functions), bare(tools) {}

  void FeedContent(std::string_view text, OutputEvents* events) {
    switch (format.calls) {
      case OutputFormat::Calls::kNone:
        AppendText(OutputEvent::Kind::kContent, text, events);
        return;
      case OutputFormat::Calls::kTagged:
        tagged.Feed(text, events);
        return;
      case OutputFormat::Calls::kBare:
        bare.Feed(text, events);
        return;
    }
  }

  const OutputFormat format;
  ReasoningSplitter splitter;
  TaggedCallParser tagged;
  BareCallParser bare;
};

OutputParser::OutputParser(const OutputFormat& format, const JsonValue* tools)
    : state_(std::make_unique<State>(format, tools)) {}
OutputParser::~OutputParser() = default;

OutputEvents OutputParser::Feed(std::string_view text) {
  OutputEvents events;
  if (!state_->format.thinks && !state_->format.thinking_begun) {
    state_->FeedContent(text, &events);
    return events;
  }
  std::string reasoning;
  std::string content;
  state_->splitter.Feed(text, &reasoning, &content);
  AppendText(OutputEvent::Kind::kReasoning, reasoning, &events);
  if (!content.empty()) state_->FeedContent(content, &events);
  return events;
}

OutputEvents OutputParser::Finish() {
  OutputEvents events;
  std::string reasoning;
  std::string content;
  state_->splitter.Finish(&reasoning, &content);
  AppendText(OutputEvent::Kind::kReasoning, reasoning, &events);
  if (!content.empty()) state_->FeedContent(content, &events);
  state_->tagged.Finish(&events);
  state_->bare.Finish(&events);
  return events;
}

ParsedOutput ParseOutput(const OutputFormat& format, const JsonValue* tools,
                         std::string_view text) {
  OutputParser parser(format, tools);
  ParsedOutput parsed;
  for (const OutputEvents& events : {parser.Feed(text), parser.Finish()}) {
    for (const OutputEvent& event : events) {
      switch (event.kind) {
        case OutputEvent::Kind::kReasoning:
          parsed.reasoning += event.text;
          break;
        case OutputEvent::Kind::kContent:
          parsed.content += event.text;
          break;
        case OutputEvent::Kind::kCall:
          parsed.calls.push_back({event.name, event.text});
          break;
      }
    }
  }
  return parsed;
}

}  // namespace reprise
