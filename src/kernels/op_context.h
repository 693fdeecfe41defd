// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/buffer.h"
#include "device/thread_pool.h"

namespace reprise {

namespace cpu {
struct KernelTable;
}

// What an op needs besides its operands: passed, never global, so two engines can live in one
// process.
struct OpContext {
  ThreadPool* pool = nullptr;
  const cpu::KernelTable* table = nullptr;
  ScratchArena* scratch = nullptr;  // reset by the caller of a step, not by ops
};

}  // namespace reprise
