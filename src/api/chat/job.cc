// SPDX-License-Identifier: Apache-2.0
#include "api/chat/job.h"

#include <utility>

#include "base/check.h"

namespace reprise::api {

void ReadSnapKv(Fields* fields, std::optional<SnapKv>* snapkv) {
  const JsonValue* found = fields->Find("snapkv");
  if (found == nullptr) return;
  SnapKv options;
  if (found->is_bool() && !found->as_bool()) {
    *snapkv = options;
    return;
  }
  if (!found->is_object()) {
    return fields->Fail("snapkv", "must be false, or an object with a budget");
  }
  Fields part(*found, "snapkv.");
  const JsonValue* budget = part.Find("budget");
  if (budget == nullptr) {
    part.Fail("budget", "is required: tokens, or a share of the prompt below 1");
  } else if (budget->is_number() && budget->as_double() > 0 && budget->as_double() < 1) {
    options.share = budget->as_double();
  } else {
    part.Read("budget", 1, INT32_MAX, &options.budget);
  }
  part.Read("window", 1, kSnapKvWindowMax, &options.window);
  if (!part.Unread().empty()) fields->Fail("snapkv", "has budget and window, and nothing else");
  fields->Take(part);
  *snapkv = options;
}

void ReadSpeculate(Fields* fields, std::optional<Speculate>* speculate) {
  const JsonValue* found = fields->Find("speculate");
  if (found == nullptr) return;
  if (found->is_bool()) {
    *speculate = found->as_bool() ? Speculate::kAuto : Speculate::kOff;
    return;
  }
  const std::string_view name = found->is_string() ? found->as_string() : std::string_view();
  const std::optional<Speculate> mode = FindSpeculate(name);
  if (!mode) return fields->Fail("speculate", "must be auto, off, tree, ngram, mtp or draft");
  *speculate = *mode;
}

void ReadPrediction(Fields* fields, std::string* prediction) {
  constexpr size_t kPartsMax = 1024;
  const JsonValue* found = fields->Object("prediction");
  if (found == nullptr) return;
  Fields part(*found, "prediction.");
  std::string type = "content";
  part.Read("type", 32, &type);
  if (type != "content") part.Fail("type", "must be content");
  const JsonValue* content = part.Find("content");
  if (content != nullptr && content->is_string()) {
    *prediction = std::string(content->as_string());
  } else if (const JsonValue* texts = part.Array("content", kPartsMax)) {
    for (const JsonValue& one : texts->items()) {
      const JsonValue* text = one.is_object() ? one.Find("text") : nullptr;
      if (text == nullptr || !text->is_string()) {
        part.Fail("content", "must be a text, or a list of parts with a text each");
        break;
      }
      *prediction += text->as_string();
    }
  }
  fields->Take(part);
}

void ReadStorePermission(Fields* fields, CacheControl* cache) {
  const JsonValue* found = fields->Object("cache");
  if (found == nullptr) return;
  Fields part(*found, "cache.");
  bool store = true;
  part.Read("store", &store);
  std::string priority = "normal";
  part.Read("priority", 16, &priority);
  if (priority != "normal" && priority != "low") part.Fail("priority", "must be normal or low");
  cache->low = priority == "low";
  if (!part.Unread().empty()) fields->Fail("cache", "has store and priority, and nothing else");
  fields->Take(part);
  if (store) return;
  cache->forget = true;
  cache->write = false;
  cache->pin_ms = 0;
}

void NotePassed(const Fields& fields, ChatJob* job) {
  job->passed_fields.insert(job->passed_fields.end(), fields.passed().begin(),
                            fields.passed().end());
}

void ContinueLastTurn(ChatJob* job) {
  CHECK(job->turns.size() >= 2 && job->turns.back().role == "assistant");
  job->prefill = std::move(job->turns.back().content);
  job->turns.pop_back();
  if (!job->thinking.enabled) job->thinking.enabled = false;
}

}  // namespace reprise::api
