// SPDX-License-Identifier: Apache-2.0
#include "model/export/gguf_vocabulary.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/subword/byte_alphabet.h"
#include "text/vocab/gguf.h"

namespace reprise {
namespace {

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// The printable stand-in of a byte in GPT-2's alphabet.
std::string AlphabetSymbol(int byte) {
  const char c = static_cast<char>(byte);
  std::string symbol;
  AppendAlphabetText({&c, 1}, &symbol);
  return symbol;
}

// The patterns of a pre-tokenizer, in order.
std::vector<std::string_view> PatternsOf(const std::vector<SplitStep>& steps) {
  std::vector<std::string_view> patterns;
  for (const SplitStep& step : steps) {
    if (step.kind == SplitStep::Kind::kRegex) patterns.push_back(step.pattern);
  }
  return patterns;
}

// The name that GGUF files have for the pre-tokenizer of this vocabulary.
Result<std::string_view> FindPreTokenizerName(const VocabSpec& vocab) {
  static constexpr std::string_view kNames[] = {"qwen2",   "qwen35",      "llama-bpe", "smaug-bpe",
                                                "gpt-2",   "deepseek-v3", "tekken",    "gpt-4o",
                                                "kimi-k2", "olmo",        "stablelm2"};
  const bool nfc = !vocab.normalize.empty();
  for (const std::string_view name : kNames) {
    const auto known = FindGgufPreTokenizer(name);
    if (known.ok() && known->nfc == nfc && known->ignore_merges == vocab.ignore_merges &&
        PatternsOf(known->steps) == PatternsOf(vocab.split)) {
      return name;
    }
  }
  return Unimplemented("GGUF has no name that is known here for this tokenizer's pre-tokenizer");
}

void PutTokens(const std::vector<std::string>& tokens, const std::vector<int32_t>& kinds,
               GgufWriter* out) {
  out->PutStrings("tokenizer.ggml.tokens",
                  std::vector<std::string_view>(tokens.begin(), tokens.end()));
  out->PutArray<int32_t>("tokenizer.ggml.token_type", kinds);
}

// Unused tokens up to `size`.
void PadTokens(int64_t size, std::vector<std::string>* tokens, std::vector<int32_t>* kinds) {
  while (int64_t(tokens->size()) < size) {
    tokens->push_back("[PAD" + std::to_string(tokens->size()) + "]");
    kinds->push_back(int32_t(TokenKind::kUnused));
  }
}

}  // namespace

void PutByteVocabulary(int64_t size, GgufWriter* out) {
  CHECK(size >= kByteVocabularyMin);
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(AlphabetSymbol(byte));
  const std::string space = AlphabetSymbol(' ');
  tokens.push_back(space + "t");  // readers expect at least one merge
  kinds.assign(tokens.size(), int32_t(TokenKind::kNormal));
  const uint32_t end = uint32_t(tokens.size());
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.push_back(special);
    kinds.push_back(int32_t(TokenKind::kControl));
  }
  // llama.cpp looks for these in every file with "Phi-3" in its name.
  for (const char* unused : {"<unk>", "<s>", "</s>"}) {
    if (int64_t(tokens.size()) == size) break;
    tokens.push_back(unused);
    kinds.push_back(int32_t(TokenKind::kUnused));
  }
  PadTokens(size, &tokens, &kinds);
  const std::string merge = space + " t";
  const std::string_view merges[] = {merge};
  out->PutString("tokenizer.ggml.model", "gpt2");
  out->PutString("tokenizer.ggml.pre", "qwen2");
  PutTokens(tokens, kinds, out);
  out->PutStrings("tokenizer.ggml.merges", merges);
  out->Put<uint32_t>("tokenizer.ggml.eos_token_id", end + 2);
  out->Put<uint32_t>("tokenizer.ggml.padding_token_id", end);
  out->Put<bool>("tokenizer.ggml.add_bos_token", false);
  out->PutString("tokenizer.chat_template", kChatTemplate);
}

Status PutVocabulary(const VocabSpec& vocab, std::string_view chat_template, int64_t size,
                     GgufWriter* out) {
  if (vocab.model != VocabSpec::Model::kByteBpe) {
    return Unimplemented("only byte-level BPE tokenizers can be written to GGUF files here");
  }
  if (vocab.merges.size() == 0 && !vocab.scores.empty()) {
    return Unimplemented("the tokenizer of tekken.json cannot be written to GGUF files here");
  }
  if (int64_t(vocab.tokens.size()) > size) {
    return InvalidArgument("the tokenizer has " + std::to_string(vocab.tokens.size()) +
                           " tokens, the model only " + std::to_string(size));
  }
  REPRISE_ASSIGN(const std::string_view pre, FindPreTokenizerName(vocab));
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    tokens.emplace_back(vocab.tokens[id]);
    kinds.push_back(int32_t(vocab.kinds.empty() ? TokenKind::kNormal : vocab.kinds[id]));
    if (tokens.back().empty()) {
      tokens.back() = "[PAD" + std::to_string(id) + "]";
      kinds.back() = int32_t(TokenKind::kUnused);
    }
  }
  for (const AddedToken& added : vocab.added) {
    CHECK(added.id >= 0 && size_t(added.id) < tokens.size());
    tokens[size_t(added.id)] = added.text;
    kinds[size_t(added.id)] =
        int32_t(added.special ? TokenKind::kControl : TokenKind::kUserDefined);
  }
  PadTokens(size, &tokens, &kinds);
  std::vector<std::string> merges;
  for (size_t i = 0; i + 1 < vocab.merges.size(); i += 2) {
    merges.push_back(std::string(vocab.merges[i]) + " " + std::string(vocab.merges[i + 1]));
  }
  out->PutString("tokenizer.ggml.model", "gpt2");
  out->PutString("tokenizer.ggml.pre", pre);
  PutTokens(tokens, kinds, out);
  out->PutStrings("tokenizer.ggml.merges",
                  std::vector<std::string_view>(merges.begin(), merges.end()));
  const auto put_id = [&](const char* key, int32_t id) {
    if (id >= 0) out->Put<uint32_t>(key, uint32_t(id));
  };
  put_id("tokenizer.ggml.bos_token_id", vocab.bos_id);
  put_id("tokenizer.ggml.eos_token_id", vocab.eos_ids.empty() ? -1 : vocab.eos_ids.front());
  put_id("tokenizer.ggml.padding_token_id", vocab.pad_id);
  out->Put<bool>("tokenizer.ggml.add_bos_token", !vocab.prefix_ids.empty());
  if (!chat_template.empty()) out->PutString("tokenizer.chat_template", chat_template);
  return OkStatus();
}

}  // namespace reprise
