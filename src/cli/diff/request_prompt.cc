// SPDX-License-Identifier: Apache-2.0
#include "cli/diff/request_prompt.h"

#include <utility>
#include <vector>

#include "api/anthropic/messages_request.h"
#include "api/body.h"
#include "api/fields.h"
#include "api/openai/params.h"
#include "api/openai/prompts.h"
#include "api/responses/request.h"
#include "api/responses/store.h"
#include "api/service.h"
#include "base/account/account.h"
#include "base/mapped_file.h"

namespace reprise::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{256} << 20;

bool HasBlock(const JsonValue& message, std::string_view type) {
  const JsonValue* content = message.Find("content");
  if (content == nullptr || !content->is_array()) return false;
  for (const JsonValue& block : content->items()) {
    const JsonValue* of = block.Find("type");
    if (of != nullptr && of->is_string() && of->as_string() == type) return true;
  }
  return false;
}

// What only Anthropic's bodies have: instructions beside the messages, schemas of tools under their
// own name, calls and results as blocks. Without any of them both readings give the same prompt.
bool IsAnthropic(const JsonValue& body) {
  if (body.Find("system") != nullptr) return true;
  for (const char* list : {"tools", "messages"}) {
    const JsonValue* values = body.Find(list);
    if (values == nullptr || !values->is_array()) continue;
    for (const JsonValue& value : values->items()) {
      if (value.Find("input_schema") != nullptr) return true;
      if (HasBlock(value, "tool_use") || HasBlock(value, "tool_result")) return true;
    }
  }
  return false;
}

Result<api::Prompt> ReadCompletion(const api::ServedModel& model, api::Fields* fields) {
  Account account;
  std::vector<api::Prompt> prompts;
  api::openai::ReadPrompts(model, true, &account, fields, &prompts);
  if (!fields->ok()) return InvalidArgument(fields->error()->message);
  if (prompts.size() != 1) return InvalidArgument("has more than one prompt; give one");
  return std::move(prompts.front());
}

Result<api::Prompt> ReadChat(const api::ServedModel& model, const JsonValue& body,
                             api::Fields* fields) {
  const api::ServiceOptions limits;
  api::ChatJob job;
  if (body.Find("input") != nullptr) {
    Account account;
    job = api::responses::ReadResponsesRequest(limits, model.vocab_size,
                                               api::responses::ResponseStore(), api::Tenant(),
                                               &account, fields)
              .job;
    if (fields->ok()) REPRISE_TRY(api::PlanThinking(model, &job));
  } else if (IsAnthropic(body)) {
    job = api::anthropic::ReadMessagesRequest(limits, true, fields).job;
    if (fields->ok()) REPRISE_TRY(api::PlanThinking(model, &job));
  } else {
    fields->SetDialect(api::Dialect::kChat);
    api::openai::ReadMessages(limits, fields, &job);
    api::openai::ReadTools(limits, fields, &job);
    api::openai::ReadCacheControl(fields, &job.cache);
    api::openai::ReadThinking(model, fields, &job);
  }
  if (!fields->ok()) return InvalidArgument(fields->error()->message);
  return api::RenderChat(model, &job, nullptr);
}

}  // namespace

Result<RequestPrompt> ReadRequestPrompt(const api::ServedModel& model, const std::string& path) {
  REPRISE_ASSIGN(const std::string text, ReadFile(path, kFileBytesMax));
  auto document = JsonDocument::Parse(text, api::kBodyLimits);
  if (!document.ok()) return document.status().Annotate(path);
  const JsonValue& body = document->root();
  if (!body.is_object())
    return InvalidArgument(path + " is not a JSON object: give the body of a request");
  if (body.Find("messages") == nullptr && body.Find("input") == nullptr &&
      body.Find("prompt") == nullptr) {
    return InvalidArgument(path +
                           " has neither \"messages\" nor \"input\" nor \"prompt\": give the "
                           "body of a request");
  }
  api::Fields fields(body);
  const bool chat = body.Find("prompt") == nullptr;
  auto prompt = chat ? ReadChat(model, body, &fields) : ReadCompletion(model, &fields);
  if (!prompt.ok()) return prompt.status().Annotate(path);
  if (prompt->text.empty()) prompt->text = model.tokenizer->Decode(prompt->ids, true);
  return RequestPrompt{std::move(*document), std::move(*prompt)};
}

}  // namespace reprise::cli
