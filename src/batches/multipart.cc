// SPDX-License-Identifier: Apache-2.0
#include "batches/multipart.h"

#include "http/message.h"

namespace reprise::batches {
namespace {

constexpr size_t kPartsMax = 16;
constexpr size_t kHeaderBytesMax = 4096;
constexpr size_t kBoundaryBytesMax = 70;  // of the RFC

Status Wrong(const char* what) {
  return InvalidArgument(std::string("the form is not multipart/form-data: ") + what);
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of `name` among "a; name=value; other=\"quoted\"". Nothing in quotes ends a value.
std::string Parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != std::string_view::npos) {
    header.remove_prefix(at + 1);
    const size_t equal = header.find('=');
    if (equal == std::string_view::npos) return "";
    const std::string_view key = Trim(header.substr(0, equal));
    header = Trim(header.substr(equal + 1));
    std::string value;
    if (header.starts_with('"')) {
      size_t i = 1;
      for (; i < header.size() && header[i] != '"'; ++i) {
        if (header[i] == '\\' && i + 1 < header.size()) ++i;
        value += header[i];
      }
      header.remove_prefix(std::min(i + 1, header.size()));
    } else {
      value = Trim(header.substr(0, header.find(';')));
    }
    if (http::EqualIgnoringCase(key, name)) return value;
    at = header.find(';');
  }
  return "";
}

// The headers of a part.
Status ReadHeaders(std::string_view headers, FormPart* part) {
  bool named = false;
  while (!headers.empty()) {
    const size_t end = headers.find("\r\n");
    const std::string_view line = headers.substr(0, end);
    headers = end == std::string_view::npos ? std::string_view() : headers.substr(end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Wrong("a header has no colon");
    if (!http::EqualIgnoringCase(Trim(line.substr(0, colon)), "content-disposition")) continue;
    part->name = Parameter(line.substr(colon + 1), "name");
    part->file_name = Parameter(line.substr(colon + 1), "filename");
    named = true;
  }
  return named && !part->name.empty() ? OkStatus() : Wrong("a part has no name");
}

}  // namespace

Result<std::vector<FormPart>> ParseMultipart(std::string_view content_type, std::string_view body) {
  const std::string_view type = Trim(content_type.substr(0, content_type.find(';')));
  if (!http::EqualIgnoringCase(type, "multipart/form-data")) {
    return InvalidArgument("send the file as multipart/form-data");
  }
  const std::string boundary = Parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > kBoundaryBytesMax) {
    return Wrong("its boundary is missing or too long");
  }
  const std::string first = "--" + boundary;
  const std::string next = "\r\n" + first;
  if (!body.starts_with(first)) return Wrong("it does not begin with its boundary");
  body.remove_prefix(first.size());
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    if (parts.size() == kPartsMax) return Wrong("it has too many parts");
    if (!body.starts_with("\r\n")) return Wrong("a boundary is not alone on its line");
    body.remove_prefix(2);
    const size_t end = body.substr(0, kHeaderBytesMax).find("\r\n\r\n");
    if (end == std::string_view::npos) return Wrong("the headers of a part have no end");
    FormPart part;
    REPRISE_TRY(ReadHeaders(body.substr(0, end), &part));
    body.remove_prefix(end + 4);
    const size_t length = body.find(next);
    if (length == std::string_view::npos) return Wrong("a part has no end");
    part.content = body.substr(0, length);
    parts.push_back(std::move(part));
    body.remove_prefix(length + next.size());
  }
  return parts;
}

}  // namespace reprise::batches
