// SPDX-License-Identifier: Apache-2.0
// Proves that traces of callers are read as the standard spells them, and that the OpenAPI document
// leaves no route out.
#include <gtest/gtest.h>

#include "api/ops/openapi.h"
#include "api/ops/trace.h"
#include "api/test_service.h"
#include "base/json.h"

namespace reprise::api {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

TEST(Trace, ReadsWhatTheStandardAllowsAndNothingElse) {
  const std::string trace = kTrace;
  const std::string both = trace + "-" + kSpan;
  const auto read = ParseTraceparent("00-" + both + "-01");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trace_id, trace);
  EXPECT_EQ(read->parent_id, kSpan);
  EXPECT_TRUE(read->sampled);
  EXPECT_FALSE(ParseTraceparent("00-" + both + "-00")->sampled);
  EXPECT_FALSE(ParseTraceparent("00-" + both + "-fe")->sampled);
  EXPECT_TRUE(ParseTraceparent("00-" + both + "-0f")->sampled);
  EXPECT_TRUE(ParseTraceparent("cc-" + both + "-01-what-will-the-future-be"));
  const std::string zeros = std::string(32, '0') + "-" + kSpan;
  for (const std::string& wrong :
       {std::string(), "00-" + both, "ff-" + both + "-01", "00-" + both + "-01-x",
        "cc-" + both + "-01.x", "00-" + zeros + "-01", "00-" + trace + "-0000000000000000-01",
        "00-" + trace + "_" + kSpan + "-01",
        "00-0AF7651916cd43dd8448eb211c80319c-" + std::string(kSpan) + "-01",
        "0x-" + both + "-01"}) {
    EXPECT_FALSE(ParseTraceparent(wrong)) << wrong;
  }
  http::Request request;
  const TraceContext fresh = ReadTrace(request);
  EXPECT_EQ(fresh.trace_id.size(), 32u);
  EXPECT_TRUE(fresh.parent_id.empty());
  EXPECT_NE(fresh.trace_id, ReadTrace(request).trace_id);
}

TEST(Trace, PhasesLieEndToEndWithinTheReply) {
  Completion completion;
  completion.queue_ms = 10;
  completion.look_up_ms = 2;
  completion.report.load_ns = 3'000'000;
  completion.report.restore_ns = 1'000'000;
  completion.first_token_ms = 25;
  completion.total_ms = 65;
  ReplyTrace trace;
  trace.Describe(completion);
  EXPECT_EQ(trace.queue_ns, 4'000'000);
  EXPECT_EQ(trace.look_up_ns, 2'000'000);
  EXPECT_EQ(trace.load_ns, 4'000'000);
  EXPECT_EQ(trace.prefill_ns, 15'000'000);
  EXPECT_EQ(trace.decode_ns, 40'000'000);
  completion.report.load_ns = 50'000'000;  // it went on beside the queue
  trace.Describe(completion);
  EXPECT_EQ(trace.queue_ns + trace.look_up_ns + trace.load_ns, 10'000'000);
}

TEST(OpenApi, EveryRouteIsDescribed) {
  TestService service;
  http::Router router;
  service.service().AddRoutes(&router);
  for (const http::Router::Route& route : router.routes()) {
    EXPECT_TRUE(ops::IsDescribed(route.method, route.path)) << route.method << " " << route.path;
  }
  ops::AddOpenApi(&router);
  const std::string text = ops::FormatOpenApi(router);
  const auto document = JsonDocument::Parse(text);
  ASSERT_TRUE(document.ok()) << document.status().message() << text;
  const JsonValue* paths = document->root().Find("paths");
  ASSERT_NE(paths, nullptr);
  EXPECT_NE(paths->Find("/v1/chat/completions"), nullptr);
  EXPECT_NE(paths->Find("/openapi.json"), nullptr);
  EXPECT_EQ(paths->Find("/v1/batches"), nullptr);  // it has none
}

}  // namespace
}  // namespace reprise::api
