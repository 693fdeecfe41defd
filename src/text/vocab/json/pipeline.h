// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// The parts of a tokenizer.json around its model. Each takes the value of the member, which may be
// null, and fills its part of `spec`.

Status ParseNormalizer(const JsonValue& value, VocabSpec* spec);

// Sets *byte_level if the chain has a ByteLevel step, which makes a BPE model one over bytes.
Status ParsePreTokenizer(const JsonValue& value, VocabSpec* spec, bool* byte_level);

Status ParseDecoder(const JsonValue& value, VocabSpec* spec);

Status ParsePostProcessor(const JsonValue& value, VocabSpec* spec);

}  // namespace reprise
