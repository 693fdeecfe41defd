// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/vocab/string_table.h"

namespace reprise {

// VocabSpec is what a tokenizer is made of, as plain data. tokenizer.json (tokenizer_json.h) and
// GGUF metadata (gguf_vocab.h) both become one; Tokenizer::Make checks it. Nothing in it is
// trusted.

// Limits: no published model comes near; a hostile file does not get beyond.
inline constexpr size_t kVocabTokensMax = size_t{1} << 21;
inline constexpr size_t kVocabMergesMax = (size_t{1} << 22) - 1;
inline constexpr size_t kTokenBytesMax = size_t{1} << 16;
// Where tokens are looked for from every place of a text (added tokens, unigram, RWKV World), this
// bounds what a byte of text costs.
inline constexpr size_t kTrieTokenBytesMax = 512;

// The numbering of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // special: never made from plain text
  kUserDefined = 4,  // added, but ordinary text
  kUnused = 5,
  kByte = 6,  // "<0x0A>"
};

// A token that is found in the text before the model sees it.
struct AddedToken {
  int32_t id = -1;
  std::string text;
  bool special = false;      // not shown as text
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool single_word = false;  // not inside a word
  bool normalized = false;   // found in the normalised text
};

struct NormalizeStep {
  enum class Kind : uint8_t {
    kNfc,
    kPrepend,       // `to` before a text that is not empty
    kReplace,       // each `from` by `to`
    kReplaceRegex,  // each match of the pattern `from` by `to`
    kStrip,         // white space at the start if `from` is not empty, at the end if `to` is not
    kCharsMap,      // SentencePiece's precompiled normalisation, its bytes in `from`
    kMakeValid,     // each byte that belongs to no character by U+FFFD
  };
  Kind kind = Kind::kNfc;
  std::string from;
  std::string to;
};

struct SplitStep {
  enum class Kind : uint8_t {
    kRegex,
    kLiteral,
    kMetaspace,    // U+0020 becomes U+2581, and one is put in front by `prepend`
    kPrefixSpace,  // U+0020 in front of a piece that does not begin with one
    kAlphabet,     // the steps that follow see the text in GPT-2's byte alphabet
  };
  // What becomes of a match: the names of Hugging Face tokenizers.
  enum class Behavior : uint8_t {
    kIsolated,
    kRemoved,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  Kind kind = Kind::kRegex;
  Behavior behavior = Behavior::kIsolated;
  Prepend prepend = Prepend::kNever;
  bool invert = false;  // what does not match is the match
  std::string pattern;  // Oniguruma's Ruby syntax, or the literal
};

struct VocabSpec {
  enum class Model : uint8_t {
    kByteBpe,    // merges over bytes, from `merges` or from `scores`; token text in GPT-2's byte
                 // alphabet
    kCharBpe,    // merges over characters (SentencePiece BPE), from `merges` or from `scores`
    kUnigram,    // most probable segmentation (SentencePiece unigram)
    kRwkvWorld,  // greedy longest match on bytes; token text is bytes
  };
  enum class Decode : uint8_t {
    kBytes,           // concatenate
    kStripOne,        // one U+0020 at the start of the text is dropped
    kStripFirstToken  // no U+2581 of the first token counts
  };

  Model model = Model::kByteBpe;
  StringTable tokens;            // id -> text as the file has it; empty for a hole
  std::vector<TokenKind> kinds;  // [tokens], or empty: all normal
  std::vector<double> scores;    // [tokens] for kUnigram, and for BPE without merges
  StringTable merges;            // [2 * merges]: left, right; rank is the order
  bool ignore_merges = false;    // a piece that is a token is that token
  bool byte_fallback = false;    // what is not in the vocabulary becomes "<0x..>" tokens
  bool fuse_unknown = true;      // neighbouring unknown characters are one unknown token

  std::vector<NormalizeStep> normalize;
  std::vector<SplitStep> split;
  std::vector<AddedToken> added;
  Decode decode = Decode::kBytes;
  bool decode_metaspace = false;  // U+2581 in token text is a space

  std::vector<int32_t> prefix_ids;  // put before the text with EncodeOptions::add_special
  std::vector<int32_t> suffix_ids;  // and after it

  int32_t bos_id = -1;
  int32_t unknown_id = -1;
  int32_t pad_id = -1;
  std::vector<int32_t> eos_ids;  // generation ends with any of these
};

}  // namespace reprise
