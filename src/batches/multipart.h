// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::batches {

// One field of a form. The content is a view into the body.
struct FormPart {
  std::string name;
  std::string file_name;  // empty: no file
  std::string_view content;
};

// Reads multipart/form-data (RFC 7578), of which every byte may be hostile: at most 16 parts, each
// with at most 4 KiB of headers. `content_type` is the request's header, which names the boundary.
Result<std::vector<FormPart>> ParseMultipart(std::string_view content_type, std::string_view body);

}  // namespace reprise::batches
