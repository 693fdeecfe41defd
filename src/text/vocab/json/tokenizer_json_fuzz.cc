// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json and, after a zero byte, a text: the file is refused or gives a tokenizer that
// encodes and decodes any text, with ids in range and valid UTF-8.
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/vocab/json/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using reprise::Tokenizer;
  static constexpr size_t kTextMax = 256;  // patterns of the file may backtrack; keep runs short
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(zero + 1, input.size())).substr(0, kTextMax);
  auto spec = reprise::ParseTokenizerJson(input.substr(0, zero));
  if (!spec.ok()) {
    CHECK(!spec.status().message().empty());
    return 0;
  }
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  if (!tokenizer.ok()) return 0;
  for (const bool special : {false, true}) {
    for (const std::string_view part : {text, std::string_view("Hello  w\xC3\xB6rld\n12 \xFF")}) {
      std::vector<int32_t> ids;
      if (!(*tokenizer)->Encode(part, {special, special}, &ids).ok()) {
        CHECK(ids.empty());
        continue;
      }
      for (const int32_t id : ids) CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
      CHECK(reprise::IsValidUtf8((*tokenizer)->Decode(ids, special)));
    }
  }
  return 0;
}
