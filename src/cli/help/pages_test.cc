// SPDX-License-Identifier: Apache-2.0
// Proves: help, manual pages and completions say what the definitions say, whatever characters are
// in them. tests/cli/pages_test.py tries the pages of the real program in mandoc and three shells.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/flags.h"
#include "cli/help/completion.h"
#include "cli/help/help_text.h"
#include "cli/help/manual_page.h"

namespace reprise::cli {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

CommandText Sample() {
  static std::string model, kind = "f16";
  static std::vector<std::string> keys;
  static bool shown = true;
  static int32_t count = 3;
  Flags flags("prog", "A program.");
  Flags* one = flags.AddCommand("one", "the first: it's [one]");
  one->Add("MODEL,-m,--model", &model, "a model", {.required = true});
  one->SetHeading("Second");
  one->Add("--kind", &kind, "a kind", {.one_of = {"f16", "f32"}});
  one->Add("--key", &keys, "a key. 'it' has \\ and - and \"quotes\"");
  one->Add("--shown,!--no-shown", &shown, "a switch");
  one->Add("-n,--some-count", &count, ".Sh looks like a request");
  flags.AddCommand("two", "the second")->AddCommand("deep", "below");
  return flags.Describe();
}

TEST(PagesTest, DefinitionsBecomeData) {
  const CommandText text = Sample();
  ASSERT_EQ(text.commands.size(), 2u);
  const CommandText& one = text.commands[0];
  EXPECT_EQ(one.name, "prog one");
  ASSERT_EQ(one.options.size(), 6u);
  EXPECT_EQ(one.options[0].names, (std::vector<std::string>{"-h", "--help"}));
  EXPECT_EQ(one.options[0].variable, "");
  EXPECT_EQ(one.options[1].place, "MODEL");
  EXPECT_TRUE(one.options[1].required);
  EXPECT_EQ(one.options[1].variable, "REPRISE_MODEL");
  EXPECT_EQ(one.options[2].choices, (std::vector<std::string>{"f16", "f32"}));
  EXPECT_EQ(one.options[2].help, "a kind (default f16)");
  EXPECT_TRUE(one.options[3].many);
  EXPECT_EQ(one.options[4].names, (std::vector<std::string>{"--shown", "--no-shown"}));
  EXPECT_EQ(one.options[4].value, "");
  EXPECT_EQ(Headings(one), (std::vector<std::string>{"Second", "Help"}));
  EXPECT_EQ(text.commands[1].commands[0].name, "prog two deep");
}

TEST(PagesTest, HelpHasEverythingUnderItsHeading) {
  EXPECT_EQ(HelpText(Sample().commands[0]),
            R"(the first: it's [one]

Usage: prog one MODEL [OPTIONS]

Arguments:
  MODEL or -m,--model (required)
                              a model

Second:
  --kind TEXT                 a kind (default f16)
  --key TEXT ...              a key. 'it' has \ and - and "quotes"
  --shown,--no-shown          a switch
  -n,--some-count INTEGER     .Sh looks like a request (default 3)

Help:
  -h,--help                   show this help
)");
}

TEST(PagesTest, ManualPagesEscapeWhatTheFormatterReads) {
  const CommandText text = Sample();
  const std::string page = ManualPage(text.commands[0], "prog", "May 1, 2026");
  EXPECT_TRUE(Contains(page, ".Dd May 1, 2026\n.Dt PROG-ONE 1\n.Os\n"));
  EXPECT_TRUE(Contains(page, ".It Fl n , Fl \\-some\\-count Ar INTEGER\n\\&.Sh looks"));
  EXPECT_TRUE(Contains(page, "A key.\n\\&'it' has \\e and \\- and \\(dqquotes\\(dq.\n"));
  EXPECT_TRUE(Contains(page, "One of\n.Cm \\&f16\nor\n.Cm \\&f32 .\n"));
  EXPECT_TRUE(Contains(page, ".Ss Second\n"));
  EXPECT_TRUE(Contains(page, ".Sh SEE ALSO\n.Xr prog 1\n"));
  EXPECT_TRUE(Contains(ManualPage(text, "", ""), ".Nd A program\n"));
}

TEST(PagesTest, PagesOfAllCommandsAreWritten) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "manual";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(WriteManualPages(Sample(), folder.string(), "").ok());
  for (const char* name : {"prog.1", "prog-one.1", "prog-two.1", "prog-two-deep.1"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  }
  const Status missing = WriteManualPages(Sample(), (folder / "none").string(), "");
  EXPECT_TRUE(Contains(missing.message(), "none/prog.1")) << missing.message();
}

TEST(PagesTest, DatesOfPages) {
  EXPECT_EQ(ManualDate("2026-11-08"), "November 8, 2026");
  for (const char* wrong :
       {"", "unknown", "2026-13-01", "2026-00-01", "2026-01-00", "2026-1-101", "2026-01-0x"}) {
    EXPECT_EQ(ManualDate(wrong), "") << wrong;
  }
}

TEST(PagesTest, CompletionsQuoteWhatShellsRead) {
  const CommandText text = Sample();
  const auto bash = Completion("bash", text), zsh = Completion("zsh", text);
  const auto fish = Completion("fish", text);
  ASSERT_TRUE(bash.ok() && zsh.ok() && fish.ok());
  EXPECT_TRUE(Contains(*bash, "--kind) words='f16 f32' ;;"));
  EXPECT_TRUE(Contains(*bash, "-m|--model|--key) compopt -o default; return ;;"));
  EXPECT_TRUE(Contains(*bash, "words='one two help'"));
  EXPECT_TRUE(Contains(*zsh, "'one:the first\\: it'\\''s [one]'"));
  EXPECT_TRUE(Contains(*zsh, "'(--kind)--kind=[a kind (default f16)]:TEXT:(f16 f32)'"));
  EXPECT_TRUE(Contains(*zsh, "'*--key=[a key. '\\''it'\\'' has \\\\ and"));
  EXPECT_TRUE(Contains(*fish, "-l key -r -F -d 'a key. \\'it\\' has \\\\ and"));
  EXPECT_TRUE(Contains(*fish, "-l kind -x -a 'f16 f32'"));
  EXPECT_EQ(Completion("tcsh", text).status().message(),
            "no completion for 'tcsh' (known: bash, zsh, fish)");
}

}  // namespace
}  // namespace reprise::cli
