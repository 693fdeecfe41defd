// SPDX-License-Identifier: Apache-2.0
#include "cli/line/text_width.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>

#include "base/utf8.h"

namespace reprise::cli {
namespace {

constexpr uint32_t kJoiner = 0x200D;
constexpr size_t kClusterBytesMax = 64;  // a hostile text may have thousands of marks in a row

bool IsFlagLetter(uint32_t code) { return code >= 0x1F1E6 && code <= 0x1F1FF; }

// The character at `at`; U+FFFD, of one byte, where there is none.
uint32_t CharacterAt(std::string_view text, size_t at, size_t* bytes) {
  *bytes = Utf8SequenceLength(text.substr(at));
  if (*bytes > 0) return DecodeUtf8(text.substr(at), *bytes);
  *bytes = 1;
  return 0xFFFD;
}

}  // namespace

int ColumnsOf(uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return 0;
  if (code < 0x7F) return 1;
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  const locale_t before = ::uselocale(utf8);
  const int columns = ::wcwidth(static_cast<wchar_t>(code));
  ::uselocale(before);
  return std::max(0, columns);
}

Cluster FirstCluster(std::string_view text) {
  size_t bytes = 0;
  uint32_t code = CharacterAt(text, 0, &bytes);
  Cluster cluster{bytes, ColumnsOf(code)};
  bool flag = IsFlagLetter(code);
  while (cluster.bytes < text.size() && cluster.bytes < kClusterBytesMax) {
    const uint32_t next = CharacterAt(text, cluster.bytes, &bytes);
    const bool pair = flag && IsFlagLetter(next);
    const bool joined = code == kJoiner;
    if (!pair && !joined && (next < 0x80 || ColumnsOf(next) > 0)) break;
    flag = false;
    code = next;
    cluster.bytes += bytes;
    if (pair) cluster.columns = 2;
    if (cluster.columns == 0) cluster.columns = ColumnsOf(next);
  }
  return cluster;
}

size_t ClusterBefore(std::string_view text, size_t at) {
  // From a line break or a plain letter on: those begin a cluster.
  size_t from = at - 1;
  const size_t least = at - std::min(at, 2 * kClusterBytesMax);
  while (from > least && static_cast<unsigned char>(text[from]) >= 0x80) --from;
  for (;;) {
    const size_t next = from + FirstCluster(text.substr(from)).bytes;
    if (next >= at) return from;
    from = next;
  }
}

int ColumnsOf(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Cluster cluster = FirstCluster(text);
    columns += cluster.columns;
    text.remove_prefix(cluster.bytes);
  }
  return columns;
}

}  // namespace reprise::cli
