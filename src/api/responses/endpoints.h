// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::responses {

// POST /v1/responses, POST /v1/responses/input_tokens, GET and DELETE /v1/responses/{id}, POST
// /v1/responses/{id}/cancel, GET /v1/responses/{id}/input_items.
void AddRoutes(Service* service, http::Router* router);

}  // namespace reprise::api::responses
