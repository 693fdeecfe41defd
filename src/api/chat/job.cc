// SPDX-License-Identifier: Apache-2.0
#include "api/chat/job.h"

#include <utility>

#include "base/check.h"

namespace reprise::api {

void ContinueLastTurn(ChatJob* job) {
  CHECK(job->turns.size() >= 2 && job->turns.back().role == "assistant");
  job->prefill = std::move(job->turns.back().content);
  job->turns.pop_back();
  if (!job->thinking.enabled) job->thinking.enabled = false;
}

}  // namespace reprise::api
