// SPDX-License-Identifier: Apache-2.0
// The table of known fields keeps its invariants, and other servers' names find our fields.
#include "api/fields/known_fields.h"

#include <gtest/gtest.h>

#include <set>

#include "api/fields.h"
#include "api/test_service.h"
#include "base/json.h"

namespace reprise::api {
namespace {

using Kind = KnownField::Kind;

TEST(KnownFields, EveryRowIsUsedAndMeansSomething) {
  std::set<std::pair<uint32_t, std::string_view>> seen;
  for (const KnownField& field : KnownFields()) {
    EXPECT_NE(field.dialects, 0u) << field.name;
    for (uint32_t i = 0; i < 32; ++i) {
      if ((field.dialects >> i & 1) == 0) continue;
      EXPECT_LT(i, static_cast<uint32_t>(Dialect::kOwn)) << field.name;
      EXPECT_TRUE(seen.emplace(i, field.name).second) << field.name << " twice in dialect " << i;
    }
    EXPECT_EQ(field.text.empty(), field.kind == Kind::kHarmless) << field.name;
    EXPECT_TRUE(JsonDocument::Parse("[" + std::string(field.neutral) + "]").ok()) << field.name;
    if (field.kind != Kind::kAlias) continue;
    EXPECT_TRUE(field.neutral.empty()) << field.name;
    for (const KnownField& other : KnownFields()) {
      EXPECT_FALSE(other.kind == Kind::kAlias && other.name == field.text)
          << field.name << " is an alias of an alias";
    }
  }
}

TEST(KnownFields, AnAliasIsReadWhereOurNameIsMissing) {
  const auto body = JsonDocument::Parse(R"({"n_predict": 3, "random_seed": 1, "seed": 2})");
  ASSERT_TRUE(body.ok());
  Fields fields(body->root());
  EXPECT_EQ(fields.Find("max_tokens"), nullptr) << "no dialect, no aliases";
  fields.SetDialect(Dialect::kChat);
  int32_t tokens = 0;
  int64_t seed = 0;
  fields.Read("max_tokens", 0, 9, &tokens);
  fields.Read("seed", 0, 9, &seed);
  EXPECT_EQ(tokens, 3);
  EXPECT_EQ(seed, 2) << "our name wins";
  EXPECT_TRUE(fields.Unread().empty()) << "and the other one counts as read";
  fields.Read("max_tokens", 0, 2, &tokens);
  ASSERT_FALSE(fields.ok());
  EXPECT_EQ(fields.error()->param, "n_predict") << "an error has the name that was sent";
  Fields others(body->root());
  others.SetDialect(Dialect::kMessages);
  EXPECT_EQ(others.Find("max_tokens"), nullptr) << "an alias is one of its dialects alone";
}

// OpenAI's default of 16 tokens is for those who say nothing.
TEST(KnownFields, NoLimitByAnotherNameIsNoLimit) {
  TestService service;
  const auto tokens = [&](const std::string& members) {
    const auto answer = service.Post("/v1/completions", R"({"prompt": "a")" + members + "}");
    const auto document = JsonDocument::Parse(answer.body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return document->root().Find("usage")->Find("completion_tokens")->as_int();
  };
  EXPECT_EQ(tokens(""), 16);
  EXPECT_EQ(tokens(R"(, "n_predict": -1)"), 25);
  EXPECT_EQ(tokens(R"(, "n_predict": 3)"), 3);
  EXPECT_EQ(tokens(R"(, "n_predict": 3, "max_tokens": 5)"), 5);
}

}  // namespace
}  // namespace reprise::api
