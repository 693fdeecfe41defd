// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace reprise::cli {

// Tells systemd how the service is ("READY=1", "STOPPING=1"), if it was started by it
// (NOTIFY_SOCKET). Errors are not reported: nobody could do anything about them.
void NotifySystemd(std::string_view state);

}  // namespace reprise::cli
