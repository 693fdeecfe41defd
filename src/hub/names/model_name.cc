// SPDX-License-Identifier: Apache-2.0
#include "hub/names/model_name.h"

#include <algorithm>

namespace reprise::hub {
namespace {

constexpr size_t kPartBytesMax = 96;
constexpr size_t kRevisionBytesMax = 255;
constexpr size_t kWantedBytesMax = 512;

bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// The hub's own rules. "--" separates the parts of a folder in the cache.
bool IsPart(std::string_view part) {
  const auto edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kPartBytesMax &&
         std::all_of(part.begin(), part.end(), IsWord) && !edge(part.front()) &&
         !edge(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

bool IsRevision(std::string_view revision) {
  return !revision.empty() && revision.size() <= kRevisionBytesMax &&
         std::all_of(revision.begin(), revision.end(),
                     [](char c) { return IsWord(c) || c == '/'; }) &&
         revision.find("..") == std::string_view::npos && revision.front() != '/' &&
         revision.front() != '.' && revision.find("/.") == std::string_view::npos &&
         revision.back() != '/' && revision.find("//") == std::string_view::npos;
}

bool IsWanted(std::string_view wanted) {
  return !wanted.empty() && wanted.size() <= kWantedBytesMax &&
         std::all_of(wanted.begin(), wanted.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7F; });
}

}  // namespace

Result<ModelName> ModelName::Parse(std::string_view text) {
  const std::string whole(text.substr(0, 200));
  const auto wrong = [&] {
    return InvalidArgument("'" + whole +
                           "' does not name a model of the hub: write ORG/REPO, ORG/REPO:Q4_K_M "
                           "or ORG/REPO:FILE");
  };
  if (text.starts_with("hf:")) text.remove_prefix(3);
  if (text.starts_with("//")) text.remove_prefix(2);
  ModelName name;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    name.wanted = text.substr(colon + 1);
    if (!IsWanted(name.wanted)) return wrong();
    text = text.substr(0, colon);
  }
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    name.revision = text.substr(at + 1);
    if (!IsRevision(name.revision)) return wrong();
    text = text.substr(0, at);
  }
  name.repo = text;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos && !IsPart(text.substr(0, slash))) return wrong();
  if (!IsPart(slash == std::string_view::npos ? text : text.substr(slash + 1))) return wrong();
  return name;
}

std::string ModelName::ToString() const {
  return repo + (revision == "main" ? "" : "@" + revision) + (wanted.empty() ? "" : ":" + wanted);
}

}  // namespace reprise::hub
