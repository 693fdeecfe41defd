// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace reprise::cli {

// What this program is, for --version: number, commit, compiler, backends, instruction sets.
std::string DescribeVersion();

// Day of the commit, as manual pages write it: "November 18, 2026"; empty if it is unknown.
std::string BuildDate();

// What `reprise` alone says: what it is and what to try first.
std::string Welcome();

}  // namespace reprise::cli
