// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"

namespace reprise::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytesMax = size_t{4} << 20;  // /proc/cpuinfo of large machines
constexpr size_t kNameBytesMax = 100;
constexpr int kDevicesMax = 4096;  // on the PCI bus

std::string ReadOrEmpty(const fs::path& path) {
  Result<std::string> text = ReadFile(path, kFileBytesMax);
  return text.ok() ? std::move(text).value() : std::string();
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// The values of the lines "key : value", in order.
std::vector<std::string> ValuesOf(std::string_view text, std::string_view key) {
  std::vector<std::string> values;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos || Trim(line.substr(0, colon)) != key) continue;
    values.emplace_back(Trim(line.substr(colon + 1)).substr(0, kNameBytesMax));
  }
  return values;
}

std::string FirstValue(std::string_view text, std::string_view key) {
  const std::vector<std::string> values = ValuesOf(text, key);
  return values.empty() ? "" : values.front();
}

uint64_t Kibibytes(std::string_view meminfo, std::string_view key) {
  const std::string text = FirstValue(meminfo, key);
  uint64_t kib = 0;
  std::from_chars(text.data(), text.data() + text.size(), kib);
  return kib * 1024;
}

// Entries of a folder, at most kDevicesMax, sorted; none if it cannot be read.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator() && entries.size() < kDevicesMax;
       at.increment(error)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul ...": the first word that is
// a version.
std::string DriverVersion(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    const bool digits = word.find_first_not_of("0123456789.") == word.npos;
    if (digits && word.find('.') != word.npos) return std::string(word.substr(0, kNameBytesMax));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return "";
}

GpuHardware ReadGpus(const std::string& root) {
  GpuHardware gpu;
  for (const fs::path& device : EntriesOf(root + "/sys/bus/pci/devices")) {
    const std::string vendor = ReadOrEmpty(device / "vendor");
    const std::string kind = ReadOrEmpty(device / "class");
    // NVIDIA's; a display controller, or one without a display.
    if (vendor.starts_with("0x10de") && kind.starts_with("0x03")) ++gpu.count;
  }
  gpu.driver = DriverVersion(ReadOrEmpty(root + "/proc/driver/nvidia/version"));
  for (const fs::path& entry : EntriesOf(root + "/proc/driver/nvidia/gpus")) {
    gpu.names.push_back(FirstValue(ReadOrEmpty(entry / "information"), "Model"));
  }
  gpu.count = std::max(gpu.count, static_cast<int>(gpu.names.size()));
  std::error_code error;
  gpu.nouveau = gpu.driver.empty() && fs::exists(root + "/sys/module/nouveau", error);
  const std::string files[] = {root + "/dev/nvidiactl", root + "/dev/nvidia0"};
  gpu.device_files = gpu.may_open = true;
  for (const std::string& file : files) {
    gpu.device_files = gpu.device_files && fs::exists(file, error);
    gpu.may_open = gpu.may_open && ::access(file.c_str(), R_OK | W_OK) == 0;
  }
  return gpu;
}

}  // namespace

Machine ReadMachine(const std::string& root) {
  Machine machine;
  const std::string cpuinfo = ReadOrEmpty(root + "/proc/cpuinfo");
  machine.cpu_name = FirstValue(cpuinfo, "model name");
  machine.cpus = static_cast<int>(ValuesOf(cpuinfo, "processor").size());
  machine.processors = FindProcessors(root);
  const std::string meminfo = ReadOrEmpty(root + "/proc/meminfo");
  machine.memory_total = Kibibytes(meminfo, "MemTotal");
  machine.swap_total = Kibibytes(meminfo, "SwapTotal");
  machine.available = FindAvailableMemory(root);
  machine.gpu = ReadGpus(root);
  return machine;
}

}  // namespace reprise::cli
