// SPDX-License-Identifier: Apache-2.0
// Any JSON as a schema: compiled or refused within its budget; and what was compiled can be walked
// to an end from wherever it is.
#include "grammar/parse/automaton.h"
#include "grammar/schema/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  using namespace reprise::grammar;
  const auto document = JsonDocument::Parse({reinterpret_cast<const char*>(data), size});
  if (!document.ok()) return 0;
  SchemaOptions options;
  options.budget.regex = {.bytes = size_t{8} << 20, .steps = 300'000};
  options.budget.states = options.budget.edges = 20'000;
  auto grammar = CompileJsonSchema(document->root(), options);
  if (!grammar.ok()) return 0;
  const auto shared = std::make_shared<const Grammar>(std::move(grammar).value());
  Automaton automaton(shared, size_t{4} << 20);
  PlaceId place = automaton.start();
  for (int step = 0; step < 64 && !automaton.exhausted(); ++step) {
    PlaceId next = PlaceId::kDead;
    for (int byte = 0; byte < 256 && next == PlaceId::kDead; ++byte) {
      next = automaton.Next(place, static_cast<uint8_t>(byte * 37 + step));
    }
    // A place that is not dead can go on or end.
    if (next == PlaceId::kDead && !automaton.exhausted()) CHECK(automaton.Accepts(place));
    if (next == PlaceId::kDead) break;
    place = next;
  }
  return 0;
}
