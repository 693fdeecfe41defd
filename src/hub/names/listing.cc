// SPDX-License-Identifier: Apache-2.0
#include "hub/names/listing.h"

#include <algorithm>
#include <set>

#include "base/json.h"

namespace reprise::hub {
namespace {

constexpr size_t kPathBytesMax = 1024;
constexpr size_t kPartBytesMax = 255;
constexpr size_t kFilesMax = 100'000;
constexpr size_t kValuesMax = 4'000'000;
constexpr int64_t kFileBytesMax = int64_t{1} << 50;

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string Text(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

uint64_t Bytes(const JsonValue& object) {
  const JsonValue* value = object.Find("size");
  const bool sound = value != nullptr && value->is_int() && value->as_int() >= 0 &&
                     value->as_int() <= kFileBytesMax;
  return sound ? static_cast<uint64_t>(value->as_int()) : 0;
}

HubFile ParseFile(const JsonValue& sibling) {
  HubFile file;
  file.path = Text(sibling, "rfilename");
  file.bytes = Bytes(sibling);
  const JsonValue* large = sibling.Find("lfs");
  if (large != nullptr && large->is_object()) {
    file.digest = Text(*large, "sha256");
    if (!IsHex(file.digest, 64)) file.digest.clear();
    if (large->Find("size") != nullptr) file.bytes = Bytes(*large);
  } else {
    file.digest = Text(sibling, "blobId");
    if (!IsHex(file.digest, 40)) file.digest.clear();
  }
  return file;
}

}  // namespace

bool IsDigest(std::string_view text) { return IsHex(text, 40) || IsHex(text, 64); }

bool IsCommit(std::string_view text) { return IsHex(text, 40); }

bool IsHubPath(std::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax) return false;
  const bool printable = std::all_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != 0x7F && c != '\\';
  });
  if (!printable) return false;
  for (;;) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > kPartBytesMax) return false;
    if (slash == path.size()) return true;
    path.remove_prefix(slash + 1);
  }
}

const HubFile* Listing::Find(std::string_view path) const {
  const auto it = std::find_if(files.begin(), files.end(),
                               [&](const HubFile& file) { return file.path == path; });
  return it == files.end() ? nullptr : &*it;
}

Result<Listing> Listing::Parse(std::string_view json) {
  JsonLimits limits;
  limits.value_count_max = kValuesMax;
  const Result<JsonDocument> document = JsonDocument::Parse(json, limits);
  if (!document.ok() || !document->root().is_object()) {
    return DataLoss("the hub's list of files is not in the format of a hub; is HF_ENDPOINT right?");
  }
  Listing listing;
  listing.commit = Text(document->root(), "sha");
  const JsonValue* siblings = document->root().Find("siblings");
  if (!IsCommit(listing.commit) || siblings == nullptr || !siblings->is_array()) {
    return DataLoss("the hub's list of files has no commit or no files");
  }
  if (siblings->items().size() > kFilesMax) {
    return ResourceExhausted("the hub's list has more than 100,000 files");
  }
  std::set<std::string> seen;
  for (const JsonValue& sibling : siblings->items()) {
    if (!sibling.is_object()) continue;
    HubFile file = ParseFile(sibling);
    if (IsHubPath(file.path) && seen.insert(file.path).second) {
      listing.files.push_back(std::move(file));
    }
  }
  return listing;
}

}  // namespace reprise::hub
