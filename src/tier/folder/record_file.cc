// SPDX-License-Identifier: Apache-2.0
#include "tier/folder/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "tier/pack/pack.h"

namespace reprise {
namespace {

constexpr size_t kFirstRead = 4096;  // most heads are shorter

std::string FileOf(const std::string& name) { return name + ".state"; }
std::string DraftOf(const std::string& name) { return name + ".tmp"; }

Status WriteAt(const StateFolder& folder, int fd, std::span<const std::byte> bytes,
               uint64_t offset) {
  while (!bytes.empty()) {
    const int error = folder.FaultOf("write");
    const ssize_t written =
        error != 0 ? -1 : ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (error == 0 && written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return folder.Failure("writing a record failed", error != 0     ? error
                                                       : written == 0 ? ENOSPC
                                                                      : errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return OkStatus();
}

Result<OpenFile> CreateDraft(const StateFolder& folder, const std::string& name) {
  int error = folder.FaultOf("open");
  if (error == 0) {
    OpenFile file(::openat(folder.fd(), DraftOf(name).c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.fd() >= 0) return file;
    error = errno;
  }
  return folder.Failure("writing a record failed", error);
}

// What was written is on the disk, and has its name: an error number, or 0.
int SyncFile(const StateFolder& folder, int fd) {
  const int error = folder.FaultOf("fdatasync");
  if (error != 0 || !folder.sync) return error;
  return folder.fdatasync(fd) != 0 ? errno : 0;
}

int Rename(const StateFolder& folder, const std::string& from, const std::string& to) {
  const int error = folder.FaultOf("rename");
  if (error != 0) return error;
  return ::renameat(folder.fd(), from.c_str(), folder.fd(), to.c_str()) != 0 ? errno : 0;
}

int SyncFolder(const StateFolder& folder) {
  const int error = folder.FaultOf("fsync");
  if (error != 0 || !folder.sync) return error;
  return folder.fsync(folder.fd()) != 0 ? errno : 0;
}

}  // namespace

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<RecordDraft> RecordDraft::Create(StateFolder& folder, const StateKey& key, std::string name,
                                        const RecordFacts& facts, bool pack) {
  RecordDraft draft(folder, key, std::move(name), facts);
  REPRISE_ASSIGN(draft.file_, CreateDraft(folder, draft.name_));
  draft.pack_ = pack && RecordLayout(facts).parts().size() <= kPackedPartsMax;
  draft.end_ = HeadBytes(facts, draft.pack_);
  return draft;
}

RecordDraft::~RecordDraft() {
  if (file_.fd() >= 0) ::unlinkat(folder_->fd(), DraftOf(name_).c_str(), 0);
}

Status RecordDraft::Add(std::span<const std::byte> bytes) {
  REPRISE_TRY(WriteAt(*folder_, file_.fd(), bytes, end_));
  end_ += bytes.size();
  return OkStatus();
}

Status RecordDraft::Append(std::span<std::byte> data) {
  Packed shorter;
  if (pack_) {
    if (data.size() <= kPackBytesMax) shorter = PackAny(data);
    if (shorter.width != 0) data = shorter.bytes;
    packed_.push_back({shorter.width, data.size()});
  }
  const Seal::Tag tag = seal_->Close(++parts_, data);
  REPRISE_TRY(Add(data));
  return Add(std::as_bytes(std::span(tag)));
}

Status RecordDraft::Commit() {
  const RecordLayout layout = pack_ ? RecordLayout(facts_, packed_) : RecordLayout(facts_);
  CHECK(parts_ == layout.parts().size() && end_ == layout.file_bytes());
  const std::vector<std::byte> head = EncodeHead(facts_, *key_, salt_, packed_);
  REPRISE_TRY(WriteAt(*folder_, file_.fd(), head, 0));
  int error = SyncFile(*folder_, file_.fd());
  if (error == 0) error = Rename(*folder_, DraftOf(name_), FileOf(name_));
  if (error != 0) return folder_->Failure("finishing a record failed", error);
  file_ = OpenFile();
  error = SyncFolder(*folder_);
  if (error == 0) return OkStatus();
  (void)folder_->Remove(name_);
  return folder_->Failure("finishing a record failed", error);
}

Status TryToWrite(StateFolder& folder, size_t bytes) {
  const std::string name = StateFolder::RandomName(), other = StateFolder::RandomName();
  REPRISE_ASSIGN(const OpenFile file, CreateDraft(folder, name));
  Status status = WriteAt(folder, file.fd(), std::vector<std::byte>(bytes), 0);
  if (status.ok()) {
    int error = SyncFile(folder, file.fd());
    if (error == 0) error = Rename(folder, DraftOf(name), DraftOf(other));
    if (error == 0) error = SyncFolder(folder);
    if (error != 0) status = folder.Failure("finishing a record failed", error);
  }
  for (const std::string& one : {name, other}) ::unlinkat(folder.fd(), DraftOf(one).c_str(), 0);
  return status;
}

Result<RecordFile> RecordFile::Open(StateFolder& folder, const StateKey& key,
                                    const std::string& name) {
  int error = folder.FaultOf("open");
  OpenFile file;
  struct stat facts = {};
  if (error == 0) {
    file = OpenFile(::openat(folder.fd(), FileOf(name).c_str(),
                             O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.fd() < 0 || ::fstat(file.fd(), &facts) != 0) error = errno;
  }
  if (error != 0) return folder.Failure("reading a record failed", error);
  if (!S_ISREG(facts.st_mode)) return DataLoss("the record is not a regular file");
  RecordFile record(folder, std::move(file));
  record.bytes_ = static_cast<uint64_t>(facts.st_size);
  record.used_ms_ = StateFolder::UsedMs(facts);
  std::vector<std::byte> head(std::min<uint64_t>(record.bytes_, kFirstRead));
  REPRISE_TRY(record.Read(head, 0));
  REPRISE_ASSIGN(const RecordPreamble preamble, DecodePreamble(head));
  if (preamble.head_bytes() > record.bytes_) return DataLoss("the record is cut off");
  const size_t read = head.size();
  head.resize(preamble.head_bytes());
  if (head.size() > read) REPRISE_TRY(record.Read(std::span(head).subspan(read), read));
  std::vector<PackedPart> packed;
  REPRISE_ASSIGN(record.facts_, DecodeHead(head, key, &record.seal_, &packed));
  record.packed_ = preamble.packed;
  if (preamble.packed) {
    record.layout_ = RecordLayout(record.facts_, packed);
  } else if (RecordBytes(record.facts_) == record.bytes_) {
    record.layout_ = RecordLayout(record.facts_);
  }
  if (record.layout_.file_bytes() != record.bytes_) {
    return DataLoss("the record is not as long as its head says");
  }
  return record;
}

Status RecordFile::Read(std::span<std::byte> out, uint64_t offset) const {
  while (!out.empty()) {
    const int error = folder_->FaultOf("read");
    const ssize_t got =
        error != 0 ? -1 : ::pread(file_.fd(), out.data(), out.size(), static_cast<off_t>(offset));
    if (error == 0 && got < 0 && errno == EINTR) continue;
    if (got < 0) return folder_->Failure("reading a record failed", error != 0 ? error : errno);
    if (got == 0) return DataLoss("the record is cut off");
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return OkStatus();
}

// The device may have all of it under way while the first part is checked.
void RecordFile::Want(std::span<const size_t> parts) {
  if (parts.empty()) return;
  const uint64_t begin = layout_.parts()[parts.front()].offset;
  const RecordLayout::Part& last = layout_.parts()[parts.back()];
  const uint64_t end = last.offset + last.stored.bytes + sizeof(Seal::Tag);
  (void)::posix_fadvise(file_.fd(), static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                        POSIX_FADV_WILLNEED);
}

Status RecordFile::ReadPart(size_t index, std::span<std::byte> out) {
  const RecordLayout::Part& part = layout_.parts()[index];
  CHECK(out.size() == part.bytes);
  const bool as_it_is = part.stored.width == 0;
  if (!as_it_is) scratch_.resize(part.stored.bytes);
  const std::span<std::byte> stored = as_it_is ? out : std::span(scratch_);
  Seal::Tag tag;
  REPRISE_TRY(Read(stored, part.offset));
  REPRISE_TRY(Read(std::as_writable_bytes(std::span(tag)), part.offset + stored.size()));
  if (!seal_->Open(static_cast<uint32_t>(index + 1), stored, tag)) {
    return DataLoss("the record is damaged");
  }
  return as_it_is ? OkStatus() : Unpack(stored, part.stored.width, out);
}

Status VerifyRecord(StateFolder& folder, const StateKey& key, const std::string& name) {
  REPRISE_ASSIGN(RecordFile file, RecordFile::Open(folder, key, name));
  std::vector<std::byte> part;
  for (size_t i = 0; i < file.layout().parts().size(); ++i) {
    part.resize(file.layout().parts()[i].bytes);
    REPRISE_TRY(file.ReadPart(i, part));
  }
  return OkStatus();
}

}  // namespace reprise
