// SPDX-License-Identifier: Apache-2.0
#include "tier/documents/document.h"

#include <cstring>

#include "base/check.h"

namespace reprise {
namespace {

constexpr std::string_view kMagic = "RPRSDOC1";
constexpr size_t kSecretAt = 8, kBytesAt = 12, kSaltAt = 16, kOwnerAt = 32, kTimeAt = 48,
                 kZerosAt = 56;

template <typename T>
void Put(T value, std::byte* to) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

uint64_t Take(const std::byte* from, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{std::to_integer<uint8_t>(from[i])} << (8 * i);
  return value;
}

// What the tag protects beside the content.
std::vector<std::byte> About(std::span<const std::byte> head, std::string_view id) {
  std::vector<std::byte> about(head.size() + id.size());
  std::memcpy(about.data(), head.data(), head.size());
  if (!id.empty()) std::memcpy(about.data() + head.size(), id.data(), id.size());
  return about;
}

}  // namespace

uint64_t DocumentHead::file_bytes() const {
  return kDocumentHeadBytes + uint64_t{content_bytes} + Seal::kTagBytes;
}

std::vector<std::byte> EncodeDocument(const OwnerId& owner, int64_t created_ms,
                                      std::string_view content, std::string_view id,
                                      const StateKey& key) {
  CHECK(content.size() <= kDocumentBytesMax);
  std::vector<std::byte> file(kDocumentHeadBytes + content.size() + Seal::kTagBytes);
  const Seal::Salt salt = RandomSalt();
  std::memcpy(file.data(), kMagic.data(), kMagic.size());
  Put(uint32_t{key.secret()}, &file[kSecretAt]);
  Put(static_cast<uint32_t>(content.size()), &file[kBytesAt]);
  std::memcpy(&file[kSaltAt], salt.data(), salt.size());
  std::memcpy(&file[kOwnerAt], owner.data(), owner.size());
  Put(created_ms, &file[kTimeAt]);
  if (!content.empty()) std::memcpy(&file[kDocumentHeadBytes], content.data(), content.size());
  const auto whole = std::span(file);
  const Seal::Tag tag = Seal(key, salt).Close(0, whole.subspan(kDocumentHeadBytes, content.size()),
                                              About(whole.first(kDocumentHeadBytes), id));
  std::memcpy(whole.last(tag.size()).data(), tag.data(), tag.size());
  return file;
}

Result<DocumentHead> DecodeDocumentHead(std::span<const std::byte> bytes) {
  if (bytes.size() < kDocumentHeadBytes) return DataLoss("a document is shorter than its head");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return DataLoss("a document does not begin as one");
  }
  const uint64_t secret = Take(&bytes[kSecretAt], 4);
  const uint64_t size = Take(&bytes[kBytesAt], 4);
  if (secret > 1 || size > kDocumentBytesMax || Take(&bytes[kZerosAt], 8) != 0) {
    return DataLoss("the head of a document has values that none has");
  }
  DocumentHead head;
  head.secret = secret == 1;
  head.content_bytes = static_cast<uint32_t>(size);
  std::memcpy(head.salt.data(), &bytes[kSaltAt], head.salt.size());
  std::memcpy(head.owner.data(), &bytes[kOwnerAt], head.owner.size());
  head.created_ms = static_cast<int64_t>(Take(&bytes[kTimeAt], 8));
  return head;
}

Result<std::string> DecodeDocument(std::span<std::byte> file, std::string_view id,
                                   const StateKey& key) {
  REPRISE_ASSIGN(const DocumentHead head, DecodeDocumentHead(file));
  if (file.size() != head.file_bytes()) return DataLoss("a document has not the size it says");
  if (head.secret != key.secret()) return DataLoss("a document is of another key");
  const auto content = file.subspan(kDocumentHeadBytes, head.content_bytes);
  Seal::Tag tag;
  std::memcpy(tag.data(), file.data() + file.size() - tag.size(), tag.size());
  if (!Seal(key, head.salt).Open(0, content, tag, About(file.first(kDocumentHeadBytes), id))) {
    return DataLoss("a stored document is damaged");
  }
  return std::string(reinterpret_cast<const char*>(content.data()), content.size());
}

}  // namespace reprise
