// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "text/template/jinja/ast.h"

namespace reprise::jinja {

// Gives every variable its slot, with Jinja's scoping:
//
//   * `for`, `macro`, `call`, `filter`, `with` and block `set` open a scope; `if` does not.
//   * A name that is set in a scope is that scope's own: it begins as a copy of the outer variable
//     of that name, and setting it does not change the outer one.
//   * A name that is only read belongs to the nearest scope around that sets or has read it; else
//     it comes from the template's variables.
//   * A name set without condition, and unknown further out, begins undefined, even if the
//     template's variables have one of that name.
//
// Also refuses filters and tests that do not exist, except directly inside `if` and conditional
// expressions, where they fail only when they are reached: templates ask there for what other
// engines have.
//
// Costs: linear in the template, times the depth of its scopes.
Status ResolveScopes(Template* tree);

}  // namespace reprise::jinja
