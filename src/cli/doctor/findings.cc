// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weights/memory.h"

namespace reprise::cli {
namespace {

constexpr double kSlowGigabytes = 4;     // per second: less than one bank of old memory
constexpr int64_t kShortContext = 4096;  // tokens; less is soon full
constexpr uint64_t kLittle = uint64_t{1} << 30;

using Findings = std::vector<Finding>;

void LookAtProcessors(const Machine& machine, const Program& program, Findings* found) {
  const auto allowed = static_cast<int>(machine.processors.cpus.size());
  if (machine.cpus > allowed) {
    found->push_back({false,
                      fmt::format("this process may use {} of {} CPUs", allowed, machine.cpus),
                      "widen its affinity (taskset, cpuset, AllowedCPUs=)"});
  }
  if (machine.processors.at_once < allowed) {
    found->push_back({false,
                      fmt::format("a control group grants the time of {} CPUs, and {} are there",
                                  machine.processors.at_once, allowed),
                      "raise the limit (docker run --cpus, resources.limits.cpu, CPUQuota=)"});
  }
  if (!program.forced_isas.empty()) {
    found->push_back(
        {false, "REPRISE_ISA=" + program.forced_isas + " limits the instruction sets", "unset it"});
  } else if (program.isas.size() <= 1) {
    found->push_back({false, "this CPU has no instruction set that the fast kernels use",
                      "take a CPU with AVX2 or NEON; in a virtual machine pass the host's CPU "
                      "through"});
  }
}

void LookAtMemory(const Machine& machine, const Program& program, Findings* found) {
  if (machine.available.bytes < kLittle) {
    found->push_back({false,
                      "only " + FormatBytes(machine.available.bytes) + " of memory are available",
                      "end other programs, or raise the limit of the container"});
  }
  if (program.gigabytes_per_second > 0 && program.gigabytes_per_second < kSlowGigabytes) {
    found->push_back(
        {false, fmt::format("memory is read at {:.1f} GB/s only", program.gigabytes_per_second),
         "look for other programs on this machine, then run reprise doctor again"});
  }
}

void LookAtGpu(const Machine& machine, const Program& program, Findings* found) {
  const GpuHardware& gpu = machine.gpu;
  if (program.gpu_used || gpu.count == 0) return;
  Finding finding{false, "the GPU is not used: ", ""};
  if (gpu.nouveau || gpu.driver.empty()) {
    finding.what += gpu.nouveau ? "it runs on the nouveau driver, which has no CUDA"
                                : "the NVIDIA driver is not loaded";
    finding.advice = "install NVIDIA's driver, 580 or later";
  } else if (!program.cuda) {
    finding.what += "this program was built without CUDA";
    finding.advice = "build it with: make cuda";
  } else if (!gpu.device_files) {
    finding.what += "its device files are not here";
    finding.advice = "in a container: docker run --gpus all; else run nvidia-modprobe -u";
  } else if (!gpu.may_open) {
    finding.what += "this user may not open /dev/nvidia0";
    finding.advice = "add the user to the group that owns it (video or render)";
  } else {
    finding.what += program.gpu_refused.empty() ? "unknown reason" : program.gpu_refused;
    finding.advice = "run with --device cuda to see the error again";
  }
  found->push_back(std::move(finding));
}

void LookAtFit(const Fit& fit, Findings* found) {
  if (!fit.weights) {
    found->push_back({true, "the weights of the model do not fit",
                      "take a smaller model, or a file of a smaller type (Q4_K, Q4_0)"});
  } else if (fit.context == 0) {
    found->push_back({true, "the weights fit, but leave no memory for requests",
                      "take a smaller model or file, or --kv q8_0"});
  } else if (fit.context < kShortContext && fit.requests <= 1) {
    found->push_back({false, fmt::format("a request has room for {} tokens only", fit.context),
                      "take --kv q8_0, or a smaller file"});
  }
}

}  // namespace

std::vector<Finding> FindTrouble(const Machine& machine, const Program& program,
                                 const std::optional<Fit>& fit) {
  Findings found;
  LookAtProcessors(machine, program, &found);
  LookAtMemory(machine, program, &found);
  LookAtGpu(machine, program, &found);
  if (fit) LookAtFit(*fit, &found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Finding& a, const Finding& b) { return a.serious && !b.serious; });
  return found;
}

std::string DescribeGpu(const Machine& machine, const Program& program) {
  const GpuHardware& gpu = machine.gpu;
  if (gpu.count == 0 && !program.gpu_used) return "none of NVIDIA's";
  std::string text = gpu.count > 1 ? std::to_string(gpu.count) + " of NVIDIA's" : "NVIDIA's";
  if (!gpu.names.empty() && !gpu.names.front().empty()) text += ", " + gpu.names.front();
  text += gpu.driver.empty() ? ", no driver" : ", driver " + gpu.driver;
  return text + (program.gpu_used ? "; used" : "; not used");
}

}  // namespace reprise::cli
