// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace reprise::api::anthropic {

// Tools that Anthropic defines and the client runs: a request names only their type, because
// Anthropic's models know them. Others are told what they are.
struct ClientTool {
  std::string_view type;  // begins like this; a date follows
  std::string_view description;
  std::string_view input_schema;  // JSON
};

// The tool behind a type such as "bash_20250124", or null: it runs at Anthropic's, or shows images.
const ClientTool* FindClientTool(std::string_view type);

}  // namespace reprise::api::anthropic
