// SPDX-License-Identifier: Apache-2.0
// Proves that items become the turns they mean, and that the store keeps to its bounds and to its
// tenants. What clients see is tested with theirs (tests/clients/responses_test.py).
#include <gtest/gtest.h>

#include <map>

#include "api/responses/archive.h"
#include "api/responses/background.h"
#include "api/responses/item.h"
#include "api/responses/store.h"
#include "api/test_service.h"
#include "base/coding/base64.h"

namespace reprise::api::responses {
namespace {

// The turns of an input as one line.
std::string Turns(const std::string& input, const std::string& instructions = "",
                  const ServiceOptions& options = ServiceOptions()) {
  const auto body = JsonDocument::Parse("{\"input\": " + input + "}");
  EXPECT_TRUE(body.ok()) << body.status().message();
  Fields fields(body->root());
  Items items;
  ReadInput(
      options, [](std::string_view) { return nullptr; }, &fields, &items);
  if (!fields.ok()) return fields.error()->param + " " + fields.error()->message;
  std::string out;
  for (const ChatTurn& turn : MakeTurns(instructions, items)) {
    std::string content = turn.content;
    for (auto picture = turn.pictures.rbegin(); picture != turn.pictures.rend(); ++picture) {
      content.insert(picture->content_bytes, "{" + picture->place + " " + picture->file + "}");
    }
    out += turn.role + "(" + content + ")";
    if (!turn.reasoning.empty()) out += "~" + turn.reasoning + "~";
    for (const ToolCall& call : turn.calls) {
      out += "[" + call.id + " " + call.name + " " + call.arguments + "]";
    }
    if (!turn.call_id.empty()) out += "<" + turn.call_id + " " + turn.name + ">";
  }
  return out;
}

TEST(ResponsesItems, BecomeTurns) {
  EXPECT_EQ(Turns("\"Hi\""), "user(Hi)");
  EXPECT_EQ(Turns("\"Hi\"", "Be brief."), "system(Be brief.)user(Hi)");
  const std::string call =
      R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})";
  const std::string result =
      R"({"type": "function_call_output", "call_id": "c",
          "output": [{"type": "input_text", "text": "ok"}]})";
  const std::string thought =
      R"({"type": "reasoning", "summary": [],
          "content": [{"type": "reasoning_text", "text": "hm"}]})";
  const std::string said =
      R"({"type": "message", "role": "assistant",
          "content": [{"type": "output_text", "text": "So."}]})";
  EXPECT_EQ(Turns("[" + thought + "," + said + "," + call + "," + result + "]"),
            "assistant(So.)~hm~[c f {}]tool(ok)<c f>");
  EXPECT_EQ(Turns("[" + call + "," + call + "," + said + "]"),
            "assistant()[c f {}][c f {}]assistant(So.)");
  EXPECT_EQ(Turns("[" + said + "," + thought + "," + said + "]"),
            "assistant(So.)assistant(So.)~hm~");
  EXPECT_EQ(Turns(R"([{"type": "reasoning", "encrypted_content": "reprise:hm"}, )" + said + "]"),
            "assistant(So.)~hm~");
  EXPECT_EQ(Turns(R"([{"type": "reasoning", "encrypted_content": "gAAAA"}, )" + said + "]"),
            "assistant(So.)");
}

TEST(ResponsesItems, SystemMessagesAtTheStartAreOne) {
  const std::string rules = R"({"role": "developer", "content": "Rules."})";
  const std::string user = R"(, {"role": "user", "content": "Hi"}, )";
  EXPECT_EQ(Turns("[" + rules + "," + rules + user + rules + "]", "Be brief."),
            "system(Be brief.\nRules.\nRules.)user(Hi)system(Rules.)");
}

TEST(ResponsesItems, CustomCallsAreFunctionsWithOneText) {
  const std::string call =
      R"({"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "a\n\"b\""})";
  const std::string output =
      R"({"type": "custom_tool_call_output", "call_id": "c", "output": "done"})";
  EXPECT_EQ(Turns("[" + call + "," + output + "]"),
            "assistant()[c patch {\"input\":\"a\\n\\\"b\\\"\"}]tool(done)<c patch>");
  EXPECT_EQ(UnwrapInput(WrapInput("a\n\"b\"")), "a\n\"b\"");
  EXPECT_EQ(UnwrapInput(""), "");
  for (const char* other :
       {"{\"input\": 5}", "{\"city\": \"Paris\"}", "[1]", "{\"input\": \"cut"}) {
    EXPECT_EQ(UnwrapInput(other), other);
  }
  EXPECT_TRUE(Turns(R"([{"type": "custom_tool_call", "call_id": "c", "name": "f"}])")
                  .starts_with("input[0].input "));
}

TEST(ResponsesItems, ErrorsNameTheField) {
  EXPECT_TRUE(Turns("5").starts_with("input "));
  EXPECT_TRUE(Turns("[5]").starts_with("input[0] "));
  EXPECT_TRUE(Turns("[{}]").starts_with("input[0].type "));
  EXPECT_TRUE(Turns(R"([{"role": "king", "content": "x"}])").starts_with("input[0].role "));
  EXPECT_TRUE(Turns(R"([{"role": "user"}])").starts_with("input[0].content "));
  EXPECT_TRUE(Turns(R"([{"type": "function_call", "call_id": "c", "arguments": "{}"}])")
                  .starts_with("input[0].name "));
  EXPECT_TRUE(Turns(R"([{"type": "function_call_output", "output": "x"}])")
                  .starts_with("input[0].call_id "));
  EXPECT_TRUE(Turns(R"([{"type": "item_reference", "id": "x"}])").starts_with("input[0].id "));
}

std::string Image(const std::string& file) {
  return R"({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,)" +
         ToBase64(file) + R"("})";
}

TEST(ResponsesItems, PicturesStandBetweenTheirTexts) {
  ServiceOptions sees;
  sees.sees = true;
  const std::string a = R"({"type": "input_text", "text": "a"})";
  const std::string both = "[" + a + "," + Image("X") + "," + a + "," + a + "," + Image("Y") + "]";
  EXPECT_EQ(Turns(R"([{"role": "user", "content": )" + both + "}]", "", sees),
            "user(a{input[0].content[1].image_url X}a\na{input[0].content[4].image_url Y})");
  const std::string output =
      R"([{"type": "function_call_output", "call_id": "c", "output": )" + both + "}]";
  EXPECT_EQ(Turns(output, "", sees),
            "tool(a{input[0].output[1].image_url X}a\na{input[0].output[4].image_url Y})<c >");
  EXPECT_TRUE(Turns(output).starts_with("input[0].output[1].type "));
  ServiceOptions ignores;
  ignores.ignore_images = true;
  EXPECT_EQ(
      Turns("[{\"role\": \"user\", \"content\": [" + a + "," + Image("X") + "]}]", "", ignores),
      "user(a\n" + std::string(kImageText) + ")");
}

TEST(ResponsesItems, WhatIsNoPictureIsRefusedByName) {
  ServiceOptions sees;
  sees.sees = true;
  const auto refusal = [&](const std::string& part, const std::string& role = "user") {
    return Turns(R"([{"role": ")" + role + R"(", "content": [)" + part + "]}]", "", sees);
  };
  EXPECT_TRUE(refusal(R"({"type": "input_file", "file_data": "x"})")
                  .ends_with("content[0].type 'input_file' is not supported: this server "
                             "understands text and pictures"));
  EXPECT_TRUE(refusal(R"({"type": "input_audio"})").find("'input_audio' is not") !=
              std::string::npos);
  EXPECT_NE(refusal(R"({"type": "input_image", "file_id": "file-1"})")
                .find("content[0].file_id is not supported"),
            std::string::npos);
  EXPECT_TRUE(refusal(R"({"type": "input_image", "image_url": "https://a.example/b.png"})")
                  .find("fetches no pictures") != std::string::npos);
  EXPECT_TRUE(refusal(R"({"type": "input_image", "image_url": "data:image/png;base64,A"})")
                  .find("not valid base64") != std::string::npos);
  EXPECT_TRUE(refusal(R"({"type": "input_image"})").find("must have a url") != std::string::npos);
  for (const char* role : {"system", "developer", "assistant"}) {
    EXPECT_TRUE(refusal(Image("X"), role).starts_with("input[0].content[0].type ")) << role;
  }
}

StoredResponse Make(size_t bytes) {
  StoredResponse response;
  response.body = std::string(bytes, 'x');
  return response;
}

TEST(ResponseStore, ATenantFindsItsOwnOnly) {
  ResponseStore store;
  StoredResponse response = Make(1);
  response.items.emplace_back().id = MakeItemId("msg_", "resp_r", 0);
  EXPECT_EQ(response.items[0].id, "msg_r_0");
  store.Add("a", "resp_r", std::move(response));
  EXPECT_NE(store.Find("a", "resp_r"), nullptr);
  EXPECT_NE(store.FindItem("a", "msg_r_0"), nullptr);
  EXPECT_EQ(store.Find("b", "resp_r"), nullptr);
  EXPECT_EQ(store.FindItem("b", "msg_r_0"), nullptr);
  EXPECT_EQ(store.FindItem("a", "msg_r_1"), nullptr);
  EXPECT_EQ(store.FindItem("a", "r"), nullptr);
  EXPECT_FALSE(store.Remove("b", "resp_r"));
  EXPECT_TRUE(store.Remove("a", "resp_r"));
  EXPECT_FALSE(store.Remove("a", "resp_r"));
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(ResponseStore, TheOldestGoFirst) {
  ResponseStore store;
  for (size_t i = 0; i <= ResponseStore::kCountMax; ++i) store.Add("a", std::to_string(i), Make(1));
  EXPECT_EQ(store.Find("a", "0"), nullptr);
  EXPECT_NE(store.Find("a", "1"), nullptr);
  // A tenant that keeps much takes from itself.
  store.Add("b", "mine", Make(1));
  constexpr size_t kLarge = ResponseStore::kTenantBytesMax / 4;
  for (size_t i = 0; i < 8; ++i) store.Add("a", "large" + std::to_string(i), Make(kLarge));
  EXPECT_LE(store.bytes(), ResponseStore::kTenantBytesMax + 1000);
  EXPECT_NE(store.Find("a", "large7"), nullptr);
  EXPECT_EQ(store.Find("a", "large2"), nullptr);
  EXPECT_NE(store.Find("b", "mine"), nullptr);
  // One that is larger than a tenant's share is not kept, and takes nothing away.
  store.Add("a", "huge", Make(ResponseStore::kTenantBytesMax));
  EXPECT_EQ(store.Find("a", "huge"), nullptr);
  EXPECT_NE(store.Find("a", "large7"), nullptr);
}

TEST(ResponseStore, AllTenantsTogetherHaveABound) {
  ResponseStore store;
  constexpr size_t kLarge = ResponseStore::kTenantBytesMax - 1000;
  for (int i = 0; i < 8; ++i) store.Add("t" + std::to_string(i), "r", Make(kLarge));
  EXPECT_LE(store.bytes(), ResponseStore::kBytesMax);
  EXPECT_EQ(store.Find("t0", "r"), nullptr);
  EXPECT_NE(store.Find("t7", "r"), nullptr);
}

// An archive in a map; what it gives back may be changed.
class MapArchive : public ResponseArchive {
 public:
  void Put(std::string_view tenant, std::string_view id, std::string content) override {
    all[std::string(tenant) + "/" + std::string(id)] = std::move(content);
  }
  std::optional<std::string> Get(std::string_view tenant, std::string_view id) override {
    const auto found = all.find(std::string(tenant) + "/" + std::string(id));
    return found == all.end() ? std::nullopt : std::optional(found->second);
  }
  bool Remove(std::string_view tenant, std::string_view id) override {
    return all.erase(std::string(tenant) + "/" + std::string(id)) > 0;
  }
  std::map<std::string, std::string> all;
};

StoredResponse Conversation() {
  StoredResponse response;
  response.body = R"({"id":"resp_a"})";
  response.items = {{Item::Kind::kMessage, "", "user", "Hi", "", ""},
                    {Item::Kind::kReasoning, "rs_a_0", "", "hm", "", ""},
                    {Item::Kind::kCall, "fc_a_1", "", "{\"x\": 1.0}", "c", "f"},
                    {Item::Kind::kCallOutput, "", "", "\xc3\xa4", "c", ""},
                    {Item::Kind::kCustomCall, "ctc_a_2", "", "x", "d", "g"},
                    {Item::Kind::kCustomOutput, "", "", "ok", "d", ""}};
  response.items[0].pictures = {{0, "\xff\xd8", ""}, {2, "\x89PNG", ""}};
  response.input_end = 1;
  return response;
}

TEST(ResponseStore, AnArchiveRemembersBeyondTheProcess) {
  const auto archive = std::make_shared<MapArchive>();
  ResponseStore(archive).Add("t", "resp_a", Conversation());
  ResponseStore store(archive);
  const auto found = store.Find("t", "resp_a");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->body, Conversation().body);
  ASSERT_EQ(found->items.size(), 6u);
  EXPECT_EQ(found->items[2].text.get(), "{\"x\": 1.0}");
  ASSERT_EQ(found->items[0].pictures.size(), 2u);
  EXPECT_EQ(found->items[0].pictures[1].file.get(), "\x89PNG");
  EXPECT_EQ(found->items[0].pictures[1].content_bytes, 2u);
  EXPECT_EQ(found->input_end, 1u);
  ASSERT_NE(store.FindItem("t", "fc_a_1"), nullptr);
  EXPECT_EQ(store.FindItem("t", "fc_a_1")->name, "f");
  EXPECT_EQ(store.Find("u", "resp_a"), nullptr);
  EXPECT_FALSE(store.Remove("u", "resp_a"));
  EXPECT_TRUE(store.Remove("t", "resp_a"));
  EXPECT_EQ(store.Find("t", "resp_a"), nullptr);
}

TEST(ResponseStore, WhatAnArchiveGivesBackMayBeAnything) {
  const std::string bytes = EncodeResponse(Conversation());
  ASSERT_TRUE(DecodeResponse(bytes).ok());
  EXPECT_EQ(EncodeResponse(*DecodeResponse(bytes)), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeResponse(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeResponse(bytes + '\0').ok());
  const auto refused = [](auto change) {
    StoredResponse response = Conversation();
    change(&response);
    return !DecodeResponse(EncodeResponse(response)).ok();
  };
  EXPECT_TRUE(refused([](StoredResponse* r) { r->body = "no JSON"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->body = "[]"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->input_begin = 2; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->input_end = 7; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].role = "tool"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[1].role = "user"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].text = "\xff"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].pictures[1].content_bytes = 3; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].pictures[0].content_bytes = 3; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[1].pictures = r->items[0].pictures; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[3].pictures = {{1, "x", ""}}; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].kind = static_cast<Item::Kind>(6); }));
}

constexpr char kPath[] = "/v1/responses";
// The last word is what the model goes on with.
constexpr char kInBackground[] = R"({"input": "a", "background": true, "max_output_tokens": 20)";

std::string IdIn(const std::string& answer) {
  const size_t at = answer.find("resp_");
  return at == std::string::npos ? "" : answer.substr(at, answer.find('"', at) - at);
}

TestService::Answer Get(TestService* service, const std::string& path,
                        const std::string& query = "") {
  http::Request request = TestService::MakePost(kPath + path, "");
  request.method = "GET";
  request.query = query;
  return service->Send(std::move(request));
}

bool Has(const TestService::Answer& answer, const std::string& text) {
  return answer.body.find(text) != std::string::npos;
}

std::vector<std::string> Events(const std::string& stream) {
  std::vector<std::string> events;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin) + 2;
    events.push_back(stream.substr(begin, end - begin));
    begin = end;
  }
  return events;
}

TEST(ResponsesInBackground, AreAnsweredAtOnceAndFoundLater) {
  TestService service;
  const auto queued = service.Begin(TestService::MakePost(kPath, std::string(kInBackground) + "}"));
  EXPECT_EQ(queued.status, 200);
  EXPECT_TRUE(Has(queued, R"("status":"queued")")) << queued.body;
  EXPECT_TRUE(Has(queued, R"("background":true)"));
  const std::string id = IdIn(queued.body);
  auto& all = service.service().options().responses->background();
  EXPECT_EQ(all.running(), 1u);
  EXPECT_TRUE(Has(Get(&service, "/" + id), R"("status":"queued")"));
  const auto found = Get(&service, "/" + id);  // everything has run meanwhile
  EXPECT_TRUE(Has(found, R"("status":"incomplete")")) << found.body;
  EXPECT_TRUE(Has(found, "abcdefghijklmnopqrst"));
  EXPECT_EQ(all.running(), 0u);
  EXPECT_EQ(all.Find("local", id), nullptr);
  // It can be continued, and is no stream.
  EXPECT_EQ(service.Post(kPath, R"({"input": "b", "previous_response_id": ")" + id + "\"}").status,
            200);
  EXPECT_EQ(Get(&service, "/" + id, "stream=true").status, 400);
}

TEST(ResponsesInBackground, GoOnWithoutTheirReadersWhoMayComeBack) {
  TestService service;
  const std::string body = std::string(kInBackground) + R"(, "stream": true})";
  const auto whole = service.Post(kPath, body);
  ASSERT_TRUE(whole.streamed);
  const std::vector<std::string> events = Events(whole.body);
  ASSERT_GT(events.size(), 10u);
  EXPECT_EQ(Get(&service, "/" + IdIn(whole.body), "stream=true").body, whole.body);
  for (const size_t seen : {size_t{1}, size_t{4}, events.size() - 1}) {
    const auto part = service.Send(TestService::MakePost(kPath, body), seen);
    ASSERT_EQ(Events(part.body).size(), seen);
    const std::string id = IdIn(part.body);
    EXPECT_TRUE(Has(Get(&service, "/" + id), R"("status":"incomplete")"));
    const auto rest =
        Get(&service, "/" + id, "stream=true&starting_after=" + std::to_string(seen - 1));
    EXPECT_EQ(part.body + rest.body, Get(&service, "/" + id, "stream=true").body);
    EXPECT_TRUE(Has(rest, "event: response.incomplete"));
    EXPECT_TRUE(Has(rest, R"("sequence_number":)" + std::to_string(seen)));
    EXPECT_FALSE(Has(rest, R"("sequence_number":)" + std::to_string(seen - 1) + ","));
  }
  const std::string id = IdIn(whole.body);
  EXPECT_EQ(Get(&service, "/" + id, "stream=true&starting_after=99999").body, "");
  for (const char* wrong : {"x", "-1", "1x", "99999999999999999999"}) {
    EXPECT_EQ(Get(&service, "/" + id, std::string("stream=true&starting_after=") + wrong).status,
              400);
  }
}

TEST(ResponsesInBackground, AReaderComesWhileTheyRun) {
  TestService service;
  const auto post = [](const std::string& body) { return TestService::MakePost(kPath, body); };
  service.Begin(post(std::string(kInBackground) + R"(, "stream": true})"));
  auto& all = service.service().options().responses->background();
  ASSERT_EQ(all.running(), 1u);
  service.SetStalled(true);  // who does not read keeps nobody waiting
  service.Begin(post(std::string(kInBackground) + R"(, "stream": true})"));
  service.Post(kPath, R"({"input": "x"})");
  EXPECT_EQ(all.running(), 0u);
}

TEST(ResponsesInBackground, AreCancelled) {
  TestService service;
  const auto begun = service.Begin(TestService::MakePost(kPath, std::string(kInBackground) + "}"));
  auto& all = service.service().options().responses->background();
  ASSERT_EQ(all.running(), 1u);
  const std::string path = kPath + ("/" + IdIn(begun.body));
  const auto cancelled = service.Post(path + "/cancel", "");
  EXPECT_EQ(cancelled.status, 200);
  EXPECT_TRUE(Has(cancelled, R"("status":"cancelled")")) << cancelled.body;
  EXPECT_EQ(all.running(), 0u);
  EXPECT_EQ(Get(&service, "/" + IdIn(begun.body)).body, cancelled.body);
  EXPECT_EQ(service.Post(path + "/cancel", "").body, cancelled.body);
}

// The service goes while they are computed: nothing is left that holds it.
TEST(ResponsesInBackground, EndWithTheirServer) {
  ServiceOptions options;
  options.responses = std::make_shared<ResponseStore>();
  const std::weak_ptr<ResponseStore> store = options.responses;
  {
    TestService service(std::move(options));
    for (const char* stream : {"false", "true"}) {
      service.Begin(TestService::MakePost(
          kPath, std::string(kInBackground) + R"(, "stream": )" + stream + "}"));
    }
    EXPECT_EQ(service.service().options().responses->background().running(), 2u);
  }
  EXPECT_TRUE(store.expired());
}

TEST(ResponsesInBackground, OthersCannotBeCancelled) {
  TestService service;
  const std::string id = IdIn(service.Post(kPath, R"({"input": "a"})").body);
  EXPECT_EQ(service.Post(kPath + ("/" + id + "/cancel"), "").status, 400);
  EXPECT_EQ(service.Post(std::string(kPath) + "/resp_x/cancel", "").status, 404);
  EXPECT_EQ(service.Post(std::string(kPath) + "/resp_x", "").status, 404);
  const std::string done = IdIn(service.Post(kPath, std::string(kInBackground) + "}").body);
  EXPECT_TRUE(Has(service.Post(kPath + ("/" + done + "/cancel"), ""), R"("status":"incomplete")"));
}

TEST(ResponsesInBackground, AreForgottenWhileTheyRun) {
  TestService service;
  const auto begun = service.Begin(TestService::MakePost(kPath, std::string(kInBackground) + "}"));
  http::Request request = TestService::MakePost(kPath + ("/" + IdIn(begun.body)), "");
  request.method = "DELETE";
  EXPECT_EQ(service.Send(std::move(request)).status, 200);
  EXPECT_EQ(service.service().options().responses->background().running(), 0u);
  EXPECT_EQ(Get(&service, "/" + IdIn(begun.body)).status, 404);
}

TEST(ResponsesInBackground, AreSoManyOfATenant) {
  TestService service;
  int queued = 0;
  int refused = 0;
  for (size_t i = 0; i <= BackgroundReplies::kRunningMax; ++i) {
    const auto answer =
        service.Begin(TestService::MakePost(kPath, std::string(kInBackground) + "}"));
    queued += answer.status == 200;
    refused += answer.status == 429;
  }
  EXPECT_EQ(queued + refused, static_cast<int>(BackgroundReplies::kRunningMax) + 1);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(service.Post(kPath, std::string(kInBackground) + "}").status, 429);
  EXPECT_EQ(service.Post(kPath, std::string(kInBackground) + "}").status, 200);
}

TEST(ResponsesInBackground, EventsAreKeptWithinBounds) {
  BackgroundReplies all;
  size_t bytes = 0;
  std::vector<BackgroundReplyPtr> replies;
  for (int i = 0; i < 8; ++i) {
    BackgroundReply::Parts parts;
    parts.tenant = "t";
    parts.head.id = "resp_" + std::to_string(i);
    parts.streams = true;
    replies.push_back(std::make_shared<BackgroundReply>(parts));
    ASSERT_TRUE(all.Add(replies.back()));
    const auto inner = BackgroundReply::MakeExchange(replies.back(), nullptr);
    for (int event = 0; event < 5; ++event) inner->Send(std::string(size_t{4} << 20, 'x'));
    EXPECT_EQ(replies.back()->bytes(), BackgroundReplies::kEventBytesMax);
    inner->End();
    EXPECT_TRUE(replies.back()->over());
  }
  for (const BackgroundReplyPtr& reply : replies) {
    if (all.Find("t", reply->id())) bytes += reply->bytes();
  }
  EXPECT_EQ(bytes, BackgroundReplies::kEndedBytesMax);
  EXPECT_NE(all.Find("t", "resp_7"), nullptr);
  EXPECT_EQ(all.Find("u", "resp_7"), nullptr);
}

}  // namespace
}  // namespace reprise::api::responses
