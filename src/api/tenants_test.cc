// SPDX-License-Identifier: Apache-2.0
// Proves that keys are kept apart: who may see the whole server, whose cache, reports and stored
// responses a request finds, and who may go ahead of others.
#include "api/tenants.h"

#include <gtest/gtest.h>

#include "api/test_service.h"
#include "base/json.h"

namespace reprise::api {
namespace {

using Keys = std::vector<Tenants::Key>;

constexpr char kChat[] = "/v1/chat/completions";

TEST(Tenants, OneKeyIsTheOperatorsSeveralAreNot) {
  EXPECT_TRUE(Tenants(Keys{{"a", ""}}).Find("a")->admin);
  const Tenants two(Keys{{"a", ""}, {"b", ""}});
  EXPECT_FALSE(two.Find("a")->admin);
  EXPECT_FALSE(two.Find("b")->admin);
  const Tenants named(Keys{{"a", ""}, {"b", "boss", false, true}});
  EXPECT_FALSE(named.Find("a")->admin);
  EXPECT_TRUE(named.Find("b")->admin);
  EXPECT_EQ(two.Find("c"), nullptr);
  EXPECT_EQ(two.Find(""), nullptr);
  EXPECT_TRUE(Tenants(Keys()).Find("anything")->admin);
}

TEST(Tenants, NamespacesAreApartUnlessTheyAreShared) {
  const Tenants tenants(Keys{{"a", ""}, {"b", ""}, {"c", "", true}, {"d", "", true}});
  const auto of = [&](const char* key, const char* inner) {
    return tenants.Find(key)->Namespace(inner);
  };
  EXPECT_NE(of("a", ""), of("b", ""));
  EXPECT_NE(of("a", "x"), of("b", "x"));
  EXPECT_NE(of("a", "x"), of("a", ""));
  EXPECT_EQ(of("c", "x"), of("d", "x"));
  EXPECT_EQ(of("c", ""), "");
}

TEST(Quota, RequestsComeBackEvenly) {
  Quota quota({.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(quota.Begin(1000)) << i;
  const auto refusal = quota.Begin(1000);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->limit, "6 requests per minute");
  EXPECT_EQ(refusal->seconds, 10);
  EXPECT_TRUE(quota.Begin(10'900));
  EXPECT_FALSE(quota.Begin(11'001));
  EXPECT_TRUE(quota.Begin(11'001));
  // Silence fills it once, not more.
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(quota.Begin(10'000'000)) << i;
  EXPECT_TRUE(quota.Begin(10'000'000));
}

TEST(Quota, TokensAreOwedUntilTheyAreFilledAgain) {
  Quota quota({.tokens_per_minute = 600, .tokens_per_day = 100'000});
  EXPECT_FALSE(quota.Begin(0));
  quota.Spend(1200, 0);  // the last request took more than there was
  EXPECT_EQ(quota.Begin(0)->limit, "600 tokens per minute");
  EXPECT_TRUE(quota.Begin(59'000));
  EXPECT_FALSE(quota.Begin(61'000));
  quota.Spend(100'000, 120'000);
  const auto day = quota.Begin(600'000'000);  // a week later both are full
  EXPECT_FALSE(day);
  quota.Spend(100'000, 600'000'000);
  EXPECT_EQ(quota.Begin(600'000'000 + 60'000 * 100)->limit, "600 tokens per minute");
  EXPECT_FALSE(quota.Begin(600'000'000 + 60'000 * 200));
}

// Three keys; the last one's is an admin.
ServiceOptions ThreeKeys() {
  ServiceOptions options;
  options.keys = {{"ka", "a"}, {"kb", "b"}, {"kc", "c", false, true}};
  options.next_turn = false;
  return options;
}

http::Request Make(const char* key, const char* path, const std::string& body) {
  http::Request request = TestService::MakePost(path, body);
  request.headers.emplace_back("Authorization", "Bearer " + std::string(key));
  return request;
}

http::Request MakeGet(const char* key, const std::string& path) {
  http::Request request = Make(key, "", "");
  request.method = "GET";
  request.path = path;
  return request;
}

TEST(Tenants, NoneIsHelpedByTheStateOfAnother) {
  TestService service(ThreeKeys());
  const std::string body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": ")" +
                           std::string(150, 'x') + "\"}]}";
  const auto cached = [&](const char* key) {
    const auto answer = service.Send(Make(key, kChat, body));
    const auto document = JsonDocument::Parse(answer.body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return document->root()
        .Find("usage")
        ->Find("prompt_tokens_details")
        ->Find("cached_tokens")
        ->as_int();
  };
  EXPECT_EQ(cached("ka"), 0);
  EXPECT_GT(cached("ka"), 0) << "its own";
  EXPECT_EQ(cached("kb"), 0);
  EXPECT_EQ(cached("kc"), 0) << "an admin's key is a key like others";
}

TEST(Tenants, NoneSeesTheReportsOfAnother) {
  TestService service(ThreeKeys());
  http::Request request =
      Make("ka", kChat, R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})");
  request.id = "request-of-a";
  EXPECT_EQ(service.Send(std::move(request)).status, 200);
  const auto shows = [&](const char* key) {
    const auto view = service.Send(MakeGet(key, "/v1/cache"));
    EXPECT_EQ(view.status, 200) << view.body;
    return view.body.find("request-of-a") != std::string::npos;
  };
  EXPECT_TRUE(shows("ka"));
  EXPECT_FALSE(shows("kb"));
}

TEST(Tenants, NoneFindsTheResponsesOfAnother) {
  TestService service(ThreeKeys());
  const auto made = service.Send(Make("ka", "/v1/responses", R"({"input": "Hi"})"));
  const auto document = JsonDocument::Parse(made.body);
  ASSERT_TRUE(document.ok() && document->root().Find("id") != nullptr) << made.body;
  const std::string id(document->root().Find("id")->as_string());
  EXPECT_EQ(service.Send(MakeGet("ka", "/v1/responses/" + id)).status, 200);
  EXPECT_EQ(service.Send(MakeGet("kb", "/v1/responses/" + id)).status, 404);
  const std::string next = R"({"input": "Hi", "previous_response_id": ")" + id + "\"}";
  EXPECT_EQ(service.Send(Make("kb", "/v1/responses", next)).status, 400);
  EXPECT_EQ(service.Send(Make("ka", "/v1/responses", next)).status, 200);
}

TEST(Tenants, GoingAheadIsForAdmins) {
  for (const char* key : {"ka", "kc"}) {
    TestService service(ThreeKeys());
    std::vector<http::Request> requests;
    for (int i = 0; i < 48; ++i) {
      const char* const priority = i == 47 ? R"("priority": 9, )" : "";
      requests.push_back(Make(
          key, kChat,
          "{" + std::string(priority) + R"("messages": [{"role": "user", "content": "Hi"}]})"));
    }
    const auto answers = service.SendAll(std::move(requests));
    const bool ahead = answers.back().rank < 40;
    EXPECT_EQ(ahead, key == std::string("kc")) << answers.back().rank;
  }
}

// A key that has used what it may is refused by the same answer that clients wait after; another
// is not. What comes from the cache costs nothing.
TEST(Quota, AKeyIsHeldToWhatItMayUse) {
  ServiceOptions options = ThreeKeys();
  options.keys[0].quota = std::make_shared<Quota>(Quota::Limits{.requests_per_minute = 2});
  options.keys[1].quota = std::make_shared<Quota>(Quota::Limits{.tokens_per_day = 150});
  TestService service(std::move(options));
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  const auto status = [&](const char* key, const std::string& body) {
    return service.Send(Make(key, kChat, body)).status;
  };
  EXPECT_EQ(status("ka", chat), 200);
  EXPECT_EQ(status("ka", R"({"messages": 3})"), 400);  // it asked for nothing
  EXPECT_EQ(status("ka", chat), 200);
  const auto refused = service.Send(Make("ka", kChat, chat));
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.body.find("2 requests per minute"), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("rate_limit_exceeded"), std::string::npos);
  EXPECT_EQ(status("kc", chat), 200);
  const std::string text(100, 'a');
  const std::string prompt =
      R"({"max_tokens": 1, "messages": [{"role": "user", "content": ")" + text + R"("}]})";
  EXPECT_EQ(status("kb", prompt), 200);
  EXPECT_EQ(status("kb", prompt), 200);  // from the cache
  EXPECT_EQ(status("kb", chat), 200);
  EXPECT_EQ(status("kb", chat), 429);
}

}  // namespace
}  // namespace reprise::api
