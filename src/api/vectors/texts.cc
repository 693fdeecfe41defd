// SPDX-License-Identifier: Apache-2.0
#include "api/vectors/texts.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "api/chat/prompt.h"

namespace reprise::api::vectors {
namespace {

// The tokenizer's own token at the end, which stands for the text, stays.
void Cut(const ServedModel& model, std::vector<TokenId>* ids) {
  const size_t room = static_cast<size_t>(model.context_tokens);
  if (ids->size() <= room) return;
  const TokenId last = ids->back();
  ids->resize(room);
  if (model.tokenizer->IsSpecial(last)) ids->back() = last;
}

bool IsTokenList(const JsonValue& value) {
  return value.is_array() && !value.items().empty() && value.items().front().is_int();
}

void ReadText(const ServedModel& model, std::string_view name, const JsonValue& value,
              Wanted wanted, Account* account, Fields* fields, std::vector<TokenId>* ids) {
  if (value.is_string()) {
    Prompt prompt;
    const Status encoded =
        EncodeText(model, value.as_string(), {true, false}, wanted, account, &prompt);
    if (!encoded.ok()) return fields->Fail(name, "cannot be read: " + encoded.message());
    if (prompt.tokens_too_many > 0) {
      return fields->Fail(name,
                          fmt::format("has a text of about {} tokens, and this model's maximum "
                                      "context length is {} tokens; shorten it, or serve the model "
                                      "with a larger --context",
                                      prompt.tokens_too_many, model.context_tokens),
                          "context_length_exceeded");
    }
    *ids = std::move(prompt.ids);
  } else if (IsTokenList(value)) {
    for (const JsonValue& id : value.items()) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.vocab_size) {
        return fields->Fail(name, "must have token ids of the vocabulary only");
      }
      ids->push_back(static_cast<TokenId>(id.as_int()));
    }
  } else {
    return fields->Fail(name, "must be a string, an array of strings, or token ids");
  }
  if (ids->empty()) fields->Fail(name, "must not be empty");
}

}  // namespace

ApiError TextTooLong(const ServedModel& model, int64_t tokens) {
  return {400,
          fmt::format("This model's maximum context length is {} tokens. However, one of your "
                      "texts has {}. Shorten it, or serve the model with a larger --context.",
                      model.context_tokens, tokens),
          "input", "context_length_exceeded"};
}

void ReadTexts(const ServedModel& model, std::string_view name, bool cut, Account* account,
               Fields* fields, std::vector<std::vector<TokenId>>* texts) {
  const JsonValue* input = fields->Find(name);
  if (input == nullptr) return fields->Fail(name, "is required");
  const auto read = [&](const JsonValue& value) {
    const Wanted wanted = cut ? Wanted::kAll : Wanted::kWhatFits;
    ReadText(model, name, value, wanted, account, fields, &texts->emplace_back());
    if (cut) Cut(model, &texts->back());
    const size_t bytes = texts->back().size() * sizeof(TokenId);
    const Status room = account->TakeAnswer(bytes, "the texts");
    if (!room.ok()) fields->Fail(name, "cannot be read: " + room.message());
  };
  if (!input->is_array() || IsTokenList(*input)) return read(*input);
  if (input->items().empty()) return fields->Fail(name, "must not be empty");
  if (input->items().size() > kTextsMax) {
    return fields->Fail(name, "must have at most " + std::to_string(kTextsMax) + " items");
  }
  for (const JsonValue& item : input->items()) {
    if (fields->ok()) read(item);
  }
}

std::vector<float> Normalised(std::vector<float> vector, int32_t dimensions) {
  if (dimensions > 0 && static_cast<size_t>(dimensions) < vector.size()) {
    vector.resize(static_cast<size_t>(dimensions));
  }
  double squares = 0;
  for (const float value : vector) squares += double{value} * double{value};
  const double length = std::sqrt(squares);
  if (length == 0) return vector;
  for (float& value : vector) value = static_cast<float>(double{value} / length);
  return vector;
}

std::string BytesOf(const std::vector<float>& vector) {
  std::string bytes;
  bytes.reserve(vector.size() * sizeof(float));
  for (const float value : vector) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift & 0xFFu);
  }
  return bytes;
}

}  // namespace reprise::api::vectors
