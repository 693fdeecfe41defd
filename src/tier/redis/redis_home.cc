// SPDX-License-Identifier: Apache-2.0
#include "tier/redis/redis_home.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "tier/folder/folder.h"
#include "tier/pack/pack.h"
#include "tier/seal.h"

namespace reprise {
namespace {

constexpr size_t kNameBytes = 16;                 // the random part of a name
constexpr size_t kNamesMax = 4096;                // records along one path
constexpr size_t kLookKeys = 8192;                // asked for at a time
constexpr size_t kHeadsBytes = size_t{16} << 20;  // along one path, in all
constexpr size_t kSlowBytes = size_t{4} << 20;    // take one more time-out
constexpr size_t kLeftMax = 10'000;
constexpr auto kDraftExpires = std::chrono::hours(1);
constexpr size_t kIdleMax = 8;  // connections
constexpr uint8_t kPlain = 0;   // method of a part: as it is; others: width (pack/pack.h)

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

// Tells those that share a Redis but no secret apart.
std::string IdOf(const StateKey& key) {
  const StateKey::Bytes id = key.Derive("store", "");
  return Hex(std::span(id).first(4));
}

std::string SpaceOf(const PathId& space) { return Hex(std::span(space.bytes).first(8)); }

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string HeadEnd() {
  return std::to_string(kRecordFixedBytes + FactsBytes(kMarksMax) + Seal::kTagBytes - 1);
}

size_t HeadBytesMax() { return kRecordFixedBytes + FactsBytes(kMarksMax) + Seal::kTagBytes + 64; }

// Whether the record ends on the path, or has a mark there.
bool LiesOn(const PromptPath& path, const RecordFacts& facts) {
  if (facts.space != path.grid(0)) return false;
  if (facts.end <= path.size() && path.At(facts.end) == facts.path) return true;
  const int32_t first = facts.begin / kBlockTokens + 1;
  const int32_t blocks = path.size() / kBlockTokens;
  return !facts.marks.empty() && first <= blocks && facts.marks.front() == path.grid(first);
}

}  // namespace

RedisHome::RedisHome(const Options& options, const StateKey& key)
    : options_(options),
      key_(key),
      prefix_("reprise:1:" + IdOf(key) + ":"),
      expire_ms_(std::to_string(options.expire.count())) {
  CHECK(key.secret());
}

RedisHome::~RedisHome() = default;

RedisLink::Deadline RedisHome::DeadlineFor(size_t bytes) const {
  return std::chrono::steady_clock::now() + options_.timeout * (1 + bytes / kSlowBytes);
}

Result<RedisHome::LinkPtr> RedisHome::Borrow() {
  for (;;) {
    LinkPtr link;
    {
      std::lock_guard lock(mutex_);
      if (idle_.empty()) break;
      link = std::move(idle_.back());
      idle_.pop_back();
    }
    if (link->stale()) continue;  // the server has ended meanwhile
    link->SetDeadline(DeadlineFor());
    return link;
  }
  return RedisLink::Connect(options_.address, options_.tls, DeadlineFor());
}

void RedisHome::GiveBack(LinkPtr link) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(link));
}

std::string RedisHome::PathKey(char kind, const PathId& space, const PathId& path) const {
  return prefix_ + SpaceOf(space) + ":" + kind + ":" + Hex(path.bytes);
}

std::string RedisHome::NameKey(char kind, const std::string& name) const {
  const size_t colon = name.find(':');
  CHECK(colon != std::string::npos);
  return prefix_ + name.substr(0, colon) + ":" + kind + name.substr(colon);
}

std::string RedisHome::PartKey(const std::string& name, size_t part) const {
  return NameKey('p', name) + ":" + std::to_string(part);
}

std::string RedisHome::NameFor(const RecordFacts& facts) {
  return SpaceOf(facts.space) + ":" + StateFolder::RandomName();
}

// What was there before the failure may hang as well.
void RedisHome::DropIdle() {
  std::lock_guard lock(mutex_);
  idle_.clear();
}

// A key that need not be there.
Status RedisHome::TryRead(const std::string&) {
  DropIdle();
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  link->Add({"GETRANGE", prefix_ + "try", "0", "15"});
  REPRISE_TRY(link->Send());
  REPRISE_TRY(link->Answer().status());
  GiveBack(std::move(link));
  return OkStatus();
}

Status RedisHome::TryWrite(size_t bytes) {
  DropIdle();
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  const std::string key = prefix_ + "try:" + StateFolder::RandomName();
  constexpr char kShortMs[] = "10000";
  link->SetDeadline(DeadlineFor(bytes));
  link->Add({"PSETEX", key, kShortMs, std::string(bytes, '\0')});
  REPRISE_TRY(link->Send());
  REPRISE_TRY(link->Answer().status());
  link->Add({"UNLINK", key});
  REPRISE_TRY(link->Send());
  REPRISE_TRY(link->Answer().status());
  RemoveLeft(*link);
  GiveBack(std::move(link));
  return OkStatus();
}

void RedisHome::RemoveLeft(RedisLink& link) {
  std::vector<std::string> keys;
  {
    std::lock_guard lock(mutex_);
    keys.swap(left_);
  }
  for (const std::string& key : keys) link.Add({"UNLINK", key});
  if (!link.Send().ok()) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!link.answers().Read(kRespLineMax).ok()) return;
  }
}

struct RedisHome::Found {
  const PromptPath* path = nullptr;
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  std::vector<PathId> behind;  // ends of blocks: records may end there
  std::vector<Seen> seen;
  std::vector<bool> ages;  // of those: half of its time is over

  // Whether it looks like a name; what lies under our keys may be anything.
  bool Note(const RespReply& reply) {
    const bool name = reply.kind == RespKind::kBulk && reply.text.size() == kNameBytes &&
                      IsHex(reply.text) && names.size() < kNamesMax;
    if (name && known.insert(reply.text).second) {
      names.push_back(SpaceOf(path->grid(0)) + ":" + reply.text);
    }
    return name;
  }
  void NoteBits(int32_t block, const RespReply& bits) {
    for (int32_t n = 1; bits.kind == RespKind::kBulk && n < kBlockTokens; ++n) {
      const auto byte = static_cast<size_t>(n / 8);
      if (byte >= bits.text.size()) break;
      const bool set = (static_cast<uint8_t>(bits.text[byte]) >> (7 - n % 8) & 1) != 0;
      const int32_t position = block * kBlockTokens + n;
      if (set && position <= path->size()) behind.push_back(path->At(position));
    }
  }
};

// The names of records that end on the paths or have a mark there: of all paths at once, in two
// exchanges for every kLookKeys keys.
Status RedisHome::FindNames(RedisLink& link, std::span<const PromptPath* const> paths,
                            std::vector<Found>* all) const {
  std::vector<std::pair<Found*, int32_t>> asked;  // block
  std::vector<std::pair<Found*, PathId>> behind;
  const auto ask = [&](const Found& one, const PathId& at) {
    link.Add({"GETRANGE", PathKey('r', one.path->grid(0), at), "0", "15"});
  };
  const auto take = [&]() -> Status {
    link.SetDeadline(DeadlineFor());
    REPRISE_TRY(link.Send());
    for (const auto& [one, block] : asked) {
      REPRISE_ASSIGN(const RespReply bits, link.answers().Read(kRespLineMax));
      REPRISE_ASSIGN(const RespReply name, link.answers().Read(kRespLineMax));
      one->NoteBits(block, bits);
      (void)one->Note(name);
      for (const PathId& at : std::exchange(one->behind, {})) behind.push_back({one, at});
    }
    for (const auto& [one, at] : behind) ask(*one, at);
    REPRISE_TRY(link.Send());
    for (const auto& [one, at] : behind) {
      REPRISE_ASSIGN(const RespReply name, link.answers().Read(kRespLineMax));
      (void)one->Note(name);
    }
    asked.clear();
    behind.clear();
    return OkStatus();
  };
  all->resize(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    Found& one = (*all)[i];
    one.path = paths[i];
    for (int32_t block = 0; block <= one.path->size() / kBlockTokens; ++block) {
      link.Add({"GETRANGE", PathKey('i', one.path->grid(0), one.path->grid(block)), "0", "7"});
      ask(one, one.path->grid(block));
      asked.push_back({&one, block});
      if (asked.size() * 2 >= kLookKeys) REPRISE_TRY(take());
    }
  }
  return asked.empty() ? OkStatus() : take();
}

// Of each path those of the heads that open.
Status RedisHome::ReadHeads(RedisLink& link, std::vector<Found>* all) const {
  const std::string end = HeadEnd();
  size_t count = 0;
  for (const Found& one : *all) {
    for (const std::string& name : one.names) {
      link.Add({"GETRANGE", NameKey('h', name), "0", end});
      link.Add({"PTTL", NameKey('h', name)});
      ++count;
    }
  }
  if (count == 0) return OkStatus();
  link.SetDeadline(DeadlineFor());
  REPRISE_TRY(link.Send());
  for (Found& one : *all) {
    size_t bytes = 0;
    for (const std::string& name : one.names) {
      REPRISE_ASSIGN(const RespReply head, link.answers().Read(HeadBytesMax()));
      REPRISE_ASSIGN(const RespReply left, link.answers().Read(kRespLineMax));
      bytes += head.text.size();
      if (bytes > kHeadsBytes) return Internal("the store has more than can be along a prompt");
      if (head.kind != RespKind::kBulk) continue;
      auto facts = DecodeHead(std::as_bytes(std::span(head.text)), key_);
      if (!facts.ok() || !LiesOn(*one.path, *facts)) continue;
      one.seen.push_back({name, std::move(*facts)});
      one.ages.push_back(left.kind == RespKind::kNumber &&
                         left.number < options_.expire.count() / 2);
    }
  }
  return OkStatus();
}

// All that belongs to a record lives on as long as its head does.
void RedisHome::AddRenewals(RedisLink& link, const std::string& name, const RecordFacts& facts,
                            size_t* count) const {
  const auto renew = [&](const std::string& key) {
    link.Add({"PEXPIRE", key, expire_ms_});
    ++*count;
  };
  const size_t parts = RecordLayout(facts).parts().size();
  for (size_t part = 1; part <= parts; ++part) renew(PartKey(name, part));
  for (const PathId& mark : facts.marks) renew(PathKey('r', facts.space, mark));
  renew(PathKey('r', facts.space, facts.path));
  if (facts.end % kBlockTokens != 0) renew(PathKey('i', facts.space, facts.base));
  renew(NameKey('h', name));
}

// Where nothing may be written it is not renewed, which is no failure of reading.
Status RedisHome::Renew(RedisLink& link, std::span<const Found> all) const {
  size_t count = 0;
  for (const Found& one : all) {
    for (size_t i = 0; i < one.seen.size(); ++i) {
      if (one.ages[i]) AddRenewals(link, one.seen[i].name, one.seen[i].facts, &count);
    }
  }
  if (count == 0) return OkStatus();
  link.SetDeadline(DeadlineFor());
  REPRISE_TRY(link.Send());
  for (; count > 0; --count) {
    REPRISE_ASSIGN(const RespReply done, link.answers().Read(kRespLineMax));
  }
  return OkStatus();
}

Result<std::vector<std::vector<RecordHome::Seen>>> RedisHome::Look(
    std::span<const PromptPath* const> paths) {
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  std::vector<Found> found;
  REPRISE_TRY(FindNames(*link, paths, &found));
  REPRISE_TRY(ReadHeads(*link, &found));
  if (Renew(*link, found).ok()) GiveBack(std::move(link));
  std::vector<std::vector<Seen>> all;
  for (Found& one : found) all.push_back(std::move(one.seen));
  return all;
}

class RedisHome::Sink : public RecordSink {
 public:
  Sink(RedisHome* home, LinkPtr link, std::string name, const RecordFacts& facts)
      : home_(*home), link_(std::move(link)), name_(std::move(name)), facts_(facts) {}

  ~Sink() override {
    if (!committed_ && parts_ > 0) RemoveParts();
  }

  Status Append(std::span<std::byte> data) override {
    Packed shorter;
    if (home_.options_.compress) shorter = PackAny(data);
    if (shorter.width != 0) data = shorter.bytes;
    const std::byte method{shorter.width};
    const Seal::Tag tag = seal_.Close(++parts_, data, {&method, 1});
    link_->SetDeadline(home_.DeadlineFor(data.size()));
    link_->AddOpen({"PSETEX", home_.PartKey(name_, parts_), draft_expires_},
                   1 + data.size() + tag.size());
    constexpr char kEnd[] = {'\r', '\n'};
    const std::span<const std::byte> pieces[] = {
        {&method, 1}, data, std::as_bytes(std::span(tag)), std::as_bytes(std::span(kEnd))};
    REPRISE_TRY(Sent(link_->Send(pieces)));
    bytes_ += 1 + data.size() + tag.size();
    return Answers(1);
  }

  uint64_t bytes() const override { return bytes_; }

  Status Commit() override {
    const std::string& expire = home_.expire_ms_;
    const std::string random = name_.substr(name_.find(':') + 1);
    const std::vector<std::byte> head = EncodeHead(facts_, home_.key_, salt_);
    const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
    bytes_ += head.size();
    const auto lead = [&](const PathId& path) {
      link_->Add({"PSETEX", home_.PathKey('r', facts_.space, path), expire, random});
    };
    link_->SetDeadline(home_.DeadlineFor());
    for (size_t part = 1; part <= parts_; ++part) {
      link_->Add({"PEXPIRE", home_.PartKey(name_, part), expire});
    }
    link_->Add({"PSETEX", home_.NameKey('h', name_), expire, text});
    for (const PathId& mark : facts_.marks) lead(mark);
    lead(facts_.path);
    REPRISE_TRY(Sent(link_->Send()));
    REPRISE_TRY(Answers(parts_ + facts_.marks.size() + 2));
    if (facts_.end % kBlockTokens != 0) REPRISE_TRY(MarkTail());
    committed_ = true;
    home_.RemoveLeft(*link_);
    home_.GiveBack(std::move(link_));
    return OkStatus();
  }

 private:
  // Somebody else's value may lie there: it makes way.
  Status MarkTail() {
    const std::string key = home_.PathKey('i', facts_.space, facts_.base);
    const std::string bit = std::to_string(facts_.end % kBlockTokens);
    for (const bool first : {true, false}) {
      link_->Add({"SETBIT", key, bit, "1"});
      link_->Add({"PEXPIRE", key, home_.expire_ms_});
      REPRISE_TRY(Sent(link_->Send()));
      const Status status = Answers(2);
      if (status.code() != StatusCode::kDataLoss || !first) return status;
      link_->Add({"UNLINK", key});
      REPRISE_TRY(Sent(link_->Send()));
      REPRISE_TRY(Answers(1));
    }
    return OkStatus();
  }
  // A link on which sending or receiving has failed is dropped; an answer that says no is none.
  Status Sent(Status status) {
    if (!status.ok()) link_.reset();
    return status;
  }
  Status Answers(size_t count) {
    Status first;
    for (; count > 0; --count) {
      auto reply = link_->answers().Read(kRespLineMax);
      if (!reply.ok()) return Sent(reply.status());
      if (reply->is_error() && first.ok()) first = StatusOfError(reply->text);
    }
    return first;
  }
  // Over another link if need be; what still remains is removed when writing works again.
  void RemoveParts() {
    std::vector<std::string> keys = {home_.NameKey('h', name_)};
    for (size_t part = 1; part <= parts_; ++part) keys.push_back(home_.PartKey(name_, part));
    if (link_ == nullptr) {
      auto link = home_.Borrow();
      if (link.ok()) link_ = std::move(*link);
    }
    if (link_ != nullptr) link_->SetDeadline(home_.DeadlineFor());
    for (const std::string& key : keys) {
      if (link_ != nullptr) link_->Add({"UNLINK", key});
    }
    if (link_ != nullptr && Sent(link_->Send()).ok() && Answers(keys.size()).ok()) {
      return home_.GiveBack(std::move(link_));
    }
    std::lock_guard lock(home_.mutex_);
    for (std::string& key : keys) {
      if (home_.left_.size() < kLeftMax) home_.left_.push_back(std::move(key));
    }
  }

  RedisHome& home_;
  LinkPtr link_;
  const std::string name_;
  const RecordFacts facts_;
  const Seal::Salt salt_ = RandomSalt();
  Seal seal_{home_.key_, salt_};
  const std::string draft_expires_ = std::to_string(
      std::min<std::chrono::milliseconds>(home_.options_.expire, kDraftExpires).count());
  uint32_t parts_ = 0;
  uint64_t bytes_ = 0;
  bool committed_ = false;
};

class RedisHome::Source : public RecordSource {
 public:
  Source(RedisHome* home, LinkPtr link, std::string name, RecordFacts facts, const Seal::Salt& salt)
      : home_(*home),
        link_(std::move(link)),
        name_(std::move(name)),
        facts_(std::move(facts)),
        layout_(facts_),
        seal_(home->key_, salt) {}

  ~Source() override {
    if (link_ != nullptr && asked_ == read_) home_.GiveBack(std::move(link_));
  }

  const RecordFacts& facts() const override { return facts_; }
  const RecordLayout& layout() const override { return layout_; }
  void Want(std::span<const size_t> parts) override { wanted_.assign(parts.begin(), parts.end()); }

  Status ReadPart(size_t index, std::span<std::byte> out) override {
    if (link_ == nullptr) return Internal("the store hung up");
    CHECK(read_ < wanted_.size() && wanted_[read_] == index);
    link_->SetDeadline(home_.DeadlineFor(layout_.parts()[index].bytes));
    Status status = Ask();
    if (status.ok()) status = Receive(index + 1, out.first(layout_.parts()[index].bytes));
    if (!status.ok()) link_.reset();
    ++read_;
    return status;
  }

 private:
  static constexpr size_t kAhead = 2;  // parts on their way while one is opened

  Status Ask() {
    for (; asked_ < std::min(wanted_.size(), read_ + 1 + kAhead); ++asked_) {
      const std::string key = home_.PartKey(name_, wanted_[asked_] + 1);
      link_->Add({"GET", key});
    }
    return link_->Send();
  }
  Status Receive(size_t part, std::span<std::byte> out) {
    RespReader& answers = link_->answers();
    REPRISE_ASSIGN(const std::optional<size_t> bytes, answers.BeginBulk());
    if (!bytes) return NotFound("the store has let go of a part of the record");
    std::byte method;
    Seal::Tag tag;
    constexpr size_t kAround = 1 + sizeof(tag);
    if (*bytes < kAround || *bytes > kAround + out.size()) {
      return DataLoss("a value has a size that cannot be");
    }
    REPRISE_TRY(answers.Take({&method, 1}));
    packed_.resize(method == std::byte{kPlain} ? 0 : *bytes - kAround);
    if (packed_.empty() && *bytes != kAround + out.size()) {
      return DataLoss("a value has a size that cannot be");
    }
    const std::span<std::byte> body = packed_.empty() ? out : std::span(packed_);
    REPRISE_TRY(answers.Take(body));
    REPRISE_TRY(answers.Take(std::as_writable_bytes(std::span(tag))));
    REPRISE_TRY(answers.EndBulk());
    if (!seal_.Open(static_cast<uint32_t>(part), body, tag, {&method, 1})) {
      return DataLoss("the record is damaged, or was sealed with another key");
    }
    if (packed_.empty()) return OkStatus();
    return Unpack(packed_, static_cast<size_t>(method), out);
  }

  RedisHome& home_;
  LinkPtr link_;
  const std::string name_;
  const RecordFacts facts_;
  const RecordLayout layout_;
  Seal seal_;
  std::vector<std::byte> packed_;
  std::vector<size_t> wanted_;
  size_t asked_ = 0;  // of those wanted
  size_t read_ = 0;
};

Result<std::unique_ptr<RecordSink>> RedisHome::Create(const std::string& name,
                                                      const RecordFacts& facts) {
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  return std::unique_ptr<RecordSink>(std::make_unique<Sink>(this, std::move(link), name, facts));
}

Result<std::unique_ptr<RecordSource>> RedisHome::Open(const std::string& name) {
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  link->Add({"GETRANGE", NameKey('h', name), "0", HeadEnd()});
  REPRISE_TRY(link->Send());
  REPRISE_ASSIGN(const RespReply head, link->Answer(HeadBytesMax()));
  if (head.kind != RespKind::kBulk || head.text.empty()) {
    return NotFound("the store has let go of the record");
  }
  const auto bytes = std::as_bytes(std::span(head.text));
  REPRISE_ASSIGN(const RecordPreamble preamble, DecodePreamble(bytes));
  REPRISE_ASSIGN(RecordFacts facts, DecodeHead(bytes, key_));
  return std::unique_ptr<RecordSource>(
      std::make_unique<Source>(this, std::move(link), name, std::move(facts), preamble.salt));
}

void RedisHome::Remove(const std::string& name) {
  auto link = Borrow();
  if (!link.ok()) return;
  (*link)->Add({"GETRANGE", NameKey('h', name), "0", HeadEnd()});
  if (!(*link)->Send().ok()) return;
  const auto head = (*link)->Answer(HeadBytesMax());
  if (!head.ok()) return;
  const auto facts = DecodeHead(std::as_bytes(std::span(head->text)), key_);
  const size_t parts = facts.ok() ? RecordLayout(*facts).parts().size() : 0;
  (*link)->Add({"UNLINK", NameKey('h', name)});
  for (size_t part = 1; part <= parts; ++part) (*link)->Add({"UNLINK", PartKey(name, part)});
  if (!(*link)->Send().ok()) return;
  for (size_t i = 0; i <= parts; ++i) {
    if (!(*link)->Answer().ok()) return;
  }
  GiveBack(std::move(*link));
}

// A slice is what Redis looks through at once, whoever its keys belong to.
Status RedisHome::Forget(const PathId& space, std::string* cursor) {
  constexpr size_t kKeysBytes = size_t{4} << 20;  // of one answer
  const std::string pattern = prefix_ + (space.empty() ? "" : SpaceOf(space) + ":") + "*";
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  link->Add({"SCAN", cursor->empty() ? "0" : *cursor, "MATCH", pattern, "COUNT", "1000"});
  REPRISE_TRY(link->Send());
  REPRISE_ASSIGN(const RespReply reply, link->Answer(kKeysBytes));
  if (reply.items.size() != 2) return Internal("the answer is not Redis's protocol");
  for (const RespReply& key : reply.items[1].items) link->Add({"UNLINK", key.text});
  REPRISE_TRY(link->Send());
  for (size_t i = 0; i < reply.items[1].items.size(); ++i) {
    REPRISE_TRY(link->Answer().status());
  }
  *cursor = reply.items[0].text == "0" ? "" : reply.items[0].text;
  GiveBack(std::move(link));
  return OkStatus();
}

}  // namespace reprise
