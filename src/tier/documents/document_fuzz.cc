// SPDX-License-Identifier: Apache-2.0
// Any bytes as a document, with a key or without: an error or its content, which fits into the
// file. The first byte says whether it is sealed again first, so that what is behind the tag is
// reached.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tier/documents/document.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  if (size == 0) return 0;
  std::vector<std::byte> file(size - 1);
  if (size > 1) std::memcpy(file.data(), data + 1, size - 1);
  const StateKey key = (data[0] & 2) != 0 ? StateKey::Of({7}) : StateKey();
  const auto head = DecodeDocumentHead(file);
  if (head.ok() && (data[0] & 1) != 0 && file.size() == head->file_bytes()) {
    const std::string content(reinterpret_cast<const char*>(file.data()) + kDocumentHeadBytes,
                              head->content_bytes);
    file = EncodeDocument(head->owner, head->created_ms, content, "id", key);
    std::vector<std::byte> other = file;
    CHECK(!DecodeDocument(other, "other", key).ok());
    const auto opened = DecodeDocument(file, "id", key);
    CHECK(opened.ok() && *opened == content);
    return 0;
  }
  const auto content = DecodeDocument(file, "id", key);
  if (content.ok()) CHECK(content->size() + kDocumentHeadBytes + Seal::kTagBytes == file.size());
  return 0;
}
