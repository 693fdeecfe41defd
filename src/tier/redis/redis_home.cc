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
constexpr int32_t kLookBlocks = 512;              // asked for at a time
constexpr size_t kHeadsBytes = size_t{16} << 20;  // of one look, in all
constexpr size_t kIdleMax = 8;                    // connections
constexpr uint8_t kPlain = 0;  // method of a part: as it is; others: width (pack/pack.h)

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

Result<RedisHome::LinkPtr> RedisHome::Borrow() {
  for (;;) {
    LinkPtr link;
    {
      std::lock_guard lock(mutex_);
      if (idle_.empty()) break;
      link = std::move(idle_.back());
      idle_.pop_back();
    }
    link->SetDeadline(DeadlineNow());  // the server may have ended meanwhile
    link->Add({"PING"});
    if (link->Send().ok() && link->Answer().ok()) return link;
  }
  return RedisLink::Connect(options_.address, options_.ca_file, DeadlineNow());
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

Status RedisHome::Probe() {
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  GiveBack(std::move(link));
  return OkStatus();
}

// The names of records that end on the path or have a mark there. What lies under our keys may be
// anything: what does not look like a name is none.
Result<std::vector<std::string>> RedisHome::NamesAlong(RedisLink& link,
                                                       const PromptPath& path) const {
  const PathId& space = path.grid(0);
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  const auto note = [&](const RespReply& reply) {
    const bool name = reply.kind == RespKind::kBulk && reply.text.size() == kNameBytes &&
                      IsHex(reply.text) && names.size() < kNamesMax;
    if (name && seen.insert(reply.text).second) names.push_back(SpaceOf(space) + ":" + reply.text);
    return name;
  };
  const auto ask = [&](const PathId& at) {
    link.Add({"GETRANGE", PathKey('r', space, at), "0", "15"});
  };
  const int32_t blocks = path.size() / kBlockTokens;
  for (int32_t begin = 0; begin <= blocks; begin += kLookBlocks) {
    const int32_t end = std::min(blocks + 1, begin + kLookBlocks);
    link.SetDeadline(DeadlineNow());
    for (int32_t block = begin; block < end; ++block) {
      link.Add({"GETRANGE", PathKey('i', space, path.grid(block)), "0", "7"});
      ask(path.grid(block));
    }
    REPRISE_TRY(link.Send());
    std::vector<PathId> behind;
    std::vector<std::string> used;
    for (int32_t block = begin; block < end; ++block) {
      REPRISE_ASSIGN(const RespReply bits, link.answers().Read(kRespLineMax));
      REPRISE_ASSIGN(const RespReply name, link.answers().Read(kRespLineMax));
      if (note(name)) used.push_back(PathKey('r', space, path.grid(block)));
      for (int32_t n = 1; bits.kind == RespKind::kBulk && n < kBlockTokens; ++n) {
        const auto byte = static_cast<size_t>(n / 8);
        if (byte >= bits.text.size()) break;
        const bool set = (static_cast<uint8_t>(bits.text[byte]) >> (7 - n % 8) & 1) != 0;
        const int32_t position = block * kBlockTokens + n;
        if (set && position <= path.size()) behind.push_back(path.At(position));
      }
      if (!bits.text.empty()) used.push_back(PathKey('i', space, path.grid(block)));
    }
    for (const PathId& at : behind) ask(at);
    for (const std::string& key : used) link.Add({"PEXPIRE", key, expire_ms_});
    if (behind.empty() && used.empty()) continue;
    REPRISE_TRY(link.Send());
    for (size_t i = 0; i < behind.size(); ++i) {
      REPRISE_ASSIGN(const RespReply name, link.answers().Read(kRespLineMax));
      (void)note(name);
    }
    for (size_t i = 0; i < used.size(); ++i) {
      REPRISE_ASSIGN(const RespReply done, link.answers().Read(kRespLineMax));
    }
  }
  return names;
}

// Those of the heads that open.
Result<std::vector<RecordHome::Seen>> RedisHome::ReadHeads(
    RedisLink& link, std::span<const std::string> names) const {
  link.SetDeadline(DeadlineNow());
  const std::string end = HeadEnd();
  for (const std::string& name : names) {
    link.Add({"GETRANGE", NameKey('h', name), "0", end});
    link.Add({"PEXPIRE", NameKey('h', name), expire_ms_});
  }
  REPRISE_TRY(link.Send());
  std::vector<Seen> all;
  size_t bytes = 0;
  for (const std::string& name : names) {
    REPRISE_ASSIGN(const RespReply head, link.answers().Read(HeadBytesMax()));
    REPRISE_ASSIGN(const RespReply done, link.answers().Read(kRespLineMax));
    bytes += head.text.size();
    if (bytes > kHeadsBytes) return Internal("the store has more than can be along a prompt");
    if (head.kind != RespKind::kBulk) continue;
    auto facts = DecodeHead(std::as_bytes(std::span(head.text)), key_);
    if (facts.ok()) all.push_back({name, std::move(*facts)});
  }
  return all;
}

Result<std::vector<RecordHome::Seen>> RedisHome::Look(const PromptPath& path) {
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  REPRISE_ASSIGN(const std::vector<std::string> names, NamesAlong(*link, path));
  std::vector<Seen> all;
  if (!names.empty()) {
    REPRISE_ASSIGN(all, ReadHeads(*link, names));
  }
  GiveBack(std::move(link));
  std::erase_if(all, [&](const Seen& one) { return !LiesOn(path, one.facts); });
  if (forgetting_ > 0) all.clear();
  return all;
}

class RedisHome::Sink : public RecordSink {
 public:
  Sink(RedisHome* home, LinkPtr link, std::string name, const RecordFacts& facts)
      : home_(*home), link_(std::move(link)), name_(std::move(name)), facts_(facts) {}

  ~Sink() override {
    if (link_ == nullptr || parts_ == 0) return;
    Unlink();
  }

  Status Append(std::span<std::byte> data) override {
    Packed shorter;
    if (home_.options_.compress) shorter = PackAny(data);
    if (shorter.width != 0) data = shorter.bytes;
    const std::byte method{shorter.width};
    const Seal::Tag tag = seal_.Close(++parts_, data, {&method, 1});
    link_->SetDeadline(home_.DeadlineNow());
    link_->AddOpen({"PSETEX", home_.PartKey(name_, parts_), home_.expire_ms_},
                   1 + data.size() + tag.size());
    constexpr char kEnd[] = {'\r', '\n'};
    const std::span<const std::byte> pieces[] = {
        {&method, 1}, data, std::as_bytes(std::span(tag)), std::as_bytes(std::span(kEnd))};
    REPRISE_TRY(Checked(link_->Send(pieces)));
    bytes_ += 1 + data.size() + tag.size();
    return Checked(link_->Answer().status());
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
    link_->SetDeadline(home_.DeadlineNow());
    link_->Add({"PSETEX", home_.NameKey('h', name_), expire, text});
    for (const PathId& mark : facts_.marks) lead(mark);
    lead(facts_.path);
    REPRISE_TRY(Checked(link_->Send()));
    for (size_t i = 0; i < facts_.marks.size() + 2; ++i) {
      REPRISE_TRY(Checked(link_->Answer().status()));
    }
    if (facts_.end % kBlockTokens != 0) REPRISE_TRY(Checked(MarkTail()));
    home_.GiveBack(std::move(link_));
    return OkStatus();
  }

 private:
  // Somebody else's value may lie there: it makes way.
  Status MarkTail() {
    const std::string key = home_.PathKey('i', facts_.space, facts_.base);
    const std::string bit = std::to_string(facts_.end % kBlockTokens);
    Status status;
    for (int i = 0; i < 2; ++i) {
      link_->Add({"SETBIT", key, bit, "1"});
      link_->Add({"PEXPIRE", key, home_.expire_ms_});
      REPRISE_TRY(link_->Send());
      status = link_->Answer().status();
      REPRISE_TRY(link_->Answer().status());
      if (status.code() != StatusCode::kDataLoss) return status;
      link_->Add({"UNLINK", key});
      REPRISE_TRY(link_->Send());
      REPRISE_TRY(link_->Answer().status());
    }
    return status;
  }
  // A link that has failed is dropped.
  Status Checked(Status status) {
    if (!status.ok()) link_.reset();
    return status;
  }
  void Unlink() {
    link_->SetDeadline(home_.DeadlineNow());
    for (size_t part = 1; part <= parts_; ++part)
      link_->Add({"UNLINK", home_.PartKey(name_, part)});
    if (!link_->Send().ok()) return;
    for (size_t part = 1; part <= parts_; ++part) {
      if (!link_->Answer().ok()) return;
    }
    home_.GiveBack(std::move(link_));
  }

  RedisHome& home_;
  LinkPtr link_;
  const std::string name_;
  const RecordFacts facts_;
  const Seal::Salt salt_ = RandomSalt();
  Seal seal_{home_.key_, salt_};
  uint32_t parts_ = 0;
  uint64_t bytes_ = 0;
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
    link_->SetDeadline(home_.DeadlineNow());
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
      link_->Add({"GETEX", key, "PX", home_.expire_ms_});
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
  const std::string names[] = {name};
  const auto heads = ReadHeads(**link, names);
  if (!heads.ok()) return;
  size_t parts = heads->empty() ? 0 : RecordLayout(heads->front().facts).parts().size();
  (*link)->Add({"UNLINK", NameKey('h', name)});
  for (size_t part = 1; part <= parts; ++part) (*link)->Add({"UNLINK", PartKey(name, part)});
  if (!(*link)->Send().ok()) return;
  for (size_t i = 0; i <= parts; ++i) {
    if (!(*link)->Answer().ok()) return;
  }
  GiveBack(std::move(*link));
}

Status RedisHome::Forget(const PathId& space) {
  ++forgetting_;
  const Status status = ForgetMatching(prefix_ + (space.empty() ? "" : SpaceOf(space) + ":") + "*");
  --forgetting_;
  return status;
}

Status RedisHome::ForgetMatching(const std::string& pattern) {
  constexpr size_t kKeysBytes = size_t{4} << 20;  // of one answer
  REPRISE_ASSIGN(LinkPtr link, Borrow());
  std::string cursor = "0";
  do {
    link->SetDeadline(DeadlineNow());
    link->Add({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"});
    REPRISE_TRY(link->Send());
    REPRISE_ASSIGN(const RespReply reply, link->Answer(kKeysBytes));
    if (reply.items.size() != 2) return Internal("what came is no answer of Redis");
    cursor = reply.items[0].text;
    for (const RespReply& key : reply.items[1].items) link->Add({"UNLINK", key.text});
    REPRISE_TRY(link->Send());
    for (size_t i = 0; i < reply.items[1].items.size(); ++i) {
      REPRISE_TRY(link->Answer().status());
    }
  } while (cursor != "0");
  GiveBack(std::move(link));
  return OkStatus();
}

}  // namespace reprise
