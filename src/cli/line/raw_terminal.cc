// SPDX-License-Identifier: Apache-2.0
#include "cli/line/raw_terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace reprise::cli {
namespace {

constexpr char kPasteOn[] = "\x1b[?2004h";
constexpr char kPasteOff[] = "\x1b[?2004l";
constexpr int kSettleMs = 50;  // a sequence comes whole, or within this time
constexpr int kEndings[] = {SIGTERM, SIGHUP, SIGQUIT};

// For the handler of signals: what the terminal was.
termios restored;
volatile sig_atomic_t is_open = 0;

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

void Restore() {
  if (is_open == 0) return;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &restored);
  WriteAll(kPasteOff);
}

void OnEnding(int signal) {
  Restore();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void OnResize(int) {}  // it ends the wait for keys

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

bool RawTerminal::Usable() {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || std::strcmp(kind, "dumb") == 0 || kind[0] == '\0') return false;
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
}

RawTerminal::RawTerminal() {
  ::tcgetattr(STDIN_FILENO, &found_);
  restored = found_;
  is_open = 1;
  for (const int signal : kEndings) Handle(signal, OnEnding);
  Handle(SIGWINCH, OnResize);
  MakeQuiet();
}

RawTerminal::~RawTerminal() {
  Restore();
  is_open = 0;
  for (const int signal : kEndings) ::signal(signal, SIG_DFL);
  ::signal(SIGWINCH, SIG_DFL);
}

// Without TCSAFLUSH: what was typed ahead is not lost.
void RawTerminal::Apply(const termios& mode) { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &mode); }

void RawTerminal::MakeRaw() {
  termios mode = found_;
  mode.c_iflag &= ~tcflag_t(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  mode.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG | IEXTEN);
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  Apply(mode);
  WriteAll(kPasteOn);
}

void RawTerminal::MakeQuiet() {
  termios mode = found_;
  mode.c_iflag &= ~tcflag_t(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  mode.c_lflag &= ~tcflag_t(ECHO | ICANON);
  mode.c_lflag |= ISIG;
  Apply(mode);
}

void RawTerminal::Suspend() {
  Restore();
  ::raise(SIGTSTP);
  MakeRaw();
}

bool RawTerminal::Read(std::vector<Key>* keys) {
  keys->clear();
  for (;;) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, reader_.waits() ? kSettleMs : -1);
    if (ready == 0) {
      reader_.Settle();
      continue;
    }
    if (ready < 0) return errno == EINTR;
    char bytes[65536];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) return true;
    if (count <= 0) return false;
    reader_.Feed({bytes, static_cast<size_t>(count)}, keys);
    if (!keys->empty()) return true;
  }
}

void RawTerminal::Write(std::string_view text) const { WriteAll(text); }

ScreenSize RawTerminal::Size() {
  winsize size = {};
  for (const int file : {STDERR_FILENO, STDOUT_FILENO, STDIN_FILENO}) {
    if (::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return {size.ws_col, size.ws_row > 0 ? size.ws_row : 24};
    }
  }
  return {};
}

}  // namespace reprise::cli
