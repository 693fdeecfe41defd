// SPDX-License-Identifier: Apache-2.0
#include "api/chat/blocks.h"

#include <random>

namespace reprise::api {

bool AddEvent(const OutputEvent& event, std::string_view id, std::vector<Block>* blocks) {
  using Kind = OutputEvent::Kind;
  if (event.kind == Kind::kCallEnd) {
    blocks->back().complete = event.complete;
    return false;
  }
  const bool continues =
      event.kind == Kind::kArguments ||
      (event.kind != Kind::kCallBegin && !blocks->empty() && blocks->back().kind == event.kind);
  if (continues) {
    blocks->back().text += event.text;
    return false;
  }
  blocks->push_back({event.kind, event.text, event.name, std::string(id)});
  return true;
}

std::string MakeRandomId(std::string_view prefix, size_t letters) {
  static constexpr char kLetters[] = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789";
  thread_local std::mt19937_64 random{std::random_device()()};
  std::string id(prefix);
  for (size_t i = 0; i < letters; ++i) id += kLetters[random() % (sizeof(kLetters) - 1)];
  return id;
}

}  // namespace reprise::api
