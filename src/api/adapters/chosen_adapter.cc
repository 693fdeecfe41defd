// SPDX-License-Identifier: Apache-2.0
#include "api/adapters/chosen_adapter.h"

#include <string>
#include <utility>

namespace reprise::api {
namespace {

constexpr size_t kNameBytesMax = 1024;

ApiError Wrong(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
      return {404, status.message(), "lora", "model_not_found"};
    case StatusCode::kResourceExhausted:
      return {503, status.message()};
    default:
      return {400, status.message(), "lora"};
  }
}

// The one adapter of a list whose scale is not zero.
struct Wish {
  int64_t id = 0;
  double scale = 0;
};
Wish ReadWish(const JsonValue& list, Fields* fields) {
  Wish wish;
  for (const JsonValue& one : list.items()) {
    const JsonValue* id = one.Find("id");
    const JsonValue* scale = one.Find("scale");
    if (id == nullptr || !id->is_int() || scale == nullptr || !scale->is_number()) {
      fields->Fail("lora", "must be a list of {\"id\": NUMBER, \"scale\": NUMBER}");
      return wish;
    }
    if (scale->as_double() == 0) continue;
    if (wish.scale != 0) {
      fields->Fail("lora", "may have one adapter whose scale is not 0", "unsupported_value");
    }
    wish = {id->as_int(), scale->as_double()};
  }
  return wish;
}

}  // namespace

std::optional<ApiError> ChooseAdapter(const ServedModel& model, std::string_view name,
                                      Fields* fields, ReplyOptions* options) {
  constexpr size_t kWishesMax = 1024;
  AdapterShelf* const shelf = model.adapters;
  if (shelf == nullptr || !fields->ok()) return std::nullopt;
  Wish wish;
  if (const auto set = shelf->default_adapter()) wish = {set->first, set->second};
  const JsonValue* list = fields->Array("lora", kWishesMax);
  if (list != nullptr) wish = ReadWish(*list, fields);
  if (!fields->ok()) return fields->error();
  const bool named = !name.empty() && shelf->Has(name);
  if (!named && wish.scale == 0) return std::nullopt;
  if (named && list != nullptr && wish.scale != 0) {
    return ApiError{400, "name an adapter as the model, or with lora, not both", "lora"};
  }
  auto adapter = named ? shelf->Take(name) : shelf->Take(wish.id, wish.scale);
  if (!adapter.ok()) return Wrong(adapter.status());
  options->adapter = std::move(*adapter);
  if (named) options->adapter_name = std::string(name);
  return std::nullopt;
}

std::optional<ApiError> ChooseAdapter(const ServedModel& model, Fields* fields,
                                      ReplyOptions* options) {
  std::string name;
  fields->Read("model", kNameBytesMax, &name);
  return ChooseAdapter(model, name, fields, options);
}

}  // namespace reprise::api
