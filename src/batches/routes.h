// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "api/tenants.h"
#include "batches/file_store.h"
#include "batches/runner.h"
#include "http/router.h"

namespace reprise::batches {

// /v1/files and /v1/batches as OpenAI has them. `tenant_of`: who asks; requests were let in before.
void AddRoutes(FileStore* files, BatchRunner* runner,
               std::function<const api::Tenant*(const http::Request&)> tenant_of,
               http::Router* router);

}  // namespace reprise::batches
