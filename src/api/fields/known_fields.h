// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace reprise::api {

// Whose fields a body has.
enum class Dialect {
  kChat,
  kCompletions,
  kResponses,
  kMessages,
  kOllama,
  kOllamaVectors,
  kLlamaCpp,
  kVectors,  // OpenAI's embeddings, ranks
  kPrompt,   // what asks for the prompt of a chat, and may be the whole request
  kOwn,      // what only this server has
};

// A field of other servers that no reader of a body asks for by this name. All of them stand in one
// table (known_fields.cc).
//
// Invariant: in each dialect a name has at most one row.
struct KnownField {
  enum class Kind {
    kHarmless,  // no answer depends on it: passes in silence
    kHint,      // not done here, and the answer is still an answer: passes, and is named
    kRefused,   // not done here, and the answer would not be what was asked for
    kAlias,     // another name for `text`: the reader of `text` finds it (Fields::SetDialect)
  };

  uint32_t dialects = 0;  // bit i: Dialect i has it
  std::string_view name;
  Kind kind = Kind::kHarmless;
  // Of hints and refused fields: JSON values that ask for nothing, with commas between them. Empty:
  // every value asks for something.
  std::string_view neutral = {};
  // Of hints and refused fields: why, behind the name. Of an alias: this server's name.
  std::string_view text = {};

  bool IsOf(Dialect dialect) const;
};

std::span<const KnownField> KnownFields();
// Null: there is none. Costs: O(fields of the table).
const KnownField* FindKnownField(Dialect dialect, std::string_view name);

}  // namespace reprise::api
