// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "kernels/cuda/architecture.h"

namespace reprise::cuda {
namespace {

struct Capability {
  std::string_view number;
  size_t block_shared;
  bool since_hopper, wgmma;
};

constexpr Capability kCapabilities[] = {
    {"8.0", 163 << 10, false, false},  // A100, A30
    {"8.6", 99 << 10, false, false},   // RTX 30, A10, A40
    {"8.7", 163 << 10, false, false},  // Orin
    {"8.9", 99 << 10, false, false},   // RTX 40, L4, L40
    {"9.0", 227 << 10, true, true},    // H100, H200
    {"10.0", 227 << 10, true, false},  // B200
    {"10.3", 227 << 10, true, false},  // B300
    {"12.0", 99 << 10, true, false},   // RTX 50, RTX PRO 6000
    {"12.1", 99 << 10, true, false},   // GB10
};

}  // namespace

std::optional<Architecture> As(Architecture gpu, std::string_view capability) {
  for (const Capability& one : kCapabilities) {
    if (one.number != capability) continue;
    gpu.early_launch &= one.since_hopper;
    gpu.clusters &= one.since_hopper;
    gpu.copy_engine &= one.since_hopper;
    gpu.wgmma &= one.wgmma;
    gpu.block_shared = std::min(gpu.block_shared, one.block_shared);
    return gpu;
  }
  return std::nullopt;
}

}  // namespace reprise::cuda
