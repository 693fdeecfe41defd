// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "grammar/grammar.h"

namespace reprise::grammar {

struct SchemaOptions {
  ByteSet alphabet = ~ByteSet();  // bytes that can be written (TokenTrie::single_bytes)
  Grammar::Budget budget = {};
};

// The JSON texts that a schema allows (2020-12; older drafts where they do not contradict it), with
// the properties of an object in the order of the schema: those of `properties`, then others that
// are `required`, then all that `patternProperties` and `additionalProperties` let in. Properties
// of combined schemas are in the order in which the document has them. White space is bounded
// (json_text.h), nothing stands before or after the value.
//
// Names that are not in the schema may come twice in one object; whoever reads the JSON takes one
// of them, and both are allowed.
//
// Fails with kInvalidArgument for what is no schema, or one that nothing fulfils; with
// kUnimplemented, naming the keyword, for what cannot be enforced exactly; with kResourceExhausted
// beyond the budget.
Result<Grammar> CompileJsonSchema(const JsonValue& schema, const SchemaOptions& options);

// Appends a rule for the schema, a part of the document `root`, to a grammar under way. The
// alphabet is the grammar's.
Result<RuleId> AddJsonSchema(const JsonValue& root, const JsonValue& schema, Grammar* grammar);

// The same without the strings among its values, for who writes those in another way. `*strings`:
// whether there are any.
Result<RuleId> AddJsonSchemaWithoutStrings(const JsonValue& root, const JsonValue& schema,
                                           Grammar* grammar, bool* strings);

}  // namespace reprise::grammar
