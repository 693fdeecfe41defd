// SPDX-License-Identifier: Apache-2.0
#include "weights/memory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/mapped_file.h"
#include "device/joined/joined_memory.h"

namespace reprise {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr uint64_t kUnlimited = uint64_t{1} << 60;  // version 1 writes a huge number for none

std::string ReadOrEmpty(const std::string& path) {
  Result<std::string> text = ReadFile(path, kFileBytesMax);
  return text.ok() ? std::move(text).value() : std::string();
}

// The number that `text` begins with, after spaces.
std::optional<uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// What comes before the first `separator`; both are taken from the front of `text`.
std::string_view TakeUntil(char separator, std::string_view* text) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view taken = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return taken;
}

// The number after `key` at the start of a line.
std::optional<uint64_t> FindLine(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = TakeUntil('\n', &text);
    if (line.substr(0, key.size()) == key) return ParseNumber(line.substr(key.size()));
  }
  return std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;  // key in memory.stat
};
constexpr GroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                               "total_inactive_file "};
constexpr GroupFiles kVersion2{"/memory.max", "/memory.current", "inactive_file "};

// What a control group leaves; nothing if it sets no limit.
std::optional<uint64_t> LeftInGroup(const std::string& folder, const GroupFiles& files) {
  const std::optional<uint64_t> limit = ParseNumber(ReadOrEmpty(folder + files.limit));
  if (!limit || *limit >= kUnlimited) return std::nullopt;
  const uint64_t used = ParseNumber(ReadOrEmpty(folder + files.used)).value_or(0);
  const std::string stat = ReadOrEmpty(folder + "/memory.stat");
  const uint64_t reclaimable = std::min(used, FindLine(stat, files.reclaimable).value_or(0));
  const uint64_t held = used - reclaimable;
  return *limit > held ? *limit - held : 0;
}

// A limit may stand on any group from this process's own up to the top. Inside a container the
// path may name folders that only the host sees; then the top is what we can read.
void ApplyGroups(const std::string& top, std::string path, const GroupFiles& files,
                 AvailableMemory* available) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::optional<uint64_t> left = LeftInGroup(top + path, files);
    if (left && *left < available->bytes) {
      *available = {*left, "the memory limit of this container (cgroup)"};
    }
    if (path.empty()) return;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

}  // namespace

AvailableMemory FindAvailableMemory(const std::string& root) {
  AvailableMemory available;
  const std::string meminfo = ReadOrEmpty(root + "/proc/meminfo");
  if (const std::optional<uint64_t> kib = FindLine(meminfo, "MemAvailable:")) {
    available = {*kib * 1024, "this machine"};
  }
  // Lines "0::/path" (version 2) and "4:memory:/path" (version 1).
  const std::string groups = ReadOrEmpty(root + "/proc/self/cgroup");
  for (std::string_view rest = groups; !rest.empty();) {
    const std::string_view line = TakeUntil('\n', &rest);
    std::string_view path = line;
    TakeUntil(':', &path);
    std::string_view controllers = TakeUntil(':', &path);
    if (path.empty()) continue;
    if (controllers.empty()) {
      ApplyGroups(root + "/sys/fs/cgroup", std::string(path), kVersion2, &available);
    }
    while (!controllers.empty()) {
      if (TakeUntil(',', &controllers) != "memory") continue;
      ApplyGroups(root + "/sys/fs/cgroup/memory", std::string(path), kVersion1, &available);
    }
  }
  return available;
}

AvailableMemory FindAvailableMemory(const DeviceMemory& memory) {
  if (&memory == &HostMemory()) return FindAvailableMemory();
  if (const auto* joined = dynamic_cast<const JoinedMemory*>(&memory)) {
    const auto free = [](const DeviceMemory& one) { return FindAvailableMemory(one).bytes; };
    return {joined->Room(free), "the memory of the devices"};
  }
  return {memory.capacity().free, "the memory of the device"};
}

Status CheckFits(uint64_t bytes, std::string_view purpose, const AvailableMemory& available) {
  if (bytes <= available.bytes) return OkStatus();
  return ResourceExhausted(std::string(purpose) + " need " + FormatBytes(bytes) +
                           " of memory, but " + std::string(available.limited_by) + " has " +
                           FormatBytes(available.bytes) +
                           " left: take a smaller model or a smaller type (--weights q4_0)");
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace reprise
