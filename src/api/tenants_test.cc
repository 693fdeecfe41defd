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

}  // namespace
}  // namespace reprise::api
