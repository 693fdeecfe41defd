// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/service.h"
#include "http/router.h"

namespace reprise::api::anthropic {

// POST /v1/messages, POST /v1/messages/count_tokens.
void AddRoutes(Service* service, http::Router* router);

// Whether Anthropic's client asks: it wants the shapes of its own API, also of /v1/models.
bool IsClient(const http::Request& request);
std::string FormatModels(const ServedModel& model);
std::string FormatModel(const ServedModel& model, const std::string& id);

}  // namespace reprise::api::anthropic
