// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes texts for tools/compare_tokenizers.py, which compares the ids with those of
// other libraries.
//
//   tokenizer_probe FILE [special]
//
// stdin: records of a 32-bit little-endian length and as many bytes of text. stdout: for each, the
// number of ids, the ids, the length of their decoded text and the text. "special" parses special
// tokens and adds BOS and EOS.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "model/model_text.h"

namespace reprise {
namespace {

bool Read(void* data, size_t size) { return std::fread(data, 1, size, stdin) == size; }

void Write(const void* data, size_t size) { std::fwrite(data, 1, size, stdout); }

void WriteCount(size_t count) {
  const uint32_t value = static_cast<uint32_t>(count);
  Write(&value, sizeof(value));
}

int Run(const std::string& path, bool special) {
  const auto text_model = ReadTextFile(path);
  if (!text_model.ok()) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), text_model.status().message().c_str());
    return 1;
  }
  const Tokenizer& tokenizer = *text_model->tokenizer;
  uint32_t size = 0;
  std::string text;
  std::vector<int32_t> ids;
  while (Read(&size, sizeof(size))) {
    text.resize(size);
    ids.clear();
    if (!Read(text.data(), size)) return 1;
    const Status status = tokenizer.Encode(text, {special, special, /*parse_added=*/true}, &ids);
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), status.message().c_str());
      return 1;
    }
    WriteCount(ids.size());
    Write(ids.data(), ids.size() * sizeof(ids[0]));
    const std::string decoded = tokenizer.Decode(ids, true);
    WriteCount(decoded.size());
    Write(decoded.data(), decoded.size());
  }
  return 0;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tokenizer_probe FILE [special] < records > ids\n");
    return 2;
  }
  return reprise::Run(argv[1], argc > 2 && std::strcmp(argv[2], "special") == 0);
}
