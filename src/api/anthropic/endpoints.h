// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::anthropic {

// POST /v1/messages, POST /v1/messages/count_tokens.
void AddRoutes(Service* service, http::Router* router);

void HandleMessages(Service* service, const http::ExchangePtr& exchange);
void HandleCountTokens(Service* service, const http::ExchangePtr& exchange);

}  // namespace reprise::api::anthropic
