// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "api/chat/job.h"
#include "api/errors.h"
#include "api/fields.h"
#include "api/served_model.h"

namespace reprise::api {

// The adapter that a request asks for: the one that it names as its model, or llama.cpp's "lora",
// a list of numbers and scales, of which one may count. A request that names the model itself has
// the adapter that POST /lora-adapters has set for all, if any. May read files.
std::optional<ApiError> ChooseAdapter(const ServedModel& model, std::string_view name,
                                      Fields* fields, ReplyOptions* options);
// The same for a body that has the name in "model".
std::optional<ApiError> ChooseAdapter(const ServedModel& model, Fields* fields,
                                      ReplyOptions* options);

// What the answer says the model was.
inline const std::string& AnsweringName(const ServedModel& model, const ReplyOptions& options) {
  return options.adapter_name.empty() ? model.id : options.adapter_name;
}

}  // namespace reprise::api
