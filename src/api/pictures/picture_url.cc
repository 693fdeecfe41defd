// SPDX-License-Identifier: Apache-2.0
#include "api/pictures/picture_url.h"

#include <utility>

#include "base/coding/base64.h"

namespace reprise::api {
namespace {

constexpr size_t kPicturesMax = 256;  // of a message

void Add(std::string_view base64, Fields* fields, const std::string& place, ChatTurn* turn) {
  auto file = FromBase64(base64);
  if (!file) return fields->Fail(place, "is not valid base64");
  if (turn->pictures.size() == kPicturesMax) {
    return fields->Fail(place, "is one picture too many: a message has at most 256");
  }
  turn->pictures.push_back({turn->content.size(), place, std::move(*file), nullptr});
}

}  // namespace

void AppendText(std::string_view text, ChatTurn* turn) {
  const bool behind_picture =
      !turn->pictures.empty() && turn->pictures.back().content_bytes == turn->content.size();
  if (!turn->content.empty() && !behind_picture) turn->content += '\n';
  turn->content += text;
}

void ReadPictureUrl(const JsonValue* url, Fields* fields, const std::string& place,
                    ChatTurn* turn) {
  if (url == nullptr || !url->is_string()) return fields->Fail(place, "must have a url");
  const std::string_view text = url->as_string();
  if (!text.starts_with("data:")) {
    return fields->Fail(place,
                        "is not a data URL: this server fetches no pictures; send "
                        "data:image/png;base64,... instead",
                        "unsupported_value");
  }
  const size_t comma = text.find(',');
  const std::string_view head = text.substr(0, comma);
  if (comma == std::string_view::npos || !head.ends_with(";base64")) {
    return fields->Fail(place, "must be a data URL in base64 (data:image/png;base64,...)");
  }
  Add(text.substr(comma + 1), fields, place, turn);
}

void ReadPictureData(const JsonValue* data, Fields* fields, const std::string& place,
                     ChatTurn* turn) {
  if (data == nullptr || !data->is_string()) {
    return fields->Fail(place, "must be a string in base64");
  }
  Add(data->as_string(), fields, place, turn);
}

std::string MakePictureUrl(std::string_view file) {
  const char* type = file.starts_with("\xFF\xD8") ? "jpeg"
                     : file.starts_with("GIF8")   ? "gif"
                     : file.starts_with("RIFF")   ? "webp"
                                                  : "png";
  return std::string("data:image/") + type + ";base64," + ToBase64(file);
}

}  // namespace reprise::api
