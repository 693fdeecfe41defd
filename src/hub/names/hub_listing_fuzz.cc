// SPDX-License-Identifier: Apache-2.0
// What a hub lists, and what people write, against any bytes: every path that comes through stays
// in its folder, every digest is one, and a choice is made of listed files.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "hub/names/choice.h"
#include "hub/names/listing.h"
#include "hub/names/model_name.h"

using reprise::hub::Choose;
using reprise::hub::FindModels;
using reprise::hub::HubFile;
using reprise::hub::Listing;
using reprise::hub::ModelName;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > (1 << 16)) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The first line is a name, the rest a listing.
  const size_t line = std::min(text.find('\n'), text.size());
  std::string wanted;
  if (const auto name = ModelName::Parse(text.substr(0, line)); name.ok()) {
    CHECK(name->repo.find("..") == std::string::npos && name->repo.front() != '/');
    CHECK(name->revision.find("..") == std::string::npos && name->revision.front() != '/');
    const auto again = ModelName::Parse(name->ToString());
    CHECK(again.ok() && again->repo == name->repo && again->wanted == name->wanted);
    wanted = name->wanted;
  }
  const auto listing = Listing::Parse(text.substr(std::min(line + 1, text.size())));
  if (!listing.ok()) return 0;
  for (const HubFile& file : listing->files) {
    CHECK(file.path.front() != '/' && file.path.back() != '/');
    CHECK(("/" + file.path + "/").find("/../") == std::string::npos);
    CHECK(file.digest.empty() || file.digest.size() == 40 || file.digest.size() == 64);
  }
  const auto model = Choose(FindModels(listing->files), wanted);
  if (!model.ok()) return 0;
  CHECK(!model->files.empty());
  for (const HubFile& file : model->files) CHECK(listing->Find(file.path) != nullptr);
  return 0;
}
