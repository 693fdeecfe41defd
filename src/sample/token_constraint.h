// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "sample/token_mask.h"

namespace reprise {

// What a reply must look like, token by token. The engine asks before each token which ones may
// come, and tells which one came; who decides, and by what rules, it does not know.
//
// Thread safety: none. Fill may run on another thread than Accept, never at the same time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets exactly the tokens that may come next. There is always one: an end token, if nothing else.
  virtual Status Fill(TokenMask* allowed) = 0;
  // REQUIRES: the token is one of those, and no end token came before.
  virtual Status Accept(int32_t token) = 0;
  // Appends the tokens that must come next, and accepts them: what is certain without a model, in
  // the tokens that text is otherwise cut into. None is always an answer.
  virtual void Force(std::vector<int32_t>* tokens) = 0;
  // The same place, to go on from independently.
  virtual std::unique_ptr<TokenConstraint> Clone() const = 0;
};

}  // namespace reprise
