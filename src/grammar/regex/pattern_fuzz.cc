// SPDX-License-Identifier: Apache-2.0
// Any bytes as a pattern: read or refused, compiled within its budget, and its derivatives end
// there, too.
#include "grammar/regex/pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise::grammar;
  const auto pattern = Pattern::Parse({reinterpret_cast<const char*>(data), size});
  if (!pattern.ok()) return 0;
  for (const Spelling spelling : {Spelling::kPlain, Spelling::kJsonString}) {
    RegexPool pool({.bytes = size_t{8} << 20, .steps = 300'000});
    auto regex = pattern->Compile(pool, spelling, Pattern::Match::kSomewhere);
    if (!regex.ok()) continue;
    RegexId at = *regex;
    for (size_t i = 0; i < size && at != RegexId::kNothing; ++i) at = pool.Derive(at, data[i]);
  }
  return 0;
}
