// SPDX-License-Identifier: Apache-2.0
// Any bytes as a grammar: read or refused, and walked by its own bytes within bounds.
#include "grammar/parse/automaton.h"
#include "grammar/syntax/grammar_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise::grammar;
  Grammar grammar(
      {.regex = {.bytes = size_t{8} << 20, .steps = 300'000}, .states = 20'000, .edges = 20'000});
  const auto rule = AddGrammarText({reinterpret_cast<const char*>(data), size}, &grammar);
  if (!rule.ok() || !grammar.Finish(*rule).ok()) return 0;
  Automaton automaton(std::make_shared<const Grammar>(std::move(grammar)), size_t{4} << 20);
  PlaceId place = automaton.start();
  for (size_t i = 0; i < size && place != PlaceId::kDead; ++i)
    place = automaton.Next(place, data[i]);
  return 0;
}
