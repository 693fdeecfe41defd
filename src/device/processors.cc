// SPDX-License-Identifier: Apache-2.0
#include "device/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"

namespace reprise {
namespace {

constexpr size_t kFileBytesMax = 1 << 16;

std::string ReadOrEmpty(const std::string& path) {
  Result<std::string> text = ReadFile(path, kFileBytesMax);
  return text.ok() ? std::move(text).value() : std::string();
}

// The positive number that `text` begins with; both are taken from its front.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || value <= 0) return std::nullopt;
  text->remove_prefix(size_t(parsed.ptr - text->data()));
  return value;
}

// CPUs of a quota of time per period; nothing if there is no limit ("max", -1).
std::optional<int64_t> CpusOf(std::string_view quota, std::string_view period) {
  const std::optional<int64_t> granted = TakeNumber(&quota);
  // Version 2 has both numbers in one line.
  const std::optional<int64_t> of = TakeNumber(period.empty() ? &quota : &period);
  if (!granted || !of) return std::nullopt;
  return *granted / *of + (*granted % *of != 0 ? 1 : 0);
}

// A limit may stand on any group from this process's own up to the top. Inside a container the path
// may name folders that only the host sees; then the top is what we can read.
void ApplyGroups(const std::string& top, std::string path, bool version1, int64_t* at_once) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string folder = top + path;
    const std::optional<int64_t> cpus = version1
                                            ? CpusOf(ReadOrEmpty(folder + "/cpu.cfs_quota_us"),
                                                     ReadOrEmpty(folder + "/cpu.cfs_period_us"))
                                            : CpusOf(ReadOrEmpty(folder + "/cpu.max"), "");
    if (cpus) *at_once = std::min(*at_once, *cpus);
    if (path.empty()) return;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

std::vector<int> AffinityMask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

// The first of the CPUs that share a core with `cpu` ("0,64", "2-3"), which names the core.
int CoreOf(const std::string& root, int cpu) {
  const std::string siblings = ReadOrEmpty(root + "/sys/devices/system/cpu/cpu" +
                                           std::to_string(cpu) + "/topology/thread_siblings_list");
  int first = 0;
  const char* end = siblings.data() + siblings.size();
  const auto parsed = std::from_chars(siblings.data(), end, first);
  return parsed.ec == std::errc() && first >= 0 ? first : cpu;
}

// Sets cpus and cores.
void FindCores(const std::string& root, const std::vector<int>& mask, Processors* found) {
  std::map<int, size_t> index;  // of a core, by its name
  for (const int cpu : mask) {
    const auto [at, added] = index.emplace(CoreOf(root, cpu), found->cores.size());
    if (added) found->cores.emplace_back();
    found->cores[at->second].push_back(cpu);
  }
  for (size_t sibling = 0; found->cpus.size() < mask.size(); ++sibling) {
    for (const std::vector<int>& core : found->cores) {
      if (sibling < core.size()) found->cpus.push_back(core[sibling]);
    }
  }
}

}  // namespace

Processors FindProcessors(const std::string& root) { return FindProcessors(root, AffinityMask()); }

Processors FindProcessors(const std::string& root, const std::vector<int>& mask) {
  Processors found;
  FindCores(root, mask, &found);
  int64_t at_once = static_cast<int64_t>(found.cpus.size());
  // Lines "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1).
  const std::string groups = ReadOrEmpty(root + "/proc/self/cgroup");
  for (std::string_view rest = groups; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string path(line.substr(second + 1));
    if (controllers == ",,") {
      ApplyGroups(root + "/sys/fs/cgroup", path, false, &at_once);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      ApplyGroups(root + "/sys/fs/cgroup/cpu", path, true, &at_once);
    }
  }
  found.at_once = static_cast<int>(at_once);
  return found;
}

int DefaultThreads(const Processors& processors) {
  return std::min(processors.at_once, processors.core_count());
}

std::vector<int> CpusOfThread(const Processors& processors, int thread_count, int thread) {
  const size_t count = static_cast<size_t>(thread_count), index = static_cast<size_t>(thread);
  if (static_cast<size_t>(processors.at_once) != processors.cpus.size()) return {};
  if (count == processors.cpus.size()) return {processors.cpus[index]};
  if (count == processors.cores.size()) return processors.cores[index];
  return {};
}

}  // namespace reprise
