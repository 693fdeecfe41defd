// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizers that GGUF files name. The patterns are those of the models' tokenizer.json.
#include <algorithm>
#include <array>
#include <string>

#include "text/split/scanner.h"
#include "text/vocab/gguf.h"

namespace reprise {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORD_PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SIGNS_OR_SLASHES " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define CASED_WORDS(after) \
  WORD_PREFIX UPPER "*" LOWER "+" after "|" WORD_PREFIX UPPER "+" LOWER "*" after

constexpr std::string_view kTekken = CASED_WORDS("") "|\\p{N}|" SIGNS_OR_SLASHES "|" SPACES;
constexpr std::string_view kO200k =
    CASED_WORDS(CONTRACTIONS "?") "|\\p{N}{1,3}|" SIGNS_OR_SLASHES "|" SPACES;
constexpr std::string_view kCased1 =
    CASED_WORDS(CONTRACTIONS "?") "|\\p{N}|" SIGNS_OR_SLASHES "|" SPACES;

#define NO_HAN(set) "[" set "&&[^\\p{Han}]]"
#define KIMI_UPPER NO_HAN("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define KIMI_LOWER NO_HAN("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
constexpr std::string_view kKimi =
    "[\\p{Han}]+|" WORD_PREFIX KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS
    "?|" WORD_PREFIX KIMI_UPPER "+" KIMI_LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}|" SIGNS "|" SPACES;

constexpr std::string_view kBailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kSeedCoder =
    CONTRACTIONS "|" WORD_PREFIX "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES;
constexpr std::string_view kExaoneMoe =
    CONTRACTIONS "|" WORD_PREFIX
                 "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
                 "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kMiniCpm5 =
    CONTRACTIONS "|" WORD_PREFIX "\\p{L}+|\\p{N}+|" SIGNS "|" SPACES;
constexpr std::string_view kJais2 =
    CONTRACTIONS "|" WORD_PREFIX "\\p{L}+|\\p{N}{1,3}|" SIGNS
                 "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|"
                 "\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
constexpr std::string_view kLines = "[^\\n]+|[\\n]+";
constexpr std::string_view kPunctuation = "[\\p{P}$+<=>^`|~]";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";

constexpr std::string_view kDeepSeekLetters =
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-"
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-"
    "\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-"
    "\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-"
    "\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-"
    "\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-"
    "\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-"
    "\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}"
    "\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-"
    "\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+";
constexpr std::string_view kDeepSeekCjk = "[一-龥ࠀ-一가-퟿]+";

struct Entry {
  std::string_view names;                    // separated by spaces
  std::array<std::string_view, 6> patterns;  // in their order, then empty ones
  bool ignore_merges = false;
  bool add_bos = false;
  bool nfc = false;
};

constexpr Entry kEntries[] = {
    {"gpt-2 phi-2 mpt jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert",
     {kGpt2Pattern}},
    {"olmo", {kGpt2Pattern}, false, false, true},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     {kLlama3Pattern},
     true,
     true},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {kLlama3Pattern}},
    {"qwen2 deepseek-r1-qwen kormo", {kQwen2Pattern}, false, false, true},
    {"megrez stablelm2 hunyuan solar-open grok-2", {kQwen2Pattern}},
    {"qwen35", {kQwen35Pattern}, false, false, true},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     {kNumberPattern, kGpt2Pattern}},
    {"deepseek-v3 hunyuan-dense joyai-llm", {kNumber3Pattern, kCjkPattern, kDeepSeek3Pattern}},
    {"deepseek-llm",
     {"[\r\n]", kDeepSeekLetters, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", kDeepSeekCjk,
      kNumbersPattern}},
    {"deepseek-coder", {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepSeekCjk, kNumberPattern}},
    {"tekken", {kTekken}, true, true},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {kO200k}},
    {"tiny_aya cohere2moe", {"\\d{1,3}(?=(?:\\d{3})*\\b)", kO200k}},
    {"youtu",
     {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
      "ゟ゠-"
      "ヿ]"
      "+",
      kCased1},
     true},
    {"kimi-k2", {kKimi}},
    {"bailingmoe bailingmoe2 llada-moe", {kBailing}},
    {"seed-coder", {kSeedCoder}},
    {"exaone-moe", {kExaoneMoe}},
    {"minicpm5", {kNumber3Pattern, kMiniCpm5}, true},
    {"laguna", {kLines, kQwen2Pattern}},
    {"jais-2", {kJais2}},
    {"superbpe", {kNumbersPattern, "(?=(\\d{3})+(?!\\d))"}},
    {"poro-chat bloom gpt3-finnish", {kBloom}},
    {"viking", {kBloom, kNumberPattern}},
    // What llama.cpp does with files that name none; they are old.
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2Pattern, kNumbersPattern, kThreeDigits}},
};

bool HasName(std::string_view names, std::string_view name) {
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(' ', at), names.size());
    if (names.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

SplitStep Pattern(std::string_view pattern) {
  SplitStep step;
  step.pattern = pattern;
  return step;
}

// Falcon's last steps see the text in the byte alphabet, where some bytes look like digits.
GgufPreTokenizer Falcon() {
  GgufPreTokenizer pre;
  pre.steps.push_back(Pattern(kPunctuation));
  pre.steps.back().behavior = SplitStep::Behavior::kContiguous;
  pre.steps.push_back(Pattern(kGpt2Pattern));
  pre.steps.emplace_back().kind = SplitStep::Kind::kAlphabet;
  pre.steps.push_back(Pattern(kNumbersPattern));
  pre.steps.push_back(Pattern(kThreeDigits));
  return pre;
}

}  // namespace

Result<GgufPreTokenizer> FindGgufPreTokenizer(std::string_view name) {
  if (name.empty()) name = "default";
  if (name == "falcon") return Falcon();
  for (const Entry& entry : kEntries) {
    if (!HasName(entry.names, name)) continue;
    GgufPreTokenizer pre;
    for (const std::string_view pattern : entry.patterns) {
      if (!pattern.empty()) pre.steps.push_back(Pattern(pattern));
    }
    pre.ignore_merges = entry.ignore_merges;
    pre.add_bos = entry.add_bos;
    pre.nfc = entry.nfc;
    return pre;
  }
  return Unimplemented("the GGUF pre-tokenizer \"" + std::string(name.substr(0, 64)) +
                       "\" is not known; use the model's Hugging Face folder");
}

}  // namespace reprise
