// SPDX-License-Identifier: Apache-2.0
// Any bytes of a terminal give keys whose text is clean, however they are cut; a line takes them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "cli/line/key_reader.h"
#include "cli/line/line.h"
#include "cli/line/screen.h"

namespace reprise::cli {
namespace {

std::vector<Key> Keys(std::string_view bytes, size_t piece) {
  KeyReader reader;
  std::vector<Key> keys;
  while (!bytes.empty()) {
    reader.Feed(bytes.substr(0, piece), &keys);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return keys;
}

void Obey(const Key& key, Line* line) {
  switch (static_cast<int>(key.kind) % 12) {
    case 0:
    case 1:
      line->Insert(key.text);
      break;
    case 2:
      line->Insert("\n");
      break;
    case 3:
      line->Up();
      break;
    case 4:
      line->Backspace();
      break;
    case 5:
      line->Delete();
      break;
    case 6:
      line->Left();
      break;
    case 7:
      line->Right();
      break;
    case 8:
      line->CutWord();
      break;
    case 9:
      line->Down();
      break;
    case 10:
      line->WordLeft();
      break;
    default:
      line->Yank();
  }
}

}  // namespace
}  // namespace reprise::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  using namespace reprise::cli;
  if (size > 4096) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<Key> keys = Keys(bytes, 4096), cut = Keys(bytes, 1);
  // Typed text may come in pieces; all else is the same.
  std::string whole, pieces;
  for (const auto& [from, to] : {std::pair(&keys, &whole), std::pair(&cut, &pieces)}) {
    for (const Key& key : *from) {
      CHECK(IsValidUtf8(key.text));
      *to += static_cast<char>('A' + static_cast<int>(key.kind));
      if (key.kind == Key::Kind::kText) to->pop_back();
      *to += key.text;
    }
  }
  CHECK(whole == pieces);
  Line line;
  Screen screen;
  const ScreenSize size_of_screen = {1 + int(size % 40), 1 + int(size % 7)};
  for (const Key& key : keys) {
    Obey(key, &line);
    CHECK(line.cursor() <= line.text().size());
    CHECK(IsValidUtf8(line.text()));
    screen.Draw("> ", line, size_of_screen);
  }
  return 0;
}
