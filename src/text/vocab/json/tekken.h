// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// tekken.json, the file that Mistral's own tokenizer reads:
//
//   config          pattern, default_vocab_size, default_num_special_tokens, version ("v3", "v7"
//   ...) vocab           [{rank, token_bytes}]: bytes in base64, ranks from 0; the first 256 are
//   the bytes special_tokens  [{rank, token_str}]; absent in old files, whose names are known
//
// Special tokens have the first ids, those without a name are "<SPECIAL_n>"; rank r of the
// vocabulary has the id r + default_num_special_tokens. Ranks that do not fit default_vocab_size
// are left out. A piece of text that is a token is that token; others merge by the lowest rank of
// what comes out, the leftmost of equals. So there are no merges here, and scores are ranks.
bool IsTekken(const JsonValue& root);

// Fails with kDataLoss if the file is broken. REQUIRES: IsTekken(root).
Result<VocabSpec> ParseTekken(const JsonValue& root);

}  // namespace reprise
