// SPDX-License-Identifier: Apache-2.0
#include "tier/folder/folder_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

#include "base/check.h"
#include "tier/folder/record_file.h"

namespace reprise {
namespace {

constexpr char kMagic[8] = {'R', 'P', 'R', 'S', 'i', 'n', 'd', 'x'};
constexpr uint16_t kVersion = 2;
constexpr size_t kFixedBytes = 8 + 2 + 2 + 4 + Seal::kSaltBytes;
constexpr size_t kEntryBytes = 8 + 8 + 8 + 4;  // before the facts
constexpr size_t kNameDigits = 16;
constexpr uint64_t kShareMin = 512;
constexpr size_t kRecordsMin = 1000;
constexpr char kFile[] = "index";
constexpr char kDraft[] = "index.new";

template <typename T>
void Put(T value, std::vector<std::byte>* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

// REQUIRES: there are so many.
template <typename T>
T Take(std::span<const std::byte>* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<uint8_t>((*in)[i])} << 8 * i;
  *in = in->subspan(sizeof(T));
  return static_cast<T>(value);
}

size_t EntryBytes(const RecordFacts& facts) { return kEntryBytes + FactsBytes(facts.marks.size()); }

std::string NameOf(uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name(kNameDigits, '0');
  for (size_t i = kNameDigits; i-- > 0; number >>= 4) name[i] = kDigits[number & 15];
  return name;
}

Status Unusable(const char* what) { return DataLoss(std::string("the index ") + what); }

}  // namespace

// Pages of 4 KiB, and 1/256 of that but at least 512 bytes: so a room says how many pages it has.
uint64_t RoomOf(uint64_t file_bytes) {
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t pages = (file_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return pages + std::max<uint64_t>(kShareMin, pages / 256);
}
uint64_t IndexShare(uint64_t room) { return std::max<uint64_t>(kShareMin, room / 257); }

std::vector<std::byte> EncodeIndex(std::span<const RecordHome::Listed> records, const StateKey& key,
                                   const Seal::Salt& salt) {
  std::vector<std::byte> body;
  uint32_t count = 0;
  for (const RecordHome::Listed& one : records) {
    const size_t bytes = EntryBytes(one.facts);
    if (!one.readable || bytes > IndexShare(one.bytes)) continue;
    if (body.size() + bytes > kIndexBytesMax - kFixedBytes - Seal::kTagBytes) break;
    uint64_t number = 0;
    const char* const end = one.name.data() + one.name.size();
    CHECK(one.name.size() == kNameDigits &&
          std::from_chars(one.name.data(), end, number, 16).ptr == end);
    Put(number, &body);
    Put(one.used_ms, &body);
    Put(one.bytes, &body);
    Put(static_cast<uint32_t>(FactsBytes(one.facts.marks.size())), &body);
    AppendFacts(one.facts, &body);
    ++count;
  }
  std::vector<std::byte> bytes(sizeof(kMagic));
  bytes.reserve(kFixedBytes + body.size() + Seal::kTagBytes);
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  Put(kVersion, &bytes);
  Put(static_cast<uint16_t>(key.secret() ? 1 : 0), &bytes);
  Put(count, &bytes);
  const auto salted = std::as_bytes(std::span(salt));
  bytes.insert(bytes.end(), salted.begin(), salted.end());
  const Seal::Tag tag = Seal(key, salt).Close(0, body, bytes);
  const auto tagged = std::as_bytes(std::span(tag));
  bytes.insert(bytes.end(), body.begin(), body.end());
  bytes.insert(bytes.end(), tagged.begin(), tagged.end());
  return bytes;
}

Result<std::vector<RecordHome::Listed>> DecodeIndex(std::span<std::byte> bytes,
                                                    const StateKey& key) {
  if (bytes.size() < kFixedBytes + Seal::kTagBytes) return Unusable("is cut off");
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) return Unusable("is none");
  std::span<const std::byte> head = bytes.subspan(sizeof(kMagic), kFixedBytes - sizeof(kMagic));
  const auto version = Take<uint16_t>(&head);
  const auto secret = Take<uint16_t>(&head);
  const auto count = Take<uint32_t>(&head);
  if (version != kVersion || secret != (key.secret() ? 1 : 0))
    return Unusable("is of another kind");
  Seal::Salt salt;
  Seal::Tag tag;
  const auto body = bytes.subspan(kFixedBytes, bytes.size() - kFixedBytes - tag.size());
  std::memcpy(salt.data(), head.data(), salt.size());
  std::memcpy(tag.data(), body.data() + body.size(), tag.size());
  if (!Seal(key, salt).Open(0, body, tag, bytes.first(kFixedBytes))) return Unusable("is damaged");
  if (count > body.size() / kEntryBytes) return Unusable("has a count that cannot be");
  std::vector<RecordHome::Listed> records;
  records.reserve(count);
  std::span<const std::byte> rest = body;
  for (uint32_t i = 0; i < count; ++i) {
    if (rest.size() < kEntryBytes) return Unusable("is cut off");
    RecordHome::Listed one;
    one.name = NameOf(Take<uint64_t>(&rest));
    one.used_ms = Take<int64_t>(&rest);
    one.bytes = Take<uint64_t>(&rest);
    const auto facts_bytes = Take<uint32_t>(&rest);
    if (facts_bytes > rest.size()) return Unusable("is cut off");
    REPRISE_ASSIGN(one.facts, DecodeFacts(rest.first(facts_bytes)));
    if (one.bytes > RoomOf(RecordBytesMax(one.facts))) return Unusable("has a size that cannot be");
    one.readable = true;
    rest = rest.subspan(facts_bytes);
    records.push_back(std::move(one));
  }
  if (!rest.empty()) return Unusable("is longer than it says");
  return records;
}

std::vector<RecordHome::Listed> ReadIndex(const StateFolder& folder, const StateKey& key) {
  const OpenFile file(::openat(folder.fd(), kFile, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts = {};
  if (file.fd() < 0 || ::fstat(file.fd(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  if (facts.st_size <= 0 || static_cast<uint64_t>(facts.st_size) > kIndexBytesMax) return {};
  std::vector<std::byte> bytes(static_cast<size_t>(facts.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        ::pread(file.fd(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    done += static_cast<size_t>(got);
  }
  auto records = DecodeIndex(bytes, key);
  return records.ok() ? std::move(*records) : std::vector<RecordHome::Listed>();
}

Status WriteIndex(const StateFolder& folder, const StateKey& key,
                  std::span<const RecordHome::Listed> records) {
  (void)::unlinkat(folder.fd(), kFile, 0);  // there is room for one
  if (records.size() < kRecordsMin) return OkStatus();
  const std::vector<std::byte> bytes = EncodeIndex(records, key, RandomSalt());
  (void)::unlinkat(folder.fd(), kDraft, 0);
  int error = folder.FaultOf("open");
  OpenFile file;
  if (error == 0) {
    file = OpenFile(
        ::openat(folder.fd(), kDraft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    error = file.fd() < 0 ? errno : 0;
  }
  for (size_t done = 0; error == 0 && done < bytes.size();) {
    error = folder.FaultOf("write");
    if (error != 0) break;
    const ssize_t put = ::write(file.fd(), bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) error = put == 0 ? ENOSPC : errno;
    if (put > 0) done += static_cast<size_t>(put);
  }
  if (error == 0) error = folder.FaultOf("rename");
  if (error == 0 && ::renameat(folder.fd(), kDraft, folder.fd(), kFile) != 0) error = errno;
  if (error == 0) return OkStatus();
  (void)::unlinkat(folder.fd(), kDraft, 0);
  return folder.Failure("writing the index failed", error);
}

}  // namespace reprise
