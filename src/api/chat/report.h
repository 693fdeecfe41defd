// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "text/tokenizer.h"

namespace reprise::api {

// The "reprise" object of a response: what was reused, what was not and why, and what it took.
// `prompt` gives the text around the place where the prompt left what was stored;
// `session` is what the client calls the conversation, or empty; `passed_fields` are the fields of
// the request that had no effect.
std::string FormatReportJson(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                             std::string_view session, std::span<const std::string> passed_fields,
                             const Completion& completion);

}  // namespace reprise::api
