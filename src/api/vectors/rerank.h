// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/exchange.h"

namespace reprise::api::vectors {

// POST /v1/rerank: {"query", "documents": [text or {"text"}], "top_n", "return_documents"} ->
// {"results": [{"index", "relevance_score", "document"}]}, best first; equals in their order.
void HandleRerank(Service* service, const http::ExchangePtr& exchange);

}  // namespace reprise::api::vectors
