// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace reprise::cpu {

// What this CPU and its operating system let a program use. Each means everything that the folder
// of that name is compiled with (src/kernels/CMakeLists.txt).
struct CpuFeatures {
  bool neon = false;
  bool dotprod = false;
  bool i8mm = false;
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_vnni = false;
  bool amx = false;  // granted by the kernel for this process, too
};

// Detected on the first call, which also asks the kernel for the AMX tile registers.
const CpuFeatures& Features();

}  // namespace reprise::cpu
