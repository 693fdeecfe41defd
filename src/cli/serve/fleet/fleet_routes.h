// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "cli/serve/fleet/fleet.h"
#include "http/router.h"

namespace reprise::cli {

// The routes of a server: those of every model's APIs, handed to the model that a request names;
// and, where there are several models, POST /models/load, /models/unload, GET /models/sse.
// Both must outlive the router.
void AddFleetRoutes(Fleet* fleet, http::Router* router);

}  // namespace reprise::cli
