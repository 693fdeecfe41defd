// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/fit.h"
#include "cli/doctor/machine.h"

namespace reprise::cli {

// What this program can do on the machine.
struct Program {
  bool cuda = false;   // built with it
  std::string device;  // that computes: "cpu", "cuda:0 NVIDIA H200"
  bool gpu_used = false;
  std::string gpu_refused;          // why the GPU is not used, as the backend says it; may be empty
  std::vector<std::string> isas;    // instruction sets in use, slowest first
  std::string forced_isas;          // REPRISE_ISA; empty: not set
  double gigabytes_per_second = 0;  // of reading memory; 0: not measured
};

// Something that stands in the way, and what to do about it.
struct Finding {
  bool serious = false;  // the model cannot run
  std::string what;
  std::string advice;
};

// Empty: nothing stands in the way. `fit`: of the model, if one was named or is bundled.
std::vector<Finding> FindTrouble(const Machine& machine, const Program& program,
                                 const std::optional<Fit>& fit);

// One line about the GPU: which, with what driver, and why it is or is not used.
std::string DescribeGpu(const Machine& machine, const Program& program);

}  // namespace reprise::cli
