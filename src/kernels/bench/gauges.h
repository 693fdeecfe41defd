// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "tensor/dtype.h"

// What benchmarks want to know of a device beside its ops. Nothing that computes depends on it.
namespace reprise {

// What a device can do at most, by its clocks and the width of its units; 0 where that is not told
// and has to be measured.
struct Ceilings {
  double read_bytes = 0;  // of its memory, a second
  double operations = 0;  // multiplications and additions, a second
};
// Of products with weights of this type.
Ceilings CeilingsOf(Backend& backend, DType weights);

// Measures how long a device takes for what is asked of it.
//
//   watch->Hold(); watch->Mark(); (ask) watch->Mark(); (ask) watch->Mark();
//   watch->Take();   // two times
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  // Where a device runs behind its caller: it begins with what follows when some of it has been
  // asked for, so that its own time is measured, not the caller's.
  virtual void Hold() {}
  virtual bool holds() const { return false; }
  virtual void Mark() = 0;
  // Waits; seconds between the marks since the last call.
  virtual std::vector<double> Take() = 0;
};
// By the clock of the host, waiting at every mark, unless the device has a better one.
std::unique_ptr<Stopwatch> MakeStopwatch(Backend& backend);

}  // namespace reprise
