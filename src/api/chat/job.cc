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

void ReadStorePermission(Fields* fields, CacheControl* cache) {
  const JsonValue* found = fields->Object("cache");
  if (found == nullptr) return;
  Fields part(*found, "cache.");
  bool store = true;
  part.Read("store", &store);
  if (!part.Unread().empty()) fields->Fail("cache", "has store, and nothing else");
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
