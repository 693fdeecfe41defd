// SPDX-License-Identifier: Apache-2.0
#include "tier/guard/day_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "tier/folder/record_file.h"

namespace reprise {
namespace {

constexpr char kFile[] = "day";
constexpr size_t kDigits = 20;
constexpr size_t kBytes = 2 * kDigits + 2;  // two numbers, a space, the end of the line

bool Parse(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

uint64_t WrittenDay::Now(int64_t now_ms, uint64_t bytes_max) const {
  const auto passed = static_cast<double>(std::max<int64_t>(0, now_ms - at_ms));
  const double back = static_cast<double>(bytes_max) * passed / DayBudget::kDayMs;
  const double left = static_cast<double>(std::min(bytes, bytes_max)) - back;
  return left > 0 ? static_cast<uint64_t>(left) : 0;
}

WrittenDay ReadWrittenDay(int folder_fd) {
  const OpenFile file(::openat(folder_fd, kFile, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::array<char, kBytes> text = {};
  if (file.fd() < 0 || ::pread(file.fd(), text.data(), text.size(), 0) != ssize_t{kBytes}) {
    return {};
  }
  const std::string_view all(text.data(), text.size());
  uint64_t bytes = 0, at_ms = 0;
  if (!Parse(all.substr(0, kDigits), &bytes) || !Parse(all.substr(kDigits + 1, kDigits), &at_ms)) {
    return {};
  }
  return {bytes, static_cast<int64_t>(at_ms)};
}

void RememberWrittenDay(int folder_fd, const WrittenDay& day) {
  const OpenFile file(
      ::openat(folder_fd, kFile, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text =
      fmt::format("{:020} {:020}\n", day.bytes, std::max<int64_t>(0, day.at_ms));
  if (file.fd() >= 0) (void)!::pwrite(file.fd(), text.data(), text.size(), 0);
}

}  // namespace reprise
