// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "api/errors.h"
#include "api/served_model.h"
#include "base/json.h"
#include "http/exchange.h"
#include "http/message.h"

namespace reprise::api {

// What a request's JSON may be made of, whatever its size: memory for some 100 MiB of values.
inline constexpr JsonLimits kBodyLimits{.value_count_max = size_t{1} << 20};
// The same for what templates are given (tools, variables, arguments of calls), where every value
// takes more.
inline constexpr JsonLimits kToolLimits{.value_count_max = size_t{1} << 17};

// The body of a request as a JSON object, or an error.
struct Body {
  std::optional<JsonDocument> document;
  std::optional<ApiError> error;
};
Body ParseBody(const http::Request& request);
// The same on the account of the exchange.
Body ParseBody(const http::Exchange& exchange);
// The same for a request that names a model; it must be the one that is served.
Body ParseBody(const http::Exchange& exchange, const ServedModel& model);

// A model name that this server does not have, and a few that it has.
ApiError ModelNotFound(const std::string& name, std::span<const ModelBrief> have);
ApiError ModelNotFound(const std::string& name, const ServedModel& have);

}  // namespace reprise::api
