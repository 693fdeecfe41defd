// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::ollama {

// POST /api/chat, /api/generate, /api/show; GET /api/tags, /api/ps, /api/version.
void AddRoutes(Service* service, http::Router* router);

}  // namespace reprise::api::ollama
