// SPDX-License-Identifier: Apache-2.0
// Any bytes as config.json: refused, or every question about every member gets an answer.
#include <cstdint>
#include <string_view>

#include "weights/metadata.h"

namespace {

uint64_t sink = 0;

void Ask(const reprise::Metadata& metadata, std::string_view key) {
  sink += metadata.Int(key, {0, 1000}).ok() + metadata.Number(key).ok() + metadata.Bool(key).ok() +
          metadata.Text(key).ok() + metadata.IntOr(key, 1, {0, 9}).ok() +
          metadata.NumberOr(key, 1, {0, 9}).ok() + metadata.BoolOr(key, true).ok() +
          metadata.TextOr(key, "").ok() + metadata.IntPerLayer(key, 4, {0, 9}).ok() +
          metadata.Ints(key, 8, {0, 9}).ok() + metadata.Numbers(key, 8).ok() +
          metadata.Texts(key, 8).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const reprise::Result<reprise::JsonDocument> document = reprise::ParseConfigJson(text);
  if (!document.ok()) return 0;
  const reprise::Metadata metadata(document->root());
  Ask(metadata, "hidden_size");
  if (!document->root().is_object()) return 0;
  const auto members = document->root().members();
  for (size_t i = 0; i < members.size() && i < 64; ++i) {
    Ask(metadata, members[i].key);
    Ask(metadata.Section(members[i].key), "hidden_size");
  }
  return 0;
}
