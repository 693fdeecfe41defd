// SPDX-License-Identifier: Apache-2.0
#include "cli/line/history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "cli/line/key_reader.h"

namespace reprise::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;

std::string Escape(std::string_view text) {
  std::string line;
  for (const char byte : text) {
    if (byte == '\\' || byte == '\n') line += '\\';
    line += byte == '\n' ? 'n' : byte;
  }
  return line + "\n";
}

std::string Unescape(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    text += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return CleanText(text);
}

}  // namespace

std::string HistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/reprise/history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return "";
  return std::string(home) + "/.local/state/reprise/history";
}

History::History(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) Read();
}

void History::Read() {
  struct stat status = {};
  if (::stat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  const auto text = ReadFile(path_, kFileBytesMax);
  if (!text.ok()) return;
  size_t lines = 0;
  for (size_t at = 0; at < text->size(); ++lines) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    at = end + 1;
    if (line.empty() || line.size() > 2 * kEntryBytesMax) continue;
    entries_.push_back(Unescape(line));
    if (entries_.size() > kEntriesMax) entries_.pop_front();
  }
  if (lines > 2 * kEntriesMax) Write(true);
}

void History::Add(std::string_view entry) {
  if (entry.empty() || entry.size() > kEntryBytesMax) return;
  if (!entries_.empty() && entries_.back() == entry) return;
  entries_.emplace_back(entry);
  if (entries_.size() > kEntriesMax) entries_.pop_front();
  if (!path_.empty()) Write(false);
}

// The last entry behind those in the file, or all of them in its place.
void History::Write(bool all) const {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const std::string path = all ? path_ + ".new" : path_;
  const int file = ::open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (all ? O_TRUNC : O_APPEND), 0600);
  if (file < 0) return;
  ::fchmod(file, 0600);
  std::string text;
  for (size_t i = all ? 0 : entries_.size() - 1; i < entries_.size(); ++i) {
    text += Escape(entries_[i]);
  }
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  if (all && written) std::filesystem::rename(path, path_, error);
}

}  // namespace reprise::cli
