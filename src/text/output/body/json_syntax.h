// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"

namespace reprise {

// What kind of value a text is, if it is one JSON value (RFC 8259) and nothing else. Only its
// syntax counts: numbers may be larger than any type holds, and names may come twice, as a model
// may write both and other readers take them.
// `*twice`: whether one of the outermost object's does.
std::optional<JsonValue::Kind> JsonKindOf(std::string_view text, bool* twice = nullptr);

}  // namespace reprise
