// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/constrain/output_rule.h"
#include "api/served_model.h"
#include "base/json.h"
#include "base/status.h"
#include "grammar/matcher.h"
#include "sample/token_constraint.h"
#include "text/output/output_format.h"

namespace reprise::api {

// Compiles what clients ask of replies, on the worker that handles the request, and keeps the
// results by content: clients send the same schema again and again. Compilation is bounded in steps
// and bytes (grammar/), so is what is kept.
//
// Thread safety: all methods.
class Constraints {
 public:
  struct Limits {
    size_t languages = 64;
    size_t bytes = size_t{256} << 20;
  };

  // The model must outlive this.
  Constraints(const ServedModel* model, const Limits& limits);
  explicit Constraints(const ServedModel* model) : Constraints(model, Limits{}) {}
  ~Constraints();

  // What a reply in `format` must be, with the calls of `tools` (a JSON array, or empty). Fails
  // with kInvalidArgument or kUnimplemented and a sentence for the client. REQUIRES: !rule.free().
  Result<std::shared_ptr<grammar::Language>> Compile(const OutputRule& rule,
                                                     const OutputFormat& format,
                                                     const std::string& tools, bool one_call);

  // A constraint for one choice of a reply.
  std::shared_ptr<TokenConstraint> Start(std::shared_ptr<grammar::Language> language) const;

  size_t size() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<grammar::Language> language;
  };
  std::shared_ptr<const grammar::TokenTrie> Trie();
  std::vector<std::string> SpecialNames(const OutputFormat& format) const;
  Result<grammar::Grammar> Build(const OutputRule& rule, const OutputFormat& format,
                                 const std::string& tools, bool one_call);
  std::shared_ptr<grammar::Language> Find(const std::string& key);
  void Keep(std::string key, std::shared_ptr<grammar::Language> language);

  const ServedModel& model_;
  const Limits limits_;
  std::mutex trie_mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // made with the first constraint
  mutable std::mutex mutex_;                        // guards what follows
  std::list<Entry> entries_;                        // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace reprise::api
