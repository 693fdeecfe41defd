// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/detokenizer.h"
#include "text/subword/bpe/bpe.h"
#include "text/subword/byte_alphabet.h"
#include "text/subword/byte_token.h"
#include "text/subword/model.h"
#include "text/subword/unigram.h"
#include "text/subword/world.h"
#include "text/vocab/check.h"

namespace reprise {
namespace {

constexpr size_t kPiecesPerTurn = 8192;  // between two questions to the account
constexpr size_t kBytesPerStep = 2;      // of its work
constexpr size_t kBytesPerIdGuess = 4;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

Result<std::unique_ptr<SubwordModel>> MakeModel(const VocabSpec& spec) {
  switch (spec.model) {
    case VocabSpec::Model::kByteBpe:
    case VocabSpec::Model::kCharBpe: {
      REPRISE_ASSIGN(std::unique_ptr<SubwordModel> model, Bpe::Make(spec));
      return model;
    }
    case VocabSpec::Model::kUnigram: {
      REPRISE_ASSIGN(std::unique_ptr<SubwordModel> model, Unigram::Make(spec));
      return model;
    }
    case VocabSpec::Model::kRwkvWorld:
      return std::unique_ptr<SubwordModel>(std::make_unique<World>(spec));
  }
  return Internal("unknown kind of vocabulary");
}

}  // namespace

struct Tokenizer::Scratch {
  Normalizer::Scratch normalize;
  Splitter::Scratch split;
  SubwordScratch subword;
  EncodeMeter* meter = nullptr;
  size_t ids_before = 0;  // in the caller's list
  size_t bytes_read = 0;
  bool cut = false;  // more ids than are wanted
};

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Make(VocabSpec spec) {
  REPRISE_TRY(CheckVocab(spec));
  AddKnownEndTokens(&spec);
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  REPRISE_ASSIGN(tokenizer->normalizer_, Normalizer::Make(spec.normalize));
  REPRISE_ASSIGN(tokenizer->splitter_, Splitter::Make(spec.split));
  REPRISE_ASSIGN(tokenizer->model_, MakeModel(spec));

  tokenizer->special_.assign(spec.tokens.size(), false);
  for (size_t id = 0; id < spec.kinds.size(); ++id) {
    tokenizer->special_[id] = spec.kinds[id] == TokenKind::kControl;
  }
  tokenizer->control_ = tokenizer->special_;
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::vector<AddedToken> late;
  Normalizer::Scratch scratch;
  for (AddedToken& token : spec.added) {
    tokenizer->special_[static_cast<size_t>(token.id)] = token.special;
    tokenizer->control_[static_cast<size_t>(token.id)] = reprise::IsControl(token);
    if (token.normalized) late.push_back(token);
    if (token.normalized) {
      REPRISE_ASSIGN(const std::string_view text,
                     tokenizer->normalizer_.Apply(token.text, &scratch));
      token.text = std::string(text);
    }
    (token.normalized ? normalized : raw).push_back(token);
  }
  tokenizer->raw_tokens_ = AddedTokens(std::move(raw));
  tokenizer->normalized_tokens_ = AddedTokens(std::move(normalized));
  tokenizer->late_tokens_ = AddedTokens(std::move(late));

  tokenizer->BuildBytes(spec);
  tokenizer->bytes_per_id_max_ = BytesPerIdMax(spec);
  tokenizer->name_index_.Reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    tokenizer->name_index_.Add(spec.tokens, static_cast<int32_t>(id));
  }
  tokenizer->names_ = std::move(spec.tokens);
  tokenizer->decode_ = spec.decode;
  tokenizer->prefix_ids_ = std::move(spec.prefix_ids);
  tokenizer->suffix_ids_ = std::move(spec.suffix_ids);
  tokenizer->eos_ids_ = std::move(spec.eos_ids);
  tokenizer->bos_id_ = spec.bos_id;
  tokenizer->pad_id_ = spec.pad_id;
  return tokenizer;
}

void Tokenizer::BuildBytes(const VocabSpec& spec) {
  // An added token stands for what it is found as.
  std::vector<const AddedToken*> added(spec.tokens.size(), nullptr);
  for (const AddedToken& token : spec.added) added[static_cast<size_t>(token.id)] = &token;
  bytes_.Reserve(spec.tokens.size(), spec.tokens.bytes());
  std::string bytes;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view text = added[id] != nullptr ? added[id]->text : spec.tokens[id];
    bytes.clear();
    const bool alphabet = spec.model == VocabSpec::Model::kByteBpe && added[id] == nullptr;
    const int byte = spec.byte_fallback ? ParseByteToken(text) : -1;
    if (alphabet && AppendAlphabetBytes(text, &bytes)) {
      bytes_.Add(bytes);
    } else if (byte >= 0) {
      const char c = static_cast<char>(byte);
      bytes_.Add({&c, 1});
    } else if (spec.decode_metaspace) {
      for (size_t at = 0; at < text.size();) {
        const size_t space = std::min(text.find(kMetaspace, at), text.size());
        bytes.append(text.substr(at, space - at));
        if (space < text.size()) bytes.push_back(' ');
        at = space + kMetaspace.size();
      }
      bytes_.Add(bytes);
    } else {
      bytes_.Add(text);
    }
  }
}

Status Tokenizer::Encode(std::string_view text, EncodeOptions options,
                         std::vector<int32_t>* ids, EncodeMeter* meter) const {
  const size_t size_before = ids->size();
  if (options.add_special) ids->insert(ids->end(), prefix_ids_.begin(), prefix_ids_.end());
  const AddedTokenRule rule{.control = options.parse_special, .added = options.parse_added};
  const Status status = EncodeWith(text, rule, false, meter, ids);
  if (!status.ok()) {
    ids->resize(size_before);
    return status;
  }
  if (options.add_special) ids->insert(ids->end(), suffix_ids_.begin(), suffix_ids_.end());
  return OkStatus();
}

Status Tokenizer::EncodePrompt(std::string_view text, std::span<const TextRange> data,
                               std::vector<int32_t>* ids, EncodeMeter* meter) const {
  const size_t size_before = ids->size();
  const AddedTokenRule rule{.control = true, .data = data};
  const Status status = EncodeWith(text, rule, !data.empty(), meter, ids);
  if (!status.ok()) ids->resize(size_before);
  return status;
}

// `late`: control tokens that belong into normalised text are looked for here, and only here.
Status Tokenizer::EncodeWith(std::string_view text, const AddedTokenRule& rule, bool late,
                             EncodeMeter* meter, std::vector<int32_t>* ids) const {
  if (text.size() > kTextBytesMax) {
    return InvalidArgument("the text is " + std::to_string(text.size()) +
                           " bytes long, beyond the limit of " + std::to_string(kTextBytesMax));
  }
  AddedTokenRule late_rule = rule;
  late_rule.blanks = false;
  const AddedTokenRule segment_rule{.control = rule.control && !late, .added = rule.added};
  Scratch scratch;
  scratch.meter = meter;
  scratch.ids_before = ids->size();
  if (meter != nullptr && bytes_per_id_max_ > 0 &&
      text.size() / bytes_per_id_max_ > meter->ids_max) {
    meter->id_count = std::max(text.size() / kBytesPerIdGuess, meter->ids_max + 1);
    return OkStatus();
  }
  if (meter != nullptr && meter->account != nullptr) {
    REPRISE_TRY(meter->account->Spend(text.size() / kBytesPerStep, "tokenising the text"));
  }
  size_t at = 0;
  AddedTokens::Match late_match{0, 0, -1};  // the next one; valid from `at` on
  while (at < text.size() && !scratch.cut) {
    AddedTokens::Match match{text.size(), text.size(), -1};
    raw_tokens_.FindNext(text, at, rule, &match);
    if (late && !late_tokens_.empty()) {
      if (late_match.begin < at || late_match.id < 0) {
        late_match = {text.size(), text.size(), -1};
        late_tokens_.FindNext(text, at, late_rule, &late_match);
      }
      if (late_match.begin < match.begin) match = late_match;
    }
    if (at < match.begin) {
      REPRISE_TRY(
          EncodeSegment(text.substr(at, match.begin - at), at == 0, segment_rule, &scratch, ids));
    }
    if (match.id >= 0) ids->push_back(match.id);
    at = match.end;
  }
  if (meter == nullptr) return OkStatus();
  meter->id_count = ids->size() - scratch.ids_before;
  if (scratch.cut) {
    const double rest = static_cast<double>(text.size()) /
                        static_cast<double>(std::max<size_t>(scratch.bytes_read, 1));
    meter->id_count = static_cast<size_t>(static_cast<double>(meter->id_count) * rest);
    meter->id_count = std::max(meter->id_count, meter->ids_max + 1);
  }
  return OkStatus();
}

// How many bytes of any text one id can stand for; 0: not known.
size_t Tokenizer::BytesPerIdMax(const VocabSpec& spec) {
  const bool bytes = spec.model == VocabSpec::Model::kByteBpe ||
                     spec.model == VocabSpec::Model::kRwkvWorld || spec.byte_fallback;
  if (!bytes) return 0;  // any number of unknown characters may be one id
  for (const AddedToken& token : spec.added) {
    if (token.lstrip || token.rstrip) return 0;
  }
  for (const SplitStep& step : spec.split) {
    if (step.behavior == SplitStep::Behavior::kRemoved) return 0;
  }
  size_t longest = 1;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    longest = std::max(longest, spec.tokens[id].size());
  }
  for (const AddedToken& token : spec.added) longest = std::max(longest, token.text.size());
  for (const NormalizeStep& step : spec.normalize) {
    switch (step.kind) {
      case NormalizeStep::Kind::kNfc:
        longest *= 3;  // the longest composition has three characters
        break;
      case NormalizeStep::Kind::kPrepend:
      case NormalizeStep::Kind::kMakeValid:
        break;
      case NormalizeStep::Kind::kReplace:
        if (step.to.size() < step.from.size()) return 0;
        break;
      default:
        return 0;
    }
  }
  return longest;
}

// Text that has no raw added token in it.
Status Tokenizer::EncodeSegment(std::string_view text, bool at_start, const AddedTokenRule& rule,
                                Scratch* scratch, std::vector<int32_t>* ids) const {
  REPRISE_ASSIGN(text, normalizer_.Apply(text, &scratch->normalize));
  if (normalized_tokens_.empty()) return EncodeText(text, at_start, scratch, ids);
  size_t at = 0;
  while (at < text.size() && !scratch->cut) {
    AddedTokens::Match match{text.size(), text.size(), -1};
    normalized_tokens_.FindNext(text, at, rule, &match);
    if (at < match.begin) {
      REPRISE_TRY(EncodeText(text.substr(at, match.begin - at), at_start && at == 0, scratch, ids));
    }
    if (match.id >= 0) ids->push_back(match.id);
    at = match.end;
  }
  return OkStatus();
}

Status Tokenizer::EncodeText(std::string_view text, bool at_start, Scratch* scratch,
                             std::vector<int32_t>* ids) const {
  EncodeMeter* const meter = scratch->meter;
  REPRISE_TRY(splitter_.Split(text, at_start, &scratch->split));
  std::span<const Piece> pieces = scratch->split.pieces;
  if (meter == nullptr) {
    model_->Encode(scratch->split.text, pieces, &scratch->subword, ids);
    return OkStatus();
  }
  while (!pieces.empty() && !scratch->cut) {
    const std::span<const Piece> turn = pieces.first(std::min(pieces.size(), kPiecesPerTurn));
    pieces = pieces.subspan(turn.size());
    model_->Encode(scratch->split.text, turn, &scratch->subword, ids);
    scratch->bytes_read += turn.back().end - turn.front().begin;
    scratch->cut = ids->size() - scratch->ids_before > meter->ids_max;
    if (meter->account != nullptr) REPRISE_TRY(meter->account->Spend(0, "tokenising the text"));
  }
  return OkStatus();
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool keep_special) const {
  Detokenizer detokenizer(*this, {.keep_special = keep_special});
  std::string text;
  for (const int32_t id : ids) detokenizer.Append(id, &text);
  detokenizer.Finish(&text);
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return bytes_[static_cast<size_t>(id)];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
}

bool Tokenizer::IsControl(int32_t id) const {
  return id >= 0 && id < vocab_size() && control_[static_cast<size_t>(id)];
}

int32_t Tokenizer::FindToken(std::string_view text) const { return name_index_.Find(names_, text); }

bool Tokenizer::IsEos(int32_t id) const {
  return std::find(eos_ids_.begin(), eos_ids_.end(), id) != eos_ids_.end();
}

}  // namespace reprise
