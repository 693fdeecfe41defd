// SPDX-License-Identifier: Apache-2.0
// Proves what a line of the log looks like, for people and for programs.
#include "base/log.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace reprise {
namespace {

TEST(Log, LinesHaveTimeAndLevel) {
  const std::chrono::system_clock::time_point when(std::chrono::milliseconds(1735787045678));
  EXPECT_EQ(FormatLogLine(LogFormat::kText, when, LogLevel::kInfo, "ready"),
            "2025-01-02T03:04:05.678Z info: ready");
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, when, LogLevel::kWarning, "a \"b\"\n"),
            R"({"time":"2025-01-02T03:04:05.678Z","level":"warning","message":"a \"b\"\n"})");
  const std::string event =
      FormatLogLine(LogFormat::kJson, when, LogLevel::kInfo, R"({"event":"http","status":200})");
  EXPECT_EQ(event,
            R"({"time":"2025-01-02T03:04:05.678Z","level":"info","event":"http","status":200})");
  for (const char* line : {"", "{", "{}", "}", "\xff", "{\"event\":1}"}) {
    const std::string json = FormatLogLine(LogFormat::kJson, when, LogLevel::kError, line);
    EXPECT_TRUE(JsonDocument::Parse(json).ok()) << json;
  }
}

}  // namespace
}  // namespace reprise
