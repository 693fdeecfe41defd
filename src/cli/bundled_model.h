// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace reprise::cli {

// `path` if it exists; an empty one stands for the bundled model, and "hf:ORG/REPO" for one of the
// hub, which is fetched unless the cache has it. Otherwise fails with kNotFound and says what a
// model may be.
Result<std::string> FindModel(const std::string& path);

// The small model that comes with Reprise: beside the program, in the source tree it was built in,
// or where `install` puts it. Fails with kNotFound and says how to name another.
Result<std::string> FindBundledModel();

}  // namespace reprise::cli
