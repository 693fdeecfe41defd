// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/flags.h"

namespace reprise::cli {

// reprise bench picture: how long it takes until a picture is vectors.
void DefinePictureBench(Flags* flags);

}  // namespace reprise::cli
