// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::jinja {

// datetime.strftime in the C locale for a time without a zone. A directive it does not know is an
// error that names it.
Result<std::string> FormatTime(std::string_view format, const std::tm& time);

}  // namespace reprise::jinja
