// SPDX-License-Identifier: Apache-2.0
#pragma once

// Entries of KernelTable of the same names.
namespace reprise::reference {

void Rope(float* x, const float* cos, const float* sin, int half);
void RopeAngles(float position, const float* inverse_frequency, int half, float* cos, float* sin);

}  // namespace reprise::reference
