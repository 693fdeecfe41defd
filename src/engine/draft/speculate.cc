// SPDX-License-Identifier: Apache-2.0
#include "engine/draft/speculate.h"

#include <iterator>

namespace reprise {
namespace {

constexpr std::string_view kModes[] = {"off", "auto", "tree", "ngram", "mtp", "draft"};
constexpr std::string_view kSources[] = {"tree", "prediction", "ngram", "mtp", "draft", "other"};
constexpr std::string_view kRests[] = {
    "none",
    "off",
    "nothing_to_draft",
    "costs_more_than_it_saves",
    "no_memory",
    "slow_constraint",
    "not_finite",
    "reply_too_short",
};

}  // namespace

std::string_view NameOf(Speculate mode) { return kModes[static_cast<size_t>(mode)]; }
std::string_view NameOf(Drafts source) { return kSources[static_cast<size_t>(source)]; }
std::string_view NameOf(DraftRest rest) { return kRests[static_cast<size_t>(rest)]; }

std::optional<Speculate> FindSpeculate(std::string_view name) {
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (kModes[i] == name) return static_cast<Speculate>(i);
  }
  return std::nullopt;
}

}  // namespace reprise
