// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace reprise::cli {

// The small model that comes with Reprise: beside the program, in the source tree it was built in,
// or where `install` puts it. Fails with kNotFound and says how to name another.
Result<std::string> FindBundledModel();

}  // namespace reprise::cli
