// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::openai {

// POST /v1/chat/completions, POST /v1/completions.
void AddRoutes(Service* service, http::Router* router);

void HandleChat(Service* service, const http::ExchangePtr& exchange);
void HandleCompletion(Service* service, const http::ExchangePtr& exchange);

}  // namespace reprise::api::openai
