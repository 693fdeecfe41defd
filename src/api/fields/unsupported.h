// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/fields.h"
#include "api/fields/known_fields.h"
#include "api/service.h"

namespace reprise::api {

// Judges every field that the reader of a body did not ask for (docs/adr/0010-passed-fields.md).
// Fields that change no answer pass. Fields that bind the answer (a constraint, another input) are
// refused by name, unless their value asks for nothing (false, an empty list). Hints that this
// server does not follow, and unknown fields, pass: they are logged once and noted in
// Fields::passed. A misspelt name of a known field is refused. With
// ServiceOptions::strict_fields every field without effect is refused. Call it when all is read;
// errors stay in `fields`.
void RefuseUnread(Dialect dialect, const ServiceOptions& options, Fields* fields);

// llama.cpp's and Ollama's window of the penalty for repetition passes without effect: here it is
// the whole context.
void CheckPenaltyWindow(Fields* fields);

}  // namespace reprise::api
