// SPDX-License-Identifier: Apache-2.0
// Proves that the parsers understand what the templates of published models write: a call that a
// template puts into the history is what the model was taught to write, so parsing it gives the
// call back. Runs on our own templates, and on the published ones where they lie beside the
// checkout.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "text/output/output_parser.h"
#include "text/template/chat_template.h"
#include "text/test_assets.h"

namespace reprise {
namespace {

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "get_weather",
  "description": "The weather.", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "c"},
    "days": {"type": "integer", "description": "d"}},
  "required": ["city"]}}}])";
constexpr char kUser[] = R"({"role": "user", "content": "How is the weather in Köln?"})";
constexpr char kCallTurn[] = R"({"role": "assistant", "content": "",
  "tool_calls": [{"id": "call00001",
  "type": "function", "function": {"name": "get_weather",
  "arguments": {"city": "Köln \"Süd\"\n<b>", "days": 2}}}]})";

Result<std::string> Render(const ChatTemplate& chat, const std::string& messages, bool prompt) {
  const auto parsed = JsonDocument::Parse("[" + messages + "]");
  const auto tools = JsonDocument::Parse(kTools);
  ChatInput input;
  input.messages = &parsed->root();
  input.tools = &tools->root();
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.add_generation_prompt = prompt;
  input.boundary_messages_max = 0;
  REPRISE_ASSIGN(RenderedChat rendered, chat.Render(input));
  return std::move(rendered.text);
}

// What the model would have written, up to the token that ends it.
std::string ReplyOf(std::string_view prompt, std::string_view history) {
  prompt = prompt.substr(0, prompt.rfind("<think>"));  // history may be without it
  size_t common = 0;
  while (common < prompt.size() && common < history.size() && prompt[common] == history[common]) {
    ++common;
  }
  std::string reply(history.substr(common));
  for (const char* end : {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end|>",
                          "<|end_of_text|>", "<sep>", "<|SPECIAL_12|>"}) {
    reply = reply.substr(0, reply.find(end));
  }
  return reply;
}

enum class Outcome { kRefused, kOtherFormat, kText, kCall };

Outcome TryTemplate(const std::string& source, const std::string& name) {
  const auto chat = ChatTemplate::Parse(source);
  EXPECT_TRUE(chat.ok()) << name;
  const auto prompt = Render(*chat, kUser, true);
  const auto history = Render(*chat, std::string(kUser) + "," + kCallTurn, false);
  if (!prompt.ok() || !history.ok()) return Outcome::kRefused;
  OutputFormat format = OutputFormat::Detect(source, *prompt, true);
  if (format.calls == OutputFormat::Calls::kNone) return Outcome::kOtherFormat;
  const std::string reply = ReplyOf(*prompt, *history);
  // Templates that open the thinking in the prompt show it from its beginning in the history.
  if (reply.find("</think>") == std::string::npos || reply.starts_with("<think>")) {
    format.thinking_begun = false;
  }
  const auto tools = JsonDocument::Parse(kTools);
  const ParsedOutput parsed = ParseOutput(format, &tools->root(), reply);
  if (parsed.calls.empty()) {
    EXPECT_NE(parsed.content.find("get_weather"), std::string::npos) << name << " lost " << reply;
    return Outcome::kText;
  }
  EXPECT_EQ(parsed.calls.size(), 1u) << name;
  EXPECT_EQ(parsed.calls[0].name, "get_weather") << name;
  const auto arguments = JsonDocument::Parse(parsed.calls[0].arguments);
  EXPECT_EQ(arguments->root().Find("city")->as_string(), "Köln \"Süd\"\n<b>") << name;
  EXPECT_EQ(arguments->root().Find("days")->as_int(), 2) << name;
  EXPECT_EQ(parsed.content + parsed.reasoning, "") << name;
  return Outcome::kCall;
}

TEST(RoundTrip, OurTemplates) {
  EXPECT_EQ(TryTemplate(ReadText("tests/data/templates/thinking.jinja"), "thinking"),
            Outcome::kCall);
  EXPECT_EQ(TryTemplate(ReadText("tests/data/templates/headers.jinja"), "headers"), Outcome::kCall);
}

TEST(RoundTrip, PublishedTemplates) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  std::vector<std::string> understood;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    if (TryTemplate(ReadText(entry.path().string()), name) == Outcome::kCall) {
      understood.push_back(name);
    }
  }
  for (const char* name :
       {"Bielik-11B-v3.0-Instruct", "MiMo-VL", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-QwQ-32B", "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B", "Reka-Edge", "StepFun3.5-Flash",
        "ibm-granite-granite-4.0", "ibm-granite-granite-4.1", "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"}) {
    EXPECT_EQ(std::count(understood.begin(), understood.end(), name), 1) << name;
  }
}

}  // namespace
}  // namespace reprise
