// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::vectors {

// /v1/embeddings (OpenAI's), /api/embed and /api/embeddings (Ollama's), /v1/rerank (Jina's and
// Cohere's, as llama.cpp and vLLM have it). Models that are not made for it are refused by name.
void AddRoutes(Service* service, http::Router* router);

}  // namespace reprise::api::vectors
