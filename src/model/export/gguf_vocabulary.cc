// SPDX-License-Identifier: Apache-2.0
#include "model/export/gguf_vocabulary.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace reprise {
namespace {

// Values of tokenizer.ggml.token_type.
enum : int32_t { kNormal = 1, kControl = 3, kUnused = 5 };

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// The printable stand-in of a byte in GPT-2's alphabet.
std::string AlphabetSymbol(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  uint32_t code = uint32_t(byte);
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  std::string symbol;
  AppendUtf8(code, &symbol);
  return symbol;
}

}  // namespace

void PutByteVocabulary(int64_t size, GgufWriter* out) {
  CHECK(size >= kByteVocabularyMin);
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(AlphabetSymbol(byte));
  const std::string space = AlphabetSymbol(' ');
  tokens.push_back(space + "t");  // readers expect at least one merge
  kinds.assign(tokens.size(), kNormal);
  const uint32_t end = uint32_t(tokens.size());
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.push_back(special);
    kinds.push_back(kControl);
  }
  while (int64_t(tokens.size()) < size) {
    tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
    kinds.push_back(kUnused);
  }
  const std::string merge = space + " t";
  const std::string_view merges[] = {merge};
  out->PutString("tokenizer.ggml.model", "gpt2");
  out->PutString("tokenizer.ggml.pre", "qwen2");
  out->PutStrings("tokenizer.ggml.tokens",
                  std::vector<std::string_view>(tokens.begin(), tokens.end()));
  out->PutArray<int32_t>("tokenizer.ggml.token_type", kinds);
  out->PutStrings("tokenizer.ggml.merges", merges);
  out->Put<uint32_t>("tokenizer.ggml.eos_token_id", end + 2);
  out->Put<uint32_t>("tokenizer.ggml.padding_token_id", end);
  out->Put<bool>("tokenizer.ggml.add_bos_token", false);
  out->PutString("tokenizer.chat_template", kChatTemplate);
}

}  // namespace reprise
