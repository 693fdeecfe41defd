// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"

namespace reprise {

// For tests. Small files are in the tree; real models' files may lie beside the checkout, in
// ../shared, or where REPRISE_SHARED says, and are tested where they exist.

inline constexpr char kTokenizerData[] = "tests/data/tokenizers/";

// The path of a shared asset, or an empty string if it is not there.
inline std::string SharedAsset(const std::string& name) {
  const char* folder = std::getenv("REPRISE_SHARED");
  const auto path =
      std::filesystem::path(folder != nullptr ? folder : "../shared") / "assets" / name;
  return std::filesystem::exists(path) ? path.string() : std::string();
}

// The text of a test vector: "text", or "hex" for bytes that are not UTF-8.
inline std::string VectorText(const JsonValue& vector) {
  if (const JsonValue* text = vector.Find("text")) return std::string(text->as_string());
  const std::string hex(vector.Find("hex")->as_string());
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline std::string ReadText(const std::string& path) {
  auto text = ReadFile(path, size_t{1} << 30);
  CHECK(text.ok());
  return std::move(*text);
}

inline JsonDocument ReadJson(const std::string& path) {
  auto document = JsonDocument::Parse(ReadText(path));
  CHECK(document.ok());
  return std::move(*document);
}

}  // namespace reprise
