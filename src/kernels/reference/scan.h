// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/scan_table.h"

// Entries of ScanKernels of the same names.
namespace reprise::reference {

void KeyDecayDelta(const cpu::KeyDecayDeltaScan* scan);
void Ssd(const cpu::SsdScan* scan);
void Wkv7(const cpu::Wkv7Scan* scan);
void Selective(const cpu::SelectiveScan* scan);
void RgLru(const cpu::RgLruScan* scan);
void Decay(const float* x, const float* bias, const float* rate, int64_t n, float* y);
void SsdGates(const float* x, const float* bias, const float* a, float low, float high, int64_t n,
              float* dt, float* decay);

}  // namespace reprise::reference
