// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace reprise::cpu {
namespace {

#if defined(__x86_64__)

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return CpuidLeaf{};
  return r;
}

// Register state that the operating system saves: bits of XCR0.
uint64_t EnabledState() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool Has(uint32_t word, int bit) { return (word >> bit & 1) != 0; }

// Linux hands out the 8 KiB of tile data per thread only to processes that ask.
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures Detect() {
  CpuFeatures features;
  const CpuidLeaf one = Cpuid(1, 0);
  const CpuidLeaf seven = Cpuid(7, 0);
  const bool osxsave = Has(one.ecx, 27);
  if (!osxsave) return features;
  const uint64_t state = EnabledState();
  const bool ymm = (state & 0x6) == 0x6;
  const bool zmm = (state & 0xE6) == 0xE6;
  const bool tiles = (state >> 17 & 3) == 3;
  const bool fma = Has(one.ecx, 12), f16c = Has(one.ecx, 29);
  features.avx2 = ymm && fma && f16c && Has(seven.ebx, 5);
  features.avx512 = zmm && features.avx2 && Has(seven.ebx, 16) && Has(seven.ebx, 17) &&
                    Has(seven.ebx, 30) && Has(seven.ebx, 31);
  features.avx512_vnni = features.avx512 && Has(seven.ecx, 11);
  features.amx =
      features.avx512_vnni && tiles && Has(seven.edx, 24) && Has(seven.edx, 25) && RequestTiles();
  return features;
}

#elif defined(__aarch64__)

CpuFeatures Detect() {
  CpuFeatures features;
  features.neon = true;  // part of the architecture
  features.dotprod = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  features.i8mm = features.dotprod && (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return features;
}

#else

CpuFeatures Detect() { return CpuFeatures{}; }

#endif

}  // namespace

const CpuFeatures& Features() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace reprise::cpu
