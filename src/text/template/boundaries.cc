// SPDX-License-Identifier: Apache-2.0
#include "text/template/boundaries.h"

#include <algorithm>
#include <optional>

namespace reprise {
namespace {

using jinja::Value;

// The continuations that Prober::Continue makes, and whether they end with a generation prompt:
// those that end with a user's message do.
constexpr int kContinuations = 7;
constexpr size_t kBytesPerStep = 64;
constexpr bool kWithPrompt[kContinuations] = {false, true, true, true, false, true, false};

Value Text(std::string_view text) { return Value::String(std::string(text), jinja::Origin::kData); }

// A character for the probes' contents that the rendering does not contain, so that they depart
// from it at once: of the private use area, three bytes long.
std::string UnusedCharacter(std::string_view text) {
  std::string probe = "\xEE\x80\x80";
  for (int low = 0; low < 64; ++low) {
    probe[2] = static_cast<char>(0x80 + low);
    if (text.find(probe) == std::string_view::npos) break;
  }
  return probe;
}

const Value* Member(const Value& object, std::string_view key) {
  return object.is_dict() ? object.dict().Find(key) : nullptr;
}

std::string_view RoleOf(const Value& message) {
  const Value* role = Member(message, "role");
  return role != nullptr && role->is_string() ? role->as_string() : std::string_view();
}

// The id of the last tool call before the cut: a tool's result must name one.
Value LastCallId(const Value::Items& messages, size_t cut) {
  for (size_t i = cut; i-- > 0;) {
    const Value* calls = Member(messages[i], "tool_calls");
    if (calls == nullptr || !calls->is_list() || calls->items().empty()) continue;
    const Value* id = Member(calls->items().back(), "id");
    if (id != nullptr && id->is_string()) return *id;
    break;
  }
  return Text("call00000");
}

class Prober {
 public:
  Prober(const BoundarySearch& search, std::string_view text, const Value& messages)
      : search_(search),
        text_(text),
        messages_(messages.items()),
        content_(Text(UnusedCharacter(text))),
        steps_end_(search.meter->steps() + search.steps_max) {}

  // The boundary after the first `cut` messages; at most `limit`. Nothing if the search has used
  // its share: then it is over.
  std::optional<size_t> Find(size_t cut, size_t limit) {
    size_t offset = limit;
    bool any = false;
    for (int i = 0; i < kContinuations; ++i) {
      if (search_.meter->steps() >= steps_end_ || search_.meter->exhausted()) return std::nullopt;
      search_.meter->Charge(1 + cut + text_.size() / kBytesPerStep);  // to make and to compare it
      Value::Items messages(messages_.begin(), messages_.begin() + static_cast<ptrdiff_t>(cut));
      Continue(i, cut, &messages);
      const Result<std::string> other =
          search_.render(Value::List(std::move(messages)), kWithPrompt[i]);
      if (!other.ok()) {
        // Stopped half-way: nothing is known of this cut. Else the template refused it.
        const StatusCode code = other.status().code();
        if (code == StatusCode::kResourceExhausted || code == StatusCode::kCancelled) {
          return std::nullopt;
        }
        continue;
      }
      any = true;
      const auto departs = std::mismatch(text_.begin(), text_.end(), other->begin(), other->end());
      offset = std::min(offset, static_cast<size_t>(departs.first - text_.begin()));
    }
    if (!any) return 0;  // nothing to compare with: nothing is known
    while (offset > 0 && offset < text_.size() &&
           (static_cast<unsigned char>(text_[offset]) & 0xC0) == 0x80) {
      --offset;  // to the start of a character
    }
    return offset;
  }

 private:
  Value Message(std::string_view role) const {
    return Value::OfPairs({{Text("role"), Text(role)}, {Text("content"), content_}});
  }

  Value ToolResult(size_t cut) const {
    return Value::OfPairs({{Text("role"), Text("tool")},
                           {Text("tool_call_id"), LastCallId(messages_, cut)},
                           {Text("name"), content_},
                           {Text("content"), content_}});
  }

  Value ToolCall() const {
    const Value function =
        Value::OfPairs({{Text("name"), content_}, {Text("arguments"), Value::OfPairs({})}});
    const Value call = Value::OfPairs({{Text("id"), Text("call00000")},
                                       {Text("type"), Text("function")},
                                       {Text("function"), function}});
    return Value::OfPairs({{Text("role"), Text("assistant")},
                           {Text("content"), Text("")},
                           {Text("tool_calls"), Value::List({call})}});
  }

  void Continue(int which, size_t cut, Value::Items* messages) const {
    switch (which) {
      case 0:  // the end, without a generation prompt: nothing of the next message is counted in
      case 1:  // the end, with one
        return;
      case 2:
        messages->push_back(Message("user"));
        return;
      case 3:
        messages->push_back(Message("assistant"));
        messages->push_back(Message("user"));
        return;
      case 4:
        messages->push_back(ToolResult(cut));
        return;
      case 5:
        messages->push_back(ToolResult(cut));
        messages->push_back(Message("assistant"));
        messages->push_back(Message("user"));
        return;
      default:
        messages->push_back(ToolCall());
        messages->push_back(ToolResult(cut));
        return;
    }
  }

  const BoundarySearch& search_;
  const std::string_view text_;
  const Value::Items& messages_;
  const Value content_;
  const uint64_t steps_end_;
};

}  // namespace

std::vector<MessageBoundary> FindBoundaries(const BoundarySearch& search, std::string_view text,
                                            const Value& messages) {
  if (search.messages_max == 0 || !messages.is_list()) return {};
  const Value::Items& items = messages.items();
  size_t leading = 0;
  while (leading < items.size() &&
         (RoleOf(items[leading]) == "system" || RoleOf(items[leading]) == "developer")) {
    ++leading;
  }
  Prober prober(search, text, messages);
  const std::optional<size_t> system = prober.Find(leading, text.size());
  if (!system) return {};
  // From the last message backwards, as these are worth most.
  std::vector<MessageBoundary> found;
  size_t limit = text.size();
  const size_t first =
      items.size() - leading > search.messages_max ? items.size() - search.messages_max : leading;
  for (size_t cut = items.size(); cut > first; --cut) {
    const std::optional<size_t> offset = prober.Find(cut, limit);
    if (!offset) break;
    limit = *offset;
    found.push_back({cut, limit});
  }
  found.push_back({leading, std::min(*system, limit)});
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace reprise
