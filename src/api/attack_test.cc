// SPDX-License-Identifier: Apache-2.0
// What attacks cost: every allocation of this program is counted, and so is the work of requests.
// Each attack took hundreds of MiB or seconds once. None of them may have more than its bound, and
// all of it is given back; what they cost is asserted in bytes and steps, never in seconds.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "api/chat/prompt.h"
#include "api/constrain/constraints.h"
#include "api/responses/request.h"
#include "api/test_service.h"
#include "base/json.h"

namespace {

std::atomic<size_t> live_bytes{0};
std::atomic<size_t> peak_bytes{0};

void* CountedNew(size_t bytes) {
  void* const place = std::malloc(bytes);
  if (place == nullptr) std::abort();
  const size_t live = live_bytes += malloc_usable_size(place);
  size_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return place;
}

void CountedDelete(void* place) {
  if (place != nullptr) live_bytes -= malloc_usable_size(place);
  std::free(place);
}

}  // namespace

void* operator new(size_t bytes) { return CountedNew(bytes); }
void* operator new[](size_t bytes) { return CountedNew(bytes); }
void operator delete(void* place) noexcept { CountedDelete(place); }
void operator delete[](void* place) noexcept { CountedDelete(place); }
void operator delete(void* place, size_t) noexcept { CountedDelete(place); }
void operator delete[](void* place, size_t) noexcept { CountedDelete(place); }

namespace reprise::api {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kCompletions[] = "/v1/completions";
constexpr size_t kMiB = size_t{1} << 20;

// What is allocated from here on.
class Meter {
 public:
  Meter() : before_(live_bytes) { peak_bytes = live_bytes.load(); }
  size_t peak() const { return peak_bytes - before_; }
  size_t left() const { return live_bytes > before_ ? live_bytes - before_ : 0; }

 private:
  const size_t before_;
};

void Print(const char* name, const Meter& meter, uint64_t work) {
  std::printf("  %-32s %6.1f MiB at most, %5.1f left, %8.3f million steps\n", name,
              static_cast<double>(meter.peak()) / kMiB, static_cast<double>(meter.left()) / kMiB,
              static_cast<double>(work) / 1e6);
}

// A chat that is held to a schema of so many patterns, none of which says much on its own.
std::string ChatWithPatterns(int count, const std::string& end, const std::string& more = "") {
  std::string patterns;
  for (int i = 0; i < count; ++i) {
    patterns += (i > 0 ? "," : "") + (R"({"pattern": "^(a|b|ab|ba){0,)" + std::to_string(50 + i)) +
                "}.*x" + std::to_string(i) + end + R"("})";
  }
  return R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, )" + more +
         R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
            {"type": "string", "allOf": [)" +
         patterns + "]}}}}";
}

TextVectors Ranker() {
  TextVectors vectors;
  vectors.rank_rows = {0.1f, -10.9f};
  vectors.rank_prompt = "<|im_start|>{query}<|im_end|>{document}";
  return vectors;
}

std::string Repeated(std::string_view text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// A thousand bytes that take a hundred milliseconds: on a thread for small requests they take no
// more than a small request may, and the second time they take nothing.
TEST(Attack, ASchemaThatIsRefusedIsCompiledOnce) {
  TestService service;
  const std::string body = ChatWithPatterns(20, "");
  const Meter meter;
  const auto first = service.Post(kChat, body);
  EXPECT_EQ(first.status, 400) << first.body;
  EXPECT_NE(first.body.find("response_format"), std::string::npos) << first.body;
  EXPECT_EQ(first.restarts, 1) << "it is no small request";
  Print("a schema of 20 patterns", meter, first.work);
  EXPECT_LE(first.work, 10'000'000u);
  EXPECT_LE(meter.peak(), 64 * kMiB);
  const size_t compilations = service.service().constraints().compilations();
  for (int i = 0; i < 16; ++i) {
    const auto again = service.Post(kChat, body);
    EXPECT_EQ(again.body, first.body);
    EXPECT_EQ(again.restarts, 0);
    EXPECT_LE(again.work, Account::Limits().small_work);
  }
  EXPECT_EQ(service.service().constraints().compilations(), compilations);
}

// Ordinary schemas are small requests, also the first time, once there is a vocabulary for them.
TEST(Attack, OrdinarySchemasAreSmallRequests) {
  TestService service;
  for (const char* name : {"a", "b", "c"}) {
    const auto answer = service.Post(
        kChat, R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4,
          "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
          {"type": "object", "properties": {")" +
                   std::string(name) +
                   R"(": {"type": "string"}, "n": {"type": "integer", "minimum": 3},
          "date": {"type": "string", "format": "date"}}, "required": ["n"]}}}})");
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.restarts, 0);
  }
}

// Languages that replies follow are held in the ledger: there are as many as it has room for, the
// others are told to come again, and none stays that nobody keeps.
TEST(Attack, GrammarsInUseAreBoundedInBytes) {
  TestService service;
  service.SetLedger({.bytes = 160 * kMiB, .share_bytes = 80 * kMiB});
  const Meter meter;
  std::vector<http::Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(TestService::MakePost(
        kChat, ChatWithPatterns(6, ".*y" + std::to_string(i), R"("stream": true, )")));
  }
  int served = 0;
  uint64_t work = 0;
  for (const auto& answer : service.SendAll(std::move(requests))) {
    work += answer.work;
    served += answer.status == 200;
    if (answer.status == 200) continue;
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_NE(answer.body.find("no memory left"), std::string::npos) << answer.body;
  }
  Print("12 schemas of 6 patterns", meter, work);
  EXPECT_GE(served, 1);
  EXPECT_LT(served, 12);
  EXPECT_LE(service.ledger().bytes_most(), 80 * kMiB);
  EXPECT_LE(meter.peak(), 160 * kMiB);
  // Those that are only kept make way for others.
  for (int i = 100; i < 104; ++i) {
    const auto answer = service.Post(kChat, ChatWithPatterns(6, ".*z" + std::to_string(i)));
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  EXPECT_LE(service.ledger().bytes(), 80 * kMiB);
}

TEST(Attack, RerankOfWhatCannotFitReadsNoMore) {
  TestService service({}, Ranker());
  const std::string body = R"({"query": ")" + Repeated("word ", kMiB) + R"(", "documents": ["a")" +
                           Repeated(R"(,"a")", 299) + "]}";
  const Meter meter;
  const auto answer = service.Post("/v1/rerank", body);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("context_length_exceeded"), std::string::npos) << answer.body;
  Print("rerank of 5 MiB, 300 documents", meter, answer.work);
  EXPECT_LE(answer.work, 4'000'000u) << "one document is read, not all";
  EXPECT_LE(meter.peak(), 64 * kMiB);
}

// A reference is a pointer, not a copy; and the text that it stands for is paid for before it is
// put together.
TEST(Attack, ReferencesShareTheirText) {
  const auto ledger = std::make_shared<Ledger>(Ledger::Limits{64 * kMiB, 64 * kMiB});
  Account account(ledger, "t", {.bytes = 64 * kMiB});
  const Tenant tenant{"t", "", 1, false, nullptr};
  responses::ResponseStore store;
  responses::StoredResponse stored;
  stored.items = {{responses::Item::Kind::kMessage, "msg_a_0", "assistant",
                   std::string(size_t{29} << 10, 'x'), "", ""}};
  store.Add(tenant.name, "resp_a", std::move(stored));
  const std::string reference = R"({"type": "item_reference", "id": "msg_a_0"})";
  const auto read = [&](Fields* fields) {
    return responses::ReadResponsesRequest(ServiceOptions(), 258, store, tenant, &account, fields);
  };
  const auto body = [&](size_t count) {
    auto parsed = JsonDocument::Parse(R"({"input": [)" + reference +
                                      Repeated("," + reference, count - 1) + "]}");
    CHECK(parsed.ok());
    return std::move(*parsed);
  };
  const JsonDocument many = body(16384);
  const Meter meter;
  Fields refused(many.root());
  (void)read(&refused);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error()->param, "input");
  EXPECT_NE(refused.error()->message.find("memory"), std::string::npos) << refused.error()->message;
  Print("16,384 references to 29 KiB", meter, account.work());
  EXPECT_LE(meter.peak(), 16 * kMiB);
  account.EndReading();
  const JsonDocument two = body(2);
  Fields fields(two.root());
  const responses::ResponsesRequest request = read(&fields);
  ASSERT_TRUE(fields.ok());
  ASSERT_EQ(request.conversation.items.size(), 2u);
  EXPECT_EQ(request.conversation.items[0].text.get().data(),
            request.conversation.items[1].text.get().data());
}

// Choices share their stop strings, and those that wait for their turn have nothing.
TEST(Attack, ChoicesShareTheirStops) {
  TestService service;
  std::string stops;
  for (int i = 0; i < 16; ++i) {
    stops += (i > 0 ? ",\"" : "\"") + std::string(4090, static_cast<char>('a' + i)) + "\"";
  }
  const Meter meter;
  std::vector<http::Request> requests;
  for (int i = 0; i < 25; ++i) {
    requests.push_back(TestService::MakePost(
        kCompletions, R"({"prompt": "a", "n": 128, "max_tokens": 2, "stop": [)" + stops + "]}"));
  }
  uint64_t work = 0;
  for (const auto& answer : service.SendAll(std::move(requests))) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    work += answer.work;
  }
  Print("25 bodies with 16 stops, n = 128", meter, work);
  EXPECT_LE(meter.peak(), 48 * kMiB);
  EXPECT_GE(service.ledger().bytes_most(), size_t{25} * 16 * 4090) << "each paid for its own";
  EXPECT_EQ(service.ledger().bytes(), 0u);
}

TEST(Attack, APromptThatCannotFitIsNotTokenised) {
  TestService service;
  const std::string text(30 * kMiB, 'a');
  const auto body = TestService::MakePost(kCompletions, R"({"prompt": ")" + text + "\"}");
  const Meter meter;
  const auto answer = service.Send(body);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("context_length_exceeded"), std::string::npos) << answer.body;
  Print("a prompt of 30 MiB", meter, answer.work);
  EXPECT_LE(answer.work, 1'000'000u);
  EXPECT_LE(meter.peak(), 5 * text.size()) << "body and JSON, twice the size for the latter";
}

// Wherever a text stands: what lies around a gap is a prompt, too.
TEST(Attack, TextsAroundAGapThatCannotFitAreNotTokenised) {
  TestService service;
  const std::string text(10 * kMiB, 'a');
  for (const auto& [path, before, after] :
       std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {kCompletions, R"({"prompt": "a", "suffix": ")", "\"}"},
           {kCompletions, R"({"suffix": "a", "prompt": ")", "\"}"},
           {"/infill", R"({"input_prefix": ")", R"(", "input_suffix": "a"})"},
           {"/infill", R"({"input_prefix": "a", "input_suffix": ")", "\"}"},
           {"/infill", R"({"input_prefix": "a", "input_suffix": "a", "prompt": ")", "\"}"},
           {"/infill", R"({"input_prefix": "a", "input_suffix": "a", "input_extra": [{"text": ")",
            "\"}]}"},
           {"/api/generate", R"({"prompt": "a", "suffix": ")", "\"}"}}) {
    const auto request = TestService::MakePost(path, before + text + after);
    const Meter meter;
    const auto answer = service.Send(request);
    EXPECT_EQ(answer.status, 400) << path << before;
    EXPECT_NE(answer.body.find("context length"), std::string::npos) << answer.body;
    Print(path, meter, answer.work);
    EXPECT_LE(answer.work, 500'000u) << path << before;
    EXPECT_LE(meter.peak(), 5 * text.size()) << path << before << ": body, JSON, a copy";
  }
}

// An answer may be many times as long as its request: it is paid for.
TEST(Attack, LongAnswersOfShortRequestsArePaidFor) {
  constexpr size_t kCount = 100'000;
  const auto held = [](const char* path, const std::string& body) {
    TestService service;
    const auto answer = service.Post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body.substr(0, 200);
    return service.ledger().bytes_most();
  };
  const auto tokens = [&](const char* id) {
    return held("/detokenize",
                R"({"tokens": [)" + Repeated(std::string(id) + ",", kCount - 1) + id + "]}");
  };
  EXPECT_GE(tokens("256"), tokens("100") + 10 * kCount) << "a token of one byte, and of many";
  const auto pieces = [&](const char* with) {
    return held("/tokenize", R"({"content": ")" + std::string(kCount, 'a') +
                                 R"(", "with_pieces": )" + with + "}");
  };
  EXPECT_GE(pieces("true "), pieces("false") + 20 * kCount);
}

// What reads a text to its end asks now and then whether anybody waits for it.
TEST(Attack, NobodyTokenisesForAClientThatLeft) {
  TestService service;
  const ServedModel& model = service.service().model();
  Account account(std::make_shared<Ledger>(), "t", {});
  account.Widen();
  int asked = 0;
  account.SetAbandoned([&asked] { return ++asked > 3; });
  Prompt prompt;
  const Status status =
      EncodeText(model, Repeated("word ", kMiB), {true, true}, Wanted::kAll, &account, &prompt);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(prompt.ids.empty());
  EXPECT_LE(asked, 4);
}

// Whatever is sent, in any order: what requests hold stays within the ledger, and when all have
// been answered it is empty.
TEST(Attack, WhatRequestsHoldIsGivenBack) {
  TestService service({}, Ranker());
  service.SetLedger({.bytes = 8 * kMiB, .share_bytes = 6 * kMiB});
  const std::string text = Repeated("word ", 20'000);
  std::vector<http::Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(TestService::MakePost(
        kChat, R"({"messages": [{"role": "user", "content": ")" + text + "\"}]}"));
    requests.push_back(TestService::MakePost(kCompletions, R"({"prompt": ")" + text + "\"}"));
    requests.push_back(TestService::MakePost(
        "/v1/rerank", R"({"query": "q", "documents": ["a", "b", ")" + text + "\"]}"));
    requests.push_back(TestService::MakePost(kChat, R"({"n": 128, "max_tokens": 3, "messages":
        [{"role": "user", "content": "Hi"}]})"));
    requests.push_back(TestService::MakePost("/v1/responses", R"({"input": "Hi"})"));
    requests.push_back(TestService::MakePost("/tokenize", R"({"content": ")" + text + "\"}"));
  }
  for (const auto& answer : service.SendAll(std::move(requests))) {
    EXPECT_TRUE(answer.status == 200 || answer.status == 400 || answer.status == 503)
        << answer.status << answer.body;
  }
  EXPECT_LE(service.ledger().bytes_most(), 6 * kMiB);
  EXPECT_EQ(service.ledger().bytes(), 0u);
}

}  // namespace
}  // namespace reprise::api
