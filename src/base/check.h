// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace reprise {

// Prints "file:line: check failed: condition" and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace reprise

// A broken CHECK is a programmer error, never reachable from client input or a file.
#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::reprise::CheckFailed(__FILE__, __LINE__, #condition))

// For hot loops: compiled out of release builds.
#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
