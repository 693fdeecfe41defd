// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http/router.h"

namespace reprise::web {

// GET / is static/index.html, GET /assets/x is static/assets/x: the page, from the binary. It loads
// nothing from elsewhere, and its headers forbid it to.
void AddRoutes(http::Router* router);

}  // namespace reprise::web
