// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::anthropic {

// POST /v1/messages, POST /v1/messages/count_tokens.
void AddRoutes(Service* service, http::Router* router);

// What Anthropic's clients are shown of /v1/models.
// REQUIRES: at least one model.
std::string FormatModels(std::span<const ModelBrief> models);
std::string FormatModel(const ModelBrief& model, const std::string& id);

}  // namespace reprise::api::anthropic
