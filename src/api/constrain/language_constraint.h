// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "grammar/matcher.h"
#include "sample/token_constraint.h"
#include "text/tokenizer.h"

namespace reprise::api {

// A text of a language as the engine asks for it.
//
// What the language forces is said in the tokens that the tokenizer itself would write for it, so
// that the reply, sent back as text in the next turn, is cut into the same tokens and its state is
// found. Where the reply so far is no such text, or the next bytes could still become part of a
// longer token, nothing is forced: those tokens are chosen like others.
//
// Thread safety: see TokenConstraint.
class LanguageConstraint final : public TokenConstraint {
 public:
  // The tokenizer must outlive this.
  LanguageConstraint(std::shared_ptr<grammar::Language> language, const Tokenizer* tokenizer)
      : language_(language), tokenizer_(tokenizer), matcher_(std::move(language)) {}

  Status Fill(TokenMask* allowed) override;
  Status Accept(int32_t token) override;
  void Force(std::vector<int32_t>* tokens) override;
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<LanguageConstraint>(*this);
  }

 private:
  struct Piece {
    int32_t token;
    size_t begin;  // in the matcher's text
  };
  // False if not all of `text` could be said. `open`: text of unknown kind will follow.
  bool ForceText(std::string_view text, bool open, std::vector<int32_t>* tokens);
  bool Take(int32_t token, std::vector<int32_t>* tokens);

  std::shared_ptr<grammar::Language> language_;
  const Tokenizer* tokenizer_;
  grammar::Matcher matcher_;
  std::deque<Piece> recent_;  // the last tokens of text, as far as they are looked at
};

}  // namespace reprise::api
