// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/constrain/output_rule.h"
#include "api/served_model.h"
#include "base/account/account.h"
#include "base/json.h"
#include "base/status.h"
#include "grammar/matcher.h"
#include "sample/token_constraint.h"
#include "text/output/output_format.h"

namespace reprise::api {

// Compiles what clients ask of replies, on the worker that handles the request, and keeps the
// results by content: clients send the same schema again and again, and one that was refused once
// is refused without being compiled.
//
// Compilation is bounded in steps and bytes (grammar/) and by what is left of the account. What a
// language takes, from its first byte to what it grows to while replies follow it, is held in the
// ledger as long as it is kept or used. Where there is no room, languages that are only kept go.
// What was asked for once has a quarter of the bytes that are kept: schemas that are new in every
// request leave no more behind, and drive out nothing that comes again.
//
// Thread safety: all methods.
class Constraints {
 public:
  struct Limits {
    size_t languages = 64;
    size_t bytes = size_t{128} << 20;
    size_t refusals = 4096;  // remembered
  };

  // The model must outlive this.
  Constraints(const ServedModel* model, const Limits& limits);
  explicit Constraints(const ServedModel* model) : Constraints(model, Limits{}) {}
  ~Constraints();

  // What a reply in `format` must be, with the calls of `tools` (a JSON array, or empty). Fails
  // with a sentence for the client: kInvalidArgument or kUnimplemented, kFailedPrecondition if
  // there is no memory for it now, or as the account does. REQUIRES: !rule.free().
  Result<std::shared_ptr<grammar::Language>> Compile(const OutputRule& rule,
                                                     const OutputFormat& format,
                                                     const std::string& tools, bool one_call,
                                                     Account* account);

  // A constraint for one choice of a reply.
  std::shared_ptr<TokenConstraint> Start(std::shared_ptr<grammar::Language> language) const;

  size_t size() const;
  size_t compilations() const { return compilations_; }

 private:
  using Key = std::array<uint8_t, 32>;  // a digest of all that the language depends on
  struct Entry {
    Key key;
    std::string share;  // in which the language is held
    std::shared_ptr<grammar::Language> language;
    bool again = false;  // it was asked for more than once
  };
  static Key KeyOf(const OutputRule& rule, const OutputFormat& format, const std::string& tools,
                   bool one_call);
  Result<std::shared_ptr<const grammar::TokenTrie>> Trie(Account* account);
  std::vector<std::string> SpecialNames(const OutputFormat& format) const;
  Status Build(const OutputRule& rule, const OutputFormat& format, const std::string& tools,
               bool one_call, grammar::Grammar* grammar) const;
  Result<std::shared_ptr<grammar::Language>> Make(
      const OutputRule& rule, const OutputFormat& format, const std::string& tools, bool one_call,
      std::shared_ptr<const grammar::TokenTrie> trie, Account* account);
  std::shared_ptr<grammar::Language> Find(const Key& key);
  std::optional<Status> FindRefusal(const Key& key);
  void Keep(const Key& key, const std::string& share, std::shared_ptr<grammar::Language> language);
  void KeepRefusal(const Key& key, const Status& status);
  bool DropUnused(const Account& account, size_t bytes_wanted);

  const ServedModel& model_;
  const Limits limits_;
  std::mutex trie_mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // made with the first constraint
  mutable std::mutex mutex_;                        // guards what follows
  std::list<Entry> entries_;                        // the last used first
  std::map<Key, std::list<Entry>::iterator> by_key_;
  std::map<Key, Status> refusals_;
  std::deque<Key> refusals_in_order_;
  std::atomic<size_t> compilations_{0};
};

}  // namespace reprise::api
