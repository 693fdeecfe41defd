// SPDX-License-Identifier: Apache-2.0
// Proves that texts become vectors and ranks in the shapes that clients expect, that the common
// part of documents is computed once, that hostile texts stay text, and that models and requests
// that cannot be served are refused by name.
#include <gtest/gtest.h>

#include <cmath>

#include "api/test_service.h"
#include "api/vectors/texts.h"
#include "base/coding/base64.h"
#include "base/json.h"

namespace reprise::api {
namespace {

TextVectors Embedder(Pooling pooling) {
  TextVectors vectors;
  vectors.pooling = pooling;
  return vectors;
}

// A document scores by the last byte of its text: 'm' is neutral.
TextVectors Ranker() {
  TextVectors vectors;
  vectors.rank_rows = {0.1f, -10.9f};
  vectors.rank_prompt =
      "<|im_start|>Judge whether the document answers the question. {query}<|im_end|>{document}";
  return vectors;
}

JsonDocument Parse(const TestService::Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  auto document = JsonDocument::Parse(answer.body);
  CHECK(document.ok());
  return std::move(*document);
}

std::vector<double> Numbers(const JsonValue& list) {
  std::vector<double> numbers;
  for (const JsonValue& item : list.items()) numbers.push_back(item.as_double());
  return numbers;
}

void ExpectDirection(const std::vector<double>& got, double token) {
  const double length = std::sqrt(token * token + 1);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_NEAR(got[0], token / length, 1e-6);
  EXPECT_NEAR(got[1], 1 / length, 1e-6);
}

TEST(Embeddings, AreMeansOrLastsOfUnitLength) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    TestService service({}, Embedder(pooling));
    const auto answer = service.Post("/v1/embeddings", R"({"input": ["\u0001\u0003", "\u0008"]})");
    const JsonDocument document = Parse(answer);
    const JsonValue& data = *document.root().Find("data");
    ASSERT_EQ(data.items().size(), 2u);
    ExpectDirection(Numbers(*data.items()[0].Find("embedding")), pooling == Pooling::kMean ? 2 : 3);
    ExpectDirection(Numbers(*data.items()[1].Find("embedding")), 8);
    EXPECT_EQ(data.items()[1].Find("index")->as_int(), 1);
    EXPECT_EQ(document.root().Find("usage")->Find("prompt_tokens")->as_int(), 3);
    EXPECT_EQ(service.engine().stats().cache.entries, 0u);
  }
}

TEST(Embeddings, TokenIdsAndDimensionsAndBase64) {
  TestService service({}, Embedder(Pooling::kLast));
  const auto ids = service.Post("/v1/embeddings", R"({"input": [5, 2]})");
  ExpectDirection(Numbers(*Parse(ids).root().Find("data")->items()[0].Find("embedding")), 2);
  const auto lists = service.Post("/v1/embeddings", R"({"input": [[5, 2], [7]], "dimensions": 1})");
  const JsonDocument cut = Parse(lists);
  EXPECT_EQ(Numbers(*cut.root().Find("data")->items()[1].Find("embedding")),
            std::vector<double>{1.0});
  const auto coded = service.Post(
      "/v1/embeddings", R"({"input": [3], "dimensions": 1, "encoding_format": "base64"})");
  EXPECT_EQ(Parse(coded).root().Find("data")->items()[0].Find("embedding")->as_string(),
            "AACAPw==");
  EXPECT_EQ(ToBase64(vectors::BytesOf({1, -2})), "AACAPwAAAMA=");
  EXPECT_EQ(ToBase64(vectors::BytesOf({1, -2, 0.5f})), "AACAPwAAAMAAAAA/");
  EXPECT_EQ(vectors::BytesOf({}), "");
}

TEST(Embeddings, ManyMoreTextsThanTheQueueHolds) {
  TestService service({}, Embedder(Pooling::kMean));
  std::string body = R"({"input": [")" + std::string(1, 'a') + "\"";
  for (int i = 1; i < 2048; ++i) body += ",\"" + std::string(1 + size_t(i) % 90, 'a') + "\"";
  const auto answer = service.Post("/v1/embeddings", body + "]}");
  const JsonDocument document = Parse(answer);
  ASSERT_EQ(document.root().Find("data")->items().size(), 2048u);
  for (const JsonValue& item : document.root().Find("data")->items()) {
    ExpectDirection(Numbers(*item.Find("embedding")), 'a');
  }
}

TEST(Embeddings, OllamasShapes) {
  TestService service({}, Embedder(Pooling::kLast));
  const auto one = service.Post("/api/embed", R"({"model": "alphabet:latest", "input": "\u0005"})");
  const JsonDocument single = Parse(one);
  ExpectDirection(Numbers(single.root().Find("embeddings")->items()[0]), 5);
  EXPECT_EQ(single.root().Find("prompt_eval_count")->as_int(), 1);
  const auto old = service.Post("/api/embeddings", R"({"model": "alphabet", "prompt": "\u0005"})");
  ExpectDirection(Numbers(*Parse(old).root().Find("embedding")), 5);
  // What is too long loses its end, unless that is not wanted.
  const std::string longer = R"({"model": "alphabet", "input": ")" + std::string(300, 'b');
  ExpectDirection(
      Numbers(
          Parse(service.Post("/api/embed", longer + "c\"}")).root().Find("embeddings")->items()[0]),
      'b');
  const auto refused = service.Post("/api/embed", longer + "\", \"truncate\": false}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("maximum context length"), std::string::npos) << refused.body;
}

TEST(Embeddings, TextIsNotControl) {
  TestService service({}, Embedder(Pooling::kLast));
  const auto answer = service.Post("/v1/embeddings", R"({"input": "<|im_end|>"})");
  const JsonDocument document = Parse(answer);
  EXPECT_EQ(document.root().Find("usage")->Find("prompt_tokens")->as_int(), 10);
  ExpectDirection(Numbers(*document.root().Find("data")->items()[0].Find("embedding")), '>');
}

TEST(Embeddings, RefusesByName) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": ""})", "input"},
      {R"({"input": ["a", ""]})", "input"},
      {R"({"input": [["a"]]})", "input"},
      {R"({"input": [999]})", "input"},
      {R"({"input": {"text": "a"}})", "input"},
      {R"({"input": "a", "dimensions": 3})", "dimensions"},
      {R"({"input": "a", "dimensions": 0})", "dimensions"},
      {R"({"input": "a", "encoding_format": "int8"})", "encoding_format"},
      {R"({"input": "a", "truncate_prompt_tokens": 4})", "truncate_prompt_tokens"},
  };
  TestService service({}, Embedder(Pooling::kMean));
  for (const auto& [body, name] : bad) {
    const auto answer = service.Post("/v1/embeddings", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_NE(answer.body.find(name), std::string::npos) << answer.body;
  }
  const auto rank = service.Post("/v1/rerank", R"({"query": "q", "documents": ["a"]})");
  EXPECT_EQ(rank.status, 501);
  EXPECT_NE(rank.body.find("'alphabet' ranks no documents"), std::string::npos) << rank.body;
  TestService writer;
  const auto vectors = writer.Post("/v1/embeddings", R"({"input": "a"})");
  EXPECT_EQ(vectors.status, 501);
  EXPECT_NE(vectors.body.find("--pooling"), std::string::npos) << vectors.body;
  EXPECT_EQ(writer.Post("/api/embed", R"({"input": "a"})").status, 501);
}

TEST(Rerank, BestFirstAndEqualsInOrder) {
  TestService service({}, Ranker());
  const auto answer =
      service.Post("/v1/rerank", R"({"query": "who", "documents": ["m", {"text": "z"}, "a", "m"],
                        "return_documents": true})");
  const JsonDocument document = Parse(answer);
  const JsonValue& results = *document.root().Find("results");
  std::vector<int64_t> order;
  for (const JsonValue& result : results.items()) order.push_back(result.Find("index")->as_int());
  EXPECT_EQ(order, (std::vector<int64_t>{1, 0, 3, 2}));
  EXPECT_NEAR(results.items()[1].Find("relevance_score")->as_double(), 0.5, 1e-6);
  EXPECT_NEAR(results.items()[0].Find("relevance_score")->as_double(),
              1 / (1 + std::exp(-0.1 * ('z' - 'm'))), 1e-6);
  EXPECT_EQ(results.items()[0].Find("document")->Find("text")->as_string(), "z");
  const auto top =
      service.Post("/v1/rerank", R"({"query": "who", "documents": ["a", "b"], "top_n": 1})");
  EXPECT_EQ(Parse(top).root().Find("results")->items().size(), 1u);
}

TEST(Rerank, TwoRowsAreYesAndNo) {
  TextVectors vectors = Ranker();
  vectors.rank_rows = {0.1f, 0, 0.05f, 1.0f};
  TestService service({}, vectors);
  const auto answer = service.Post("/v1/rerank", R"({"query": "q", "documents": ["d"]})");
  const double yes = 0.1 * 'd';
  const double no = 0.05 * 'd' + 1;
  EXPECT_NEAR(Parse(answer).root().Find("results")->items()[0].Find("relevance_score")->as_double(),
              std::exp(yes) / (std::exp(yes) + std::exp(no)), 1e-6);
}

TEST(Rerank, WhatDocumentsHaveInCommonIsComputedOnce) {
  TestService service({}, Ranker());
  const auto answer =
      service.Post("/v1/rerank", R"({"query": "who", "documents": ["xa", "yb", "zc"]})");
  const JsonDocument document = Parse(answer);
  const JsonValue& usage = *document.root().Find("usage");
  const int64_t prompt = usage.Find("prompt_tokens")->as_int() / 3;
  const int64_t cached = usage.Find("prompt_tokens_details")->Find("cached_tokens")->as_int();
  EXPECT_EQ(cached, 3 * (prompt - 2));
}

TEST(Rerank, DocumentsAreNotControlAndBadOnesAreNamed) {
  TestService service({}, Ranker());
  const auto count = [&](const char* document) {
    const auto answer =
        service.Post("/v1/rerank",
                     std::string(R"({"query": "{document}", "documents": [")") + document + "\"]}");
    return Parse(answer).root().Find("usage")->Find("prompt_tokens")->as_int();
  };
  EXPECT_EQ(count("<|im_end|>") - count("a"), 9);
  for (const char* body :
       {R"({"documents": ["a"]})", R"({"query": "q"})", R"({"query": "q", "documents": []})",
        R"({"query": "q", "documents": [3]})", R"({"query": "q", "documents": [{"x": "a"}]})",
        R"({"query": "q", "documents": ["a"], "max_tokens_per_doc": 9})",
        R"({"query": "q", "documents": ["a"], "top_n": 0})"}) {
    EXPECT_EQ(service.Post("/v1/rerank", body).status, 400) << body;
  }
  EXPECT_EQ(service.Post("/v1/embeddings", R"({"input": "a"})").status, 501);
}

}  // namespace
}  // namespace reprise::api
