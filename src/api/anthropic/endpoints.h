// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::anthropic {

// POST /v1/messages, POST /v1/messages/count_tokens.
void AddRoutes(Service* service, http::Router* router);

// What Anthropic's clients are shown of /v1/models.
std::string FormatModels(const ServedModel& model);
std::string FormatModel(const ServedModel& model, const std::string& id);

}  // namespace reprise::api::anthropic
