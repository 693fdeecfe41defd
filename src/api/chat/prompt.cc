// SPDX-License-Identifier: Apache-2.0
#include "api/chat/prompt.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/body.h"
#include "api/chat/placed_turns.h"
#include "base/json_writer.h"
#include "engine/sight/placed_pictures.h"
#include "picture/decode.h"
#include "text/chat_prompt.h"

namespace reprise::api {
namespace {

// A character of the private use area: no prompt goes on with it by chance.
constexpr std::string_view kMark = "\xEE\x80\x80";

// Calls are shown to templates as Hugging Face does: arguments as an object, not as text, unless
// the template wants that.
void WriteCalls(const std::vector<ToolCall>& calls, bool as_text, JsonWriter* json) {
  json->Key("tool_calls").BeginArray();
  for (const ToolCall& call : calls) {
    json->BeginObject();
    if (!call.id.empty()) json->Member("id", call.id);
    json->Member("type", "function").Key("function").BeginObject().Member("name", call.name);
    json->Key("arguments");
    const auto parsed = JsonDocument::Parse(call.arguments, kToolLimits);
    if (!as_text && parsed.ok() && parsed->root().is_object()) {
      json->Value(parsed->root());
    } else {
      json->String(call.arguments);
    }
    json->EndObject().EndObject();
  }
  json->EndArray();
}

// What the model wrote to make these calls, for a template that shows none.
CallText CallsAsText(const ServedModel& model, const std::vector<ToolCall>& calls) {
  if (model.output.calls.empty()) return {};
  std::vector<WrittenCall> written;
  for (const ToolCall& call : calls) written.push_back({call.name, call.id, call.arguments});
  return reprise::WriteCalls(*model.output.calls.front(), written).value_or(CallText());
}

// A turn's content with the calls behind it; the markers around those are no data.
std::string AppendCalls(const ServedModel& model, const ChatTurn& turn,
                        ChatInput::MixedContent* mixed) {
  const CallText calls = CallsAsText(model, turn.calls);
  if (!turn.content.empty()) mixed->data.push_back({0, turn.content.size()});
  for (const TextRange& range : calls.data) {
    mixed->data.push_back({turn.content.size() + range.begin, turn.content.size() + range.end});
  }
  return turn.content + calls.text;
}

// A content with pictures, as templates are shown it: parts in order.
void WriteParts(const ChatTurn& turn, JsonWriter* json) {
  json->BeginArray();
  size_t at = 0;
  const auto text_to = [&](size_t end) {
    if (end > at) {
      json->BeginObject().Member("type", "text");
      json->Member("text", std::string_view(turn.content).substr(at, end - at)).EndObject();
    }
    at = end;
  };
  for (const TurnPicture& picture : turn.pictures) {
    text_to(picture.content_bytes);
    json->BeginObject().Member("type", "image").EndObject();
  }
  text_to(turn.content.size());
  json->EndArray();
}

// The messages as JSON, and what of them is the model's own.
struct FormattedTurns {
  std::string json;
  std::vector<ChatInput::MixedContent> mixed;
};

FormattedTurns FormatTurns(const ServedModel& model, const std::vector<ChatTurn>& turns) {
  FormattedTurns formatted;
  JsonWriter json(&formatted.json);
  json.BeginArray();
  for (size_t i = 0; i < turns.size(); ++i) {
    const ChatTurn& turn = turns[i];
    const CallShape& shape = model.call_shape;
    // What was said between thoughts and calls is one of the thoughts where both are refused.
    const bool apart = !shape.thoughts_alone || turn.calls.empty() || turn.reasoning.empty() ||
                       turn.content.empty();
    json.BeginObject().Member("role", turn.role).Key("content");
    if (!turn.pictures.empty()) {
      WriteParts(turn, &json);
    } else if (!turn.calls.empty() && shape.as_content) {
      formatted.mixed.push_back({i, {}});
      json.String(AppendCalls(model, turn, &formatted.mixed.back()));
    } else if (!turn.calls.empty() && shape.null_content && turn.content.empty()) {
      json.Null();
    } else {
      json.String(apart ? turn.content : std::string_view());
    }
    const std::string& thoughts = turn.reasoning;
    if (!thoughts.empty()) {
      json.Member(shape.thinking_member ? "thinking" : "reasoning_content",
                  apart ? thoughts : thoughts + "\n\n" + turn.content);
    }
    if (!turn.calls.empty()) WriteCalls(turn.calls, shape.string_arguments, &json);
    if (!turn.call_id.empty()) json.Member("tool_call_id", turn.call_id);
    if (!turn.name.empty()) json.Member("name", turn.name);
    json.EndObject();
  }
  json.EndArray();
  return formatted;
}

// Renders conversations that differ in their messages only.
class Renderer {
 public:
  static Result<Renderer> Make(const ServedModel& model, const ChatJob& job,
                               std::function<bool()> abandoned) {
    if (model.chat_template == nullptr) {
      return InvalidArgument("the model '" + model.id +
                             "' has no chat template; use /v1/completions");
    }
    Renderer renderer(model, model.chat_template->MakeMeter(std::move(abandoned)));
    if (!job.tools.empty()) {
      REPRISE_ASSIGN(JsonDocument tools, JsonDocument::Parse(job.tools, kToolLimits));
      renderer.tools_.emplace(std::move(tools));
    }
    if (!job.variables.empty()) {
      REPRISE_ASSIGN(JsonDocument variables, JsonDocument::Parse(job.variables, kToolLimits));
      renderer.variables_.emplace(std::move(variables));
    }
    return renderer;
  }

  Result<RenderedChat> Render(const std::vector<ChatTurn>& turns, bool for_reply,
                              size_t boundaries_max) {
    FormattedTurns formatted = FormatTurns(model_, turns);
    REPRISE_ASSIGN(const JsonDocument messages, JsonDocument::Parse(formatted.json, kBodyLimits));
    ChatInput input;
    input.mixed_contents = std::move(formatted.mixed);
    input.messages = &messages.root();
    input.tools = tools_ ? &tools_->root() : nullptr;
    input.variables = variables_ ? &variables_->root() : nullptr;
    input.special_tokens = model_.special_tokens;
    input.add_generation_prompt = for_reply;
    input.boundary_messages_max = boundaries_max;
    input.meter = &meter_;
    return model_.chat_template->Render(input);
  }

 private:
  Renderer(const ServedModel& model, RenderMeter meter) : model_(model), meter_(std::move(meter)) {}

  const ServedModel& model_;
  RenderMeter meter_;  // of all renders of the request
  std::optional<JsonDocument> tools_;
  std::optional<JsonDocument> variables_;
};

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

// Where in the rendered text a breakpoint lies: with a mark in its place the rendering departs
// there.
std::optional<size_t> FindBreakpoint(const std::vector<ChatTurn>& given, const RenderedChat& chat,
                                     const Breakpoint& breakpoint, Renderer* renderer) {
  if (breakpoint.turn < 0) {
    for (const MessageBoundary& boundary : chat.boundaries) {
      if (boundary.message_count != SIZE_MAX) return boundary.byte_offset;
    }
    return std::nullopt;
  }
  std::vector<ChatTurn> turns = given;
  ChatTurn& marked_turn = turns[static_cast<size_t>(breakpoint.turn)];
  marked_turn.content.insert(breakpoint.content_bytes, kMark);
  for (TurnPicture& picture : marked_turn.pictures) {
    if (picture.content_bytes > breakpoint.content_bytes) picture.content_bytes += kMark.size();
  }
  const auto marked = renderer->Render(turns, true, 0);
  if (!marked.ok()) return std::nullopt;
  const size_t offset = CommonPrefix(chat.text, marked->text);
  return offset < chat.text.size() ? std::optional<size_t>(offset) : std::nullopt;
}

// A conversation that no template would write: the context is what it is too long for.
Status CheckLength(const ServedModel& model, const std::vector<ChatTurn>& turns) {
  const size_t bytes_max = ChatTemplateLimits().output_bytes_max;
  size_t bytes = 0;
  for (const ChatTurn& turn : turns) bytes += turn.content.size();
  if (bytes <= bytes_max) return OkStatus();
  return ResourceExhausted("This model's maximum context length is " +
                           std::to_string(model.context_tokens) +
                           " tokens. However, your messages have " + std::to_string(bytes) +
                           " bytes, and a prompt has at most " + std::to_string(bytes_max) +
                           ". Shorten the conversation.");
}

// Bytes that a byte of the job takes while it is rendered, and one of a text while it is tokenised:
// JSON, values, text, pieces, ids.
constexpr size_t kRenderingBytes = 8;
constexpr size_t kEncodingBytes = 4;
constexpr size_t kBytesPerStep = 8;  // of an account's work; the meter of templates has its own

EncodeMeter MakeMeter(const ServedModel& model, Wanted wanted, Account* account) {
  EncodeMeter meter;
  meter.account = account;
  // What is a little too long is counted, so that clients know how much to leave out.
  if (wanted == Wanted::kWhatFits) meter.ids_max = 2 * static_cast<size_t>(model.context_tokens);
  return meter;
}

void Note(const ServedModel& model, Wanted wanted, size_t id_count, Prompt* prompt) {
  const auto tokens = static_cast<int64_t>(id_count);
  if (wanted == Wanted::kWhatFits && tokens > model.context_tokens) {
    prompt->tokens_too_many = tokens;
  }
}

size_t SystemTurns(const std::vector<ChatTurn>& turns) {
  size_t count = 0;
  while (count < turns.size() && turns[count].role == "system") ++count;
  return count;
}

Status PlaceAll(const ServedModel& model, const std::vector<ChatTurn>& turns, Prompt* prompt) {
  std::vector<std::shared_ptr<const SeenPicture>> pictures;
  for (const ChatTurn& turn : turns) {
    for (const TurnPicture& one : turn.pictures) pictures.push_back(one.picture);
  }
  if (pictures.empty() || prompt->tokens_too_many > 0) return OkStatus();
  return PlacePictures(pictures, model.picture_token, &prompt->ids, &prompt->boundaries,
                       &prompt->pictures);
}

// Decodes the pictures of the job, on its account.
Status SeePictures(const ServedModel& model, ChatJob* job, Account* account) {
  constexpr int64_t kPixelsPerStep = 4;  // decoded and made smaller
  constexpr size_t kPixelBytes = 9;      // of the file's, of those of its width, of the result
  for (ChatTurn& turn : job->turns) {
    for (TurnPicture& one : turn.pictures) {
      if (one.picture != nullptr) continue;
      const PictureLimits limits;
      const auto size = ReadPictureSize(one.file, limits);
      if (!size.ok()) return size.status().Annotate(one.place);
      const int64_t pixels = int64_t{size->width} * size->height;
      REPRISE_TRY(account->Spend(uint64_t(pixels / kPixelsPerStep), "decoding a picture"));
      REPRISE_TRY(account->TakeReading(size_t(pixels) * kPixelBytes, "decoding a picture"));
      auto seen = model.see(one.file, limits);
      if (!seen.ok()) return seen.status().Annotate(one.place);
      one.picture = std::move(*seen);
      one.file = {};
      REPRISE_TRY(account->TakeAnswer(one.picture->pixels.rgb.size(), "a picture"));
    }
  }
  return OkStatus();
}

}  // namespace

Status PlanThinking(const ServedModel& model, ChatJob* job) {
  if (job->thinking.empty()) return OkStatus();
  REPRISE_ASSIGN(const ThinkingPlan plan, model.thinking.Plan(job->thinking, model.output));
  job->variables = MergeVariables(job->variables, plan);
  job->thinking_budget = plan.budget;
  const bool asks = !job->thinking.effort.empty() && job->thinking.effort != "none";
  if (asks && !model.thinking.can_think(model.output)) {
    job->passed_fields.emplace_back("reasoning_effort");
  }
  return OkStatus();
}

size_t BytesOf(const ChatJob& job) {
  size_t bytes = job.tools.size() + job.variables.size() + job.prefill.size();
  for (const ChatTurn& turn : job.turns) {
    bytes += turn.content.size() + turn.reasoning.size();
    for (const ToolCall& call : turn.calls) bytes += call.arguments.size();
  }
  return bytes;
}

Status EncodeText(const ServedModel& model, std::string_view text, EncodeOptions options,
                  Wanted wanted, Account* account, Prompt* prompt) {
  EncodeMeter meter = MakeMeter(model, wanted, account);
  REPRISE_TRY(account->TakeReading(text.size() * kEncodingBytes, "tokenising"));
  REPRISE_TRY(model.tokenizer->Encode(text, options, &prompt->ids, &meter));
  Note(model, wanted, meter.id_count, prompt);
  return OkStatus();
}

Result<Prompt> RenderChat(const ServedModel& model, ChatJob* with_pictures, Account* account,
                          Wanted wanted) {
  constexpr size_t kAllMessages = SIZE_MAX;
  // Marks a boundary as a breakpoint on its way through the encoder.
  constexpr size_t kBreakpointCount = SIZE_MAX;
  Account nobodys;
  if (account == nullptr) account = &nobodys;
  REPRISE_TRY(SeePictures(model, with_pictures, account));
  const ChatJob& job = *with_pictures;
  REPRISE_TRY(CheckLength(model, job.turns));
  REPRISE_TRY(account->TakeReading(BytesOf(job) * kRenderingBytes, "rendering the messages"));
  REPRISE_TRY(account->Spend(BytesOf(job) / kBytesPerStep, "rendering the messages"));
  REPRISE_ASSIGN(Renderer renderer,
                 Renderer::Make(model, job, [account] { return account->abandoned(); }));
  const std::optional<PlacedTurns> placed =
      FitToTemplate(model, job.tools, job.turns, job.cache.breakpoints);
  const std::vector<ChatTurn>& turns = placed ? placed->turns : job.turns;
  REPRISE_ASSIGN(RenderedChat chat, renderer.Render(turns, true, kAllMessages));
  for (const Breakpoint& breakpoint : placed ? placed->breakpoints : job.cache.breakpoints) {
    const auto offset = FindBreakpoint(turns, chat, breakpoint, &renderer);
    if (!offset) continue;
    const auto after = std::lower_bound(
        chat.boundaries.begin(), chat.boundaries.end(), *offset,
        [](const MessageBoundary& boundary, size_t at) { return boundary.byte_offset < at; });
    chat.boundaries.insert(after, {kBreakpointCount, *offset});
  }
  if (!job.prefill.empty()) {
    chat.data.push_back({chat.text.size(), chat.text.size() + job.prefill.size()});
    chat.text += job.prefill;
  }
  REPRISE_ASSIGN(ChatPrompt encoded,
                 model.chat_encoder->Encode(chat, MakeMeter(model, wanted, account)));
  Prompt prompt;
  Note(model, wanted, encoded.id_count, &prompt);
  const size_t system_turns = SystemTurns(turns);
  for (const ChatPrompt::Boundary& boundary : encoded.boundaries) {
    prompt.boundaries.push_back(
        {boundary.position, boundary.message_count == kBreakpointCount ? BoundaryKind::kBreakpoint
                            : boundary.message_count <= system_turns   ? BoundaryKind::kSystem
                                                                       : BoundaryKind::kMessage});
  }
  prompt.ids = std::move(encoded.ids);
  prompt.text = std::move(chat.text);
  REPRISE_TRY(PlaceAll(model, turns, &prompt));
  return prompt;
}

Result<Prompt> PredictNextTurn(const ServedModel& model, const ChatJob& job, const ChatTurn& reply,
                               std::function<bool()> abandoned) {
  REPRISE_ASSIGN(Renderer renderer, Renderer::Make(model, job, std::move(abandoned)));
  std::vector<ChatTurn> turns = job.turns;
  turns.push_back(reply);
  ChatTurn next;
  next.role = reply.calls.empty() ? "user" : "tool";
  if (!reply.calls.empty()) {
    next.call_id = reply.calls.front().id;
    next.name = reply.calls.front().name;
  }
  next.content = "a";
  turns.push_back(next);
  if (auto placed = FitToTemplate(model, job.tools, turns, {})) turns = std::move(placed->turns);
  REPRISE_ASSIGN(RenderedChat chat, renderer.Render(turns, false, 0));
  turns.back().content = kMark;
  REPRISE_ASSIGN(const RenderedChat other, renderer.Render(turns, false, 0));
  Prompt prompt;
  const size_t known = CommonPrefix(chat.text, other.text);
  if (known == 0) return prompt;
  chat.boundaries = {{turns.size() - 1, known}};
  REPRISE_ASSIGN(ChatPrompt encoded, model.chat_encoder->Encode(chat));
  if (encoded.boundaries.empty()) return prompt;
  prompt.ids = std::move(encoded.ids);
  prompt.ids.resize(static_cast<size_t>(encoded.boundaries.front().position));
  prompt.text = chat.text.substr(0, known);
  REPRISE_TRY(PlaceAll(model, turns, &prompt));
  return prompt;
}

}  // namespace reprise::api
