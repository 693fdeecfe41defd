// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/account/account.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/parse/automaton.h"
#include "grammar/parse/token_trie.h"
#include "grammar/parse/trie_walk.h"

namespace reprise::grammar {

// A grammar and a vocabulary: what any number of matchers run on. Requests with the same schema
// share one, and with it every place and mask that one of them has seen.
//
// Thread safety: all methods, and those of matchers on different threads; one lock per automaton.
class Language {
 public:
  struct Limits {
    size_t automaton_bytes = size_t{32} << 20;  // over it a new automaton is begun
    size_t masks = 64;                          // kept, of vocab / 8 bytes each
    std::shared_ptr<Ledger> ledger = {};        // what all of it is held in; null: nowhere
    std::string share = {};                     // whose it is
  };

  // REQUIRES: `grammar` is finished, with the alphabet of `trie` (WritableBytes).
  Language(Grammar grammar, std::shared_ptr<const TokenTrie> trie, const Limits& limits);
  Language(Grammar grammar, std::shared_ptr<const TokenTrie> trie)
      : Language(std::move(grammar), std::move(trie), Limits{}) {}

  // Tries what may be too costly to be followed, in `steps_max` at most. Fails with kUnimplemented
  // if it is. Once, before there are matchers.
  static constexpr uint64_t kPrepareSteps = 4'000'000;
  Status Prepare(uint64_t steps_max = kPrepareSteps);
  // Holds in the ledger what it has come to. False: there is no room. Before there are matchers;
  // what it grows to with them is held as it grows.
  bool Hold();

  const TokenTrie& trie() const { return *trie_; }
  const Grammar& grammar() const { return *grammar_; }
  // Of late, where a reply is just being followed: nobody waits for that.
  size_t bytes() const;
  // That were taken so far: a measure of work that does not depend on the machine.
  uint64_t steps() const;

 private:
  friend class Matcher;
  // An automaton under a lock, with the masks of some of its places.
  struct Run {
    Run(std::shared_ptr<const Grammar> grammar, const Limits& limits)
        : automaton(std::move(grammar), limits.automaton_bytes),
          holding(limits.ledger, limits.share) {}
    size_t bytes() const;
    // Whether there is room for them.
    bool Hold() { return holding.Set(bytes_seen = bytes()); }
    std::mutex mutex;
    std::atomic<size_t> bytes_seen{0};  // when they were counted last
    Automaton automaton;
    Holding holding;
    std::unordered_map<uint32_t, std::vector<uint64_t>> masks;
    TrieWalk<PlaceId> walk;
  };
  std::shared_ptr<Run> Current() const;
  // A fresh automaton in place of `old`, unless another matcher has seen to it.
  std::shared_ptr<Run> Replace(const std::shared_ptr<Run>& old);

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  const Limits limits_;
  Holding holding_;  // of the grammar
  mutable std::mutex mutex_;
  std::shared_ptr<Run> run_;
};

// Follows one text of a language, token by token: which tokens may come next, and what came.
//
// A matcher can be copied (choices of one request, drafts) and rolled back. The mask of a place is
// never empty: by invariant (1) of Grammar the text can be completed, and the grammar's alphabet is
// made of bytes that tokens write alone.
//
// Thread safety: none of its own; see Language.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Language> language);

  // Sets the bits of the tokens that may come next and clears all others. Fails with
  // kResourceExhausted if the language is too ambiguous to be followed within its limits, or takes
  // more than `steps_max`. REQUIRES: [vocab / 64, rounded up].
  static constexpr uint64_t kTokenSteps = 500'000;  // all that one token leads to
  Status Fill(std::span<uint64_t> mask, uint64_t steps_max = kTokenSteps);

  // Fails with kInvalidArgument, and changes nothing, if the token is not allowed. An end token is
  // allowed where the text is complete, and nothing after it.
  Status Accept(int32_t token);
  // The same for text that is no token of its own.
  Status AcceptBytes(std::string_view bytes);

  // Forgets the last `count` calls of Accept or AcceptBytes. REQUIRES: there were as many, and at
  // most kRollbackMax.
  static constexpr size_t kRollbackMax = 256;
  void Rollback(size_t count);

  bool ended() const { return ended_; }
  // Whether the text could end here.
  bool complete();
  // The bytes that must come next, whatever is chosen: at most `max` of them. `ends`: whether the
  // text then ends.
  std::string Forced(size_t max, bool* ends = nullptr);
  const std::string& text() const { return text_; }

 private:
  struct Mark {
    PlaceId place;
    uint32_t text_size;
  };
  // Runs `step` on the automaton, and once more on a fresh one if that had no more room, or the
  // ledger has none; if it is `much`, on a fresh one as soon as there is little.
  template <typename StepFn>
  Status Try(bool much, uint64_t steps_max, StepFn&& step);
  void Walk(Language::Run& run, std::span<uint64_t> mask) const;
  void Note();

  std::shared_ptr<Language> language_;
  std::shared_ptr<Language::Run> run_;
  std::string text_;
  std::vector<Mark> marks_;  // before each accepted token, of the last ones
  PlaceId place_;
  bool ended_ = false;
};

}  // namespace reprise::grammar
