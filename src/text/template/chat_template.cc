// SPDX-License-Identifier: Apache-2.0
#include "text/template/chat_template.h"

#include <algorithm>
#include <utility>

#include "text/template/boundaries.h"
#include "text/template/jinja/interpreter.h"
#include "text/template/jinja/parser.h"
#include "text/template/library/runtime.h"
#include "text/template/python/json.h"

namespace reprise {
namespace {

using jinja::Origin;
using jinja::TracedText;
using jinja::Value;
using jinja::Variables;

constexpr const char* kWhere = "chat template";

Value ValueOrNone(const JsonValue* json) {
  return json == nullptr ? Value::None() : jinja::FromJson(*json);
}

bool IsBareWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

Value MixedValue(std::string_view text, std::span<const TextRange> data) {
  TracedText traced;
  traced.Append(text, data, 0);
  return Value::Traced(std::move(traced));
}

// The messages. Their roles are choices from a few words, with which some templates spell control
// tokens ('<|' + role + '|>'): those that are bare words count as the template's text.
Value MessagesValue(const ChatInput& input) {
  const auto list = input.messages->items();
  Value::Items messages;
  messages.reserve(list.size());
  auto mixed = input.mixed_contents.begin();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonValue* role = list[i].Find("role");
    if (role == nullptr || !role->is_string() || !IsBareWord(role->as_string())) {
      messages.push_back(jinja::FromJson(list[i]));
      continue;
    }
    while (mixed != input.mixed_contents.end() && mixed->message < i) ++mixed;
    const bool is_mixed = mixed != input.mixed_contents.end() && mixed->message == i;
    Value::Pairs pairs;
    for (const auto& [key, value] : list[i].members()) {
      pairs.emplace_back(Value::View(key, Origin::kData),
                         &value == role ? Value::View(value.as_string(), Origin::kTemplate)
                         : is_mixed && key == "content" && value.is_string()
                             ? MixedValue(value.as_string(), mixed->data)
                             : jinja::FromJson(value));
    }
    messages.push_back(Value::OfPairs(std::move(pairs)));
  }
  return Value::List(std::move(messages));
}

Result<Variables> MakeVariables(const ChatInput& input) {
  if (input.messages == nullptr || !input.messages->is_array()) {
    return InvalidArgument("the messages must be an array");
  }
  Variables variables;
  for (const auto& [name, text] : input.special_tokens)
    variables[name] = Value::View(text, Origin::kTemplate);
  const std::pair<const char*, Value> given[] = {
      {"messages", MessagesValue(input)},
      {"tools", ValueOrNone(input.tools)},
      {"documents", ValueOrNone(input.documents)},
      {"add_generation_prompt", Value::Bool(input.add_generation_prompt)}};
  for (const auto& [name, value] : given) variables[name] = value;
  if (input.variables == nullptr || input.variables->is_null()) return variables;
  if (!input.variables->is_object()) {
    return InvalidArgument("the template's variables must be an object");
  }
  for (const auto& [name, value] : input.variables->members()) {
    for (const auto& [taken, unused] : given) {
      if (name == taken) {
        return InvalidArgument("'" + std::string(name) +
                               "' is given by the request and cannot be a template variable");
      }
    }
    variables[std::string(name)] = jinja::FromJson(value);
  }
  return variables;
}

}  // namespace

struct ChatTemplate::State {
  std::unique_ptr<const jinja::Template> tree;
  ChatTemplateLimits limits;

  Result<TracedText> Run(const Variables& variables, const std::tm& now, uint64_t steps_max,
                         RenderMeter* meter) const {
    jinja::Limits allowed;
    allowed.steps_max = std::min(steps_max, meter->steps_left());
    allowed.memory_bytes_max = limits.memory_bytes_max;
    allowed.output_bytes_max = limits.output_bytes_max;
    allowed.time_max = limits.time_max;
    allowed.deadline = meter->deadline();
    allowed.abandoned = [meter] { return meter->abandoned(); };
    meter->CountRender();
    jinja::Runtime runtime(allowed, now);
    Result<TracedText> text = jinja::Interpreter(*tree, variables, &runtime).Run();
    meter->Charge(runtime.budget.steps());
    if (!text.ok()) return text.status().Annotate(kWhere);
    return text;
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source,
                                         const ChatTemplateLimits& limits) {
  Result<std::unique_ptr<const jinja::Template>> tree = jinja::ParseTemplate(source);
  if (!tree.ok()) return tree.status().Annotate(kWhere);
  auto state = std::make_unique<State>();
  state->tree = std::move(*tree);
  state->limits = limits;
  return ChatTemplate(std::move(state));
}

RenderMeter ChatTemplate::MakeMeter(std::function<bool()> abandoned) const {
  return RenderMeter(state_->limits.steps_max, state_->limits.time_max, std::move(abandoned));
}

Result<RenderedChat> ChatTemplate::Render(const ChatInput& input) const {
  RenderMeter own = MakeMeter();
  RenderMeter* const meter = input.meter != nullptr ? input.meter : &own;
  REPRISE_ASSIGN(Variables variables, MakeVariables(input));
  RenderedChat chat;
  REPRISE_ASSIGN(TracedText text, state_->Run(variables, input.now, meter->steps_left(), meter));
  chat.data = text.TakeData();
  chat.text = text.TakeText();

  const Value messages = variables["messages"];
  BoundarySearch search;
  search.meter = meter;
  search.steps_max = state_->limits.boundary_steps_max;
  search.messages_max = input.boundary_messages_max;
  search.render = [&](Value other, bool add_generation_prompt) -> Result<std::string> {
    variables["messages"] = std::move(other);
    variables["add_generation_prompt"] = Value::Bool(add_generation_prompt);
    REPRISE_ASSIGN(TracedText rendering,
                   state_->Run(variables, input.now, search.steps_max, meter));
    return rendering.TakeText();
  };
  chat.boundaries = FindBoundaries(search, chat.text, messages);
  if (meter->abandoned()) return Cancelled("the client has left");
  return chat;
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace reprise
