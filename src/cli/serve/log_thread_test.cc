// SPDX-License-Identifier: Apache-2.0
// Proves that the log waits for nobody who reads it, and tells what it dropped.
#include "cli/serve/log_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/log.h"

namespace reprise::cli {
namespace {

// A pipe, and all that comes out of it before its other end is closed.
struct Pipe {
  Pipe() { CHECK(::pipe(ends) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  std::string ReadAll() {
    ::close(ends[1]);
    ends[1] = -1;
    std::string all;
    char piece[4096];
    for (ssize_t size = 0; (size = ::read(ends[0], piece, sizeof(piece))) > 0;) {
      all.append(piece, static_cast<size_t>(size));
    }
    return all;
  }
  int ends[2];
};

TEST(LogThread, WritesWhatWasLoggedBeforeItEnds) {
  Pipe pipe;
  {
    LogThread thread(pipe.ends[1]);
    thread.Start();
    for (int i = 0; i < 100; ++i) Log(LogLevel::kInfo, "line " + std::to_string(i));
  }
  const std::string all = pipe.ReadAll();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 100);
  EXPECT_LT(all.find("line 0\n"), all.find("line 99\n"));
}

// Without a thread of its own the log would wait for ever here.
TEST(LogThread, WaitsForNoReader) {
  Pipe pipe;
  const std::string text(200, 'x');
  std::string all;
  {
    LogThread thread(pipe.ends[1], 64 << 10);
    thread.Start();
    for (int i = 0; i < 5000; ++i) Log(LogLevel::kInfo, text);
    ASSERT_GT(thread.dropped(), 1000u);
    // Somebody reads again.
    std::string piece(1 << 20, '\0');
    while (all.find("were dropped") == all.npos) {
      Log(LogLevel::kInfo, "after");
      const ssize_t size = ::read(pipe.ends[0], piece.data(), piece.size());
      ASSERT_GT(size, 0);
      all.append(piece, 0, static_cast<size_t>(size));
    }
  }
  EXPECT_NE(all.find("warning: "), all.npos);
  EXPECT_EQ(all.find('\n' + std::string("x")), all.npos) << "lines are whole";
}

TEST(LogThread, EndsWithoutAReader) {
  Pipe pipe;
  LogThread thread(pipe.ends[1]);
  thread.Start();
  for (int i = 0; i < 5000; ++i) Log(LogLevel::kInfo, std::string(100, 'x'));
}

// A reader that went away is no reason to end.
TEST(LogThread, SurvivesItsReader) {
  Pipe pipe;
  ::close(pipe.ends[0]);
  pipe.ends[0] = ::open("/dev/null", O_RDONLY);
  ::signal(SIGPIPE, SIG_IGN);
  LogThread thread(pipe.ends[1]);
  thread.Start();
  for (int i = 0; i < 100; ++i) Log(LogLevel::kInfo, "nobody hears this");
}

}  // namespace
}  // namespace reprise::cli
