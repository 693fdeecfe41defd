// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "http/router.h"

namespace reprise::api::ops {

// The OpenAPI 3.1 document of what a router answers, for generators of clients and for gateways.
// It names the fields that most clients send; docs/server.md has all of them. Paths that are other
// names of a described one ("/chat/completions") are left out.
std::string FormatOpenApi(const http::Router& router);

// Whether a route is described, or is another name of one that is, or a file of the page.
bool IsDescribed(std::string_view method, std::string_view path);

// GET /openapi.json, of all routes that are there now.
void AddOpenApi(http::Router* router);

}  // namespace reprise::api::ops
