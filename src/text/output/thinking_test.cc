// SPDX-License-Identifier: Apache-2.0
// Proves that what clients ask about thinking becomes what templates understand, or a budget that
// the server keeps, or a refusal; never nothing.
#include "text/output/thinking.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "text/template/chat_template.h"
#include "text/test_assets.h"

namespace reprise {
namespace {

std::string Plan(std::string_view chat_template, const ThinkingRequest& request) {
  const auto plan =
      ThinkingSwitches::Detect(chat_template).Plan(request, OutputFormat::Detect(chat_template));
  if (!plan.ok()) return "refused: " + std::string(plan.status().message());
  return MergeVariables("", *plan) + (plan->budget ? "<" + std::to_string(*plan->budget) : "");
}

ThinkingRequest Effort(const char* effort) { return {{}, effort, {}}; }

TEST(Thinking, TheTemplatesOwnSwitches) {
  const std::string qwen = "{% if enable_thinking %}<think>{% endif %}";
  EXPECT_EQ(Plan(qwen, {}), "");
  EXPECT_EQ(Plan(qwen, {true, "", {}}), R"({"enable_thinking":true})");
  EXPECT_EQ(Plan(qwen, {false, "", {}}), R"({"enable_thinking":false})");
  EXPECT_EQ(Plan(qwen, Effort("none")), R"({"enable_thinking":false})");
  EXPECT_EQ(Plan(qwen, Effort("high")), R"({"enable_thinking":true})");
  EXPECT_EQ(Plan(qwen, Effort("low")), R"({"enable_thinking":true}<1024)");
  EXPECT_EQ(Plan(qwen, {true, "", 300}), R"({"enable_thinking":true}<300)");
  EXPECT_EQ(Plan(qwen, {{}, "", 0}), R"({"enable_thinking":false}<0)");
  const std::string oss = R"("Reasoning: " + reasoning_effort <|channel|>analysis)";
  EXPECT_EQ(Plan(oss, Effort("minimal")), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(Plan(oss, Effort("medium")), R"({"reasoning_effort":"medium"})");
  EXPECT_EQ(Plan(oss, Effort("none")), "<0") << "it has no switch for that";
  const std::string seed = "thinking_budget is defined <seed:think>";
  EXPECT_EQ(Plan(seed, {true, "", 512}), R"({"thinking_budget":512}<512)");
  EXPECT_EQ(Plan(seed, {false, "", {}}), R"({"thinking_budget":0})");
  // Only a variable that is read is a switch.
  EXPECT_EQ(Plan("ns.enable_thinking namespace(enable_thinking = true) <think>", {false, "", {}}),
            "<0");
}

TEST(Thinking, WithoutASwitchThereIsABudget) {
  EXPECT_EQ(Plan("<think>", Effort("medium")), "<4096");
  EXPECT_EQ(Plan("<think>", Effort("high")), "");
  EXPECT_EQ(Plan("<think>", {false, "", {}}), "<0");
}

TEST(Thinking, WhatCannotBeDoneIsRefused) {
  EXPECT_EQ(Plan("[INST]", Effort("high")), "") << "a model without is left alone";
  EXPECT_EQ(Plan("[INST]", Effort("none")), "");
  EXPECT_EQ(Plan("<think>", Effort("lots")),
            "refused: must be none, minimal, low, medium, high or xhigh");
}

TEST(Thinking, WhatTheClientSaysItselfStays) {
  const auto plan = ThinkingSwitches::Detect("enable_thinking")
                        .Plan({true, "", {}}, OutputFormat::Detect("<think>"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(MergeVariables(R"({"enable_thinking":false,"x":1})", *plan),
            R"({"enable_thinking":false,"x":1})");
  EXPECT_EQ(MergeVariables(R"({"x":1})", *plan), R"({"x":1,"enable_thinking":true})");
}

// Every published template that can be asked not to think renders another prompt then.
TEST(Thinking, PublishedTemplatesListen) {
  const std::string folder = SharedAsset("templates");
  if (folder.empty()) GTEST_SKIP() << "the published templates are not here";
  const auto messages = JsonDocument::Parse(R"([{"role": "user", "content": "Hi"}])");
  int listening = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = ReadText(entry.path().string());
    const auto chat = ChatTemplate::Parse(source);
    ASSERT_TRUE(chat.ok()) << entry.path();
    const auto switches = ThinkingSwitches::Detect(source);
    if (!switches.can_toggle()) continue;
    const auto render = [&](bool enabled) {
      const auto plan = switches.Plan({enabled, "", {}}, OutputFormat::Detect(source));
      const auto variables = JsonDocument::Parse(MergeVariables("{}", *plan));
      ChatInput input;
      input.messages = &messages->root();
      input.variables = &variables->root();
      input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      const auto rendered = chat->Render(input);
      EXPECT_TRUE(rendered.ok()) << entry.path() << rendered.status().message();
      return rendered.ok() ? rendered->text : "";
    };
    EXPECT_NE(render(true), render(false)) << entry.path();
    ++listening;
  }
  EXPECT_GE(listening, 28);
}

}  // namespace
}  // namespace reprise
