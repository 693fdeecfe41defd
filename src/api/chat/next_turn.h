// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "api/chat/job.h"
#include "api/chat/reply.h"
#include "api/service.h"

namespace reprise::api {

// After a reply the next prompt is nearly known: history with the reply as the template renders it
// (thinking stripped, calls re-serialised, tokenised anew). What this returns sends that prompt to
// the engine as idle-time work, so that the next turn begins at its first new token. Null if the
// server or the request does not want it.
std::function<void(const Choice&)> PrepareNextTurn(Service* service, const Tenant& tenant,
                                                   ChatJob job);

}  // namespace reprise::api
