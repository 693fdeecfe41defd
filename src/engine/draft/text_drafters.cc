// SPDX-License-Identifier: Apache-2.0
#include "engine/draft/text_drafters.h"

#include <algorithm>

namespace reprise {
namespace {

// Tokens of a text that one step adds to an index, so that a long prompt holds up nobody.
constexpr size_t kIndexedPerStep = 8192;
// Tokens that are taken from the tree at a time.
constexpr size_t kBehindTokens = 256;
// Where the tree has nothing, it is asked again so many tokens later.
constexpr size_t kLookGap = 16;

void ExtendSome(NgramIndex* index, std::span<const TokenId> text, size_t end) {
  index->Extend(text, std::min(end, index->indexed() + kIndexedPerStep));
}

// Whether what is remembered still is what may come: then the drafts are those behind it.
bool Agrees(std::span<const TokenId> tokens, DraftMemory::Tree* tree) {
  if (tokens.size() < tree->behind_at) *tree = {};  // never: a sequence only grows
  while (tree->behind_at < tokens.size()) {
    const size_t at = tree->behind_at - tree->behind_from;
    if (at >= tree->behind.size() || tree->behind[at] != tokens[tree->behind_at]) return false;
    ++tree->behind_at;
  }
  return tree->behind_at - tree->behind_from < tree->behind.size();
}

void TakeDrafts(std::span<const TokenId> from, DraftGrade grade, DraftJob* job) {
  const auto some = from.first(std::min(from.size(), static_cast<size_t>(job->count)));
  job->tokens.assign(some.begin(), some.end());
  job->grade = grade;
}

void FollowPrediction(std::span<const TokenId> tokens, DraftMemory::Prediction* prediction) {
  const std::vector<TokenId>& said = prediction->tokens;
  for (; prediction->seen < tokens.size(); ++prediction->seen) {
    std::optional<size_t>& next = prediction->next;
    if (!next) continue;
    const bool agrees = *next < said.size() && said[*next] == tokens[prediction->seen];
    agrees ? void(++*next) : next.reset();
  }
  ExtendSome(&prediction->index, said, said.size());
  if (!prediction->next) prediction->next = prediction->index.Find(said, tokens);
}

}  // namespace

void TreeDrafter::Propose(std::span<DraftJob* const> jobs) {
  for (DraftJob* job : jobs) {
    const auto tokens = job->lease->tokens();
    DraftMemory::Tree& tree = job->memory->tree;
    if (!Agrees(tokens, &tree)) {
      if (tokens.size() < tree.look_at) continue;
      tree.behind.clear();
      cache_.TokensBehind(*job->lease, kBehindTokens, &tree.behind);
      tree.behind_from = tree.behind_at = tokens.size();
      tree.look_at = tree.behind.empty() ? tokens.size() + kLookGap : 0;
      if (tree.behind.empty()) continue;
    }
    TakeDrafts(std::span(tree.behind).subspan(tree.behind_at - tree.behind_from), DraftGrade::kTree,
               job);
  }
}

void PredictionDrafter::Propose(std::span<DraftJob* const> jobs) {
  for (DraftJob* job : jobs) {
    DraftMemory::Prediction& prediction = job->memory->prediction;
    if (prediction.tokens.empty()) continue;
    FollowPrediction(job->lease->tokens(), &prediction);
    if (!prediction.next) continue;
    TakeDrafts(std::span(prediction.tokens).subspan(*prediction.next), DraftGrade::kPrediction,
               job);
  }
}

void NgramDrafter::Propose(std::span<DraftJob* const> jobs) {
  for (DraftJob* job : jobs) {
    const auto text = job->lease->tokens();
    DraftMemory::Ngrams& ngrams = job->memory->ngrams;
    // The last token ends runs that nothing follows yet.
    ExtendSome(&ngrams.longer, text, text.size() - 1);
    ExtendSome(&ngrams.shorter, text, text.size() - 1);
    job->grade = DraftGrade::kLongNgram;
    std::optional<size_t> from = ngrams.longer.Find(text, text);
    if (!from) {
      from = ngrams.shorter.Find(text, text);
      job->grade = DraftGrade::kShortNgram;
    }
    if (!from) continue;
    // What repeats itself in fewer tokens than there are drafts goes on into the drafts.
    for (size_t i = *from; job->tokens.size() < static_cast<size_t>(job->count); ++i) {
      job->tokens.push_back(i < text.size() ? text[i] : job->tokens[i - text.size()]);
    }
  }
}

}  // namespace reprise
