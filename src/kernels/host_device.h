// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks a function that nvcc compiles for the host and for the device; nothing to other compilers.
#if defined(__CUDACC__)
#define REPRISE_HOST_DEVICE __host__ __device__
#else
#define REPRISE_HOST_DEVICE
#endif
