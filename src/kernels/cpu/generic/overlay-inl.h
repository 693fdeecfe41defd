// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/activation-inl.h"
#include "kernels/cpu/generic/attention-inl.h"
#include "kernels/cpu/generic/convolution-inl.h"
#include "kernels/cpu/generic/delta-inl.h"
#include "kernels/cpu/generic/rows-inl.h"
#include "kernels/cpu/generic/scan-inl.h"
#include "kernels/cpu/generic/weigh_keys-inl.h"

namespace reprise::cpu {
namespace {

// Sets every float entry to the version in terms of the ISA's vector.
void OverlayGeneric(KernelTable* table) {
  OverlayActivations(table);
  OverlayRows(table);
  OverlayConvolution(table);
  OverlayDelta(table);
  OverlayScans(table);
  OverlayAttention(table);
  OverlayWeighing(table);
}

}  // namespace
}  // namespace reprise::cpu
