// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "api/errors.h"
#include "http/message.h"

namespace reprise::api {

// The name of the conversation that a request belongs to, as its client or a router says it: the
// first of the headers x-claude-code-session-id, session-id and x-session-id; without them what the
// body said (`prompt_cache_key`, `metadata.user_id`) stays. Routers keep a conversation at one
// server by it (docs/scale.md); here it is a name in reports, and never a reason to share, to keep
// or to drop state. An error, if a header is too long or not of visible characters.
std::optional<ApiError> ReadSession(const http::Request& request, std::string* session);

}  // namespace reprise::api
