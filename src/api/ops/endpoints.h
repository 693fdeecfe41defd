// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::ops {

// /health, /live, /version, /metrics[/vllm], /props, /tokenizer_info, [/v1]/models[/id]
void AddServerRoutes(Service* service, http::Router* router);
// /tokenize, /detokenize, /apply-template
void AddTextRoutes(Service* service, http::Router* router);
// /v1/cache, /v1/cache/events, /v1/cache/reset, /v1/cache/pins
void AddCacheRoutes(Service* service, http::Router* router);

}  // namespace reprise::api::ops
