// SPDX-License-Identifier: Apache-2.0
#include "weights/format/gguf_parts.h"

#include <cstdio>
#include <string_view>

#include "base/check.h"
#include "weights/metadata.h"

namespace reprise {
namespace {

std::string PartSuffix(int64_t number, int64_t count) {
  char suffix[32];
  std::snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", int(number), int(count));
  return suffix;
}

std::string Of(int64_t number, int64_t count) {
  return "part " + std::to_string(number) + " of " + std::to_string(count);
}

}  // namespace

Result<GgufPart> ReadGgufPart(const GgufFile& file) {
  const Metadata split = Metadata(&file).Section("split");
  GgufPart part;
  REPRISE_ASSIGN(part.count, split.IntOr("count", 0, {0, kGgufPartsMax}));
  if (part.count <= 1) return GgufPart();
  REPRISE_ASSIGN(const int64_t number, split.Int("no", {0, part.count - 1}));
  part.number = number + 1;
  REPRISE_ASSIGN(part.tensors, split.IntOr("tensors.count", -1, {0, INT32_MAX}));
  return part;
}

std::string GgufPartPath(const std::string& stem, int64_t number, int64_t count) {
  return stem + PartSuffix(number, count);
}

std::optional<std::string> GgufPartStem(const std::string& path, const GgufPart& part) {
  const std::string suffix = PartSuffix(part.number, part.count);
  if (!path.ends_with(suffix)) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

Status CheckGgufPart(const GgufFile& file, int64_t number, int64_t count, const GgufFile& first) {
  REPRISE_ASSIGN(const GgufPart part, ReadGgufPart(file));
  REPRISE_ASSIGN(const GgufPart begin, ReadGgufPart(first));
  const std::string place = Of(number, count);
  if (part.number != number || part.count != count) {
    return DataLoss("it says that it is " + Of(part.number, part.count) +
                    ", and its name says that it is " + place);
  }
  if (part.tensors != begin.tensors) {
    return DataLoss("it is " + place +
                    " of another model than the first part: the numbers of "
                    "tensors that they promise differ");
  }
  for (const std::string_view key : {"general.architecture", "general.name"}) {
    if (!Metadata(&file).Has(key)) continue;
    REPRISE_ASSIGN(const std::string_view own, Metadata(&file).Text(key));
    REPRISE_ASSIGN(const std::string_view expected, Metadata(&first).TextOr(key, ""));
    if (own == expected) continue;
    return DataLoss("it is " + place +
                    " of another model than the first part: " + std::string(key) + " is " +
                    Quoted(own) + " there and " + Quoted(expected) + " here");
  }
  return OkStatus();
}

Status CheckGgufTensorCount(std::span<const GgufFile* const> parts) {
  CHECK(!parts.empty());
  REPRISE_ASSIGN(const GgufPart first, ReadGgufPart(*parts[0]));
  int64_t held = 0;
  for (const GgufFile* part : parts) held += int64_t(part->tensors().size());
  if (first.tensors < 0 || first.tensors == held) return OkStatus();
  return DataLoss("its " + std::to_string(parts.size()) + " parts hold " + std::to_string(held) +
                  " tensors, and the model has " + std::to_string(first.tensors) +
                  ": they are not of one model");
}

}  // namespace reprise
