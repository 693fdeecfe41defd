// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/account/account.h"
#include "base/status.h"
#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/split/splitter.h"
#include "text/subword/token_index.h"
#include "text/vocab/spec.h"
#include "text/vocab/string_table.h"

namespace reprise {

class SubwordModel;

struct EncodeOptions {
  bool add_special = true;     // BOS and the like, where the tokenizer asks for them
  bool parse_special = false;  // control tokens written in the text are those tokens
  bool parse_added = false;    // ... those that are not special are, as reference tokenizers do
};

// Who pays for an Encode, and how many ids are wanted of it.
struct EncodeMeter {
  Account* account = nullptr;  // charged while the text is read; null: nobody
  // A text with more ids is read only until that is certain; its ids are then incomplete.
  size_t ids_max = SIZE_MAX;
  // Set by Encode: ids of the text; of one that was not read to its end, about so many.
  size_t id_count = 0;
};

// Tokenizer turns text into token ids and ids into bytes.
//
//   text -> [added tokens] -> normalise -> [normalised added tokens] -> split -> subword model ->
//   ids
//
// Text may be any bytes. Byte-level and RWKV vocabularies carry invalid UTF-8 through unchanged:
// the bytes of the ids are the bytes of the text. Character vocabularies have byte tokens for it,
// or the unknown token.
//
// Costs: Encode is linear in the text up to a logarithm, whatever the text.
// Thread safety: immutable; any number of threads may use one.
class Tokenizer {
 public:
  // Text beyond this is refused. Ids are counted in 32 bits with room to spare.
  static constexpr size_t kTextBytesMax = size_t{1} << 28;

  // Fails with kDataLoss if the specification contradicts itself, with kUnimplemented if it asks
  // for something unknown.
  static Result<std::unique_ptr<Tokenizer>> Make(VocabSpec spec);
  ~Tokenizer();

  // Appends the ids of `text`. On failure (text too long, a pre-tokenizer pattern that gives up on
  // it, an account that is spent) appends nothing.
  Status Encode(std::string_view text, EncodeOptions options, std::vector<int32_t>* ids,
                EncodeMeter* meter = nullptr) const;

  // Appends the ids of a prompt in which the bytes of `data` (ascending) came from others. Control
  // tokens are found only where none of their bytes is data. Otherwise as Encode with
  // parse_special: what is data does not cut the text into pieces.
  Status EncodePrompt(std::string_view text, std::span<const TextRange> data,
                      std::vector<int32_t>* ids, EncodeMeter* meter = nullptr) const;

  // The text of ids: the bytes of all tokens (special ones only if `keep_special`), made valid
  // UTF-8. The same as a Detokenizer that is fed all of them. Unknown ids have no text.
  std::string Decode(std::span<const int32_t> ids, bool keep_special = false) const;

  // What `id` adds to the output; empty for ids out of range. Valid as long as the tokenizer is.
  std::string_view TokenBytes(int32_t id) const;

  // Special tokens are not shown as text.
  bool IsSpecial(int32_t id) const;

  // Control tokens steer the model: special ones, and all other added ones but white space.
  bool IsControl(int32_t id) const;

  // The id of the token whose text in the file is `text`, or -1. For names like "<|im_end|>".
  int32_t FindToken(std::string_view text) const;

  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }
  int32_t bos_id() const { return bos_id_; }
  int32_t pad_id() const { return pad_id_; }
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  bool IsEos(int32_t id) const;
  VocabSpec::Decode decode_rule() const { return decode_; }

 private:
  struct Scratch;

  Tokenizer();
  void BuildBytes(const VocabSpec& spec);
  Status EncodeWith(std::string_view text, const AddedTokenRule& rule, bool late,
                    EncodeMeter* meter, std::vector<int32_t>* ids) const;
  Status EncodeSegment(std::string_view text, bool at_start, const AddedTokenRule& rule,
                       Scratch* scratch, std::vector<int32_t>* ids) const;
  Status EncodeText(std::string_view text, bool at_start, Scratch* scratch,
                    std::vector<int32_t>* ids) const;
  static size_t BytesPerIdMax(const VocabSpec& spec);

  AddedTokens raw_tokens_;         // found in the text as it comes
  AddedTokens normalized_tokens_;  // found in normalised text
  // The same as they are spelled before: prompts with data in them look for control tokens there,
  // because normalised text does not say where it came from.
  AddedTokens late_tokens_;
  Normalizer normalizer_;
  Splitter splitter_;
  std::unique_ptr<SubwordModel> model_;
  StringTable bytes_;  // id -> bytes it adds to the output
  StringTable names_;  // id -> text in the file
  TokenIndex name_index_;
  std::vector<bool> special_;  // [vocab]
  std::vector<bool> control_;  // [vocab]
  VocabSpec::Decode decode_ = VocabSpec::Decode::kBytes;
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  std::vector<int32_t> eos_ids_;
  size_t bytes_per_id_max_ = 0;  // of any text; 0: not known
  int32_t bos_id_ = -1;
  int32_t pad_id_ = -1;
};

}  // namespace reprise
