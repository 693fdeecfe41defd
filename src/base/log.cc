// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "base/json.h"

namespace reprise {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

std::atomic<LogLevel> g_least{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};

void WriteToStderr(LogLevel level, std::string_view line) {
  const std::string text = StampLogLine(level, line);
  std::fwrite(text.data(), 1, text.size(), stderr);  // in one piece, so that lines do not mix
}

std::atomic<LogSink> g_sink{WriteToStderr};

// 2025-01-02T03:04:05.678Z
std::string FormatTime(std::chrono::system_clock::time_point when) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm time = {};
  ::gmtime_r(&seconds, &time);
  char text[40];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &time);
  std::snprintf(text + length, sizeof(text) - length, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

}  // namespace

std::string FormatLogLine(LogFormat format, std::chrono::system_clock::time_point when,
                          LogLevel level, std::string_view line) {
  const char* const name = kNames[static_cast<int>(level)];
  if (format == LogFormat::kText) return FormatTime(when) + " " + name + ": " + std::string(line);
  std::string json = "{\"time\":\"" + FormatTime(when) + "\",\"level\":\"" + name + "\",";
  if (line.size() > 2 && line.front() == '{' && line.back() == '}') {
    return json + std::string(line.substr(1));
  }
  json += "\"message\":";
  AppendJsonString(line, &json);
  return json + "}";
}

std::string StampLogLine(LogLevel level, std::string_view line) {
  return FormatLogLine(g_format, std::chrono::system_clock::now(), level, line) + "\n";
}

void SetLogLevel(LogLevel least) { g_least = least; }
void SetLogFormat(LogFormat format) { g_format = format; }
void SetLogSink(LogSink sink) { g_sink = sink != nullptr ? sink : WriteToStderr; }
bool LogEnabled(LogLevel level) { return level >= g_least.load(std::memory_order_relaxed); }

void Log(LogLevel level, std::string_view line) {
  if (LogEnabled(level)) g_sink.load()(level, line);
}

}  // namespace reprise
