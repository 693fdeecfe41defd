// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise::api {

// The string that the first member "model" of a JSON object holds: which model a request is for,
// before anybody parses it whole. Empty if there is none, or it is no string. Text that is no JSON
// gives some name or none; the handler that parses it refuses it. Costs: one look at each byte in
// front of the name; takes memory for the name alone.
std::string FindModelName(std::string_view json);

// The same of "keep_alive", whose value may also be a number: its spelling.
std::string FindKeepAlive(std::string_view json);

}  // namespace reprise::api
