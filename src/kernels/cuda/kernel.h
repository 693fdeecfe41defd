// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernels/cuda/view.h"

namespace reprise::cuda {

// What became of the launches on a stream. A kernel that does not start would leave whatever lay in
// its outputs before, so the first that does not fails the stream: nothing more is started on it
// until the error is taken. Whoever asked for the kernels takes it before anything that they were
// to compute is used.
//
// Thread safety: none for one stream.
class Launches {
 public:
  static Launches& On(Stream stream);

  bool failed() const { return !error_.ok(); }
  // The first error stays.
  void Fail(Status error);
  // What went wrong since it was asked last; the stream starts kernels again.
  Status Take();
  // For tests: so many launches from now, one fails. Less than one: none does.
  void FailAfter(int64_t launches) { until_planted_ = launches; }

 private:
  friend class Kernel;
  bool planted() { return until_planted_ > 0 && --until_planted_ == 0; }

  Status error_;
  int64_t until_planted_ = 0;
};

// What a launch asks of a GPU beside the code.
struct LaunchNeeds {
  // How a multiprocessor divides its memory while the kernel runs. Blocks of two kernels share one
  // only if both want the same.
  enum class Division : uint8_t { kAny, kShared, kCache };

  size_t shared = 0;   // bytes of shared memory of a block, beside those that the code declares
  int team = 1;        // blocks of a cluster
  bool early = false;  // starts while the kernel in front still runs, where the GPU can do that
  Division division = Division::kAny;
};

// A kernel on one GPU: knows what its launches were granted so far, asks for more when one needs
// it, and says by name what the GPU has not got.
class Kernel {
 public:
  // On the GPU that this thread uses. Lives as long as the process.
  static Kernel& Of(const void* function);

  // Starts it, or fails the stream. A grid without blocks is nothing to start.
  // arguments: their addresses, as the kernel declares them.
  void Start(const LaunchNeeds& needs, dim3 grid, dim3 threads, Stream stream, void** arguments);

  // As in the code: "FillRows(float, View)".
  std::string name() const;

 private:
  Kernel(const void* function, int device);
  // Empty, or what the GPU has not got.
  std::string Grant(const LaunchNeeds& needs);
  std::string GrantShared(size_t bytes);

  const void* const function_;
  const int device_;
  cudaError_t found_;  // whether the program has code for the GPU
  size_t declared_ = 0;  // bytes of shared memory, in the code
  size_t granted_ = 0;   // beside them
  LaunchNeeds::Division division_ = LaunchNeeds::Division::kAny;
};

}  // namespace reprise::cuda
