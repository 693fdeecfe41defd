// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "api/chat/job.h"
#include "api/fields.h"
#include "base/json.h"

namespace reprise::api {

// Adds a text at the end of the turn so far: on a line of its own behind another text, and at once
// behind a picture.
void AppendText(std::string_view text, ChatTurn* turn);

// Adds the picture of a data URL ("data:image/png;base64,...") at the end of the turn so far. Other
// URLs are refused by name: nothing is fetched for a client. `place`: of the URL, for errors.
void ReadPictureUrl(const JsonValue* url, Fields* fields, const std::string& place, ChatTurn* turn);

// The same for the base64 text alone.
void ReadPictureData(const JsonValue* data, Fields* fields, const std::string& place,
                     ChatTurn* turn);

// The data URL of a picture that was read.
std::string MakePictureUrl(std::string_view file);

}  // namespace reprise::api
