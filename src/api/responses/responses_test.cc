// SPDX-License-Identifier: Apache-2.0
// Proves that items become the turns they mean, and that the store keeps to its bounds and to its
// tenants. What clients see is tested with theirs (tests/clients/responses_test.py).
#include <gtest/gtest.h>

#include <map>

#include "api/responses/archive.h"
#include "api/responses/item.h"
#include "api/responses/store.h"

namespace reprise::api::responses {
namespace {

// The turns of an input as one line.
std::string Turns(const std::string& input, const std::string& instructions = "") {
  const auto body = JsonDocument::Parse("{\"input\": " + input + "}");
  EXPECT_TRUE(body.ok()) << body.status().message();
  Fields fields(body->root());
  Items items;
  ReadInput(
      ServiceOptions(), [](std::string_view) { return nullptr; }, &fields, &items);
  if (!fields.ok()) return fields.error()->param + " " + fields.error()->message;
  std::string out;
  for (const ChatTurn& turn : MakeTurns(instructions, items)) {
    out += turn.role + "(" + turn.content + ")";
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
                    {Item::Kind::kCallOutput, "", "", "\xc3\xa4", "c", ""}};
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
  ASSERT_EQ(found->items.size(), 4u);
  EXPECT_EQ(found->items[2].text.get(), "{\"x\": 1.0}");
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
  EXPECT_TRUE(refused([](StoredResponse* r) { r->input_end = 5; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].role = "tool"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[1].role = "user"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].text = "\xff"; }));
  EXPECT_TRUE(refused([](StoredResponse* r) { r->items[0].kind = static_cast<Item::Kind>(4); }));
}

}  // namespace
}  // namespace reprise::api::responses
