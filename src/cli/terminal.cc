// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "weights/memory.h"

namespace reprise::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBarPause = kSecond / 10;
constexpr int64_t kLinePause = 5 * kSecond;
constexpr int kBarWidth = 24;

std::string Duration(double seconds) {
  char text[32];
  const int whole = int(seconds + 0.5);
  if (whole < 100) {
    std::snprintf(text, sizeof(text), "%d s", whole);
  } else {
    std::snprintf(text, sizeof(text), "%d:%02d min", whole / 60, whole % 60);
  }
  return text;
}

}  // namespace

bool StderrIsTerminal() { return ::isatty(STDERR_FILENO) == 1; }

void WriteText(std::string_view text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  if (text.empty()) return;
  if (!terminal) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n' || c == '\t' || (byte >= 0x20 && byte != 0x7F)) std::fputc(c, stdout);
    }
  }
  std::fflush(stdout);
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      terminal_(StderrIsTerminal()),
      start_ns_(SteadyClock().NowNs()),
      shown_ns_(start_ns_) {}

ProgressBar::~ProgressBar() {
  if (open_) std::fputc('\n', stderr);
}

void ProgressBar::Show(uint64_t bytes_done, uint64_t bytes_total) {
  const int64_t now = SteadyClock().NowNs();
  const bool last = bytes_done == bytes_total;
  if (!last && now - shown_ns_ < (terminal_ ? kBarPause : kLinePause)) return;
  shown_ns_ = now;
  const double seconds = double(now - start_ns_) / kSecond;
  const uint64_t moved = bytes_done > begin_bytes_ ? bytes_done - begin_bytes_ : 0;
  const double rate = seconds > 0 ? double(moved) / seconds : 0;
  const double share = bytes_total > 0 ? double(bytes_done) / double(bytes_total) : 1;
  std::string text = label_ + ": " + FormatBytes(bytes_done);
  if (!last) text += " of " + FormatBytes(bytes_total);
  if (seconds >= 0.05) text += ", " + FormatBytes(uint64_t(rate)) + "/s";
  if (last) {
    text += ", " + Duration(seconds);
  } else if (rate > 0) {
    text += ", " + Duration(double(bytes_total - bytes_done) / rate) + " left";
  }
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < int(share * kBarWidth) ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s %s%s", bar.c_str(), text.c_str(), last ? "\n" : "");
  std::fflush(stderr);
  open_ = !last;
}

}  // namespace reprise::cli
