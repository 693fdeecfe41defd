// SPDX-License-Identifier: Apache-2.0
// Proves that conversations with system messages in any place are shown to templates that refuse
// them there, and that what is shown of a conversation does not change when it goes on.
#include "text/template/system_shape.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "text/template/test_messages.h"
#include "text/test_assets.h"

namespace reprise {
namespace {

using Later = SystemShape::Later;

// As Qwen3.5: one system message, and only the first; the thinking of the turns before the last
// question is dropped.
constexpr char kStrict[] = R"(
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}
{%- if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endif %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and loop.index0 > ns.last %}
{{- '<think>' ~ m.reasoning_content ~ '</think>' }}
{%- endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}
{{- '<tool_call>' + c.function | tojson + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %})";

// As Gemma 2: no system message at all, and strictly a user and an assistant in turn.
constexpr char kAlternate[] = R"(
{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant') }}
{%- endif %}
{{- '<' + m.role + '>' + m.content + '</>' }}
{%- endfor %})";

// Takes system messages anywhere.
constexpr char kLenient[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

// As DeepSeek: all system messages stand at the beginning, whenever they were sent.
constexpr char kHoisting[] =
    "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}";

SystemShape ShapeOf(std::string_view source) {
  const auto chat = ChatTemplate::Parse(source);
  EXPECT_TRUE(chat.ok());
  return FindSystemShape(*chat);
}

// What a template is given for these messages.
std::vector<ChatMessage> Placed(const SystemShape& shape,
                                const std::vector<ChatMessage>& messages) {
  std::vector<std::string_view> roles;
  for (const ChatMessage& message : messages) roles.push_back(message.role);
  const std::vector<TurnPlace> places = PlaceTurns(shape, roles);
  std::vector<ChatMessage> placed;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (places[i].target == placed.size()) placed.push_back({std::string(places[i].role), ""});
    AppendPlaced(messages[i].content, places[i], &placed[places[i].target].content);
  }
  return placed;
}

std::string Show(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages) text += message.role + ":" + message.content + "|";
  return text;
}

Result<std::string> Render(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  const JsonDocument document = MakeMessages(messages);
  ChatInput input;
  input.messages = &document.root();
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.add_generation_prompt = false;
  input.boundary_messages_max = 0;
  REPRISE_ASSIGN(RenderedChat rendered, chat.Render(input));
  return std::move(rendered.text);
}

TEST(SystemShape, IsFoundByTrying) {
  const SystemShape strict = ShapeOf(kStrict);
  EXPECT_TRUE(strict.first);
  EXPECT_FALSE(strict.several);
  EXPECT_FALSE(strict.join_users);
  // A user message behind a tool's result would make the template drop thoughts before it.
  EXPECT_EQ(strict.later, Later::kJoin);

  const SystemShape alternate = ShapeOf(kAlternate);
  EXPECT_FALSE(alternate.first);
  EXPECT_TRUE(alternate.join_users);
  EXPECT_FALSE(alternate.tools);
  EXPECT_TRUE(strict.tools);

  const SystemShape lenient = ShapeOf(kLenient);
  EXPECT_TRUE(lenient.first && lenient.several && !lenient.join_users);
  EXPECT_EQ(lenient.later, Later::kAsIs);

  EXPECT_EQ(ShapeOf(kHoisting).later, Later::kUser);
}

TEST(SystemShape, MessagesGoWhereTheTemplateTakesThem) {
  const std::vector<ChatMessage> chat = {{"system", "A"}, {"system", "B"},    {"user", "C"},
                                         {"system", "D"}, {"assistant", "E"}, {"system", "F"},
                                         {"user", "G"}};
  EXPECT_EQ(Show(Placed(ShapeOf(kStrict), chat)),
            "system:A\n\nB|user:C\n\n<system>\nD\n</system>|assistant:E|"
            "user:<system>\nF\n</system>|user:G|");
  EXPECT_EQ(Show(Placed(ShapeOf(kAlternate), chat)),
            "user:<system>\nA\n</system>\n\n<system>\nB\n</system>\n\nC\n\n<system>\nD\n</system>|"
            "assistant:E|user:<system>\nF\n</system>\n\nG|");
  EXPECT_EQ(Show(Placed(ShapeOf(kLenient), chat)), Show(chat));
  EXPECT_EQ(Show(Placed(ShapeOf(kHoisting), chat)),
            "system:A|system:B|user:C|user:<system>\nD\n</system>|assistant:E|"
            "user:<system>\nF\n</system>|user:G|");
}

TEST(SystemShape, ResultsOfToolsAreTextWhereTheTemplateTakesNone) {
  const std::vector<ChatMessage> chat = {
      {"user", "A"}, {"assistant", "B"}, {"tool", "C"}, {"tool", "D"}, {"assistant", "E"}};
  EXPECT_EQ(Show(Placed(ShapeOf(kAlternate), chat)),
            "user:A|assistant:B|user:<tool_response>\nC\n</tool_response>\n\n"
            "<tool_response>\nD\n</tool_response>|assistant:E|");
}

// Any order of roles: what is shown of the first messages begins what is shown of all.
TEST(SystemShape, TheFirstMessagesStayAsTheyAre) {
  std::mt19937 random(1);
  constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
  for (const char* source : {kStrict, kAlternate, kLenient, kHoisting}) {
    const SystemShape shape = ShapeOf(source);
    for (int round = 0; round < 200; ++round) {
      std::vector<ChatMessage> messages;
      const size_t count = 1 + random() % 8;
      for (size_t i = 0; i < count; ++i) {
        messages.push_back({kRoles[random() % 4], std::string(1, static_cast<char>('a' + i))});
      }
      const std::string all = Show(Placed(shape, messages));
      for (size_t i = 1; i < count; ++i) {
        std::string begin =
            Show(Placed(shape, {messages.begin(), messages.begin() + ptrdiff_t(i)}));
        begin.pop_back();  // the last of them may go on
        EXPECT_TRUE(all.starts_with(begin)) << begin << " of " << all;
      }
    }
  }
}

// Claude Code's, and others': a system message behind the first question, two at the beginning, one
// before the last question.
const std::vector<std::vector<ChatMessage>> kConversations = {
    {{"user", "one"}, {"system", "two"}, {"assistant", "three"}, {"user", "four"}},
    {{"system", "zero"}, {"user", "one"}, {"system", "two"}},
    {{"system", "zero"}, {"system", "one"}, {"user", "two"}},
    {{"system", "zero"},
     {"user", "one"},
     {"assistant", "two"},
     {"system", "three"},
     {"user", "four"}},
};

void ExpectTaken(const ChatTemplate& chat, const std::string& name) {
  const SystemShape shape = FindSystemShape(chat);
  for (const std::vector<ChatMessage>& messages : kConversations) {
    std::vector<ChatMessage> plain;
    for (const ChatMessage& message : messages) {
      if (message.role != "system") plain.push_back(message);
    }
    if (!Render(chat, plain).ok()) continue;
    const auto text = Render(chat, Placed(shape, messages));
    ASSERT_TRUE(text.ok()) << name << ": " << text.status().message();
    for (const ChatMessage& message : messages) {
      EXPECT_NE(text->find(message.content), std::string::npos) << name << ": " << *text;
    }
  }
}

TEST(SystemShape, TemplatesTakeSystemMessagesAnywhere) {
  for (const char* source : {kStrict, kAlternate, kLenient, kHoisting}) {
    ExpectTaken(*ChatTemplate::Parse(source), source);
  }
}

TEST(SystemShape, PublishedTemplatesTakeSystemMessagesAnywhere) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto chat = ChatTemplate::Parse(ReadText(entry.path().string()));
    ASSERT_TRUE(chat.ok()) << entry.path();
    ExpectTaken(*chat, entry.path().filename().string());
  }
}

}  // namespace
}  // namespace reprise
