// SPDX-License-Identifier: Apache-2.0
#include "device/system_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/mapped_file.h"

namespace reprise {

size_t ResidentMemoryBytes() {
  const Result<std::string> text = ReadFile("/proc/self/statm", 4096);
  if (!text.ok()) return 0;
  const size_t space = text->find(' ');
  if (space == std::string::npos) return 0;
  return size_t{std::strtoull(text->c_str() + space, nullptr, 10)} *
         static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace reprise
