// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/file.h"

#include "base/mapped_file.h"
#include "text/vocab/tokenizer_json.h"

namespace reprise {
namespace {

constexpr size_t kFileBytesMax = size_t{256} << 20;

}  // namespace

Result<VocabSpec> ReadVocabFile(const std::string& path) {
  REPRISE_ASSIGN(const std::string text, ReadFile(path, kFileBytesMax));
  return ParseTokenizerJson(text);
}

}  // namespace reprise
