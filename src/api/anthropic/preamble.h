// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace reprise::api::anthropic {

// What is left of a system prompt without the lines at its start that say nothing to the model and
// change with every request. Claude Code puts such a line first,
//   x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;
// and with it no two prompts of a session would have a token in common.
std::string_view StripPreamble(std::string_view system);

}  // namespace reprise::api::anthropic
