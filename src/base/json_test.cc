// SPDX-License-Identifier: Apache-2.0
// Proves what the parser accepts, what it refuses, and where it says the error is.
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/json_writer.h"

namespace reprise {
namespace {

std::string ErrorOf(std::string_view text) {
  const auto parsed = JsonDocument::Parse(text);
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(Json, ReadsEveryKind) {
  auto parsed =
      JsonDocument::Parse(R"( {"a":[1,-2.5e3,true,false,null,"x\n\u00e9\ud83d\ude00"],"b":{}} )");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto items = parsed->root().Find("a")->items();
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(items[0].as_int(), 1);
  EXPECT_EQ(items[1].as_double(), -2500.0);
  EXPECT_TRUE(items[2].as_bool());
  EXPECT_FALSE(items[3].as_bool());
  EXPECT_TRUE(items[4].is_null());
  EXPECT_EQ(items[5].as_string(), "x\n\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_TRUE(parsed->root().Find("b")->members().empty());
  EXPECT_EQ(parsed->root().Find("c"), nullptr);
}

TEST(Json, KeepsTheOrderOfMembers) {
  auto parsed = JsonDocument::Parse(R"({"z":1,"a":2,"m":3})");
  ASSERT_TRUE(parsed.ok());
  std::string order;
  for (const auto& member : parsed->root().members()) order += member.key;
  EXPECT_EQ(order, "zam");
}

TEST(Json, LargeIntegersBecomeDoubles) {
  auto parsed = JsonDocument::Parse("[9223372036854775807,9223372036854775808]");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->root().items()[0].as_int(), INT64_MAX);
  EXPECT_FALSE(parsed->root().items()[1].is_int());
  EXPECT_EQ(parsed->root().items()[1].as_double(), 9223372036854775808.0);
}

// Short ones are read eight bytes at a time, if so many are left.
TEST(Json, IntegersOfEveryLengthWhereverTheyStand) {
  int64_t number = 0;
  for (int digits = 1; digits <= 12; ++digits) {
    number = number * 10 + (digits % 3 == 0 ? 0 : digits % 10);
    for (const int64_t one : {number, -number}) {
      const std::string spelled = std::to_string(one);
      for (const char* behind : {"", " ", ",1", ", 22222222", "]", "/"}) {
        const auto array = JsonDocument::Parse("[" + spelled + behind + "]");
        const bool valid = std::string_view(behind).find_first_of("]/") == std::string_view::npos;
        ASSERT_EQ(array.ok(), valid) << spelled << behind;
        EXPECT_TRUE(!valid || array->root().items()[0].as_int() == one) << spelled << behind;
      }
      for (const char* behind : {".0", ".000000", "e0", "E0000000"}) {
        const std::string text = "[" + spelled + behind;
        const auto array = JsonDocument::Parse(text + "]");
        ASSERT_TRUE(array.ok()) << text;
        EXPECT_FALSE(array->root().items()[0].is_int());
        EXPECT_EQ(array->root().items()[0].as_double(), double(one));
      }
      EXPECT_FALSE(JsonDocument::Parse("[0" + std::to_string(number) + ", 1, 2, 3]").ok());
      EXPECT_EQ(JsonDocument::Parse(spelled)->root().as_int(), one);
      EXPECT_EQ(JsonDocument::Parse(spelled + "          ")->root().as_int(), one);
    }
  }
  for (int64_t one = 0; one < 100'000; one += 7) {
    const auto array = JsonDocument::Parse("[" + std::to_string(one) + ", 1, 2]");
    ASSERT_EQ(array->root().items()[0].as_int(), one);
  }
}

TEST(Json, NumbersKeepTheirSpelling) {
  const std::string text =
      "[1.0,1.50,-0,-0.0,1e5,1E+05,123456789012345678901234567890,0.1,1e-7,3,-12]";
  auto parsed = JsonDocument::Parse(text);
  ASSERT_TRUE(parsed.ok());
  std::string written;
  JsonWriter(&written).Value(parsed->root());
  EXPECT_EQ(written, text);
  EXPECT_EQ(parsed->root().items()[1].as_double(), 1.5);
  EXPECT_EQ(parsed->root().items()[1].spelling(), "1.50");
  EXPECT_EQ(parsed->root().items()[9].as_int(), 3);
}

TEST(Json, BoundsTheNumberOfValues) {
  const auto parse = [](std::string_view text, size_t values) {
    return JsonDocument::Parse(text, {.value_count_max = values}).ok();
  };
  EXPECT_TRUE(parse("[0,0,0]", 4));
  EXPECT_FALSE(parse("[0,0,0]", 3));
  EXPECT_TRUE(parse(R"({"a":{"b":[]}})", 3));
  EXPECT_FALSE(parse(R"({"a":{"b":[]}})", 2));
  std::string zeros = "[0";
  for (int i = 0; i < 100000; ++i) zeros += ",0";
  const auto refused = JsonDocument::Parse(zeros + "]", {.value_count_max = 1000});
  EXPECT_EQ(refused.status().message(), "JSON, byte 1999: the document has too many values");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",      "{",         "[1,]",        "{\"a\":1,}",  "01",
        "1.",    ".5",        "+1",          "NaN",         "1e999",
        "'a'",   "\"\\x\"",   "\"\\ud800\"", "\"\\udc00\"", "\"a",
        "[1] 2", "{\"a\" 1}", "tru",         "\"\x01\"",    "{\"a\":1,\"a\":2}"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  EXPECT_NE(ErrorOf("\"\xff\""), "");
  EXPECT_EQ(ErrorOf("[1, x]"), "JSON, byte 4: expected a value");
}

TEST(Json, RefusesDuplicatesInLargeObjects) {
  std::string text = "{";
  for (int i = 0; i < 100; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(ErrorOf(text + "\"new\":0}"), "");
  EXPECT_NE(ErrorOf(text + "\"k57\":0}"), "");
}

TEST(Json, BoundsTheDepth) {
  EXPECT_EQ(ErrorOf(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(ErrorOf(std::string(65, '[') + std::string(65, ']')), "");
  EXPECT_NE(ErrorOf(std::string(1000000, '[')), "");
}

TEST(Json, WritesStringsThatItReadsBack) {
  const std::string text = "quote\" slash\\ line\n tab\t bell\a \xF0\x9F\x98\x80";
  std::string json;
  AppendJsonString(text, &json);
  auto parsed = JsonDocument::Parse(json);
  ASSERT_TRUE(parsed.ok()) << json;
  EXPECT_EQ(parsed->root().as_string(), text);
  json.clear();
  AppendJsonString("a\xff", &json);
  EXPECT_EQ(json, "\"a\xEF\xBF\xBD\"");
}

TEST(Json, WritesNumbersShortestInTheirType) {
  std::string json;
  JsonWriter(&json).BeginArray().Float(0.9f).Double(0.9).Double(double{0.9f}).EndArray();
  EXPECT_EQ(json, "[0.9,0.9,0.8999999761581421]");
}

}  // namespace
}  // namespace reprise
