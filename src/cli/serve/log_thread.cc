// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/log_thread.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace reprise::cli {
namespace {

// A pipe that has room at all takes this much without waiting (PIPE_BUF).
constexpr size_t kPieceBytes = 4096;
constexpr int kPollMs = 50;
constexpr int kLastPollsMax = 20;  // after the end: a second without a reader

std::atomic<LogThread*> g_thread{nullptr};

}  // namespace

LogThread::LogThread(int file, size_t bytes_max) : file_(file), bytes_max_(bytes_max) {}

void LogThread::Start() {
  CHECK(g_thread.exchange(this) == nullptr);
  SetLogSink([](LogLevel level, std::string_view line) { g_thread.load()->Add(level, line); });
  thread_ = std::thread([this] { Run(); });
}

LogThread::~LogThread() {
  if (!thread_.joinable()) return;
  SetLogSink(nullptr);
  g_thread = nullptr;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

uint64_t LogThread::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void LogThread::Add(LogLevel level, std::string_view line) {
  const std::string text = StampLogLine(level, line);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + text.size() > bytes_max_) {
      ++dropped_;
      return;
    }
    if (dropped_ > dropped_told_) {
      waiting_ += StampLogLine(LogLevel::kWarning,
                               std::to_string(dropped_ - dropped_told_) +
                                   " log lines were dropped: the reader of the log was too slow");
      dropped_told_ = dropped_;
    }
    waiting_ += text;
  }
  wake_.notify_one();
}

void LogThread::Run() {
  for (;;) {
    std::string text;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      text.swap(waiting_);
    }
    if (!Write(text)) return;
  }
}

// The file itself stays as it is: others may have it open, too, and not expect it to refuse.
bool LogThread::Write(std::string_view text) {
  for (int last_polls = 0; !text.empty();) {
    pollfd ready = {.fd = file_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, kPollMs) == 0) {
      const std::lock_guard lock(mutex_);
      if (over_ && ++last_polls > kLastPollsMax) return false;
      continue;
    }
    const ssize_t written = ::write(file_, text.data(), std::min(text.size(), kPieceBytes));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return true;  // nobody will ever read it
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  return true;
}

}  // namespace reprise::cli
