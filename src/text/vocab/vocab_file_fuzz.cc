// SPDX-License-Identifier: Apache-2.0
// The other files that make a tokenizer. The first byte chooses: a SentencePiece model, an RWKV
// vocabulary, a tokenizer_config.json, a generation_config.json, or GGUF metadata as lines.
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/vocab/gguf.h"
#include "text/vocab/rwkv.h"
#include "text/vocab/sentencepiece.h"
#include "text/vocab/tokenizer_config.h"

namespace reprise {
namespace {

void Use(Result<VocabSpec> spec) {
  if (!spec.ok()) return;
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  if (!tokenizer.ok()) return;
  std::vector<int32_t> ids;
  if (!(*tokenizer)->Encode("Hello  w\xC3\xB6rld\n12 \xFF<s>", {true, true}, &ids).ok()) return;
  for (const int32_t id : ids) CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  CHECK(IsValidUtf8((*tokenizer)->Decode(ids)));
}

VocabSpec SmallVocab() {
  VocabSpec spec;
  for (const char* token : {"<s>", "</s>", "", "a"}) spec.tokens.Add(token);
  spec.kinds = {TokenKind::kControl, TokenKind::kControl, TokenKind::kUnused, TokenKind::kNormal};
  return spec;
}

// Model, pre-tokenizer, one line per token ("kind score text"), a line "merges", then merges.
GgufVocab ParseLines(std::string_view text) {
  GgufVocab gguf;
  bool merges = false;
  for (size_t number = 0; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (number == 0) {
      gguf.model = line;
    } else if (number == 1) {
      gguf.pre = line;
    } else if (line == "merges") {
      merges = true;
    } else if (merges) {
      gguf.merges.Add(line);
    } else {
      gguf.types.push_back(line.empty() ? 1 : line[0] - '0');
      gguf.scores.push_back(line.size() < 2 ? 0.0f : static_cast<float>(line[1]));
      gguf.tokens.Add(line.substr(std::min<size_t>(line.size(), 2)));
    }
  }
  if (gguf.types.size() % 2 == 1) gguf.bos_id = gguf.types.size() / 2;
  return gguf;
}

}  // namespace
}  // namespace reprise

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  if (size == 0) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 's':
      Use(ParseSentencePieceModel(file));
      break;
    case 'r':
      Use(ParseRwkvVocab(file));
      break;
    case 'c': {
      VocabSpec spec = SmallVocab();
      std::vector<ChatTemplateSource> templates;
      if (ApplyTokenizerConfig(file, &spec, &templates).ok()) Use(std::move(spec));
      break;
    }
    case 'g': {
      VocabSpec spec = SmallVocab();
      if (ApplyGenerationConfig(file, &spec).ok()) Use(std::move(spec));
      break;
    }
    case 'm':
      Use(VocabFromGguf(ParseLines(file)));
      break;
    default:
      break;
  }
  return 0;
}
