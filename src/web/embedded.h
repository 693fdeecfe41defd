// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace reprise::web {

// A file of static/, built into the binary.
struct EmbeddedFile {
  std::string_view path;  // below static/
  std::string_view bytes;
  std::string_view etag;  // of its content, quoted
};

extern const std::span<const EmbeddedFile> kEmbeddedFiles;

}  // namespace reprise::web
