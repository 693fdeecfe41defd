// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace reprise::cli {

// The whole program: parses the command line and runs one command. Returns the exit status: 0, or 1
// after one sentence on stderr that says what was wrong and what to do.
int Main(int argc, char** argv);

}  // namespace reprise::cli
