// SPDX-License-Identifier: Apache-2.0
#include "api/chat/next_turn.h"

#include <memory>
#include <utility>

namespace reprise::api {

std::function<void(const Choice&)> PrepareNextTurn(Service* service, const Tenant& tenant,
                                                   ChatJob job) {
  if (!service->options().next_turn || !job.cache.write || !job.cache.read) return nullptr;
  if (job.options.max_tokens && *job.options.max_tokens == 0) return nullptr;
  std::string salt = tenant.Namespace(job.cache.salt);
  return [service, salt = std::move(salt), name = tenant.name, weight = tenant.weight,
          job = std::make_shared<const ChatJob>(std::move(job))](const Choice& choice) {
    ChatTurn reply;
    reply.role = "assistant";
    reply.content = job->prefill + choice.content;
    reply.reasoning = choice.reasoning;
    reply.calls = choice.calls;
    // Rendering may take milliseconds: not on the server thread.
    service->RunLater([service, salt, name, weight, job, reply = std::move(reply)] {
      auto prompt =
          PredictNextTurn(service->model(), *job, reply, [service] { return service->draining(); });
      if (!prompt.ok() || prompt->ids.empty()) return;
      GenerateRequest request;
      request.prompt = std::move(prompt->ids);
      request.pictures = std::move(prompt->pictures);
      request.tenant = name;
      request.tenant_weight = weight;
      request.salt = salt;
      request.pin_ms = job->cache.pin_ms;
      request.min_cache_tokens = job->cache.min_tokens;
      request.session = job->cache.session;
      request.cache_low = job->cache.low;
      request.adapter = job->options.adapter;
      request.idle = true;
      // Too long or refused: the next turn computes it then.
      (void)service->engine().Submit(std::move(request)).ok();
    });
  };
}

}  // namespace reprise::api
