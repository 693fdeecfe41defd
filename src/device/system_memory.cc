// SPDX-License-Identifier: Apache-2.0
#include "device/system_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/mapped_file.h"

namespace reprise {
namespace {

constexpr size_t kProcFileMax = size_t{1} << 20;

// The number after `label` in a file of "label number ..." lines; at the start if `label` is empty.
std::optional<size_t> ReadNumber(const std::string& path, std::string_view label) {
  const Result<std::string> text = ReadFile(path, kProcFileMax);
  if (!text.ok()) return std::nullopt;
  const size_t at = text->find(label);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = text->c_str() + at + label.size();
  char* end = nullptr;
  const unsigned long long value = std::strtoull(begin, &end, 10);
  if (end == begin) return std::nullopt;
  return size_t{value};
}

// What a control group (version 2) leaves; file pages count as used there but can be dropped.
std::optional<size_t> ControlGroupRoom(const std::string& folder) {
  const auto limit = ReadNumber(folder + "/memory.max", "");
  const auto used = ReadNumber(folder + "/memory.current", "");
  if (!limit || !used) return std::nullopt;
  const size_t droppable = ReadNumber(folder + "/memory.stat", "\ninactive_file ").value_or(0);
  const size_t held = *used - std::min(*used, droppable);
  return *limit - std::min(*limit, held);
}

}  // namespace

size_t AvailableMemoryBytes() {
  size_t available = SIZE_MAX;
  if (const auto kilobytes = ReadNumber("/proc/meminfo", "MemAvailable:")) {
    available = *kilobytes * 1024;
  }
  if (const auto room = ControlGroupRoom("/sys/fs/cgroup")) available = std::min(available, *room);
  return available;
}

size_t ResidentMemoryBytes() {
  const Result<std::string> text = ReadFile("/proc/self/statm", kProcFileMax);
  if (!text.ok()) return 0;
  const size_t space = text->find(' ');
  if (space == std::string::npos) return 0;
  return size_t{std::strtoull(text->c_str() + space, nullptr, 10)} *
         static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

std::string FormatBytes(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof(text), "%.*f %s", decimals, value, kUnits[unit]);
  return text;
}

}  // namespace reprise
