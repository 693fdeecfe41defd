// SPDX-License-Identifier: Apache-2.0
// Proves: values arrive where they were declared to go, from the command line before the
// environment; whatever is wrong with the arguments is a sentence that names it.
#include "cli/flags.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace reprise::cli {
namespace {

struct Seen {
  std::string text = "none";
  std::string file;
  std::string kind = "f16";
  int32_t count = 3;
  uint64_t seed = 0;
  float share = 0.5f;
  std::optional<uint64_t> maybe;
  std::vector<size_t> list;
  std::vector<std::string> keys;
  bool loud = false;
  bool shown = true;
  int runs = 0;
};

Status RunWith(Seen* seen, std::vector<const char*> arguments) {
  Flags flags("prog", "a program");
  flags.SetVersion([] { return "1.2.3"; });
  Flags* one = flags.AddCommand("one", "the first");
  one->Add("FILE", &seen->file, "a file", {.required = true});
  one->Add("-t,--text", &seen->text, "a text");
  one->Add("--kind", &seen->kind, "a kind", {.one_of = {"f16", "f32"}});
  one->Add("-n,--some-count", &seen->count, "a count", {.min = 1, .max = 10});
  one->Add("--seed", &seen->seed, "a seed");
  one->Add("--share", &seen->share, "a share", {.min = 0, .max = 1});
  one->Add("--maybe", &seen->maybe, "a number or none");
  one->Add("--list", &seen->list, "numbers");
  one->Add("--key", &seen->keys, "keys");
  one->Add("--loud", &seen->loud, "a switch");
  one->Add("--shown,!--no-shown", &seen->shown, "a switch that is on");
  one->SetAction([seen] {
    ++seen->runs;
    return OkStatus();
  });
  Flags* two = flags.AddCommand("two", "the second");
  two->AddCommand("deep", "below")->SetAction([] { return DataLoss("from the deep"); });
  arguments.insert(arguments.begin(), "prog");
  return flags.Run(static_cast<int>(arguments.size()), arguments.data());
}

void ExpectRefused(std::vector<const char*> arguments, const std::string& sentence) {
  Seen seen;
  const Status status = RunWith(&seen, std::move(arguments));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  EXPECT_EQ(seen.runs, 0);
}

TEST(FlagsTest, ValuesArrive) {
  Seen seen;
  const Status status = RunWith(&seen, {"one",     "-t",     "a b",
                                        "--kind",  "f32",    "-n",
                                        "7",       "--seed", "18446744073709551615",
                                        "--share", "0.25",   "--maybe",
                                        "0",       "--list", "1,20,3",
                                        "--key",   "x,y",    "--key",
                                        "z",       "--loud", "--no-shown",
                                        "F"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(seen.runs, 1);
  EXPECT_EQ(seen.file, "F");
  EXPECT_EQ(seen.text, "a b");
  EXPECT_EQ(seen.kind, "f32");
  EXPECT_EQ(seen.count, 7);
  EXPECT_EQ(seen.seed, UINT64_MAX);
  EXPECT_EQ(seen.share, 0.25f);
  EXPECT_EQ(seen.maybe, 0);
  EXPECT_EQ(seen.list, (std::vector<size_t>{1, 20, 3}));
  EXPECT_EQ(seen.keys, (std::vector<std::string>{"x,y", "z"}));
  EXPECT_TRUE(seen.loud);
  EXPECT_FALSE(seen.shown);
}

TEST(FlagsTest, DefaultsStay) {
  Seen seen;
  ASSERT_TRUE(RunWith(&seen, {"one", "F"}).ok());
  EXPECT_EQ(seen.text, "none");
  EXPECT_EQ(seen.count, 3);
  EXPECT_EQ(seen.maybe, std::nullopt);
  EXPECT_TRUE(seen.list.empty());
  EXPECT_TRUE(seen.shown);
  ASSERT_TRUE(RunWith(&seen, {"one", "F", "-n", "010"}).ok());
  EXPECT_EQ(seen.count, 10);
}

// As in `reprise run MODEL` and `reprise run --model MODEL`.
TEST(FlagsTest, AnArgumentMayHaveAPlaceAndAName) {
  const auto run = [](std::string* model, std::vector<const char*> arguments) {
    Flags flags("prog", "a program");
    flags.Add("MODEL,-m,--model", model, "a model");
    arguments.insert(arguments.begin(), "prog");
    return flags.Run(static_cast<int>(arguments.size()), arguments.data());
  };
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"a.gguf"}, {"-m", "a.gguf"}, {"--model=a.gguf"}}) {
    std::string model;
    ASSERT_TRUE(run(&model, arguments).ok());
    EXPECT_EQ(model, "a.gguf");
  }
  std::string model;
  EXPECT_EQ(run(&model, {"a.gguf", "--model", "b.gguf"}).message(),
            "--model: given 2 times; give it once (see prog --help)");
}

TEST(FlagsTest, TheEnvironmentIsAskedSecond) {
  ASSERT_EQ(setenv("REPRISE_SOME_COUNT", "9", 1), 0);
  Seen seen;
  EXPECT_TRUE(RunWith(&seen, {"one", "F"}).ok());
  EXPECT_EQ(seen.count, 9);
  EXPECT_TRUE(RunWith(&seen, {"one", "F", "-n", "2"}).ok());
  EXPECT_EQ(seen.count, 2);
  ASSERT_EQ(setenv("REPRISE_SOME_COUNT", "90", 1), 0);
  ExpectRefused({"one", "F"}, "90 is too large; the most is 10");
  ASSERT_EQ(unsetenv("REPRISE_SOME_COUNT"), 0);
}

TEST(FlagsTest, WrongArgumentsAreSentences) {
  ExpectRefused({}, "prog needs a command (known: one, two)");
  ExpectRefused({"three"}, "prog has no command 'three' (known: one, two)");
  ExpectRefused({"two"}, "prog two needs a command (known: deep)");
  ExpectRefused({"two", "shallow"}, "prog two has no command 'shallow' (known: deep)");
  ExpectRefused({"one"}, "FILE is required (see prog one --help)");
  ExpectRefused({"one", "F", "-n", "0"}, "--some-count: 0 is too small; the least is 1");
  ExpectRefused({"one", "F", "-n", "11"}, "--some-count: 11 is too large; the most is 10");
  ExpectRefused({"one", "F", "-n", "many"}, "--some-count");
  ExpectRefused({"one", "F", "--share", "nan"}, "--share");
  ExpectRefused({"one", "F", "--seed", "-1"}, "--seed: '-1' is not a whole number of 0 or more");
  ExpectRefused({"one", "F", "--seed", "18446744073709551616"},
                "--seed: '18446744073709551616' is too large");
  ExpectRefused({"one", "F", "--share", "half"}, "--share: 'half' is not a number");
  ExpectRefused({"one", "F", "--kind", "f8"}, "--kind: 'f8' is none of f16, f32");
  ExpectRefused({"one", "F", "--list", "1,x"}, "--list: 'x' is not a whole number");
  ExpectRefused({"one", "F", "--list", "1,"}, "--list: '' is not a whole number");
  ExpectRefused({"one", "F", "-n", "2", "-n", "3"}, "--some-count: given 2 times; give it once");
  ExpectRefused({"one", "F", "--unknown"}, "--unknown");
  ExpectRefused({"one", "F", "G"}, "unexpected argument 'G'");
}

TEST(FlagsTest, MisspeltWordsGetASuggestion) {
  ExpectRefused({"one", "F", "--some-cout", "3"},
                "prog one has no option '--some-cout'; did you mean '--some-count'?");
  ExpectRefused({"one", "F", "--some-cout=3"}, "did you mean '--some-count'?");
  ExpectRefused({"one", "F", "--sed", "3"}, "did you mean '--seed'?");
  ExpectRefused({"on"}, "prog has no command 'on'; did you mean 'one'? (known: one, two)");
  ExpectRefused({"help", "on"}, "prog has no command 'on'; did you mean 'one'?");
  Seen seen;
  EXPECT_EQ(RunWith(&seen, {"one", "F", "--zebra"}).message().find("did you mean"),
            std::string::npos);
}

TEST(FlagsTest, HelpAndVersionAreNotRun) {
  Seen seen;
  const auto printed = [&seen](std::vector<const char*> arguments) {
    testing::internal::CaptureStdout();
    EXPECT_TRUE(RunWith(&seen, std::move(arguments)).ok());
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_NE(printed({"help"}).find("the second"), std::string::npos);
  EXPECT_NE(printed({"help", "one"}).find("--some-count"), std::string::npos);
  EXPECT_NE(printed({"help", "two", "deep"}).find("below"), std::string::npos);
  EXPECT_EQ(printed({"--version"}), "prog 1.2.3\n");
  EXPECT_EQ(seen.runs, 0);
}

TEST(FlagsTest, ActionsFailWithTheirOwnWords) {
  Seen seen;
  EXPECT_EQ(RunWith(&seen, {"two", "deep"}).message(), "from the deep");
}

}  // namespace
}  // namespace reprise::cli
