// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace reprise {

// The one log: levels and one sink (stderr by default, chosen by main). Lines never contain
// prompts. Thread safety: all functions may be called from any thread.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = void (*)(LogLevel level, std::string_view line);

void SetLogLevel(LogLevel least);
void SetLogSink(LogSink sink);
bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view line);

}  // namespace reprise
