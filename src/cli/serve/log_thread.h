// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/log.h"

namespace reprise::cli {

// From its start to its end a thread of its own writes the log: whoever reads it (a pipe, a
// terminal, a full disk) delays nobody who has something to say. What finds no room is dropped and
// counted, and a line tells so as soon as there is room again. Its end waits for a reader, but not
// for long.
//
// At most one at a time; ended when no other thread logs any more. Thread safety: Log may be called
// from any thread.
class LogThread {
 public:
  static constexpr size_t kBytesMax = size_t{1} << 20;

  explicit LogThread(int file, size_t bytes_max = kBytesMax);
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

  void Start();
  void Add(LogLevel level, std::string_view line);
  uint64_t dropped() const;  // lines, so far

 private:
  void Run();
  // False if nobody has read for too long after the end.
  bool Write(std::string_view text);

  const int file_;
  const size_t bytes_max_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string waiting_;  // whole lines
  uint64_t dropped_ = 0;
  uint64_t dropped_told_ = 0;  // of them, in lines of the log
  bool over_ = false;
  std::thread thread_;
};

}  // namespace reprise::cli
