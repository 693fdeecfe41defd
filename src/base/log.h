// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace reprise {

// The one log: levels and one sink (stderr by default, chosen by main). Lines never contain
// prompts. Thread safety: all functions may be called from any thread.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines for people, or one JSON object each. Events are JSON in both.
enum class LogFormat { kText, kJson };

using LogSink = void (*)(LogLevel level, std::string_view line);

void SetLogLevel(LogLevel least);
void SetLogFormat(LogFormat format);
void SetLogSink(LogSink sink);  // null: stderr again
bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view line);

// "2025-01-02T03:04:05.678Z info: line", or {"time": ..., "level": ..., "message": line}; the
// members of an event ('{"event": ...}') stand beside the first two.
std::string FormatLogLine(LogFormat format, std::chrono::system_clock::time_point when,
                          LogLevel level, std::string_view line);
// The same for now, in the format that was set, with the end of a line.
std::string StampLogLine(LogLevel level, std::string_view line);

}  // namespace reprise
