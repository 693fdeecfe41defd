// SPDX-License-Identifier: Apache-2.0
// Proves that templates render byte for byte as Python's jinja2 renders them in the environment of
// Hugging Face Transformers. The expected texts are made by tools/render_templates.py:
//   * the templates and conversations of tests/data/templates, in full, always;
//   * some hundred snippets of the language, always;
//   * the templates of published models, where they lie beside the checkout: every conversation by
//     its digest, and a set of renders that came with them in full.
#include <gtest/gtest.h>

#include "text/template/chat_template.h"
#include "text/template/jinja/interpreter.h"
#include "text/template/jinja/parser.h"
#include "text/template/python/json.h"
#include "text/test_assets.h"

namespace reprise {
namespace {

constexpr char kData[] = "tests/data/templates/";

// The clock of the oracle: Thursday, 2025-01-02 03:04:05.
std::tm StillClock() {
  std::tm time = {};
  time.tm_year = 125;
  time.tm_mday = 2;
  time.tm_hour = 3;
  time.tm_min = 4;
  time.tm_sec = 5;
  time.tm_wday = 4;
  time.tm_yday = 1;
  return time;
}

ChatInput InputOf(const JsonValue& conversation) {
  ChatInput input;
  input.messages = conversation.Find("messages");
  input.tools = conversation.Find("tools");
  input.documents = conversation.Find("documents");
  input.variables = conversation.Find("variables");
  const JsonValue* prompt = conversation.Find("add_generation_prompt");
  input.add_generation_prompt = prompt == nullptr || prompt->as_bool();
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.now = StillClock();
  input.boundary_messages_max = 0;
  return input;
}

Result<std::string> Render(const Result<ChatTemplate>& chat, const ChatInput& input) {
  if (!chat.ok()) return chat.status();
  REPRISE_ASSIGN(RenderedChat rendered, chat->Render(input));
  return std::move(rendered.text);
}

// The text where two renders part, for a message that can be read.
std::string Difference(std::string_view got, std::string_view want) {
  size_t at = 0;
  while (at < got.size() && at < want.size() && got[at] == want[at]) ++at;
  const size_t from = at > 40 ? at - 40 : 0;
  return "at byte " + std::to_string(at) + "\n  got:  ..." + std::string(got.substr(from, 120)) +
         "\n  want: ..." + std::string(want.substr(from, 120));
}

// Errors must be errors here, too. Those the template raises, and those of undefined values, have
// the same message; for the others Python's wording is not copied everywhere.
void ExpectSame(const Result<std::string>& got, const JsonValue& want, const std::string& what) {
  if (const JsonValue* text = want.Find("ok")) {
    ASSERT_TRUE(got.ok()) << what << ": " << got.status().message();
    EXPECT_EQ(*got, text->as_string()) << what << " " << Difference(*got, text->as_string());
    return;
  }
  const std::string_view error = want.Find("error")->as_string();
  ASSERT_FALSE(got.ok()) << what << ": should fail with " << error << " but gave " << *got;
  const size_t colon = error.find(": ");
  const std::string_view kind = error.substr(0, colon);
  if (kind == "TemplateError" || kind == "UndefinedError" || kind == "SecurityError") {
    EXPECT_TRUE(got.status().message().ends_with(error.substr(colon + 2)))
        << what << ": " << got.status().message() << " should end with " << error;
  }
}

// Length and CRC-32, as the oracle writes them.
std::string Digest(const Result<std::string>& result) {
  if (!result.ok()) return "error";
  uint32_t crc = ~0u;
  for (const char c : *result) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%zu:%08x", result->size(), ~crc);
  return text;
}

TEST(TemplateGolden, OurTemplatesEqualJinja2) {
  const JsonDocument golden = ReadJson(std::string(kData) + "golden.json");
  const JsonValue& conversations = *golden.root().Find("conversations");
  size_t count = 0;
  for (const auto& [name, renders] : golden.root().Find("templates")->members()) {
    const auto chat = ChatTemplate::Parse(ReadText(kData + std::string(name)));
    for (const auto& [conversation, want] : renders.members()) {
      ExpectSame(Render(chat, InputOf(*conversations.Find(conversation))), want,
                 std::string(name) + " " + std::string(conversation));
      ++count;
    }
  }
  EXPECT_GE(count, 5u * 12);
}

// A snippet sees its own variables and nothing of a chat.
Result<std::string> RenderSnippet(std::string_view source, const jinja::Variables& variables) {
  REPRISE_ASSIGN(const auto tree, jinja::ParseTemplate(source));
  jinja::Runtime runtime(jinja::Limits(), StillClock());
  REPRISE_ASSIGN(jinja::TracedText text, jinja::Interpreter(*tree, variables, &runtime).Run());
  return text.TakeText();
}

TEST(TemplateGolden, SnippetsEqualJinja2) {
  const JsonDocument golden = ReadJson(std::string(kData) + "golden.json");
  const JsonValue& snippets = *golden.root().Find("snippets");
  for (const JsonValue& snippet : snippets.Find("renders")->items()) {
    jinja::Variables variables;
    for (const JsonValue* context : {snippets.Find("context"), snippet.Find("context")}) {
      for (const auto& [name, value] : context->members()) {
        variables[std::string(name)] = jinja::FromJson(value);
      }
    }
    const std::string source(snippet.Find("template")->as_string());
    ExpectSame(RenderSnippet(source, variables), snippet, source);
  }
}

TEST(TemplateGolden, PublishedTemplatesHaveTheDigestsOfJinja2) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  const JsonDocument golden = ReadJson(std::string(kData) + "golden.json");
  const JsonDocument digests = ReadJson(std::string(kData) + "digests.json");
  const JsonValue& conversations = *golden.root().Find("conversations");
  for (const auto& [name, renders] : digests.root().members()) {
    const auto chat = ChatTemplate::Parse(ReadText(folder + "/" + std::string(name)));
    size_t rendered = 0;
    for (const auto& [conversation, want] : renders.members()) {
      const auto got = Render(chat, InputOf(*conversations.Find(conversation)));
      EXPECT_EQ(Digest(got), want.as_string())
          << name << " " << conversation << ": "
          << (got.ok() ? "tools/render_templates.py render shows the text"
                       : got.status().message());
      if (want.as_string() != "error") ++rendered;
    }
    EXPECT_GE(rendered, 12u) << name << ": too few conversations that the template accepts";
  }
}

// The clock of the renders that came with the templates.
class OddClock final : public jinja::Object {
 public:
  OddClock() : Object(Type::kFunction) {}
  std::string type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Result<jinja::Value> Call(jinja::Runtime*, jinja::Arguments* arguments) override {
    const bool words = arguments->positional.at(0).as_string() == "%d %b %Y";
    return jinja::Value::View(words ? "02 Jan 2025" : "2025-01-02", jinja::Origin::kTemplate);
  }
};

TEST(TemplateGolden, PublishedTemplatesEqualTheRendersThatCameWithThem) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  const JsonDocument golden = ReadJson(folder + "/golden_renders_python_jinja2.json");
  size_t texts = 0;
  size_t errors = 0;
  for (const auto& [name, renders] : golden.root().Find("renders")->members()) {
    const std::string source = ReadText(folder + "/" + std::string(name));
    for (const auto& [conversation, want] : renders.members()) {
      jinja::Variables variables;
      for (const JsonValue* context :
           {golden.root().Find("globals"), golden.root().Find("cases")->Find(conversation)}) {
        for (const auto& [key, value] : context->members()) {
          variables[std::string(key)] = jinja::FromJson(value);
        }
      }
      variables["strftime_now"] = jinja::Value::OfObject(jinja::Ref<jinja::Object>(new OddClock));
      ExpectSame(RenderSnippet(source, variables), want,
                 std::string(name) + " " + std::string(conversation));
      ++(want.Find("ok") != nullptr ? texts : errors);
    }
  }
  EXPECT_EQ(texts, 392u);
  EXPECT_EQ(errors, 16u);
}

}  // namespace
}  // namespace reprise
