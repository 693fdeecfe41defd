// SPDX-License-Identifier: Apache-2.0
// llama-server's presets of models, as people have them.
#include "cli/serve/fleet/preset_file.h"

#include <gtest/gtest.h>

namespace reprise::cli {
namespace {

std::string Of(const Flags::Settings& settings, const std::string& option) {
  for (const auto& [name, values] : settings) {
    if (name == option) return values.front();
  }
  return "";
}

TEST(Presets, SectionsTakeWhatTheyDoNotSayFromAll) {
  const auto read = ParsePresets(
      "version = 1\r\n; all of them\n[*]\nc = 8192\nn-gpu-layers = 99\n\n"
      "[ggml-org/small-GGUF:Q8_0]\n# its name is its place\nLLAMA_ARG_CTX_SIZE=4096\n"
      "[mine]\nmodel = /models/a b.gguf\nload-on-startup = true\n--sleep-idle-seconds = 60\n"
      "[third]\nhf-repo = org/repo\nload-on-startup = off\ntemp = 0.5\n");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->models.size(), 3u);
  const auto& [first, small] = read->models[0];
  EXPECT_EQ(first, "ggml-org/small-GGUF:Q8_0");
  EXPECT_EQ(Of(small, "model"), "hf:ggml-org/small-GGUF:Q8_0");
  EXPECT_EQ(Of(small, "context"), "4096");
  const Flags::Settings& mine = read->models[1].second;
  EXPECT_EQ(Of(mine, "model"), "/models/a b.gguf");
  EXPECT_EQ(Of(mine, "context"), "8192");
  EXPECT_EQ(Of(mine, "preload"), "true");
  EXPECT_EQ(Of(mine, "keep-alive"), "60");
  const Flags::Settings& third = read->models[2].second;
  EXPECT_EQ(Of(third, "model"), "hf:org/repo");
  EXPECT_EQ(Of(third, "preload"), "false");
  EXPECT_EQ(read->without_effect, (std::vector<std::string>{"[*] n-gpu-layers", "[third] temp"}));
}

TEST(Presets, WhatIsWrongIsNamedWithItsLine) {
  const auto wrong = [](const std::string& text) {
    const auto read = ParsePresets(text);
    return read.ok() ? "" : read.status().message();
  };
  EXPECT_NE(wrong("[a\n").find("line 1"), std::string::npos);
  EXPECT_NE(wrong("[]").find("line 1"), std::string::npos);
  EXPECT_NE(wrong("[a]\nmodel\n").find("line 2"), std::string::npos);
  EXPECT_NE(wrong("[a]\n= x\n").find("line 2"), std::string::npos);
  EXPECT_NE(wrong("[a]\n[a]\n").find("two sections"), std::string::npos);
  EXPECT_NE(wrong("c = 1\n").find("no section"), std::string::npos);
  EXPECT_NE(wrong("").find("no section"), std::string::npos);
}

}  // namespace
}  // namespace reprise::cli
