// SPDX-License-Identifier: Apache-2.0
#include "api/model_name.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/rng.h"

namespace reprise::api {
namespace {

TEST(ModelName, IsThatOfTheOutermostObject) {
  EXPECT_EQ(FindModelName(R"({"model": "a"})"), "a");
  EXPECT_EQ(FindModelName(" \n{ \"x\" : [1, {\"model\": \"no\"}, \"model\"], \"model\":\"a b\" }"),
            "a b");
  EXPECT_EQ(FindModelName(R"({"x": "model", "y": "\"model\": \"no\"", "model": "q\u00e9\"\\"})"),
            "q\xc3\xa9\"\\");
  EXPECT_EQ(FindModelName(R"({"messages": [{"content": "{\"model\": \"no\"}"}]})"), "");
  EXPECT_EQ(FindModelName(R"({"model": "first", "model": "second"})"), "first");
}

TEST(ModelName, IsEmptyWhereThereIsNone) {
  for (const char* text : {"", "{", "[]", "{}", "null", R"({"model": 3})", R"({"model": null})",
                           R"({"model")", R"({"model":)", R"({"model": "cut)", R"(["model", "a"])",
                           R"({"model": "bad \x"})", "{\"model\" \"a\"}", "{\"x\\"}) {
    EXPECT_EQ(FindModelName(text), "") << text;
  }
  EXPECT_EQ(FindModelName("{\"model\": \"" + std::string(2000, 'x') + "\"}"), "");
}

TEST(ModelName, KeepAliveIsTextOrANumber) {
  EXPECT_EQ(FindKeepAlive(R"({"model": "a", "keep_alive": "5m"})"), "5m");
  EXPECT_EQ(FindKeepAlive(R"({"keep_alive":0,"model":"a"})"), "0");
  EXPECT_EQ(FindKeepAlive(R"({"keep_alive": -1})"), "-1");
  EXPECT_EQ(FindKeepAlive(R"({"x": {"keep_alive": 3}})"), "");
  EXPECT_EQ(FindKeepAlive(R"({"keep_alive": null})"), "");
  EXPECT_EQ(FindKeepAlive(R"({"keep_alive":)"), "");
  EXPECT_EQ(FindModelName(R"({"model": 3})"), "");
}

// Whatever parses as an object has the name that its parser finds.
TEST(ModelName, AgreesWithTheParser) {
  Rng rng(7);
  const char* pieces[] = {"{",         "}",     "[",         "]", ",", ":",
                          "\"model\"", "\"a\"", "\"x\\\"\"", "1", " "};
  int objects = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string text = "{";
    for (uint64_t i = rng.Below(12); i > 0; --i) text += pieces[rng.Below(std::size(pieces))];
    if (rng.Below(2) == 0) text += "\"model\":\"m\"}";
    const auto parsed = JsonDocument::Parse(text);
    const std::string found = FindModelName(text);
    if (!parsed.ok() || !parsed->root().is_object()) continue;
    ++objects;
    const auto* model = parsed->root().Find("model");
    ASSERT_EQ(found, model != nullptr && model->is_string() ? model->as_string() : "") << text;
  }
  EXPECT_GT(objects, 100);
}

}  // namespace
}  // namespace reprise::api
