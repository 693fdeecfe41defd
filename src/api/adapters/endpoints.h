// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::adapters {

// POST /v1/load_lora_adapter and /v1/unload_lora_adapter as vLLM has them, GET and POST
// /lora-adapters as llama.cpp has them. Those that change something need an admin key.
void AddRoutes(Service* service, http::Router* router);

}  // namespace reprise::api::adapters
