// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace reprise {
namespace {

void WriteToStderr(LogLevel level, std::string_view line) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  std::fprintf(stderr, "%s: %.*s\n", kNames[static_cast<int>(level)], static_cast<int>(line.size()),
               line.data());
}

std::atomic<LogLevel> g_least{LogLevel::kInfo};
std::atomic<LogSink> g_sink{WriteToStderr};

}  // namespace

void SetLogLevel(LogLevel least) { g_least = least; }
void SetLogSink(LogSink sink) { g_sink = sink; }
bool LogEnabled(LogLevel level) { return level >= g_least.load(std::memory_order_relaxed); }

void Log(LogLevel level, std::string_view line) {
  if (LogEnabled(level)) g_sink.load()(level, line);
}

}  // namespace reprise
