// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/gguf.h"

#include <utility>

#include "text/vocab/rwkv.h"
#include "text/vocab/sentencepiece.h"

namespace reprise {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

Status Broken(const std::string& what) { return DataLoss("the GGUF tokenizer " + what); }

Status CheckSizes(const GgufVocab& gguf) {
  const size_t count = gguf.tokens.size();
  if (count == 0) return Broken("has no tokens");
  if (count > kVocabTokensMax) return Broken("has too many tokens: " + std::to_string(count));
  if (!gguf.scores.empty() && gguf.scores.size() != count) {
    return Broken("has " + std::to_string(count) + " tokens but " +
                  std::to_string(gguf.scores.size()) + " scores");
  }
  if (!gguf.types.empty() && gguf.types.size() != count) {
    return Broken("has " + std::to_string(count) + " tokens but " +
                  std::to_string(gguf.types.size()) + " token types");
  }
  return OkStatus();
}

// The id under `key` or the model's default; -1 for none. A number beyond the vocabulary is an
// error if the file has it, and no id if it is a default.
Status TakeId(const std::optional<uint32_t>& id, int32_t otherwise, size_t count, const char* key,
              int32_t* out) {
  if (!id.has_value()) {
    *out = otherwise >= 0 && static_cast<size_t>(otherwise) < count ? otherwise : -1;
    return OkStatus();
  }
  // Some writers mark absence with the largest number.
  if (*id == UINT32_MAX) {
    *out = -1;
    return OkStatus();
  }
  if (*id >= count) {
    return Broken("gives " + std::to_string(*id) + " as its " + key +
                  " token, but the vocabulary ends at " + std::to_string(count - 1));
  }
  *out = static_cast<int32_t>(*id);
  return OkStatus();
}

struct DefaultIds {
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t unknown = -1;
  int32_t padding = -1;
};

Status TakeIds(const GgufVocab& gguf, DefaultIds defaults, VocabSpec* spec) {
  const size_t count = gguf.tokens.size();
  REPRISE_TRY(TakeId(gguf.bos_id, defaults.bos, count, "bos", &spec->bos_id));
  REPRISE_TRY(TakeId(gguf.unknown_id, defaults.unknown, count, "unknown", &spec->unknown_id));
  REPRISE_TRY(TakeId(gguf.padding_id, defaults.padding, count, "padding", &spec->pad_id));
  const std::pair<const std::optional<uint32_t>&, const char*> ends[] = {
      {gguf.eos_id, "eos"}, {gguf.eot_id, "eot"}, {gguf.eom_id, "eom"}};
  int32_t otherwise = defaults.eos;
  for (const auto& [key, name] : ends) {
    int32_t id = -1;
    REPRISE_TRY(TakeId(key, otherwise, count, name, &id));
    otherwise = -1;
    if (id >= 0) spec->eos_ids.push_back(id);
  }
  return OkStatus();
}

void AddBosAndEos(const GgufVocab& gguf, bool bos, bool eos, VocabSpec* spec) {
  if (gguf.add_bos.value_or(bos) && spec->bos_id >= 0) spec->prefix_ids.push_back(spec->bos_id);
  if (gguf.add_eos.value_or(eos) && !spec->eos_ids.empty()) {
    spec->suffix_ids.push_back(spec->eos_ids.front());
  }
}

std::vector<TokenKind> TakeKinds(const GgufVocab& gguf) {
  std::vector<TokenKind> kinds;
  kinds.reserve(gguf.tokens.size());
  for (const int32_t type : gguf.types) {
    kinds.push_back(type >= 1 && type <= 6 ? static_cast<TokenKind>(type) : TokenKind::kNormal);
  }
  kinds.resize(gguf.tokens.size(), TokenKind::kNormal);
  return kinds;
}

// "left right"; a token may begin with the space.
Status TakeMerges(const GgufVocab& gguf, VocabSpec* spec) {
  if (gguf.merges.size() == 0) return Broken("has no merges");
  if (gguf.merges.size() > kVocabMergesMax) return Broken("has too many merges");
  spec->merges.Reserve(gguf.merges.size() * 2, gguf.merges.bytes());
  for (size_t i = 0; i < gguf.merges.size(); ++i) {
    const std::string_view merge = gguf.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos || space + 1 >= merge.size()) {
      return Broken("has a merge that is not a pair: number " + std::to_string(i));
    }
    spec->merges.Add(merge.substr(0, space));
    spec->merges.Add(merge.substr(space + 1));
  }
  return OkStatus();
}

// Falcon's files leave its <|endoftext|> unnamed. In other vocabularies that id is a comma.
DefaultIds FindUnnamedIds(const GgufVocab& gguf) {
  constexpr int32_t kFalconEnd = 11;
  const bool control = gguf.types.size() > kFalconEnd &&
                       gguf.types[kFalconEnd] == static_cast<int32_t>(TokenKind::kControl);
  return control ? DefaultIds{.bos = kFalconEnd, .eos = kFalconEnd} : DefaultIds{};
}

Result<VocabSpec> FromByteBpe(GgufVocab gguf) {
  VocabSpec spec;
  REPRISE_ASSIGN(GgufPreTokenizer pre, FindGgufPreTokenizer(gguf.pre));
  spec.model = VocabSpec::Model::kByteBpe;
  spec.split = std::move(pre.steps);
  spec.ignore_merges = pre.ignore_merges;
  if (pre.nfc) spec.normalize.push_back({NormalizeStep::Kind::kNfc, "", ""});
  REPRISE_TRY(TakeMerges(gguf, &spec));
  REPRISE_TRY(TakeIds(gguf, FindUnnamedIds(gguf), &spec));
  AddBosAndEos(gguf, pre.add_bos, false, &spec);
  spec.kinds = TakeKinds(gguf);
  spec.tokens = std::move(gguf.tokens);
  AddTokensByKind(&spec);
  return spec;
}

// Gemma 4: merges over characters, spaces as U+2581, and nothing joins over a line's end.
Result<VocabSpec> FromCharBpe(GgufVocab gguf) {
  VocabSpec spec;
  spec.model = VocabSpec::Model::kCharBpe;
  spec.byte_fallback = true;
  spec.normalize.push_back({NormalizeStep::Kind::kReplace, " ", std::string(kMetaspace)});
  SplitStep lines;
  lines.pattern = "[^\\n]+|[\\n]+";
  spec.split.push_back(std::move(lines));
  spec.decode_metaspace = true;
  REPRISE_TRY(TakeMerges(gguf, &spec));
  REPRISE_TRY(TakeIds(gguf, {}, &spec));
  AddBosAndEos(gguf, true, false, &spec);
  spec.kinds = TakeKinds(gguf);
  spec.tokens = std::move(gguf.tokens);
  AddTokensByKind(&spec);
  return spec;
}

Result<VocabSpec> FromSentencePiece(GgufVocab gguf, bool unigram) {
  if (gguf.scores.empty()) return Broken("has no scores");
  VocabSpec ids;
  REPRISE_TRY(TakeIds(gguf,
                      unigram ? DefaultIds{.bos = -1, .eos = 1, .unknown = 2, .padding = 0}
                              : DefaultIds{.bos = 1, .eos = 2, .unknown = 0},
                      &ids));
  SentencePieceSpec model;
  model.unigram = unigram;
  model.scores.assign(gguf.scores.begin(), gguf.scores.end());
  model.kinds = TakeKinds(gguf);
  model.tokens = std::move(gguf.tokens);
  model.chars_map = std::move(gguf.chars_map);
  model.add_dummy_prefix = gguf.add_space_prefix.value_or(true);
  model.remove_extra_spaces = gguf.remove_extra_whitespaces.value_or(false);
  model.add_bos = gguf.add_bos.value_or(!unigram);
  model.add_eos = gguf.add_eos.value_or(unigram);
  model.bos_id = ids.bos_id;
  model.eos_id = ids.eos_ids.empty() ? -1 : ids.eos_ids.front();
  model.unknown_id = ids.unknown_id;
  model.pad_id = ids.pad_id;
  REPRISE_ASSIGN(VocabSpec spec, VocabFromSentencePiece(std::move(model)));
  spec.eos_ids = std::move(ids.eos_ids);
  return spec;
}

Result<VocabSpec> FromRwkv(GgufVocab gguf) {
  VocabSpec spec;
  spec.model = VocabSpec::Model::kRwkvWorld;
  REPRISE_TRY(TakeIds(gguf, {}, &spec));
  AddBosAndEos(gguf, false, false, &spec);
  spec.kinds = TakeKinds(gguf);
  std::string bytes;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    bytes.clear();
    const bool plain = spec.kinds[id] == TokenKind::kNormal;
    if (plain && !AppendPythonLiteral(gguf.tokens[id], true, &bytes)) {
      return Broken("has a broken escape in token " + std::to_string(id));
    }
    spec.tokens.Add(plain ? bytes : gguf.tokens[id]);
  }
  AddTokensByKind(&spec);
  return spec;
}

}  // namespace

Result<VocabSpec> VocabFromGguf(GgufVocab gguf) {
  REPRISE_TRY(CheckSizes(gguf));
  if (gguf.model == "gpt2") return FromByteBpe(std::move(gguf));
  if (gguf.model == "llama") return FromSentencePiece(std::move(gguf), false);
  if (gguf.model == "t5") return FromSentencePiece(std::move(gguf), true);
  if (gguf.model == "rwkv") return FromRwkv(std::move(gguf));
  if (gguf.model == "gemma4") return FromCharBpe(std::move(gguf));
  return Unimplemented("the GGUF tokenizer model \"" + gguf.model.substr(0, 64) +
                       "\" is not supported");
}

}  // namespace reprise
