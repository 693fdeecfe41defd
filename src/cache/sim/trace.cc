// SPDX-License-Identifier: Apache-2.0
#include "cache/sim/trace.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/rng.h"

namespace reprise {
namespace {

constexpr size_t kPoolTokensMax = size_t{1} << 30;
constexpr int32_t kHashTokens = 512;     // Mooncake's block
constexpr int32_t kMadeUpReply = 120;    // tokens, where a trace has no replies
constexpr int32_t kMadeUpTools = 1'000;  // tokens of tool definitions for each class

using Piece = TraceRequest::Piece;

enum class Letter : uint8_t { kWord, kDigit, kSpace, kMark };

Letter LetterOf(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0) return Letter::kWord;
  if (c >= '0' && c <= '9') return Letter::kDigit;
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' ? Letter::kSpace : Letter::kMark;
}

TokenId TokenOf(std::string_view text) {
  return static_cast<TokenId>(Mix64(std::hash<std::string_view>()(text)) & 0x7fffffff);
}

class Reader {
 public:
  Reader(const Pace& pace, size_t request_count_max)
      : pace_(pace), rng_(pace.seed), request_count_max_(request_count_max) {}

  Status Read(std::string_view jsonl) {
    size_t number = 0;
    while (!jsonl.empty() && trace_.requests.size() < request_count_max_) {
      const size_t end = std::min(jsonl.find('\n'), jsonl.size());
      const std::string_view line = jsonl.substr(0, end);
      jsonl.remove_prefix(std::min(end + 1, jsonl.size()));
      ++number;
      if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
      const Status status = ReadLine(line);
      if (!status.ok()) return status.Annotate("line " + std::to_string(number) + " of the trace");
    }
    std::stable_sort(
        trace_.requests.begin(), trace_.requests.end(),
        [](const TraceRequest& a, const TraceRequest& b) { return a.time_ms < b.time_ms; });
    return OkStatus();
  }

  Trace Take() { return std::move(trace_); }

 private:
  Status ReadLine(std::string_view line) {
    REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(line));
    const JsonValue& root = document.root();
    if (const JsonValue* hashes = root.Find("hash_ids"); hashes && hashes->is_array()) {
      return ReadMooncake(root, *hashes);
    }
    if (const JsonValue* messages = root.Find("messages"); messages && messages->is_array()) {
      return ReadMessages(*messages);
    }
    if (const JsonValue* turns = root.Find("turns"); turns && turns->is_array()) {
      return ReadTurns(*turns, nullptr);
    }
    if (const JsonValue* turns = root.Find("question"); turns && turns->is_array()) {
      return ReadTurns(*turns, root.Find("involved_classes"));
    }
    return InvalidArgument("is none of the known formats (hash_ids, messages, turns, question)");
  }

  Status ReadMooncake(const JsonValue& root, const JsonValue& hashes) {
    const JsonValue* time = root.Find("timestamp");
    const JsonValue* length = root.Find("input_length");
    if (!time || !time->is_number() || !length || !length->is_int() || length->as_int() < 1 ||
        length->as_int() > int64_t{kHashTokens} * static_cast<int64_t>(hashes.items().size())) {
      return InvalidArgument("needs timestamp and an input_length that its hash_ids cover");
    }
    TraceRequest request;
    request.time_ms = static_cast<int64_t>(time->as_double());
    request.conversation = conversation_count_++;
    int64_t left = length->as_int();
    for (const JsonValue& hash : hashes.items()) {
      if (!hash.is_int()) return InvalidArgument("has a hash_id that is not an integer");
      if (left < kHashTokens) break;
      REPRISE_ASSIGN(const Piece piece, HashPiece(hash.as_int()));
      Add(piece, &request);
      left -= kHashTokens;
    }
    if (request.prompt_tokens > 0) {
      request.boundaries.push_back({request.prompt_tokens, BoundaryKind::kMessage});
    }
    // What is left of the last hash, and at least one token to run.
    tail_tokens_ += std::max<int64_t>(left - 1, 0);
    REPRISE_ASSIGN(const Piece tail, MadeUp(RandomAt(7, trace_.requests.size()), 1));
    Add(tail, &request);
    trace_.requests.push_back(std::move(request));
    return OkStatus();
  }

  Status ReadMessages(const JsonValue& messages) {
    TraceRequest next = NextConversation();
    bool system = true;
    for (const JsonValue& message : messages.items()) {
      const JsonValue* role = message.Find("role");
      if (!role || !role->is_string()) return InvalidArgument("has a message without role");
      REPRISE_ASSIGN(const Piece piece, Text(MessageText(message)));
      if (role->as_string() == "assistant") {
        REPRISE_TRY(AddOpening(&next));
        if (next.prompt_tokens > 1) Emit(next, piece);
      }
      Add(piece, &next);
      const bool still_system = system && role->as_string() == "system";
      next.boundaries.push_back(
          {next.prompt_tokens, still_system ? BoundaryKind::kSystem : BoundaryKind::kMessage});
      system = still_system;
    }
    return OkStatus();
  }

  Status ReadTurns(const JsonValue& turns, const JsonValue* classes) {
    TraceRequest next = NextConversation();
    if (classes && classes->is_array()) {
      for (const JsonValue& name : classes->items()) {
        if (!name.is_string()) continue;
        REPRISE_ASSIGN(const Piece tools, Tools(std::string(name.as_string())));
        Add(tools, &next);
      }
      next.boundaries.push_back({next.prompt_tokens, BoundaryKind::kSystem});
    }
    for (const JsonValue& turn : turns.items()) {
      std::string text = "user:";
      if (turn.is_string()) text += turn.as_string();
      if (turn.is_array()) {
        for (const JsonValue& message : turn.items()) text += MessageText(message);
      }
      REPRISE_ASSIGN(const Piece user, Text(text));
      Add(user, &next);
      next.boundaries.push_back({next.prompt_tokens, BoundaryKind::kMessage});
      REPRISE_ASSIGN(const Piece reply, MadeUp(RandomAt(11, trace_.requests.size()), kMadeUpReply));
      Emit(next, reply);
      Add(reply, &next);
      next.boundaries.push_back({next.prompt_tokens, BoundaryKind::kMessage});
    }
    return OkStatus();
  }

  TraceRequest NextConversation() {
    TraceRequest request;
    request.conversation = conversation_count_++;
    request.time_ms = pace_.start_gap_ms * int64_t{request.conversation};
    return request;
  }

  // The token that a template opens a reply with.
  Status AddOpening(TraceRequest* history) {
    if (opening_.end == 0) {
      REPRISE_ASSIGN(opening_, AddTokens({TokenOf("<assistant>")}));
    }
    Add(opening_, history);
    return OkStatus();
  }

  // The request that asks for `reply` with this history.
  void Emit(TraceRequest& history, Piece reply) {
    TraceRequest request = history;
    request.reply = reply;
    trace_.requests.push_back(std::move(request));
    history.time_ms += Pause();
  }

  // Log-normal, as people are: with the median asked for and the spread of the Mooncake
  // conversations (median 144 s, nine tenths below 570 s).
  int64_t Pause() {
    constexpr double kSpread = 1.07;
    const double radius = std::sqrt(-2 * std::log(1 - double{rng_.Uniform()}));
    const double normal = radius * std::cos(2 * std::numbers::pi * double{rng_.Uniform()});
    return static_cast<int64_t>(double(pace_.turn_gap_ms) * std::exp(kSpread * normal));
  }

  static void Add(Piece piece, TraceRequest* request) {
    if (piece.begin == piece.end) return;
    request->prompt_tokens += static_cast<int32_t>(piece.end - piece.begin);
    if (!request->prompt.empty() && request->prompt.back().end == piece.begin) {
      request->prompt.back().end = piece.end;
    } else {
      request->prompt.push_back(piece);
    }
  }

  static std::string MessageText(const JsonValue& message) {
    std::string text;
    for (const char* name : {"role", "content", "tool_calls"}) {
      const JsonValue* value = message.Find(name);
      if (value == nullptr) continue;
      text += "\n";
      AppendText(*value, &text);
    }
    return text;
  }

  static void AppendText(const JsonValue& value, std::string* text) {
    if (value.is_string()) {
      *text += value.as_string();
    } else if (value.is_array()) {
      for (const JsonValue& item : value.items()) AppendText(item, text);
    } else if (value.is_object()) {
      for (const JsonValue::Member& member : value.members()) {
        *text += member.key;
        AppendText(member.value, text);
      }
    }
  }

  Result<Piece> AddTokens(const std::vector<TokenId>& tokens) {
    if (trace_.pool.size() + tokens.size() > kPoolTokensMax) {
      return ResourceExhausted("holds more than a billion distinct tokens; read fewer requests");
    }
    const auto begin = static_cast<uint32_t>(trace_.pool.size());
    trace_.pool.insert(trace_.pool.end(), tokens.begin(), tokens.end());
    return Piece{begin, static_cast<uint32_t>(trace_.pool.size())};
  }

  // The same text is the same piece: system prompts are stored once.
  Result<Piece> Text(std::string text) {
    const auto [it, added] = texts_.try_emplace(std::move(text));
    if (!added) return it->second;
    std::vector<TokenId> tokens;
    const std::string_view rest = it->first;
    for (size_t i = 0; i < rest.size();) {
      size_t end = i + 1;
      if (rest[i] == ' ' && end < rest.size() && LetterOf(rest[end]) == Letter::kWord) ++end;
      const Letter letter = LetterOf(rest[end - 1]);
      constexpr size_t kPieceMax = 6;  // about what a trained vocabulary averages
      while (letter != Letter::kMark && end < rest.size() && end - i < kPieceMax &&
             LetterOf(rest[end]) == letter) {
        ++end;
      }
      tokens.push_back(TokenOf(rest.substr(i, end - i)));
      i = end;
    }
    REPRISE_ASSIGN(it->second, AddTokens(tokens));
    return it->second;
  }

  Result<Piece> MadeUp(uint64_t seed, int32_t count) {
    std::vector<TokenId> tokens(count);
    for (int32_t i = 0; i < count; ++i) {
      tokens[i] = static_cast<TokenId>(RandomAt(seed, i) & 0x7fffffff);
    }
    return AddTokens(tokens);
  }

  Result<Piece> Tools(const std::string& name) {
    const auto [it, added] = tools_.try_emplace(name);
    if (added) {
      REPRISE_ASSIGN(it->second, MadeUp(std::hash<std::string>()(name), kMadeUpTools));
    }
    return it->second;
  }

  Result<Piece> HashPiece(int64_t hash) {
    const auto [it, added] = hashes_.try_emplace(hash);
    if (added) {
      REPRISE_ASSIGN(it->second, MadeUp(static_cast<uint64_t>(hash) ^ 0xb10c, kHashTokens));
    }
    return it->second;
  }

  Pace pace_;
  Rng rng_;
  size_t request_count_max_;
  Trace trace_;
  uint32_t conversation_count_ = 0;
  int64_t tail_tokens_ = 0;
  Piece opening_;
  std::unordered_map<std::string, Piece> texts_;
  std::unordered_map<std::string, Piece> tools_;
  std::unordered_map<int64_t, Piece> hashes_;
};

}  // namespace

void Trace::PromptOf(const TraceRequest& request, std::vector<TokenId>* tokens) const {
  tokens->clear();
  for (const TraceRequest::Piece& piece : request.prompt) {
    tokens->insert(tokens->end(), pool.begin() + piece.begin, pool.begin() + piece.end);
  }
}

size_t Trace::PromptTokens() const {
  size_t count = 0;
  for (const TraceRequest& request : requests) count += size_t(request.prompt_tokens);
  return count;
}

Result<Trace> ParseTrace(std::string_view jsonl, const Pace& pace, size_t request_count_max) {
  Reader reader(pace, request_count_max);
  REPRISE_TRY(reader.Read(jsonl));
  Trace trace = reader.Take();
  if (trace.requests.empty()) return InvalidArgument("the trace has no requests");
  return trace;
}

Result<Trace> ReadTrace(const std::string& path, const Pace& pace, size_t request_count_max) {
  REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const auto bytes = file.bytes();
  auto trace = ParseTrace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, pace,
                          request_count_max);
  if (!trace.ok()) return trace.status().Annotate(path);
  return trace;
}

}  // namespace reprise
