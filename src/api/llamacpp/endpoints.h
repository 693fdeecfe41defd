// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::llamacpp {

// POST /completion, POST /infill, GET /slots.
void AddRoutes(Service* service, http::Router* router);

}  // namespace reprise::api::llamacpp
