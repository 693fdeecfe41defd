// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/sentencepiece.h"

#include <bit>
#include <utility>

namespace reprise {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

// One field of a protocol buffer message.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // varint or fixed
  std::string_view bytes;  // length-delimited
};

// Walks the fields of a message; every length is checked against what is left.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : left_(message) {}

  // False at the end or at an error; then ok() tells which.
  bool Next(Field* field) {
    if (left_.empty() || !ok_) return false;
    uint64_t key = 0;
    ok_ = ReadVarint(&key) && key >> 3 != 0 && key >> 3 <= UINT32_MAX;
    if (!ok_) return false;
    *field = {};
    field->number = static_cast<uint32_t>(key >> 3);
    switch (key & 7) {
      case 0:
        ok_ = ReadVarint(&field->value);
        break;
      case 1:
        ok_ = ReadFixed(8, &field->value);
        break;
      case 2: {
        uint64_t size = 0;
        ok_ = ReadVarint(&size) && size <= left_.size();
        if (ok_) {
          field->bytes = left_.substr(0, static_cast<size_t>(size));
          left_.remove_prefix(static_cast<size_t>(size));
        }
        break;
      }
      case 5:
        ok_ = ReadFixed(4, &field->value);
        break;
      default:
        ok_ = false;
    }
    return ok_;
  }

  bool ok() const { return ok_; }

 private:
  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(left_[0]);
      left_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool ReadFixed(size_t size, uint64_t* value) {
    if (left_.size() < size) return false;
    *value = 0;
    for (size_t i = size; i-- > 0;) *value = *value << 8 | static_cast<uint8_t>(left_[i]);
    left_.remove_prefix(size);
    return true;
  }

  std::string_view left_;
  bool ok_ = true;
};

Status Broken() { return DataLoss("the SentencePiece model is broken or cut off"); }

Status ParsePiece(std::string_view message, SentencePieceSpec* model) {
  std::string_view text;
  float score = 0;
  TokenKind kind = TokenKind::kNormal;
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.number == 1) text = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) return Broken();
      kind = static_cast<TokenKind>(field.value);
    }
  }
  if (!reader.ok()) return Broken();
  if (model->tokens.size() >= kVocabTokensMax) {
    return DataLoss("the SentencePiece model has more than " + std::to_string(kVocabTokensMax) +
                    " tokens");
  }
  model->tokens.Add(text);
  model->scores.push_back(score);
  model->kinds.push_back(kind);
  return OkStatus();
}

Status ParseTrainer(std::string_view message, SentencePieceSpec* model) {
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    const int32_t id =
        static_cast<int32_t>(field.value);  // a negative int32 is ten bytes of varint
    switch (field.number) {
      case 3:
        if (field.value != 1 && field.value != 2) {
          return Unimplemented("the SentencePiece model is neither unigram nor BPE");
        }
        model->unigram = field.value == 1;
        break;
      case 40:
        model->unknown_id = id;
        break;
      case 41:
        model->bos_id = id;
        break;
      case 42:
        model->eos_id = id;
        break;
      case 43:
        model->pad_id = id;
        break;
      default:
        break;
    }
  }
  return reader.ok() ? OkStatus() : Broken();
}

Status ParseNormalizerSpec(std::string_view message, SentencePieceSpec* model) {
  FieldReader reader(message);
  for (Field field; reader.Next(&field);) {
    if (field.number == 2) model->chars_map = field.bytes;
    if (field.number == 3) model->add_dummy_prefix = field.value != 0;
    if (field.number == 4) model->remove_extra_spaces = field.value != 0;
    if (field.number == 5 && field.value == 0) {
      return Unimplemented("the SentencePiece model keeps white space as it is");
    }
  }
  return reader.ok() ? OkStatus() : Broken();
}

}  // namespace

void AddTokensByKind(VocabSpec* spec) {
  for (size_t id = 0; id < spec->kinds.size(); ++id) {
    const TokenKind kind = spec->kinds[id];
    const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!special && kind != TokenKind::kUserDefined) continue;
    if (spec->tokens[id].empty()) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.text = spec->tokens[id];
    token.special = special;
    spec->added.push_back(std::move(token));
  }
}

Result<VocabSpec> VocabFromSentencePiece(SentencePieceSpec model) {
  VocabSpec spec;
  spec.model = model.unigram ? VocabSpec::Model::kUnigram : VocabSpec::Model::kCharBpe;
  spec.tokens = std::move(model.tokens);
  spec.scores = std::move(model.scores);
  spec.kinds = std::move(model.kinds);
  for (const TokenKind kind : spec.kinds) spec.byte_fallback |= kind == TokenKind::kByte;
  using Step = NormalizeStep;
  if (!model.chars_map.empty()) {
    spec.normalize.push_back({Step::Kind::kCharsMap, std::move(model.chars_map), ""});
  }
  if (!model.keep_invalid) spec.normalize.push_back({Step::Kind::kMakeValid, "", ""});
  if (model.remove_extra_spaces) {
    // SentencePiece takes U+2581 for a space at the end, and only there.
    const std::string pattern = "\\A +|(?: |" + std::string(kMetaspace) + ")+\\z|(?<= ) +";
    spec.normalize.push_back({Step::Kind::kReplaceRegex, pattern, ""});
  }
  if (model.add_dummy_prefix) spec.normalize.push_back({Step::Kind::kPrepend, "", " "});
  spec.normalize.push_back({Step::Kind::kReplace, " ", std::string(kMetaspace)});
  spec.decode_metaspace = true;
  if (model.add_dummy_prefix) spec.decode = VocabSpec::Decode::kStripOne;
  AddTokensByKind(&spec);
  spec.bos_id = model.bos_id;
  spec.unknown_id = model.unknown_id;
  spec.pad_id = model.pad_id;
  if (model.eos_id >= 0) spec.eos_ids.push_back(model.eos_id);
  if (model.add_bos && model.bos_id >= 0) spec.prefix_ids.push_back(model.bos_id);
  if (model.add_eos && model.eos_id >= 0) spec.suffix_ids.push_back(model.eos_id);
  return spec;
}

Result<VocabSpec> ParseSentencePieceModel(std::string_view file) {
  SentencePieceSpec model;
  model.unigram = true;  // the defaults of the format
  model.unknown_id = 0;
  model.bos_id = 1;
  model.eos_id = 2;
  model.remove_extra_spaces = true;
  model.keep_invalid = false;
  FieldReader reader(file);
  for (Field field; reader.Next(&field);) {
    if (field.number == 1) REPRISE_TRY(ParsePiece(field.bytes, &model));
    if (field.number == 2) REPRISE_TRY(ParseTrainer(field.bytes, &model));
    if (field.number == 3) REPRISE_TRY(ParseNormalizerSpec(field.bytes, &model));
  }
  if (!reader.ok() || model.tokens.size() == 0) return Broken();
  return VocabFromSentencePiece(std::move(model));
}

}  // namespace reprise
